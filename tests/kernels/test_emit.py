"""The object of a Program: contents, undefined symbols, and what it shares with other objects."""

import ctypes
import ctypes.util
import dataclasses
import re
import shutil
import subprocess

import numpy as np
import pytest

from edgetrain.errors import UnsupportedOpError
from edgetrain.kernels import targets
from edgetrain.kernels.cache import jit, load
from edgetrain.kernels.emission import builtins, objects
from edgetrain.kernels.emission import program as emit
from edgetrain.kernels.emission.tape import table_of
from edgetrain.kernels.linking.elf import exported, sections, undefined
from edgetrain.kernels.tapes.decode import bound, decode
from tests.digits_runs import digits_program

TEXT = """
declare void @et_drive_train__plain(i64, i64, i64, i64)
@table = external constant i8
define ptr @{0}_table() {{
  ret ptr @table
}}
define void @{0}_train(ptr %args) {{
  %a = ptrtoint ptr %args to i64
  call void @et_drive_train__plain(i64 0, i64 %a, i64 0, i64 1)
  ret void
}}
"""


@pytest.fixture(scope="module")
def program():
    return digits_program(target="cortex-m7")


def built(program, name: str, prefix: str = "net", size: bool = True) -> emit.Library:
    exports = (f"{prefix}_train", f"{prefix}_table")
    return emit.library(
        program, targets.get(name), step_loop=("drive_train", "run_tape"), text=TEXT.format(prefix),
        exports=exports, size=size,
    )  # fmt: skip


def test_identical_instructions_are_one_function(program):
    table = table_of(program)
    assert len(set(table.instructions)) == len(table.instructions)
    assert table.lengths() == emit.tape_lengths(program)
    assert emit.entries(program) == len(table.entries)


def test_small_instructions_that_follow_each_other_are_one_function(program):
    table, kernels = table_of(program), bound(program.kernels)
    most = max(one.work for one in table.instructions) // 16
    for tape, numbers in table.numbers.items():
        run = [k for number in numbers for k in table.entries[number]]
        decoded = decode(program.tapes[tape].tolist(), kernels)
        assert [table.kernels[table.instructions[k].kernel] for k in run] == [
            (one.kernel, one.storages) for one in decoded
        ]
    groups = [group for group in table.entries if len(group) > 1]
    assert groups and len(table.numbers["update"]) < 6
    assert all(sum(table.instructions[k].work for k in g) <= 4 * most for g in groups)
    threads = table_of(dataclasses.replace(program, threads=2))
    assert all(len(group) == 1 for group in threads.entries)


@pytest.mark.parametrize("name", ["host", "cortex-m4"])
def test_a_library_refers_to_nothing_and_shows_its_exports(program, name):
    library = built(program, name)
    assert undefined(library.code) == set()
    # nothing else is exported, so two nets can be linked into one firmware
    assert exported(library.code) == {"net_train", "net_table"}
    assert library.sizes == sections(library.code) and ".text" in library.sizes
    assert library.lengths["micro"] == 16 * len(table_of(program).numbers["micro"])


def test_the_same_library_has_the_same_bytes(program):
    assert built(program, "cortex-m7").code == built(program, "cortex-m7").code


def test_what_a_target_lacks_is_named(program, monkeypatch):
    monkeypatch.setattr(builtins, "BUILTINS", {})
    with pytest.raises(UnsupportedOpError, match=r"target cortex-m4: .*__aeabi"):
        built(program, "cortex-m4")


WHOLE = {"floorf": np.floor, "ceilf": np.ceil, "rintf": np.rint}


