"""A disk that loses writes: data that reads back wrong is refused, and older files stay."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgetrain.cli import main
from edgetrain.errors import RunError
from edgetrain.program.atomic import write_atomically
from edgetrain.program.medium import file_sum, medium_sum
from edgetrain.runtime.run.checkpoint import latest, save_step, step_files

STATE = {"w": np.arange(3000, dtype=np.float32), "v": np.ones(5000, np.float32)}


@pytest.fixture
def losing(monkeypatch: pytest.MonkeyPatch):
    """Makes flushes damage written bytes at a place."""

    def at(place: int, nbytes: int = 512) -> None:
        flush = os.fsync

        def lose(handle: int) -> None:
            flush(handle)
            name = os.readlink(f"/proc/self/fd/{handle}")
            if os.path.isfile(name):
                with open(name, "r+b") as file:
                    file.seek(place)
                    found = file.read(nbytes)
                    file.seek(place)
                    file.write(bytes(byte ^ 0xFF for byte in found))

        monkeypatch.setattr(os, "fsync", lose)

    return at


@pytest.mark.parametrize("place", [0, 80, 700, 4096, 16384, 30000])
def test_a_lost_write_is_found_and_older_checkpoints_stay(tmp_path: Path, losing, place) -> None:
    for step in (1, 2):
        save_step(tmp_path, step, STATE, {"step": step}, save_total_limit=2, verify=True)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    losing(place)
    with pytest.raises(RunError, match="other bytes than were written"):
        save_step(tmp_path, 3, STATE, {"step": 3}, save_total_limit=2, verify=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    loaded = latest(tmp_path)
    assert loaded is not None and loaded.meta["step"] == 2


@pytest.mark.parametrize("asked", [True, False])
def test_a_run_ends_by_a_lost_write(
    digits_edge: Path, tmp_path: Path, losing, capsys, asked: bool
) -> None:
    base = ["train", str(digits_edge), "--data", "digits", "--no-eval", "--save-steps", "2"]
    base += ["--verify-saves"] * asked
    assert main([*base, "--out", str(tmp_path / "run"), "--steps", "2"]) == 0
    losing(2000)
    capsys.readouterr()
    status = main([*base, "--resume", str(tmp_path / "run"), "--steps", "4"])
    said = capsys.readouterr().err
    assert (status, "other bytes than were written" in said) == (int(asked), asked)
    loaded = latest(tmp_path / "run")
    assert loaded is not None and loaded.meta["step"] == 2


# A medium that differs from the page cache: reads that bypass the cache have a byte flipped.
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

static char direct[65536];

static int opened(int at, const char *path, int flags, int mode) {
  int (*real)(int, const char *, int, ...) = dlsym(RTLD_NEXT, "openat");
  int handle = real(at, path, flags, mode);
  if (handle < 0 && errno == EINVAL && (flags & O_DIRECT))  /* a file system without a cache */
    handle = real(at, path, flags & ~O_DIRECT, mode);
  if (handle >= 0 && handle < 65536) direct[handle] = (flags & O_DIRECT) != 0;
  return handle;
}

static int mode_of(int flags, va_list rest) {
  return flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0;
}

#define OPEN(name)                                              \
  int name(const char *path, int flags, ...) {                  \
    va_list rest;                                               \
    va_start(rest, flags);                                      \
    int mode = mode_of(flags, rest);                            \
    va_end(rest);                                               \
    return opened(AT_FDCWD, path, flags, mode);                 \
  }
#define OPENAT(name)                                            \
  int name(int at, const char *path, int flags, ...) {          \
    va_list rest;                                               \
    va_start(rest, flags);                                      \
    int mode = mode_of(flags, rest);                            \
    va_end(rest);                                               \
    return opened(at, path, flags, mode);                       \
  }
OPEN(open) OPEN(open64) OPENAT(openat64)

ssize_t readv(int handle, const struct iovec *parts, int count) {
  ssize_t (*real)(int, const struct iovec *, int) = dlsym(RTLD_NEXT, "readv");
  ssize_t got = real(handle, parts, count);
  const char *place = getenv("LOST_BYTE");
  long at = place ? atol(place) : -1;
  if (direct[handle] && count == 1 && at >= 0 && at < got) ((char *)parts->iov_base)[at] ^= 0xFF;
  return got;
}
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("needs a C compiler and LD_PRELOAD")
    folder = tmp_path_factory.mktemp("shim")
    (folder / "shim.c").write_text(SHIM)
    command = [compiler, "-shared", "-fPIC", "-o", "shim.so", "shim.c", "-ldl"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "shim.so"


@pytest.mark.parametrize(("asked", "place"), [(True, 2000), (False, 2000), (True, 10**9)])
def test_a_medium_that_departs_from_the_page_cache_is_found(
    digits_edge: Path, tmp_path: Path, shim: Path, asked: bool, place: int
) -> None:
    """The cache stays correct, so only a read that bypasses it can tell.

    A place beyond the end of the file is not a fault.
    """
    run = tmp_path / "run"
    base = [sys.executable, "-m", "edgetrain", "train", str(digits_edge), "--data", "digits"]
    base += ["--no-eval", "--save-steps", "2", "--steps", "2", "--out", str(run)]
    env = {**os.environ, "LD_PRELOAD": str(shim), "LOST_BYTE": str(place)}
    ended = subprocess.run(
        [*base, *["--verify-saves"] * asked], env=env, capture_output=True, text=True
    )
    found = asked and place < 10**6
    assert ended.returncode == int(found), ended.stderr
    assert ("other bytes" in ended.stderr) == found
    assert (latest(run) is None) == found


def test_without_it_nothing_is_read_back(tmp_path: Path, losing) -> None:
    losing(4096)
    save_step(tmp_path, 1, STATE, {"step": 1})
    assert len(step_files(tmp_path)) == 1


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 2**20, 2**20 + 77])
def test_sums_are_of_the_whole_file(tmp_path: Path, size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8).tobytes()
    write_atomically(tmp_path / "f", lambda file: file.writelines([data]), verify=True)
    assert medium_sum(tmp_path / "f") == file_sum(tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == data
