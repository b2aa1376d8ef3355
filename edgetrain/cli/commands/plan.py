"""`plan` and `compile`."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from ...api import make_options
from ...compiler import Plan
from ...compiler.advice.estimate import seconds_per_minibatch
from ...compiler.advice.memory_options import (
    Saving,
    most_saving,
    savings,
    savings_json,
    savings_table,
)
from ...compiler.advice.prove import prove
from ...compiler.compilation import Compilation
from ...compiler.compile import make_plan, of_lengths, proven, too_long
from ...compiler.cost import calibrate
from ...compiler.dump import check_folder, dump
from ...compiler.passes.whole_statistics import whole_statistics
from ...compiler.plan.explain import explain, frontier_rows
from ...compiler.plan.frontier import microbatches
from ...compiler.tapes.assemble import assemble
from ...errors import BudgetError, UsageError
from ...importer import load_onnx
from ...kernels import targets
from ...program import Program
from ...program.atomic import check_target
from ...screen.tables import (
    account_lines,
    departures,
    effort_lines,
    length_lines,
    table,
    to_json,
)
from ...units.efforts import NORMAL, QUICK
from ...units.phases import phase
from ..parser.choices import compile_arguments
from ..parser.namespace import Namespace
from .compiled import Compiled

_FRONTIER_ROWS = 8


def plan(arguments: Namespace) -> int:
    """Print the memory account, also as JSON or a drawing."""
    drawn = any((arguments.picture, arguments.moving, arguments.pareto, arguments.report))
    if drawn:
        from ..screen import drawing  # most plans are not drawn

        drawing.check(arguments)
    if arguments.calibrate:
        measured = calibrate()
        print(
            f"measured: {measured.flops / 1e9:.1f} GFLOP/s and {measured.nbytes / 1e9:.1f} GB/s "
            f"per thread, {measured.step * 1e6:.1f} us per instruction",
            file=sys.stderr,
        )
    _check_dump(arguments)
    result = _compiled(arguments, assemble, QUICK)  # a plan that is only printed needs no proof
    _dump(arguments, result)
    program, chosen, front, tried, seconds = result[:5]
    account = dict(program.account) | {"plan_seconds": seconds}
    account |= whole_statistics(result.compilation, account)
    account["seconds_per_minibatch"] = _seconds(chosen, program)
    if drawn:
        drawing.draw(arguments, result)
    saved = savings(front, chosen) if arguments.explain else []
    proof = None
    if arguments.prove:
        proof = prove(front, chosen, account.get("budget_nbytes"))
    if arguments.json:
        if proof is not None:
            gaps = {"gap_nbytes": proof.gap_nbytes, "gap_time": proof.gap_time}
            account["proof"] = asdict(proof) | gaps
        if arguments.pareto is not None:
            account["frontier"] = frontier_rows(front)
        if arguments.explain:
            account["explanation"] = explain(front, chosen, tried).splitlines()
            account["ladder"] = savings_json(saved)
        print(to_json(account))
        return 0
    lines = [*account_lines(account), *length_lines(program), *_time_lines(chosen, program)]
    print("\n".join(lines))
    print("\n".join(effort_lines(account)))
    rows = len(front) if arguments.pareto is not None else _FRONTIER_ROWS
    print("\n".join(_frontier_lines(front, chosen, rows)))
    if arguments.explain:
        print(explain(front, chosen, tried))
        print("\n".join(_saving_lines(saved)))
    if proof is not None:
        print("\n".join(proof.lines()))
    return 0


def compile(arguments: Namespace) -> int:
    """Compile the model and write the Program."""
    _check_out(arguments.out)
    _check_dump(arguments)
    result = _compiled(arguments, proven)
    _dump(arguments, result)
    program = result.program
    path = program.save(arguments.out)
    if arguments.json:
        print(to_json({"path": str(path), **program.account, "plan_seconds": result.seconds}))
        return 0
    print("\n".join([*account_lines(program.account), *length_lines(program)]))
    print(f"wrote {path} ({path.stat().st_size:,} bytes)")
    return 0


def _check_out(out: str) -> None:
    """Check the name of the Program to write.

    Raises:
      UsageError: it is that of another kind of file, or can't be written.
    """
    if Path(out).suffix.lower() in (".onnx", ".ckpt", ".safetensors"):
        raise UsageError(
            f"-o {out}: ends in {Path(out).suffix}, but the file will be a Program. Expected a "
            "name ending in .edge."
        )
    check_target(out, "-o")


def compiled(arguments: Namespace) -> Program:
    """Compile the ONNX file `arguments.model` with the given options."""
    program = _compiled(arguments, proven).program
    for line in departures(program.account):
        print(f"note: {line}", file=sys.stderr)
    return program


def _check_dump(arguments: Namespace) -> None:
    if arguments.dump:
        check_folder(arguments.dump)
    elif arguments.dump_diff:
        raise UsageError("--dump-diff: it needs --dump DIR. Add it.")


def _dump(arguments: Namespace, found: Compiled) -> None:
    if arguments.dump:
        dump(found.plan, found.program, arguments.dump, differences=arguments.dump_diff)


def _compiled(
    arguments: Namespace,
    make: Callable[[Plan, Mapping], Program],
    effort: str = NORMAL,
) -> Compiled:
    """Compile with the given options; `effort` is the default effort."""
    given = {"effort": effort, **compile_arguments(arguments)}
    budget = given.pop("budget", None)
    asked = make_options(**given)
    with phase(f"reading {arguments.model}"):
        model = load_onnx(arguments.model)
    compilation = Compilation(model, asked)
    for note in compilation.notes():
        print(f"note: {note}", file=sys.stderr)
    try:
        chosen, front, facts = make_plan(compilation, budget)
    except BudgetError as found:
        error = too_long(compilation, budget, found)
        if arguments.json and arguments.command == "plan":
            infeasible = {
                "feasible": False,
                "arena_nbytes": None,
                "budget_nbytes": budget,
                "min_budget_nbytes": error.min_budget_nbytes,
                "error": str(error),
            }
            print(to_json(infeasible), flush=True)
        raise error from None
    tried = microbatches(chosen.candidate.compilation)
    longest = make(chosen, facts)
    program = of_lengths(compilation, budget, chosen, longest, make)
    return Compiled(program, chosen, front, tried, facts["plan_seconds"], compilation)


def _time_lines(chosen: Plan, program: Program) -> list[str]:
    """Estimated training time on this machine; empty for other processors."""
    if not targets.get(program.recipe["target"]).hosted or not chosen.cost:
        return []
    seconds = _seconds(chosen, program)
    hours = 1e6 * seconds / program.minibatch / 3600
    return [
        f"time: about {1000 * seconds:.2g} ms per minibatch, {hours:.2g} hours per million samples "
        "(estimate; --calibrate measures this machine)"
    ]


def _saving_lines(saved: Sequence[Saving]) -> list[str]:
    """Lines about the memory that each choice saves and its cost, then about unused options."""
    taken, others = savings_table(saved)
    head = ("", "saved", "time", "class", "")
    lines = ["savings, starting with everything saved in fp32 (time relative to the row above)"]
    lines += table(taken, "lrrll", head)
    if others:
        head = ("", "least", "time", "class", "")
        lines.append("other options: bytes saved in the smallest plan, time at equal memory")
        lines += table(others, "lrrll", head)
    return [*lines, *filter(None, [most_saving(saved)])]


def _seconds(chosen: Plan, program: Program) -> float:
    return seconds_per_minibatch(chosen, program.minibatch, program.threads)


def _frontier_lines(front: Sequence[Plan], chosen: Plan, most: int) -> list[str]:
    """A few plans from the smallest to the fastest, the chosen one included."""
    last = len(front) - 1
    count = min(most, len(front))
    wanted = {round(k * last / max(1, count - 1)) for k in range(count)}
    index = next(k for k, plan in enumerate(front) if plan is chosen)
    fastest = front[-1].cost
    rows = [
        (
            f"{front[k].arena_nbytes:,}",
            str(front[k].candidate.microbatch),
            f"{100 * front[k].extra_forward:.1f} %",
            f"{front[k].cost / fastest:.2f}",
            "chosen" if k == index else "",
        )
        for k in sorted(wanted | {index})
    ]
    head = ("bytes", "microbatch", "recomputed", "time", "")
    return [
        f"available plans ({len(front)}; time relative to the fastest)",
        *table(rows, "rrrrl", head),
    ]
