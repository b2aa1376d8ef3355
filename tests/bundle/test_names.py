"""Prefixes and parameter names with another meaning in C: refused, or kept apart."""

import dataclasses
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from edgetrain.api import bundle
from edgetrain.bundle import names, texts
from edgetrain.bundle.image import image_of
from edgetrain.errors import UsageError
from edgetrain.kernels import targets
from edgetrain.kernels.emission import program as emit

STRICT = (
    "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wundef",
    "-Werror", "-fsyntax-only",
)  # fmt: skip
COMPILERS = [("gcc", "c11", "c"), ("gcc", "gnu11", "c"), ("g++", "c++20", "c++")]
HOSTILE = [
    "memory", "output", "threads", "h", "constant", "step", "values", "param", "x", "x1", "f32",
    "lr", "target", "inputs", "done", "frozen", "param.memory", "a.b", "a_b", "a-b", "a.b.2", "",
    "_", "é", "重み", "int", "errno", "and", "*/", "\\", "??/", "a\nb", "\x1b[2J", "\u202e",
    "A" * 256, "0", "1e9", "__FILE__",
]  # fmt: skip

pytestmark = pytest.mark.skipif(
    any(shutil.which(compiler) is None for compiler, _, _ in COMPILERS), reason="no gcc, g++"
)


@pytest.fixture(scope="module")
def image(program):
    return image_of(program, emit.tape_lengths(program), 0, 8)


def header(image, name: str, values: list[str]) -> str:
    """Generate a header with parameters of these names."""
    slots = [dataclasses.replace(image.values[0], name=value) for value in values]
    return texts.header(name, dataclasses.replace(image, values=tuple(slots)), targets.host())


def complaints(folder: Path, text: str, before: str = "") -> dict[str, str]:
    """Return compiler messages about a header that is included twice, by language standard."""
    (folder / "one.h").write_text(text)
    found = {}
    for compiler, standard, kind in COMPILERS:
        source = folder / f"one.{'c' if kind == 'c' else 'cc'}"
        source.write_text(f'{before}\n#include "one.h"\n#include "one.h"\nint one;\n')
        argv = [compiler, f"-std={standard}", *STRICT, str(source)]
        found[standard] = subprocess.run(argv, capture_output=True, text=True).stderr
    return found


def test_parameters_of_any_name_leave_the_header_as_it_is(image, tmp_path) -> None:
    text = header(image, "two", HOSTILE)
    assert set(complaints(tmp_path, text).values()) == {""}
    assert text.isascii() or not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", text)
    macros = re.findall(r"^#define (\w+)", text, re.M)
    assert len(set(macros)) == len(macros)
    of_values = [macro for macro in macros if macro.startswith("TWO_PARAM")]
    assert len(of_values) == len(HOSTILE) and of_values[:2] == [
        "TWO_PARAM_MEMORY",
        "TWO_PARAM_OUTPUT",
    ]
    assert re.search(rf"#define TWO_MEMORY {texts.memory_nbytes(image)} ", text)


def test_no_name_of_the_header_begins_as_those_of_values_do(image) -> None:
    """This keeps both kinds of names disjoint. Also, `declared` lists all names in the header."""
    text = header(image, "two", [])
    macros = set(re.findall(r"\bTWO_([A-Z]\w*)", text))
    assert not any(macro.startswith(names.PARAMETER) for macro in macros)
    lower, upper = names.declared()
    assert {macro for macro in macros if not re.fullmatch(r"X\d+", macro)} <= upper
    assert set(re.findall(r"\btwo_([a-z]\w*)", re.sub(r"/\*.*?\*/", "", text, flags=re.S))) <= lower


def test_value_names_are_each_their_own() -> None:
    found = names.value_names("n", ["a.b", "a_b", "a.b.2", "a_b_2", "", "-", "a.b"])
    assert len(set(found)) == 7 and all(re.fullmatch(r"N_PARAM(_[A-Z0-9_]+)?", c) for c in found)


