"""Cached code is checked: damage and swaps are noticed, folders others can write to refused."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edgetrain.kernels import registry
from edgetrain.kernels.cache import closures, disk, jit, sources
from edgetrain.kernels.declaration.expression import expression
from edgetrain.kernels.emission import lowering, objects
from edgetrain.kernels.loops import functions
from edgetrain.kernels.loops import text as loop_text

from . import doubled

DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut short": lambda data: data[: len(data) // 2],
    "without its end": lambda data: data[:-1],
    "empty": lambda data: b"",
    "zeros": lambda data: bytes(len(data)),
    "a flipped bit": lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:],
    "a flipped bit of the checksum": lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    "something behind": lambda data: data + b"more",
    "as long as a checksum": lambda data: data[-32:],
}


def found(place: Path, capsys: pytest.CaptureFixture[str]) -> tuple[Path | None, str]:
    """Ask for `place` as the cache; return the directory used and the message on stderr."""
    os.environ["EDGETRAIN_CACHE"] = str(place)
    disk.directory.cache_clear()
    return disk.directory(), capsys.readouterr().err


def test_read_gives_what_was_written_for_the_same_identity_alone(own_cache: Path) -> None:
    disk.write("objects/a.o", "kernel a", b"code of a")
    assert disk.read("objects/a.o", "kernel a") == b"code of a"
    assert disk.read("objects/a.o", "kernel b") is None
    assert disk.read("objects/b.o", "kernel a") is None


@pytest.mark.parametrize("kind", DAMAGE)
def test_read_refuses_damage(own_cache: Path, kind: str) -> None:
    disk.write("objects/a.o", "kernel a", b"code of a" * 20)
    path = own_cache / "objects" / "a.o"
    path.write_bytes(DAMAGE[kind](path.read_bytes()))
    assert disk.read("objects/a.o", "kernel a") is None


def test_read_waits_for_no_pipe_and_takes_no_folder(own_cache: Path) -> None:
    disk.write("objects/a.o", "kernel a", b"code")
    os.mkfifo(own_cache / "objects" / "b.o")
    (own_cache / "objects" / "c.o").mkdir()
    for name in ("objects/b.o", "objects/c.o"):
        assert disk.read(name, "kernel a") is None
    disk.write("objects/c.o", "kernel a", b"code")
    assert sorted(os.listdir(own_cache / "objects")) == ["a.o", "b.o", "c.o"]


def test_read_refuses_a_file_that_others_may_write(own_cache: Path) -> None:
    disk.write("objects/a.o", "kernel a", b"code")
    (own_cache / "objects" / "a.o").chmod(0o666)
    assert disk.read("objects/a.o", "kernel a") is None


def test_write_flushes_before_it_renames(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda *args, name=name, real=real: (calls.append(name), real(*args))
        )
    disk.write("objects/a.o", "kernel a", b"code")
    assert calls == ["fsync", "replace"]


@pytest.mark.parametrize("kind", [*DAMAGE, "files that changed places"])
def test_damaged_objects_are_compiled_again(
    own_cache: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lowering, "llvm_text", lambda symbol, *_: symbol)
    monkeypatch.setattr(objects, "emit_object", lambda text, *_: text.encode() * 8)
    kernels = [registry.variants(name)[0] for name in ("loss_total", "run_tape")]
    whole = [kernel.object({}, jit.host()) for kernel in kernels]
    files = sorted((own_cache / "objects").iterdir())
    sound = [file.read_bytes() for file in files]
    turned = [sound[-1], *sound[:-1]]
    for file, data, other in zip(files, sound, turned, strict=True):
        file.write_bytes(DAMAGE[kind](data) if kind in DAMAGE else other)
    assert [kernel.object({}, jit.host()) for kernel in kernels] == whole
    assert [file.read_bytes() for file in files] == sound


@pytest.mark.parametrize("lost", [0, 1])
def test_an_object_is_found_by_its_code_and_one_that_is_lost_compiled_again(
    own_cache: Path, lost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry has two files: the object, named by its code, and an index from sources to it."""
    (kernel,) = registry.variants("loss_total")[:1]
    whole, compiled = kernel.object({}, jit.host()), []
    files = sorted(
        (own_cache / "objects").iterdir(), key=lambda path: b"ELF" in path.read_bytes()[:8]
    )
    files[lost].unlink()
    make = objects.emit_object
    monkeypatch.setattr(objects, "emit_object", lambda *args: compiled.append(1) or make(*args))
    assert kernel.object({}, jit.host()) == whole and len(files) == 2
    assert len(compiled) == lost


