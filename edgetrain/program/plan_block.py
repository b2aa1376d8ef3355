"""The words of a Program's plan block, for all runtimes.

They are defined in kernels/step_loop/layout.py. Callers fill in words that depend on addresses.
"""

import numpy as np

from ..formats import PRECISIONS
from ..kernels import control
from ..kernels.step_loop import layout
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
    """(offset, bytes) of the arena regions to be zeroed after a discarded minibatch."""
    return [(s.offset, s.nbytes) for s in program.persistent if s.role == "accumulator"]


def strides(program: Program) -> list[int]:
    """For each kernel, where the step loop finds the workspace stride of an instruction.

    `poll` may run an instruction in parts: the shares of several threads, one after the other in
    one workspace. It then sets the stride from one thread's workspace to the next to 0.

    Returns:
      The index of the stride among the kernel's operand words; STRIDE_NONE if it has no workspace;
      SPLIT_NONE if it can't be split, because it has several or its extents depend on `nthreads`.
    """
    from ..kernels import registry

    out = []
    for name, variant, _ in program.kernels:
        kernel = next(k for k in registry.variants(name) if k.variant == variant)
        strides, words = [], 0
        for operand in kernel.spec.operands:
            if operand.mode == "t":
                strides.append(words + 1)
            words += 2 if operand.mode == "t" else 1
        if len(strides) > 1 or "nthreads" in registry.declaration(kernel)["operands"]:
            out.append(layout.SPLIT_NONE)
        else:
            out.append(strides[0] if strides else layout.STRIDE_NONE)
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
