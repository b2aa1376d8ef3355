"""The emulated PC with AVX-512."""

import subprocess
from pathlib import Path

import pytest

from device_tests import avx512

PROGRAM = """
#include <immintrin.h>
#include <stdio.h>
int main(int count, char **arguments) {
    float sums[16];
    __m512 x = _mm512_set1_ps((float)count);
    _mm512_storeu_ps(sums, _mm512_fmadd_ps(x, x, x));
    printf("%s %g\\n", arguments[count - 1], sums[15]);
    return count == 1;
}
"""


def _built(folder: Path) -> Path:
    (folder / "program.c").write_text(PROGRAM)
    command = ["gcc", "-O1", "-mavx512f", "-static", "program.c", "-o", "program"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "program"


@pytest.mark.skipif(bool(avx512.missing()), reason=avx512.missing())
def test_programs_run_one_after_another_with_their_arguments(tmp_path: Path) -> None:
    program = _built(tmp_path)
    printed = avx512.outputs({"a": program, "b": program}, ["check", "5"], tmp_path / "boot")
    assert {name: text.strip() for name, text in printed.items()} == {"a": "5 12", "b": "5 12"}


def test_output_is_taken_apart_by_program() -> None:
    said = "firmware\n=== begin\nfirst\n\n=== status 0\ntwo\nlines\n\n=== status 0\n=== end\n"
    assert avx512._serial(said, "ab") == {"a": "first\n\n", "b": "two\nlines\n\n"}


def test_a_program_that_fails_is_named_with_what_it_printed() -> None:
    said = "=== begin\nfine\n=== status 0\nbad\n=== status 256\n=== end\n"
    with pytest.raises(AssertionError, match=r"b.*256.*bad"):
        avx512._serial(said, "ab")
    with pytest.raises(AssertionError):
        avx512._serial("=== begin\nfine\n=== status 0\n=== end\n", "ab")