WORDS = [
    "asm", "errno", "and", "or", "not", "xor", "compl", "bitand", "int", "main", "class", "concept",
    "co_await", "restrict", "inline", "nullptr", "typeof", "constexpr", "thread_local", "std",
    "posix", "linux", "unix", "stdin", "printf", "read", "open", "time", "exp", "index", "memcpy",
    "signal", "environ", "uint", "ushort", "sched", "sem", "pthread_attr", "map", "math", "string",
    "stdio", "errno", "wchar", "size_t", "my_t", "a__b", "a_", "_a", "9a", "A", "", "a" * 32,
    "clean", "makefile", "gnumakefile", "all",
    "check", "samples", "weights", "report", "memory", "board", "fill", "store", "value", "é",
]  # fmt: skip


@pytest.mark.parametrize("name", WORDS)
def test_prefixes_with_a_meaning_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="Choose (one|another) with --name") as caught:
        names.check_prefix(name)
    assert str(caught.value).startswith(f"name {name!r}:")


@pytest.mark.parametrize("name", ["time", "int", "clean", "my_t", "train_data", "a" * 31])
def test_names_of_modules_need_no_meaning_in_c(name: str) -> None:
    names.check_name(name)


@pytest.mark.parametrize("name", ["Time", "9a", "a_", "a__b", "", "a" * 32, "../a", "é"])
def test_names_that_files_cannot_have_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="expected a letter and at most 30 more"):
        names.check_name(name)


@pytest.mark.parametrize("name", ["net", "digits", "h", "a1_b2", "cnn", "lstm", "model", "a" * 31])
def test_prefixes_that_are_taken_compile_among_the_system_s_headers(image, tmp_path, name) -> None:
    names.check_prefix(name)
    system = "".join(f"#include <{file}.h>\n" for file in ("stdio", "stdlib", "string", "unistd",
        "fcntl", "pthread", "sched", "time", "math", "errno", "signal", "semaphore"))  # fmt: skip
    assert set(complaints(tmp_path, header(image, name, HOSTILE), system).values()) == {""}


@pytest.mark.parametrize("name", ["h", "model", "abcdefghijk_w"])
def test_a_bundle_of_such_a_prefix_runs(program, tmp_path, name: str) -> None:
    manifest = bundle(program, tmp_path, name=name)
    subprocess.run(["make", "CC=gcc -Werror"], cwd=tmp_path, check=True, capture_output=True)
    argv = [tmp_path / name, "check"]
    done = subprocess.run(argv, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == manifest["check"]["digest"]


@pytest.mark.parametrize("name", ["a_param", "a_param_b"])
def test_prefixes_that_share_names_with_another_bundle_are_refused(name: str) -> None:
    """`a` names its parameter `param.x` A_PARAM_PARAM_X, and so would `a_param` its `x`."""
    with pytest.raises(UsageError, match="a bundle named 'a'"):
        names.check_prefix(name)


def test_names_of_several_lengths_are_known() -> None:
    """Bundles may contain `NAME_length` and NAME_SIZES, and main a function of made-up data."""
    lower, upper = names.declared()
    assert "length" in lower and {"LENGTHS", "SIZES"} <= upper
    assert {"made_up_data", "length_of"} <= names.reserved()


def test_names_of_two_bundles_are_apart() -> None:
    prefixes = [p for p in ("a", "a_b", "a_x", "param", "a_b_c", "a_step") if _taken(p)]
    values = ["x", "b.x", "b.c.x", "param.x", "x.param", "step.x", "values"]
    found: dict[str, str] = {}
    for prefix in prefixes:
        lower, upper = names.declared()
        own = {*(f"{prefix}_{w}" for w in lower), *(f"{prefix.upper()}_{w}" for w in upper)}
        for macro in own | {*names.value_names(prefix, values)}:
            assert found.setdefault(macro, prefix) == prefix, macro
    assert {"a", "a_b", "a_b_c"} <= {*prefixes}


def _taken(prefix: str) -> bool:
    try:
        names.check_prefix(prefix)
    except UsageError:
        return False
    return True
