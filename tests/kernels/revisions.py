"""What the words of each kernel's instructions are, and at which revision.

python -m tests.kernels.revisions --write records it in tests/golden/revisions.txt: after a kernel
was added, or after operands were changed and its `revision` raised with them.
"""

import hashlib
import sys
from pathlib import Path

from edgetrain.kernels import registry
from edgetrain.kernels.registry import Kernel

GOLDEN = Path(__file__).parents[1] / "golden" / "revisions.txt"


def words_of(kernel: Kernel) -> str:
    """A digest of its operands: names, modes, storages, which may be absent, in their order."""
    rows = [(o.name, o.mode, o.storage, o.optional) for o in kernel.spec.operands]
    return hashlib.sha256(repr(rows).encode()).hexdigest()[:12]


def found() -> dict[str, tuple[int, str]]:
    """Kernel -> (revision, digest of its operands), of this build."""
    kernels = [kernel for name in registry.names() for kernel in registry.variants(name)]
    return {k.label: (k.revision, words_of(k)) for k in sorted(kernels, key=lambda k: k.label)
            if not k.module.startswith("tests.")}  # fmt: skip


def recorded() -> dict[str, tuple[int, str]]:
    """The same as it was recorded."""
    rows = [line.split() for line in GOLDEN.read_text().splitlines()]
    return {label: (int(revision), words) for label, revision, words in rows}


def main() -> int:
    """Record, or tell what differs."""
    now = found()
    if "--write" in sys.argv[1:]:
        lines = [f"{label} {revision} {words}\n" for label, (revision, words) in now.items()]
        GOLDEN.write_text("".join(lines))
        return 0
    return int(now != recorded())


if __name__ == "__main__":
    sys.exit(main())
