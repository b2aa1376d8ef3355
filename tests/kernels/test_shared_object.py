"""Objects linked to a shared library: file structure, and what its code computes."""

import ctypes
import itertools
import struct
import subprocess
from shutil import which

import numpy as np
import pytest

from edgetrain.errors import RunError, UnsupportedOpError
from edgetrain.kernels import registry
from edgetrain.kernels.cache import jit, load
from edgetrain.kernels.emission import objects
from edgetrain.kernels.linking.relocatable import Relocatable
from edgetrain.kernels.linking.relocate import AARCH64, MACHINES
from edgetrain.kernels.linking.relocate import X86_64 as X86_64_MACHINE
from edgetrain.kernels.linking.shared_object import shared_object

ENTRY = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)
X86_64 = jit.Target("x86_64-unknown-linux-gnu", "x86-64-v3", "", 8)
TARGETS = {"x86_64": X86_64, "aarch64": jit.AARCH64}
NEEDS_HOST = pytest.mark.skipif(
    not jit.host().triple.startswith(("x86_64", "aarch64")) or "linux" not in jit.host().triple,
    reason="ELF files are made for x86-64 and AArch64 Linux",
)
# A table of constants, of which the code loads one, and room for a call of an undefined function.
TEXT = """
@{name}.table = {kind} constant [4 x i64] [i64 {value}, i64 7, i64 11, i64 13], align 64
declare ptr @memset(ptr, i32, i64)
define void @et_{name}(i64 %base, i64 %args, i64 %thread, i64 %nthreads) {{
  %p = inttoptr i64 %args to ptr
  %k = load i64, ptr %p
  %q = getelementptr [4 x i64], ptr @{name}.table, i64 0, i64 %k
  %v = load i64, ptr %q
  %out = inttoptr i64 %base to ptr
  {fill}
  store i64 %v, ptr %out
  ret void
}}
"""
# An unknown length, so that it stays a call.
FILL = "%n = add i64 %k, 16\n  %m = call ptr @memset(ptr %out, i32 255, i64 %n)"
POINTERS = """
@one = internal constant i64 41, align 8
@two = internal constant i64 42, align 8
@places = internal constant [2 x ptr] [ptr @one, ptr @two], align 8
define void @et_pointers(i64 %base, i64 %args, i64 %thread, i64 %nthreads) {
  %p = inttoptr i64 %args to ptr
  %k = load i64, ptr %p
  %q = getelementptr [2 x ptr], ptr @places, i64 0, i64 %k
  %r = load ptr, ptr %q
  %v = load i64, ptr %r
  %out = inttoptr i64 %base to ptr
  store i64 %v, ptr %out
  ret void
}
"""


def made(name: str, value: int, fill: str = "", target: jit.Target | None = None) -> bytes:
    text = TEXT.format(name=name, value=value, fill=fill, kind="internal")
    return objects.emit_object(text, target or jit.host(), objects.HOST)


def opened(code: bytes, tmp_path) -> ctypes.CDLL:
    path = tmp_path / "lib.so"
    path.write_bytes(code)
    return ctypes.CDLL(str(path))


def called(library: ctypes.CDLL, symbol: str, k: int) -> list[int]:
    out, args = np.zeros(8, np.int64), np.array([k])
    address = ctypes.cast(library[symbol], ctypes.c_void_p).value
    ENTRY(address)(out.ctypes.data, args.ctypes.data, 0, 1)
    return out[:2].tolist()


@NEEDS_HOST
def test_joined_code_finds_its_constants_and_what_the_process_has(tmp_path):
    objects = [made("a", 5), made("b", 6, FILL), made("c", 5)]
    library = opened(shared_object(objects, ["memset"]), tmp_path)
    assert [called(library, f"et_{name}", 0) for name in "abc"] == [[5, 0], [6, -1], [5, 0]]
    assert [called(library, "et_b", k)[0] for k in range(4)] == [6, 7, 11, 13]


@NEEDS_HOST
def test_addresses_in_constants_are_filled_in_by_the_system(tmp_path):
    code = objects.emit_object(POINTERS, jit.host(), objects.HOST)
    library = opened(shared_object([made("a", 5), code]), tmp_path)
    assert [called(library, "et_pointers", k)[0] for k in (0, 1)] == [41, 42]


@pytest.mark.parametrize("target", TARGETS)
def test_equal_code_and_constants_lie_there_once(target):
    one, two = (made(name, 5, target=TARGETS[target]) for name in "ab")
    other = made("b", 6, target=TARGETS[target])
    text = [len(shared_object([one, last])) for last in (two, other)]
    assert text[0] < text[1]


@pytest.mark.parametrize(
    ("machine", "kind", "bits"),
    [(X86_64_MACHINE, 2, 32), (AARCH64, 261, 32), (AARCH64, 274, 21), (AARCH64, 282, 28)],
)
def test_a_distance_fits_its_field_or_is_refused(machine, kind, bits):
    most, fill = 1 << (bits - 1), machine.direct[kind]
    for distance in (-most, most - 4):
        fill(bytearray(4), 0, 2**40, 2**40 + distance)
    for distance in (-most - 4, most):
        with pytest.raises(
            UnsupportedOpError, match=rf"{distance} bytes does not fit in {bits} bits"
        ):
            fill(bytearray(4), 0, 2**40, 2**40 + distance)


