"""A damaged index of an installed kernel library: reported in one line, never raised."""

import json
from pathlib import Path

import pytest

from edgetrain.kernels.cache import library
from tests.mutants import mutants

INDEX = {
    "format": library.FORMAT, "target": "x86-64-v3", "version": "0.1.0", "package": "abc",
    "digests": {"update": "d1", "gemm": "d2"}, "units": {"greedy placement": "d3"},
}  # fmt: skip


def _used(folder: Path) -> bool:
    found = library._opened(folder)
    if found is None:
        return False
    assert found.address("no_kernel", "no_module") is None
    assert found.loops("no unit", "d") is None and found.same is False
    return True


def test_mutants_of_an_index_are_said_or_do_no_harm(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / library.INDEX).write_text(json.dumps(INDEX))
    assert _used(tmp_path)
    refused = 0
    for what, mutant in mutants(INDEX):
        (tmp_path / library.INDEX).write_text(json.dumps(mutant))
        used = _used(tmp_path)
        said = capsys.readouterr().err
        assert (said == "") == used and said.count("\n") == (not used), what
        refused += not used
    assert refused > 60


@pytest.mark.parametrize("text", [b"", b"{", b"[" * 100_000, b"\xff\xfe", b"1e999", b"null"])
def test_an_index_that_is_no_json_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: bytes
) -> None:
    (tmp_path / library.INDEX).write_bytes(text)
    assert not _used(tmp_path) and capsys.readouterr().err.count("\n") == 1
