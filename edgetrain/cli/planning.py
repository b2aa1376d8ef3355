"""`plan` and `compile`."""

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from ..api import make_options
from ..compiler import Plan, plan_model
from ..compiler.assemble import assemble
from ..compiler.program import Program
from ..errors import BudgetError, UsageError
from ..importer import load_onnx
from ..ops.model import Model
from .choices import compile_arguments
from .tables import account_lines, table, to_json

_FRONTIER_ROWS = 8
_PICTURES = (".svg", ".png")


def plan(arguments: Namespace) -> int:
    """Print the account, or as JSON; draw it where asked."""
    picture = getattr(arguments, "picture", None)
    if picture is not None and Path(picture).suffix not in _PICTURES:
        raise UsageError(f"--picture {picture}: expected a name that ends in .svg or .png.")
    program, chosen, front = _compiled(arguments)
    account = dict(program.account)
    if picture is not None:
        from .picture import draw_plan

        draw_plan(chosen, picture, account.get("budget_nbytes"))
    if arguments.json:
        print(to_json(account))
        return 0
    print("\n".join(account_lines(account)))
    print("\n".join(_frontier_lines(front, chosen)))
    return 0


def compile(arguments: Namespace) -> int:
    """Write the Program."""
    program, _, _ = _compiled(arguments)
    path = program.save(arguments.out)
    if arguments.json:
        print(to_json({"path": str(path), **program.account}))
        return 0
    print("\n".join(account_lines(program.account)))
    print(f"wrote {path} ({path.stat().st_size:,} bytes)")
    return 0


def compiled(arguments: Namespace) -> Program:
    """The Program of `arguments.model`, an ONNX file, with the options given."""
    return _compiled(arguments)[0]


def _compiled(arguments: Namespace) -> tuple[Program, Plan, list[Plan]]:
    given = compile_arguments(arguments)
    budget = given.pop("budget", None)
    options = make_options(**given)
    model = load_onnx(arguments.model)
    _say_warnings(model)
    try:
        chosen, front, facts = plan_model(model, options, budget)
    except BudgetError as error:
        if arguments.json and arguments.command == "plan":
            infeasible = {
                "feasible": False, "arena_nbytes": None, "budget_nbytes": budget,
                "min_budget_nbytes": error.min_budget_nbytes, "error": str(error),
            }  # fmt: skip
            print(to_json(infeasible), flush=True)
        raise
    return assemble(model, options, chosen, facts), chosen, front


def _say_warnings(model: Model) -> None:
    for warning in model.warnings:
        print(f"note: {warning}", file=sys.stderr)


def _frontier_lines(front: Sequence[Plan], chosen: Plan) -> list[str]:
    """A few plans between the smallest and the fastest, the chosen one among them."""
    last = len(front) - 1
    count = min(_FRONTIER_ROWS, len(front))
    wanted = {round(k * last / max(1, count - 1)) for k in range(count)}
    at = next(k for k, plan in enumerate(front) if plan is chosen)
    fastest = front[-1].cost
    rows = [
        (
            f"{front[k].arena_nbytes:,}",
            str(front[k].candidate.microbatch),
            f"{100 * front[k].extra_forward:.1f} %",
            f"{front[k].cost / fastest:.2f}",
            "chosen" if k == at else "",
        )
        for k in sorted(wanted | {at})
    ]
    head = ("bytes", "microbatch", "recomputed", "time", "")
    return [
        f"plans ({len(front)} found; time relative to the fastest)",
        *table(rows, "rrrrl", head),
    ]
