"""`plan --picture` and `plan --pareto`: the arena over time, and bytes against time."""

from collections.abc import Sequence
from pathlib import Path

from ..compiler import Plan
from ..compiler.arena.draw import draw
from ..compiler.arena.problem import Buffer, aligned
from ..compiler.assemble import kind_of, read_by_backward
from ..compiler.steps import ALIGN
from ..errors import UsageError
from ..program.atomic import write_atomically


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


def draw_frontier(
    front: Sequence[Plan], chosen: Plan, path: str | Path, budget: int | None
) -> None:
    """Draw bytes against time of every plan, the chosen one marked.

    Raises:
      UsageError: matplotlib is not installed.
      RunError: the file cannot be written.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise UsageError(
            "--pareto: a picture needs matplotlib; install edgetrain[plot], or leave the file out."
        ) from error
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "edgetrain"}):
        figure = Figure(figsize=(8, 4.8))
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        fastest = front[-1].cost
        for microbatch in sorted({plan.candidate.microbatch for plan in front}):
            mine = [plan for plan in front if plan.candidate.microbatch == microbatch]
            axes.plot(
                [plan.arena_nbytes / 2**20 for plan in mine],
                [plan.cost / fastest for plan in mine],
                "o-",
                label=f"microbatch {microbatch}",
            )
        where = chosen.arena_nbytes / 2**20, chosen.cost / fastest
        axes.plot(*where, "s", color="black", markersize=11, fillstyle="none", label="chosen")
        if budget:
            axes.axvline(budget / 2**20, color="tab:red", linestyle="--", label="budget")
        axes.set_xlabel("arena (MiB)")
        axes.set_ylabel("time of a minibatch, relative to the fastest plan")
        axes.grid(alpha=0.3)
        axes.legend()
        figure.tight_layout()
        kind = Path(path).suffix[1:]
        metadata = {"Date": None} if kind == "svg" else None
        write_atomically(path, lambda file: figure.savefig(file, format=kind, metadata=metadata))
