"""`plan --picture`: the whole arena over the steps of one microbatch."""

from pathlib import Path

from ..compiler import Plan
from ..compiler.arena.draw import draw
from ..compiler.arena.problem import Buffer, aligned
from ..compiler.assemble import kind_of, read_by_backward
from ..compiler.steps import ALIGN


def draw_plan(plan: Plan, path: str | Path, budget: int | None) -> None:
    """Draw what lives where: what persists at the bottom, the microbatch's values above.

    Args:
      path: ends in .svg or .png.
      budget: bytes of the arena, or None.
    """
    train, placed = plan.candidate.train, plan.placed
    last, base = len(plan.schedule), 0
    backward = read_by_backward(train)
    buffers, offsets, kinds, names = [], [], [], []
    for value in plan.candidate.update.persistent:
        buffers.append(Buffer(len(buffers), 0, last, value.nbytes))
        offsets.append(base)
        kinds.append(kind_of(value, backward))
        names.append(value.name)
        base += aligned(value.nbytes, ALIGN)
    of_buffer: dict[int, str] = {}
    for number, instance in zip(placed.of_instance, plan.simulation.instances, strict=True):
        of_buffer.setdefault(number, train.roots[instance.value])
    for number, buffer in enumerate(placed.buffers):
        value = train.graph.values[of_buffer[number]] if number in of_buffer else None
        buffers.append(Buffer(len(buffers), buffer.start, buffer.stop, buffer.nbytes))
        offsets.append(base + plan.offsets[number])
        kinds.append("workspace" if value is None else kind_of(value, backward))
        names.append("workspace" if value is None else value.name)
    draw(buffers, offsets, kinds, names, budget, path)
