"""Only units/files.py opens files: links are not followed by accident, FIFOs do not block."""

import ast
import os
import stat
from pathlib import Path

import pytest

from edgetrain.units import files

PACKAGE = Path(__file__).resolve().parents[1] / "edgetrain"
# Functions that open a file by name; methods of this name count on any object.
FUNCTIONS = {
    "open", "os.open", "gzip.open", "io.open", "np.load", "np.fromfile", "np.memmap", "np.save",
    "np.savez", "np.loadtxt", "np.genfromtxt", "zipfile.ZipFile", "image.open", "mmap.mmap",
}  # fmt: skip
METHODS = {"read_text", "read_bytes", "write_text", "write_bytes"}
# (file, call) -> why it is allowed.
OTHERS = {
    ("bundle/texts.py", "(TEMPLATES / template).read_text"): "of this package",
    ("bundle/names.py", "path.read_text"): "of this package",
    ("bundle/module.py", "(TEMPLATES / template).read_text"): "of this package",
    ("bundle/page.py", "(TEMPLATES / 'page.html').read_text"): "of this package",
    ("bundle/page.py", "(TEMPLATES / found[1]).read_text"): "of this package",
    ("bundle/module.py", "files[-1].write_bytes"): "in a temporary directory that it has just made",
    ("bundle/module.py", "out.read_bytes"): "in a temporary directory that it has just made",
    ("bundle/names.py", "(TEMPLATES / 'reserved.txt').read_text"): "of this package",
    ("bundle/names.py", "(TEMPLATES / 'Makefile').read_text"): "of this package",
    ("cli/commands/serve.py", "path.read_bytes"): "in a temporary directory that it has just made",
    ("report/page.py", "resources.files(__package__).joinpath(name).read_text"): "of this package",
    ("screen/streams.py", "os.open(os.devnull, os.O_WRONLY)"): "a device, by its name",
    ("screen/streams.py", "os.open(os.devnull, os.O_RDWR)"): "a device, by its name",
    ("cli/device/supervised.py", "os.open(os.devnull, os.O_WRONLY)"): "a device, by its name",
    ("cli/device/limited.py", "open('/proc/self/limits')"): "of the kernel",
    ("cli/device/process.py", "open('/proc/self/status')"): "of the kernel",
    ("cli/device/process.py", "open('/proc/self/smaps')"): "of the kernel",
    ("runtime/run/lock.py", "Path(path).read_text"): "of the kernel: called on names in /proc",
    ("runtime/training/keras_callbacks.py", "open(self.filename, 'a', newline='')"): (
        "what a user's callback adds a line to"
    ),
    ("program/medium.py", "mmap.mmap(-1, _CHUNK_NBYTES)"): "memory",
    ("runtime/arena.py", "mmap.mmap(-1, (pages + 2) * _PAGE)"): "memory",
    ("program/container.py", "np.memmap(file, np.uint8, 'r')"): "an open file",
    ("importer/external.py", "np.fromfile(file, dtype, nbytes // dtype.itemsize)"): "an open file",
    ("data/files/kept.py", "os.open(directory, flags, 384)"): "a file without a name",
    ("data/sources/npz.py", "zipfile.ZipFile(file)"): "an open file",
    ("data/sources/mnist.py", "gzip.open(file)"): "an open file",
    ("data/sources/pictures.py", "image.open(file, formats=_FORMATS)"): "an open file",
    **{
        ("compiler/dump.py", f"(path / f'{name}').write_text"): "in a folder found new or empty"
        for name in (
            "{stem}.txt",
            "{stem}.dot",
            "{stem}.diff",
            "{number:02}-tapes.txt",
            "{number + 1:02}-arena.txt",
        )
    },
    ("ort/artifacts.py", "path.write_bytes"): "in a temporary directory that it has just made",
    ("importer/load.py", "path.write_bytes"): "in a temporary directory that it has just made",
}


def _calls(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        if name in FUNCTIONS:
            found.append(ast.unparse(node))
        elif isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
            found.append(name)
    return found


def test_files_are_opened_in_one_place() -> None:
    """Kernels keep machine code in a directory of the user's own, and check it: cache.py."""
    found = {
        (path.relative_to(PACKAGE).as_posix(), call)
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] not in ("kernels", "units")
        for call in _calls(path)
    }
    assert found == set(OTHERS)


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    os.mknod(path, stat.S_IFSOCK | 0o600)  # binding only takes short paths


def _link(path: Path) -> None:
    path.with_name("aim").write_bytes(b"aim")
    path.symlink_to("aim")


def _dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def _link_to_fifo(path: Path) -> None:
    aim = path.with_name("aim")
    if not aim.exists():
        os.mkfifo(aim)
    path.symlink_to("aim")


def _circle(path: Path) -> None:
    path.symlink_to(path)


STRANGE = {
    "fifo": _fifo, "socket": _socket, "directory": os.mkdir, "link": _link, "dangling": _dangling,
    "link to a fifo": _link_to_fifo, "link to itself": _circle,
}  # fmt: skip


@pytest.mark.parametrize("kind", STRANGE)
@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR | os.O_CREAT, os.O_WRONLY | os.O_CREAT])
def test_open_handle_without_links_refuses_what_is_not_regular(
    tmp_path: Path, kind: str, flags: int
) -> None:
    STRANGE[kind](tmp_path / "name")
    with pytest.raises(files.NotRegular, match="not a regular file"):
        files.open_handle(tmp_path / "name", flags, links=False)
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("kind", sorted(STRANGE.keys() - {"link"}))
def test_open_handle_with_links_does_not_wait(tmp_path: Path, kind: str) -> None:
    STRANGE[kind](tmp_path / "name")
    with pytest.raises(OSError):
        files.open_handle(tmp_path / "name")


def test_read_regular_follows_the_links_that_it_may(tmp_path: Path) -> None:
    _link(tmp_path / "name")
    assert files.read_regular(tmp_path / "name") == b"aim"
    with pytest.raises(OSError, match="larger than 2 bytes"):
        files.read_regular(tmp_path / "name", most=2)


@pytest.mark.parametrize("kind", ["fifo", "link"])
def test_open_handle_does_not_wait_when_the_file_is_exchanged(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exchanged between the check of the name and the opening of the file."""
    STRANGE[kind](tmp_path / "name")
    monkeypatch.setattr(files, "check_regular", lambda *args, **kwargs: None)
    with pytest.raises(OSError):
        os.close(files.open_handle(tmp_path / "name", links=False))


@pytest.mark.parametrize(("name", "said"), [("a\0b", "a null byte"), ("a\ud800b", "characters")])
def test_refusal_of_a_name_is_the_same_on_every_python(name, said):
    for open_it in (files.check_regular, files.open_handle, files.create_file, os.mkdir):
        with pytest.raises((OSError, ValueError)) as raised:
            open_it(name)
        assert said in files.refusal(raised.value)


def test_refusal_of_the_system_is_the_systems():
    with pytest.raises(OSError) as raised:
        files.open_handle("/no/such/file")
    assert files.refusal(raised.value) == os.strerror(2)