@pytest.mark.parametrize("symbol", WHOLE)
def test_whole_numbers_of_own_functions_are_numpys(symbol):
    text, *_ = builtins.builtins_text({symbol}, targets.get("host"))
    text += (
        f"define void @et_{symbol}(i64 %out, i64 %in, i64 %thread, i64 %nthreads) {{\n"
        "  %p = inttoptr i64 %in to ptr\n  %q = inttoptr i64 %out to ptr\n"
        f"  %x = load float, ptr %p\n  %y = call float @{symbol}(float %x)\n"
        "  store float %y, ptr %q\n  ret void\n}\n"
    )
    code = objects.emit_object(text, jit.host(), objects.HOST)
    address = load.opened([code], [f"et_{symbol}"])[f"et_{symbol}"]
    run = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)(address)
    draw = np.random.default_rng(0)
    tiny = np.float32(1e-45)
    given = np.concatenate([
        draw.standard_normal(200, np.float32) * 10, np.arange(-5, 5, 0.5, np.float32),
        np.float32([0.0, -0.0, tiny, -tiny, 8388607.5, -8388607.5, 2**23, -(2**31), 3e38,
                    np.inf, -np.inf, np.nan, 0.49999997]),
    ])  # fmt: skip
    found = np.zeros_like(given)
    for k in range(len(given)):
        run(found[k:].ctypes.data, given[k:].ctypes.data, 0, 1)
    assert found.tobytes() == WHOLE[symbol](given).tobytes()


def test_a_fused_multiply_add_of_own_functions_is_the_systems():
    text, *_ = builtins.builtins_text({"fmaf"}, targets.get("host"))
    text += (
        "define void @et_own_fma(i64 %out, i64 %in, i64 %thread, i64 %nthreads) {\n"
        "  %p = inttoptr i64 %in to ptr\n  %q = inttoptr i64 %out to ptr\n"
        "  %pb = getelementptr float, ptr %p, i64 1\n  %pc = getelementptr float, ptr %p, i64 2\n"
        "  %a = load float, ptr %p\n  %b = load float, ptr %pb\n  %c = load float, ptr %pc\n"
        "  %y = call float @fmaf(float %a, float %b, float %c)\n"
        "  store float %y, ptr %q\n  ret void\n}\n"
    )
    code = objects.emit_object(text, jit.host(), objects.HOST)
    address = load.opened([code], ["et_own_fma"])["et_own_fma"]
    run = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)(address)
    system = ctypes.CDLL(ctypes.util.find_library("m")).fmaf
    system.restype, system.argtypes = ctypes.c_float, [ctypes.c_float] * 3
    draw = np.random.default_rng(0)
    bits = draw.integers(0, 2**32, (20_000, 3), np.uint32)
    # Few mantissa bits and close exponents: sums halfway between two numbers, and subnormals.
    halfway = (bits[:5000] & 0x83F80000) | draw.integers(0x30, 0x48, (5000, 3), np.uint32) << 24
    ones = np.float32([[1 + 2**-12, 1 + 2**-12, 2**-60], [1 + 2**-12, 1 + 2**-12, -(2**-60)]])
    tiny = np.float32(draw.standard_normal((2000, 3)) * [1e-20, 1e-20, 1e-41])
    given = np.concatenate([bits.view(np.float32), halfway.view(np.float32), ones, tiny])
    given = np.ascontiguousarray(given, np.float32)
    found = np.zeros(len(given), np.float32)
    for k in range(len(given)):
        run(found[k:].ctypes.data, given[k:].ctypes.data, 0, 1)
    with np.errstate(all="ignore"):
        wanted = np.float32([system(*row) for row in given.tolist()])
    np.testing.assert_array_equal(found, wanted)  # any NaN equals any NaN


@pytest.mark.parametrize("target", ["armv7", "riscv64"])
def test_our_own_functions_make_an_object_for_others_to_link(target: str) -> None:
    found = emit.functions({"__truncsfhf2"}, targets.TARGETS[target])
    assert "__truncsfhf2" in exported(found) and not undefined(found)


@pytest.mark.skipif(not shutil.which("aarch64-linux-gnu-objdump"), reason="no disassembler here")
def test_code_for_aarch64_leaves_x18_to_the_system(tmp_path):
    made = built(digits_program(target="aarch64"), "aarch64", size=False)
    (tmp_path / "net.o").write_bytes(made.code)
    command = ["aarch64-linux-gnu-objdump", "-d", "--no-show-raw-insn", str(tmp_path / "net.o")]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert sum("x17" in line for line in lines) > 100
    assert [line for line in lines if re.search(r"\b[wx]18\b", line)] == []
