"""Drawings of `plan`: the arena, the frontier, and a page with both."""

import shlex

from ...errors import UsageError
from ...program.atomic import check_target
from ...report.arena_chart import arena_chart
from ...report.charts import frontier_chart
from ...report.moving_arena import moving_arena
from ...report.plan_page import plan_page
from ...report.scene import title_of
from ...report.writing import ENDINGS, check_ending, write_picture
from ..commands.compiled import Compiled
from ..parser.namespace import Namespace
from .picture import plan_arena, plan_beside, plan_frontier

_DRAWN = {"picture": ENDINGS, "pareto": ENDINGS, "report": (".html",)}


def check(arguments: Namespace) -> None:
    """Refuse unusable file names before planning."""
    if arguments.moving and not str(arguments.picture or "").endswith(".svg"):
        raise UsageError("--moving: it needs --picture FILE.svg. Add it.")
    for option, endings in _DRAWN.items():
        name = getattr(arguments, option)
        if name:
            check_ending(name, f"--{option}", endings)
            check_target(name, f"--{option}")


def draw(arguments: Namespace, found: Compiled) -> None:
    """Write the requested pictures and the page."""
    program, chosen, front = found[:3]
    budget, name = program.account.get("budget_nbytes"), title_of(arguments.model)
    if arguments.picture or arguments.report:
        arena = plan_arena(chosen, name, program.minibatch, budget)
    if arguments.picture:
        draws = moving_arena if arguments.moving else arena_chart
        write_picture(draws(arena), arguments.picture)
    frontier = plan_frontier(front, chosen)
    if arguments.pareto:
        picture = frontier_chart(frontier.points, frontier.chosen, budget)
        write_picture(picture, arguments.pareto)
    if arguments.report:
        beside = plan_beside(front, chosen)
        command = shlex.join(["edgetrain", *arguments.argv])
        plan_page(name, arena, program.account, frontier, beside, command).write(arguments.report)
