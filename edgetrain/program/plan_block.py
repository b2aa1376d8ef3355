"""The drive's plan block for a Program, whoever runs it: what its words say.

The words are kernels/drive/layout.py's. What depends on addresses is filled in by who has them.
"""

import numpy as np

from ..formats import PRECISIONS
from ..kernels import control
from ..kernels.drive import layout
from .program import Program


def sizes(program: Program) -> dict[int, int]:
    """Word of the plan block -> what it is for this Program, all that are no addresses."""
    return {
        layout.MINIBATCH: program.minibatch,
        layout.MICROBATCH: program.microbatch,
        layout.TARGETS_PER_SAMPLE: program.target_count,
        layout.PARTS: 1,
    }


def zeroed(program: Program) -> list[tuple[int, int]]:
    """(offset, bytes) in the arena of what a discarded minibatch leaves at zero."""
    return [(s.offset, s.nbytes) for s in program.persistent if s.role == "accumulator"]


def strides(program: Program) -> list[int]:
    """For each kernel of the Program the operand word that is the stride of its workspace, or
    STRIDE_NONE, or SPLIT_NONE where its instructions run in one part."""
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
    """Word of the control block -> its bits when a run begins; the others are 0."""
    reals = {
        control.LOSS_SCALE: program.recipe.get("loss_scale")
        or PRECISIONS[program.recipe["precision"]].loss_scale,
        control.BASE_LR: program.lr,
    }
    words = {word: int(np.float64(value).view(np.int64)) for word, value in reals.items()}
    return {control.SEED: int(program.recipe["seed"]), **words}
