"""Python with numpy for another processor, from Debian packages, run by qemu.

usage: python -m device_tests.python_root aarch64|armv7|riscv64 ...

Packages come from this Debian's own mirror and are unpacked into a folder of the user; nothing is
installed.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

SUITE = "trixie"  # the first with numpy 2
_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
_SOURCE = "deb [signed-by={keys} arch={arch}] {where} {suite} main\n"


class Kind(NamedTuple):
    """Debian's and qemu's names for a processor."""

    arch: str
    qemu: str


KINDS = {
    "aarch64": Kind("arm64", "qemu-aarch64-static"),
    "armv7": Kind("armhf", "qemu-arm-static"),
    "riscv64": Kind("riscv64", "qemu-riscv64-static"),
}


def folder(name: str) -> Path:
    """The folder with a processor's files."""
    chosen = os.environ.get("EDGETRAIN_PYTHONS")
    base = Path(chosen) if chosen else Path.home() / ".cache" / "edgetrain-pythons"
    return base / name


def missing(name: str) -> str:
    """Why there is no Python for this processor; "" if there is one."""
    qemu = KINDS[name].qemu
    if shutil.which(qemu) is None:
        return f"{qemu} not installed; on Debian: apt install qemu-user-static"
    if not _interpreters(folder(name)):
        return f"no Python for {name}: python -m device_tests.python_root {name} fetches one"
    return ""


def _interpreters(root: Path) -> list[Path]:
    return sorted(root.glob("usr/bin/python3.[0-9][0-9]"))


def command(name: str) -> list[str]:
    """The command that starts Python."""
    root = folder(name)
    return [KINDS[name].qemu, "-L", str(root), str(_interpreters(root)[-1])]


def environment(name: str, path: Path, cache: Path) -> dict[str, str]:
    """Environment variables: packages are found in `path`, and `cache` holds cached files."""
    root = folder(name)
    libraries = {str(found.parent) for found in root.glob("usr/lib/**/lib*.so.*")}
    return {
        "PATH": os.environ["PATH"], "PYTHONHOME": str(root / "usr"), "PYTHONPATH": str(path),
        "LD_LIBRARY_PATH": os.pathsep.join(sorted(libraries)), "EDGETRAIN_CACHE": str(cache),
        "EDGETRAIN_PROGRESS": "0", "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip


def fetch(name: str) -> None:
    """Fetch and unpack the packages.

    Raises:
      CalledProcessError: apt-get could not find or fetch them.
    """
    arch, root = KINDS[name].arch, folder(name)
    with tempfile.TemporaryDirectory() as work:
        options = _options(Path(work), arch)
        subprocess.run(["apt-get", *options, "update"], check=True)
        install = ["-y", "--no-install-recommends", "--download-only", "install", "python3-numpy"]
        subprocess.run(["apt-get", *options, *install], check=True)
        root.mkdir(parents=True, exist_ok=True)
        for package in sorted(Path(work).glob("cache/archives/*.deb")):
            subprocess.run(["dpkg-deb", "-x", str(package), str(root)], check=True)
    if not (root / "lib").exists():
        (root / "lib").symlink_to("usr/lib")


def _options(work: Path, arch: str) -> list[str]:
    """apt options that keep lists, sources and an empty list of installed packages in `work`."""
    for name in ("state/lists/partial", "cache/archives/partial", "sources"):
        (work / name).mkdir(parents=True)
    (work / "installed").touch()
    text = _SOURCE.format(keys=_KEYS, arch=arch, where=_mirror(), suite=SUITE)
    (work / "sources" / "debian.list").write_text(text)
    rows = {
        "Dir::Etc::SourceList": "/dev/null",
        "Dir::Etc::SourceParts": work / "sources",
        "Dir::State": work / "state",
        "Dir::State::status": work / "installed",
        "Dir::Cache": work / "cache",
        "APT::Architecture": arch,
        "APT::Architectures::": arch,
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
    }
    return [word for key, value in rows.items() for word in ("-o", f"{key}={value}")]


def _mirror() -> str:
    """The mirror that this machine's own packages come from."""
    asked = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(ORIGIN) $(LABEL)"]
    lines = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()
    for line in lines:
        if line.endswith(" Debian Debian"):
            return line.split()[0]
    raise SystemExit("apt knows no repository of Debian here: run apt-get update.")


if __name__ == "__main__":
    for asked in sys.argv[1:]:
        fetch(asked)
        print(f"{asked}: {folder(asked)}")
