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
    buffers: list[Buffer] = []
    offsets: list[int] = []
    kinds: list[str] = []
    names: list[str] = []
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
        name = of_buffer.get(number, "workspace")
        buffers.append(Buffer(len(buffers), buffer.start, buffer.stop, buffer.nbytes))
        offsets.append(base + plan.offsets[number])
        stored = train.graph.values.get(name) if number in of_buffer else None
        kinds.append("workspace" if stored is None else kind_of(stored, backward))
        names.append(name)
    draw(buffers, offsets, kinds, names, budget, path)
