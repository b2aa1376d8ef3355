"""`advise`: the best ways to train a model within a budget, each with its command."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...api import make_options
from ...compiler.plan.advise import Advice, advise, best, sacrifice
from ...importer import load_onnx
from ...screen.tables import table, to_json
from ...units import format_bytes
from ...units.efforts import QUICK
from ...units.options import flag
from ...units.phases import phase
from ...units.wording import counted, quoted
from ..parser.choices import compile_arguments
from ..parser.namespace import Namespace

_DOES_NOT_FIT = 3
_SHOWN = 3
_OWN = ("--json", "--debug", "--all")  # options of the command itself


def run(arguments: Namespace) -> int:
    """Print the ways to train the model that give up least; with --all, all of them."""
    given = {"effort": QUICK, **compile_arguments(arguments)}
    budget = given.pop("budget", None)
    with phase(f"reading {arguments.model}"):
        model = load_onnx(arguments.model)
    result = advise(model, make_options, given, budget)
    most = best(result)
    words = ["edgetrain", "plan", *(w for w in arguments.argv[1:] if w not in _OWN)]
    rows = [_facts(advice, advice is most, words) for advice in result]
    status = 0 if most is not None else _DOES_NOT_FIT
    if arguments.json:
        print(to_json({"model": arguments.model, "budget_nbytes": budget, "ways": rows}))
        return status
    order = range(len(rows)) if arguments.all else _least(result)
    print("\n".join(_lines(rows, order, budget)))
    return status


def _facts(advice: Advice, most: bool, words: Sequence[str]) -> dict[str, Any]:
    plan = advice.plan
    command = " ".join(map(quoted, [*words, *_option_words(advice.way.options)]))
    return {
        "what": advice.way.what, "how": advice.way.how, "trained": advice.trained,
        "fits": plan is not None, "trains_most": most,
        "arena_nbytes": None if plan is None else plan.arena_nbytes,
        "min_budget_nbytes": advice.least_nbytes, "mapped_nbytes": advice.mapped_nbytes,
        "microbatch": None if plan is None else plan.candidate.microbatch,
        "seconds_per_minibatch": None if plan is None else advice.seconds, "command": command,
    }  # fmt: skip


def _option_words(options: Mapping[str, Any]) -> Iterator[str]:
    """Compiler options as they are typed."""
    for name, value in options.items():
        for item in value if isinstance(value, tuple) else (value,):
            yield from (flag(name), str(item))


def _least(found: Sequence[Advice]) -> list[int]:
    """The rows to show: those that fit and give up least, or else those closest to fitting."""
    fitting = [k for k, advice in enumerate(found) if advice.plan is not None]
    if fitting:
        return sorted(fitting, key=lambda k: sacrifice(found[k]))[:_SHOWN]
    return sorted(range(len(found)), key=lambda k: found[k].least_nbytes)[:_SHOWN]


def _lines(rows: Sequence[Mapping[str, Any]], order: Sequence[int], budget: int | None):
    room = "" if budget is None else f" in {budget:,} bytes ({format_bytes(budget)})"
    count = sum(row["fits"] for row in rows)
    every = len(order) == len(rows)
    kind = "fastest" if every else "smallest change" if count else "closest"
    more = "" if every else f"; {len(order)} shown, --all shows every way"
    yield f"{count} of {counted(len(rows), 'way')} to train it fit{room}, {kind} first{more}:"
    mapped = any(rows[k]["mapped_nbytes"] for k in order)
    shown = [
        (
            f"{number}",
            row["what"],
            row["how"],
            f"{row['trained']:,}",
            f"{row['arena_nbytes']:,}" if row["fits"] else "-",
            f"{row['min_budget_nbytes']:,}",
            *([f"{row['mapped_nbytes']:,}"] if mapped else []),
            f"{1000 * row['seconds_per_minibatch']:.3g} ms" if row["fits"] else "-",
            _mark(row),
        )
        for number, row in enumerate((rows[k] for k in order), 1)
    ]
    beside = ("mapped",) if mapped else ()
    head = ("", "trained", "stored", "numbers", "bytes", "at least", *beside, "a minibatch", "")
    yield from table(shown, f"rllrrr{'r' * mapped}rl", head)
    if mapped:
        yield "mapped: bytes of frozen weights that stay in the Program file, not in the arena"
    yield "commands (compile and train take the same options):"
    yield from (f"  {number}  {rows[k]['command']}" for number, k in enumerate(order, 1))


def _mark(row: Mapping[str, Any]) -> str:
    if row["trains_most"]:
        return "fits, trains most"
    return "fits" if row["fits"] else "too large"
