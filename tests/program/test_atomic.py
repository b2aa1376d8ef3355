"""Atomic writes under faults: disk full, file-size limit, read-only directory, interruption."""

import errno
import os
import signal
import stat
import subprocess
import sys

import pytest

from edgetrain.errors import RunError
from edgetrain.program.atomic import clean_temporaries, previous_of, write_atomically


def put(data):
    return lambda file: file.write(data)


def listing(directory):
    return {name: (directory / name).read_bytes() for name in sorted(os.listdir(directory))}


def test_write_atomically_replaces_and_keeps_nothing_else(tmp_path):
    path = tmp_path / "a.bin"
    write_atomically(path, put(b"one"))
    write_atomically(path, put(b"two"))
    assert listing(tmp_path) == {"a.bin": b"two"}


def test_write_atomically_keeps_previous_when_asked(tmp_path):
    path = tmp_path / "a.bin"
    for data in (b"one", b"two", b"three"):
        write_atomically(path, put(data), keep_previous=True)
    assert listing(tmp_path) == {"a.bin": b"three", "a.bin.previous": b"two"}


def test_write_atomically_keeps_previous_when_there_are_no_hard_links(tmp_path, monkeypatch):
    def no_links(*_):
        raise PermissionError(errno.EPERM, "not permitted")

    monkeypatch.setattr(os, "link", no_links)
    path = tmp_path / "a.bin"
    for data in (b"one", b"two", b"three"):
        write_atomically(path, put(data), keep_previous=True)
    assert listing(tmp_path) == {"a.bin": b"three", "a.bin.previous": b"two"}


def test_write_atomically_follows_links(tmp_path):
    (tmp_path / "real.bin").write_bytes(b"one")
    (tmp_path / "link.bin").symlink_to("real.bin")
    write_atomically(tmp_path / "link.bin", put(b"two"))
    assert (tmp_path / "link.bin").is_symlink()
    assert (tmp_path / "real.bin").read_bytes() == b"two"


@pytest.mark.parametrize(
    ("code", "advice"),
    [(errno.ENOSPC, "Free some space"), (errno.EFBIG, "ulimit -f"), (errno.EIO, "elsewhere")],
)
def test_write_atomically_leaves_the_old_file_when_writing_fails(tmp_path, code, advice):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")

    def fail(file):
        file.write(b"half")
        raise OSError(code, os.strerror(code))

    with pytest.raises(RunError, match=advice) as caught:
        write_atomically(path, fail, keep_previous=True)
    assert str(path) in str(caught.value) and os.strerror(code) in str(caught.value)
    assert listing(tmp_path) == {"a.bin": b"old"} and "old file" in str(caught.value)
    path.unlink()
    with pytest.raises(RunError, match=advice) as caught:
        write_atomically(path, fail, keep_previous=True)
    assert "old file" not in str(caught.value)


def test_write_atomically_cleans_up_when_interrupted(tmp_path):
    def interrupt(file):
        file.write(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "a.bin", interrupt)
    assert listing(tmp_path) == {}


def test_write_atomically_refuses_a_missing_directory(tmp_path):
    with pytest.raises(RunError, match="Create the directory first"):
        write_atomically(tmp_path / "none" / "a.bin", put(b""))


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_write_atomically_refuses_what_is_no_regular_file(tmp_path, make):
    make(tmp_path / "a.bin")
    with pytest.raises(RunError, match="not a regular file"):
        write_atomically(tmp_path / "a.bin", put(b""))


def test_write_atomically_reports_a_read_only_directory(tmp_path, monkeypatch):
    """Root may write anywhere, so the refusal is simulated."""
    real = open

    def refuse(name, mode="r", *rest):
        if "x" in mode:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real(name, mode, *rest)

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(RunError, match="Write to a directory that is writable"):
        write_atomically(tmp_path / "a.bin", put(b""))


def test_write_atomically_meets_a_real_limit_on_file_sizes(tmp_path):
    program = (
        "import resource, sys\n"
        "from edgetrain.errors import RunError\n"
        "from edgetrain.program.atomic import write_atomically\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try:\n"
        "    write_atomically(sys.argv[1], lambda file: file.write(bytes(100_000)))\n"
        "except RunError as error:\n"
        "    print(error)\n"
    )
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    done = subprocess.run(
        [sys.executable, "-c", program, path], capture_output=True, text=True, check=True
    )
    assert "File too large" in done.stdout
    assert listing(tmp_path) == {"a.bin": b"old"}


def test_clean_temporaries_removes_only_what_a_killed_writer_left(tmp_path):
    program = (
        "import sys, time\n"
        "from edgetrain.program.atomic import write_atomically\n"
        "def write(file):\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(60)\n"
        "write_atomically(sys.argv[1], write)\n"
    )
    (tmp_path / "notes.tmp").write_bytes(b"mine")
    child = subprocess.Popen(
        [sys.executable, "-c", program, tmp_path / "a.bin"], stdout=subprocess.PIPE
    )
    with child:
        assert child.stdout.readline() == b"ready\n"
        assert clean_temporaries(tmp_path) == []
        child.send_signal(signal.SIGKILL)
    assert len(clean_temporaries(tmp_path)) == 1
    assert sorted(os.listdir(tmp_path)) == ["notes.tmp"]


def test_previous_of_names_the_file_beside(tmp_path):
    assert previous_of(tmp_path / "a.ckpt") == tmp_path / "a.ckpt.previous"


@pytest.fixture
def events(monkeypatch):
    """What is flushed and renamed, in order: bytes of a file, "renamed", "directory"."""
    seen, fsync, rename = [], os.fsync, os.replace

    def flushed(handle):
        facts = os.fstat(handle)
        seen.append("directory" if stat.S_ISDIR(facts.st_mode) else facts.st_size)
        fsync(handle)

    def renamed(*paths):
        rename(*paths)
        seen.append("renamed")

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(os, "replace", renamed)
    return seen


def test_write_atomically_flushes_all_bytes_then_renames_then_flushes_the_directory(
    tmp_path, events
):
    write_atomically(tmp_path / "a.bin", put(b"one"))
    assert events == [3, "renamed", "directory"]


@pytest.mark.parametrize(("code", "passes"), [(errno.EINVAL, True), (errno.EIO, False)])
def test_write_atomically_needs_the_directory_flushed_where_that_is_possible(
    tmp_path, monkeypatch, code, passes
):
    fsync = os.fsync

    def refused(handle):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(code, "no")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", refused)
    if passes:
        write_atomically(tmp_path / "a.bin", put(b"one"))
    else:
        with pytest.raises(RunError, match="a.bin"):
            write_atomically(tmp_path / "a.bin", put(b"one"))
    assert listing(tmp_path) == {"a.bin": b"one"}


def test_clean_temporaries_leaves_names_that_are_not_quite_its_own(tmp_path):
    mine = [".a.edgetrain-0123abcd.tmp.mine", "a.edgetrain-0123abcd.tmp", ".a.edgetrain-0123.tmp"]
    for name in (*mine, ".a.edgetrain-0123abcd.tmp"):
        (tmp_path / name).write_bytes(b"")
    clean_temporaries(tmp_path)
    assert sorted(os.listdir(tmp_path)) == sorted(mine)
