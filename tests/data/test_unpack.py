"""Compressed files are unpacked once, completely or not at all; stored ones are read in place."""

import os
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest

from edgetrain.data.files import unpack
from edgetrain.data.registry import open_data
from edgetrain.errors import DataError

from . import writers as w

X, Y = w.samples()


@pytest.fixture
def npz(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", x=X, y=Y)
    return tmp_path / "a.npz"


def states(folder):
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}


def test_unpacked_files_are_used_again_while_they_are_fresh(npz):
    open_data(f"npz:{npz}")
    place = npz.with_name("a.npz.unpacked")
    before = states(place)
    assert sorted(before) == ["unpacked-from.json", "x.npy", "y.npy"]
    np.testing.assert_array_equal(np.load(place / "x.npy"), X)
    open_data(f"npz:{npz}")
    assert states(place) == before


@pytest.mark.parametrize("harm", ["newer", "shorter", "missing", "stamp"])
def test_unpacked_files_are_made_anew_when_they_are_stale(npz, harm):
    open_data(f"npz:{npz}")
    place = npz.with_name("a.npz.unpacked")
    if harm == "newer":
        np.savez_compressed(npz, x=X[::-1], y=Y)
    elif harm == "shorter":
        os.truncate(place / "x.npy", 10)
    elif harm == "missing":
        (place / "x.npy").unlink()
    else:
        (place / "unpacked-from.json").write_text("{")
    open_data(f"npz:{npz}")
    np.testing.assert_array_equal(np.load(place / "x.npy"), X[::-1] if harm == "newer" else X)
    assert sorted(os.listdir(npz.parent)) == ["a.npz", "a.npz.unpacked"]


def test_unpacking_goes_to_the_cache_when_the_place_beside_cannot_be_written(
    npz, private_cache, monkeypatch
):
    """Root may write anywhere, so the refusal is simulated."""
    real = unpack._make

    def refuse(place, *rest):
        if place.parent == npz.parent:
            raise PermissionError(13, "Permission denied")
        real(place, *rest)

    monkeypatch.setattr(unpack, "_make", refuse)
    source = open_data(f"npz:{npz}")
    assert source.n == 20 and os.listdir(npz.parent) == ["a.npz"]
    assert len(list(private_cache.glob("edgetrain/*.unpacked/x.npy"))) == 1
    monkeypatch.setattr(unpack, "_make", None)
    assert open_data(f"npz:{npz}").n == 20  # found already unpacked in the cache


def test_unpacking_is_refused_when_no_place_has_room(npz, monkeypatch):
    monkeypatch.setattr(unpack.shutil, "disk_usage", lambda _: SimpleNamespace(free=100))
    with pytest.raises(DataError, match="cannot be unpacked .* 100 are free"):
        open_data(f"npz:{npz}")
    assert os.listdir(npz.parent) == ["a.npz"]


def test_litter_of_killed_processes_is_removed(npz):
    old, young = (npz.with_name(f"a.npz.unpacked-{name}.tmp") for name in ("0000aaaa", "0000bbbb"))
    old.mkdir()
    young.mkdir()
    os.utime(old, (0, 0))
    open_data(f"npz:{npz}")
    assert sorted(os.listdir(npz.parent)) == ["a.npz", "a.npz.unpacked", young.name]


def test_stored_npz_is_read_in_place(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, x=np.zeros((4096, 4096), np.uint8), y=np.zeros(4096, np.uint8))
    tracemalloc.start()
    source = open_data(f"npz:{path}")
    source.fill(np.arange(0, 3000, 100), {"x": np.empty((30, 4096), np.float16)})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * 2**20 < 2**24
    assert os.listdir(tmp_path) == ["a.npz"]


def test_unpacking_holds_no_array_in_memory(tmp_path):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, x=np.zeros((4096, 4096), np.uint8), y=np.zeros(4096, np.uint8))
    tracemalloc.start()
    open_data(f"npz:{path}")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * 2**20