@pytest.mark.parametrize(
    ("place", "target", "pages"),
    [(0xFFC, 0x1000, 1), (0x1000, 0xFFC, -1), (0x1FFC, 0x3000, 2), (0x1000, 0x1FFC, 0)],
)
def test_adrp_counts_borders_of_pages_and_not_bytes(place, target, pages):
    code = bytearray(struct.pack("<I", 0x90000010))
    AARCH64.direct[275](code, 0, place, target)
    (word,) = struct.unpack("<I", code)
    found = (word >> 5 & 0x7FFFF) << 2 | word >> 29 & 3
    assert found - (found >> 20 << 21) == pages and word & 0x9F00001F == 0x90000010


@pytest.mark.parametrize(("target", "page"), [("x86_64", 4096), ("aarch64", 65536)])
def test_parts_with_other_rights_share_no_page(target, page):
    """Tested with the largest page size of systems on this processor."""
    code = shared_object([made("a", 5, FILL, TARGETS[target])], ["memset"])
    assert MACHINES[struct.unpack_from("<H", code, 18)[0]].page == page
    (first,), (count,) = struct.unpack_from("<Q", code, 32), struct.unpack_from("<H", code, 56)
    rows = [struct.unpack_from("<IIQQQQQQ", code, first + 56 * k) for k in range(count)]
    loaded = [row for row in rows if row[0] == 1]
    assert len(loaded) == 3 and {row[7] for row in loaded} == {page}
    assert all(row[2] % page == row[3] % page for row in loaded)
    ends = [(row[3] // page, (row[3] + row[6] - 1) // page) for row in loaded]
    assert all(before[1] < after[0] for before, after in itertools.pairwise(ends))


def test_what_no_object_defines_is_refused():
    with pytest.raises(UnsupportedOpError, match="symbol memset: no object"):
        shared_object([made("a", 5, FILL, X86_64)])
    with pytest.raises(UnsupportedOpError, match="et_a is defined twice"):
        shared_object([made("a", 5, "", X86_64), made("a", 6, "", X86_64)])


def test_objects_of_other_processors_are_refused():
    mixed = [made("a", 5, "", target) for target in TARGETS.values()]
    with pytest.raises(UnsupportedOpError, match=r"processors \[62, 183\]"):
        shared_object(mixed)
    narrow = objects.emit_object(
        "define void @et_x() {\n ret void\n}", jit.CORTEX_M7, objects.TARGET
    )
    with pytest.raises(UnsupportedOpError, match="64-bit"):
        shared_object([narrow])


@pytest.mark.skipif(which("readelf") is None, reason="readelf (binutils) is not installed")
@pytest.mark.parametrize("target", TARGETS)
def test_readelf_reads_the_file(target, tmp_path):
    objects = [made("a", 5, "", TARGETS[target]), made("b", 6, FILL, TARGETS[target])]
    path = tmp_path / "lib.so"
    path.write_bytes(shared_object(objects, ["memset"]))
    done = subprocess.run(["readelf", "-aW", str(path)], capture_output=True, text=True, check=True)
    assert not done.stderr and "DYN (Shared object file)" in done.stdout
    for symbol in ("et_a", "et_b"):
        assert any(
            line.split()[3:] == ["FUNC", "GLOBAL", "DEFAULT", "6", symbol]
            for line in done.stdout.splitlines()
            if line.endswith(symbol)
        )
    rights = [line.split()[6:-1] for line in done.stdout.splitlines() if " LOAD " in line]
    assert rights == [["R"], ["R", "E"], ["RW"]]


@pytest.mark.parametrize("target", TARGETS)
def test_kernels_use_no_relocation_that_is_not_known(target):
    """A small kernel of every kind; the wheel builder checks all of them."""
    kernels = [registry.variants(name)[-1] for name in ("loss_total", "sgd", "fill", "run_tape")]
    code = [
        kernel.object(dict.fromkeys(kernel.spec.variables, "f32"), TARGETS[target])
        for kernel in kernels
    ]
    assert all(Relocatable(one).sections for one in code)
    assert len(shared_object(code)) > 2000


@NEEDS_HOST
def test_files_in_memory_have_short_names_however_many_there_were(monkeypatch):
    code = [made("named", 5)]
    monkeypatch.setattr(load, "_count", itertools.count(2**60))
    found = [load.opened(code, ["et_named"])["et_named"] for _ in range(3)]
    assert len(set(found)) == 3


@NEEDS_HOST
def test_a_file_that_the_system_does_not_load_is_named(tmp_path):
    with pytest.raises(RunError, match="refuses to load .*missing.so.*EDGETRAIN_CACHE"):
        load.found(tmp_path / "missing.so", ["et_named"])
