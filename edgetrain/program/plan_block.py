"""The words of a Program's plan block, for all runtimes.

They are defined in kernels/drive/layout.py. Callers fill in words that depend on addresses.
"""

import numpy as np

from ..formats import PRECISIONS
from ..kernels import control
from ..kernels.drive import layout
from .program import Program


def sizes(program: Program) -> dict[int, int]:
    """{word of the plan block: its value for this Program}, without addresses."""
    return {
        layout.MINIBATCH: program.minibatch,
        layout.MICROBATCH: program.microbatch,
        layout.TARGETS_PER_SAMPLE: program.target_count,
        layout.PARTS: 1,
    }


def zeroed(program: Program) -> list[tuple[int, int]]:
    """(offset, bytes) in the arena that are zero after a discarded minibatch."""
    return [(s.offset, s.nbytes) for s in program.persistent if s.role == "accumulator"]


def strides(program: Program) -> list[int]:
    """For each kernel of the Program, the operand word with the stride of its workspace.

    STRIDE_NONE if it has none, SPLIT_NONE if its instructions run in one part.
    """
    from ..kernels import registry

    out = []
    for name, variant, _ in program.kernels:
        kernel = next(k for k in registry.variants(name) if k.variant == variant)
        at, found, workspaces = 0, layout.STRIDE_NONE, 0
        for operand in kernel.spec.operands:
            if operand.mode == "t":
                found, workspaces = at + 1, workspaces + 1
            at += 2 if operand.mode == "t" else 1
        # Extents by the number of threads: parts would share what threads have for themselves.
        if workspaces > 1 or "nthreads" in registry.declaration(kernel)["operands"]:
            found = layout.SPLIT_NONE
        out.append(found)
    return out


def control_words(program: Program) -> dict[int, int]:
    """{word of the control block: its bits when a run starts}; all others are 0."""
    reals = {
        control.LOSS_SCALE: program.recipe.get("loss_scale")
        or PRECISIONS[program.recipe["precision"]].loss_scale,
        control.BASE_LR: program.lr,
    }
    words = {word: int(np.float64(value).view(np.int64)) for word, value in reals.items()}
    return {control.SEED: int(program.recipe["seed"]), **words}
