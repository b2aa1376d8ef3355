"""One object of a Program: what is in it, what it needs, what another Program's has of it."""

import pytest

from edgetrain.errors import UnsupportedOpError
from edgetrain.kernels import emit, emit_builtins, targets
from edgetrain.kernels.elf import exported, sections, undefined
from edgetrain.kernels.emit_tape import table_of
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
        program, targets.get(name), drive=("drive_train", "run_tape"), text=TEXT.format(prefix),
        exports=exports, size=size,
    )  # fmt: skip


def test_identical_instructions_are_one_function(program):
    table = table_of(program)
    places = sum(len(row) for row in table.numbers.values())
    assert len(set(table.instructions)) == len(table.instructions) <= places
    assert table.lengths() == emit.tape_lengths(program)
    assert emit.entries(program) == len(table.instructions)


@pytest.mark.parametrize("name", ["host", "cortex-m4"])
def test_a_library_refers_to_nothing_and_shows_its_exports(program, name):
    library = built(program, name)
    assert undefined(library.code) == set()
    # nothing else is seen, so that two nets can be linked into one firmware
    assert exported(library.code) == {"net_train", "net_table"}
    assert library.sizes == sections(library.code) and ".text" in library.sizes
    assert library.lengths["micro"] == 16 * len(table_of(program).numbers["micro"])


def test_the_same_library_has_the_same_bytes(program):
    assert built(program, "cortex-m7").code == built(program, "cortex-m7").code


def test_what_a_target_lacks_is_named(program, monkeypatch):
    monkeypatch.setattr(emit_builtins, "BUILTINS", {})
    with pytest.raises(UnsupportedOpError, match=r"target cortex-m4: the code would call __aeabi"):
        built(program, "cortex-m4")