@pytest.mark.parametrize("kind", ["unharmed", "a flipped bit"])
def test_planner_loops_are_kept_and_damaged_ones_compiled_again(
    own_cache: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = []
    make = loop_text.object_of
    monkeypatch.setattr(functions.Unit, "every", [])  # a library has only the package's units
    monkeypatch.setattr(loop_text, "object_of", lambda *args: compiled.append(1) or make(*args))
    for _ in range(2):
        unit = functions.Unit("doubling", __package__, ("doubled",))
        entry = unit.entry(doubled.doubled)
        numbers = doubled.Numbers(np.arange(3), 0.5)
        assert entry(numbers, 2) == doubled.Sums(6, 3.0)
        assert (numbers.values == [0, 2, 4]).all()
        (path,) = (own_cache / "libraries").iterdir()
        if kind in DAMAGE:
            damaged = DAMAGE[kind](path.read_bytes())
            path.unlink()  # loaded files stay mapped
            path.write_bytes(damaged)
    assert len(compiled) == (1 if kind == "unharmed" else 2)


@pytest.mark.parametrize(
    "mode, inside, said",
    [
        (0o700, 0o700, ""),
        (0o755, 0o755, ""),
        (0o777, 0o700, "others may write"),
        (0o1777, 0o700, "others may write"),
        (0o702, 0o700, "others may write"),
        (0o770, 0o700, "others may write"),
        (0o700, 0o777, "others may write"),
    ],
)
def test_directory_that_others_may_write_is_refused(
    own_cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch, mode, inside, said
) -> None:
    monkeypatch.setattr(disk, "_is_own_group", lambda gid: False)
    (own_cache / "objects").mkdir(parents=True)
    (own_cache / "objects").chmod(inside)
    own_cache.chmod(mode)
    folder, warning = found(own_cache, capsys)
    assert (folder is None) == bool(said) and said in warning
    assert warning.count("\n") == bool(said) and ("EDGETRAIN_CACHE" in warning) == bool(said)


def test_directory_of_a_private_group_is_taken(own_cache: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(disk, "_is_own_group", lambda gid: True)
    own_cache.mkdir()
    own_cache.chmod(0o770)
    assert found(own_cache, capsys) == (own_cache.resolve(), "")


def test_directory_below_one_that_others_may_write_is_refused(own_cache: Path, capsys) -> None:
    above = own_cache / "above"
    (above / "cache").mkdir(parents=True)
    above.chmod(0o777)
    assert found(above / "cache", capsys)[0] is None
    above.chmod(0o1777)  # like /tmp: others cannot touch files they do not own
    assert found(above / "cache", capsys)[0] == (above / "cache").resolve()


def test_directory_of_another_user_is_refused(own_cache: Path, capsys, monkeypatch) -> None:
    own_cache.mkdir()
    if os.geteuid():
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    else:
        os.chown(own_cache, 12345, 0)
    folder, warning = found(own_cache, capsys)
    assert folder is None and "another user" in warning


def test_new_directories_are_private_whatever_the_umask(own_cache: Path, capsys) -> None:
    before = os.umask(0)
    try:
        assert found(own_cache / "deep" / "cache", capsys) == ((own_cache / "deep" / "cache"), "")
        disk.write("objects/a.o", "kernel a", b"code")
    finally:
        os.umask(before)
    places = [
        own_cache,
        own_cache / "deep",
        own_cache / "deep/cache",
        own_cache / "deep/cache/objects",
    ]
    assert [place.stat().st_mode & 0o777 for place in places] == [0o700] * 4


_USES_KERNELS = """
from edgetrain.kernels import registry
from edgetrain.kernels.cache import jit
from edgetrain.kernels.cache.load import load
kernel = registry.variants("loss_total")[0]
assert load({kernel.symbol({}): lambda: kernel.object({}, jit.host())})
"""


def test_refused_directory_is_left_alone_and_nothing_stays_behind(tmp_path: Path) -> None:
    shared, scratch = tmp_path / "shared", tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o777)
    scratch.mkdir()
    environment = {**os.environ, "EDGETRAIN_CACHE": str(shared), "TMPDIR": str(scratch)}
    done = subprocess.run(
        [sys.executable, "-c", _USES_KERNELS], env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (0, "", 1), done.stderr
    assert "others may write" in done.stderr
    assert not list(shared.iterdir()) and not list(scratch.iterdir())


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').getpid()", "n.real", "open('x')", "n[0]", "lambda: 1", "[n]", "n ** n",
        "1.5", "min(n)", "min(*n)", "min(n, key=n)", "f'{n}'", "(n := 1)", "n if", "", "n c",
        "n is c", "(n", "n)", "not", "'f16", "n if c > 2", "else", "max(n, 1,)", "(" * 10**5 + "n",
    ],
)  # fmt: skip
def test_expression_refuses_what_is_not_in_the_grammar(text: str) -> None:
    with pytest.raises(ValueError, match="expression"):
        expression(text)


@pytest.mark.parametrize(
    "text",
    [
        "n * c + 3", "n // c - -c % 4", "max(n, 1, c)", "min(n, c) > 0", "0 <= n <= c < 9",
        "n == 6 and c != 3 or not n", "S == 'f16'", "n if c > 4 else c", "(n > 2) == (c > 2)",
        "n if n > 5 else c if n > 2 else -n", "n - c - 1 - (n - c)", "n * c // 2 % 5 * -(-3)",
        "not n > 2 and c > 1 or n == 1", "n + (c if S == 'f32' else 1) * 2",
        "not not n and  c<n<= 7",
    ],
)  # fmt: skip
def test_expression_means_what_python_means(text: str) -> None:
    for n in range(8):
        names = {"n": n, "c": 3, "S": "f16"}
        assert expression(text)(names) == eval(text, dict(names)), names


def test_what_a_kernel_is_made_of_outside_this_package_changes_its_key():
    """Formulas of formats, which make up loads and stores, and a schedule's factor."""
    assert {".formats.fp16", ".formats.bf16", ".formats.coded"} <= {*closures.closure("gemm.fast")}
    of_schedule = {*closures.closure(".optim.schedules.polynomial")}
    made_of = {".optim.schedules.polynomial", ".optim.schedules.kernels", "step_loop.rates"}
    assert made_of <= of_schedule
    assert {".optim.kernels", "optimizers.frame"} <= {*closures.closure(".optim.adam")}


def test_declarations_are_made_again_when_a_format_changes(monkeypatch):
    """Which variants a storage has follows from the formats."""
    before = sources.package_digest.__wrapped__()
    monkeypatch.setattr(sources, "formats", list)
    assert sources.package_digest.__wrapped__() != before
