"""An emulated PC with AVX-512, for machines without: runs static programs, many in one boot.

The PC is Bochs with the instructions of a Skylake-X. It boots Linux with the programs in its memory
file system, and writes what they print to a serial port. A boot takes half a minute.

Bochs 2.7 rounds ties to float16 away from zero, so 3 or later is needed. Few systems have it; build
it (https://github.com/bochs-emu/Bochs):

    ./configure --enable-x86-64 --enable-avx --enable-evex --with-nogui && make && make install

3.0 refuses gathers whose indices are in zmm16 to zmm31 (a program ends with status 4, SIGILL) until
`vvv &= 15;` follows the line with `setSibIndex` in cpu/decoder/fetchdecode32.cc's assign_srcs.
"""

import platform
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).parent
PACKAGES = "grub-pc-bin xorriso mtools cpio linux-image-cloud-amd64"
LEAST = 3  # main version of Bochs
NAME = "Bochs, a Skylake-X"  # in tables
_COMMANDS = ("grub-mkrescue", "xorriso", "mformat", "cpio", "gcc")
# Bochs 2.7 gives the size of the compact XSAVE area wrongly, and Linux then turns AVX off.
_GRUB = """\
set timeout=0
linux /boot/vmlinuz console=ttyS0 quiet mitigations=off noapic noxsaves clearcpuid=xsavec
initrd /boot/initrd
boot
"""
_BOCHS = """\
config_interface: textconfig
display_library: nogui
megs: 2048
cpu: model=corei7_skylake_x, count=1, ips=50000000
ata0-master: type=cdrom, path={folder}/boot.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev={folder}/serial
log: {folder}/log
panic: action=fatal
error: action=ignore
"""


def supported() -> bool:
    """Whether this machine's own processor has AVX-512."""
    return "avx512vl" in Path("/proc/cpuinfo").read_text()


def missing() -> str:
    """Why the PC cannot be emulated here; "" if it can."""
    if platform.machine() != "x86_64":
        return f"the PC's programs are linked on x86_64; this machine is {platform.machine()}"
    if (version := _version()) < LEAST:
        found = f"Bochs {version}" if version else "no Bochs"
        return f"{found} found, expected {LEAST} or later; see device_tests/avx512.py"
    absent = [command for command in _COMMANDS if shutil.which(command) is None]
    if not Path("/usr/lib/grub/i386-pc").is_dir():
        absent.append("GRUB's i386-pc modules")
    if not _kernels():
        absent.append("a Linux kernel in /boot")
    return f"{', '.join(absent)} not installed; on Debian: apt install {PACKAGES}" if absent else ""


def outputs(
    programs: Mapping[str, Path], arguments: Sequence[str], folder: Path, seconds: float = 3600
) -> dict[str, str]:
    """Run programs one after another and return what each printed, by name.

    Args:
      programs: name, for errors -> statically linked executable for x86-64.
      arguments: of each.
      folder: an empty one, for the disc image.
      seconds: time limit for all.

    Raises:
      AssertionError: the PC did not boot or end, or a program ended with a status other than 0.
    """
    root, disc = folder / "root", folder / "disc" / "boot"
    for made in (root, disc / "grub"):
        made.mkdir(parents=True)
    source = str(HERE / "avx512_init.c")
    subprocess.run(["gcc", "-O2", "-static", source, "-o", root / "init"], check=True)
    names = [f"program{k}" for k in range(len(programs))]
    for name, program in zip(names, programs.values(), strict=True):
        shutil.copy(program, root / name)
    lines = [" ".join([f"/{name}", *arguments]) for name in names]
    (root / "programs").write_text("".join(f"{line}\n" for line in lines))
    with open(disc / "initrd", "wb") as file:
        listed = "\n".join(["init", "programs", *names]).encode()
        command = ["cpio", "--quiet", "-o", "-H", "newc"]
        subprocess.run(command, input=listed, stdout=file, cwd=root, check=True)
    shutil.copy(_kernels()[-1], disc / "vmlinuz")
    (disc / "grub" / "grub.cfg").write_text(_GRUB)
    image = ["grub-mkrescue", "-o", folder / "boot.iso", disc.parent]
    subprocess.run(image, check=True, capture_output=True)
    return _serial(_booted(folder, seconds), list(programs))


def _version() -> int:
    """Bochs' main version; 0 if it is not installed."""
    if shutil.which("bochs") is None:
        return 0
    told = subprocess.run(["bochs", "--help"], capture_output=True, text=True)
    found = re.search(r"Bochs x86 Emulator (\d+)", told.stdout + told.stderr)
    return int(found[1]) if found else 0


def _kernels() -> list[Path]:
    return sorted(Path("/boot").glob("vmlinuz-*"))


def _booted(folder: Path, seconds: float) -> str:
    """Boot the image and return what the PC wrote to its serial port until it was shut down."""
    (folder / "bochsrc").write_text(_BOCHS.format(folder=folder))
    command = ["bochs", "-q", "-f", "bochsrc"]
    done = subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds
    )
    serial = folder / "serial"
    said = serial.read_text(errors="replace").replace("\r", "") if serial.exists() else ""
    assert "=== end\n" in said, (done.returncode, said[-500:], done.stdout[-500:])
    return said


def _serial(said: str, names: Sequence[str]) -> dict[str, str]:
    """Take apart what avx512_init.c wrote: each program's output is between two of its lines."""
    parts = re.split(r"^=== (?:begin|end|status (\d+))\n", said, flags=re.M)
    printed, statuses = parts[2::2], parts[3::2]
    assert len(statuses) == len(names) + 1, said[-500:]
    for name, status, text in zip(names, statuses, printed, strict=False):
        assert status == "0", (name, status, text[-500:])
    return dict(zip(names, printed, strict=False))
