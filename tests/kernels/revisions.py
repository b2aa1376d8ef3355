"""Records the operand list and revision of every kernel.

Run `python -m tests.kernels.revisions --write` after adding a kernel, or after changing operands
and raising its `revision`. It writes tests/golden/revisions.txt.
"""

import hashlib
import sys
from pathlib import Path

from edgetrain.kernels import registry
from edgetrain.kernels.registry import Kernel

GOLDEN = Path(__file__).parents[1] / "golden" / "revisions.txt"


def words_of(kernel: Kernel) -> str:
    """Digest the operands in order: names, modes, storages, and which are optional."""
    rows = [(o.name, o.mode, o.storage, o.optional) for o in kernel.spec.operands]
    return hashlib.sha256(repr(rows).encode()).hexdigest()[:12]


def found() -> dict[str, tuple[int, str]]:
    """Return kernel -> (revision, digest of its operands) for this build."""
    kernels = [kernel for name in registry.names() for kernel in registry.variants(name)]
    return {k.label: (k.revision, words_of(k)) for k in sorted(kernels, key=lambda k: k.label)
            if not k.module.startswith("tests.")}  # fmt: skip


def recorded() -> dict[str, tuple[int, str]]:
    """Return the recorded kernel -> (revision, digest)."""
    rows = [line.split() for line in GOLDEN.read_text().splitlines()]
    return {label: (int(revision), words) for label, revision, words in rows}


def main() -> int:
    """Write the record; without --write, return 1 if it differs from this build."""
    now = found()
    if "--write" in sys.argv[1:]:
        lines = [f"{label} {revision} {words}\n" for label, (revision, words) in now.items()]
        GOLDEN.write_text("".join(lines))
        return 0
    return int(now != recorded())


if __name__ == "__main__":
    sys.exit(main())
