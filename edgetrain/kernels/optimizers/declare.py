"""An optimizer as its arithmetic: how it moves one weight, and the kernels that are made of that.

An optimizer says what becomes of one weight; `declare` registers its kernels, and frame.py has all
that optimizers share: spans and threads, skipped updates, formats and rounding, zeroed gradients.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..registry import kernel
from .states import CHUNKS, State

# What an update takes of a layer of the pool in place of n: spans.py.
LAYER_OPERANDS = "pointers:r:i32[groups+1] ctl:m:i64[64] slots groups room key"
LAYER_CHECK = "min(slots, groups, room) > 0;room <= slots"


class Arithmetic(NamedTuple):
    """Functions that kernels are made of, on numbers or vectors of them (language/number.py).

    Attributes:
      begin: (k, rate) -> what one update multiplies by, for all weights. k has the operands, such
        as k.ctl and the numbers that were declared; rate is the learning rate in float64.
      move: (k, by, w, g, states) -> (w, states): one weight, by its gradient, a mean over targets.
        by is what `begin` gave, or `settle`.
      terms: (k, by, w, g, states) -> float64 numbers that are summed up over the weight before any
        of it moves; None where nothing is.
      settle: (k, by, sums) -> what `move` takes for `by`, of those sums.
    """

    begin: Callable
    move: Callable
    terms: Callable | None = None
    settle: Callable | None = None


class Rule(NamedTuple):
    """What `declare` is told of an optimizer.

    Attributes:
      name: of its kernel.
      states: in the order of the kernel's operands, four at most.
      numbers: further operands, as a declaration has them: `b1:f wd:f nesterov`.
      arithmetic: called where a kernel is compiled, so that nothing is imported before.
      sums: numbers that `terms` gives.
      wide: by vectors too, where the processor has them and formats are fp32 or fp16.
      module: that declares it.
    """

    name: str
    states: Sequence[State]
    numbers: str
    arithmetic: Callable[[], Arithmetic]
    sums: int
    wide: bool
    module: str


def declare(rule: Rule) -> None:
    """Register NAME, and csr_NAME for a layer's slots of the pool; with sums, NAME_sums that runs
    before NAME and has them made."""
    roles = {"w": "parameter", "g": "accumulator"} | {s.operand: "state" for s in rule.states}
    writes = " ".join(f"{operand}={role}" for operand, role in roles.items())
    letters = letters_of(rule.states)
    texts = {"module": rule.module, "blocks": " ".join(letters)}
    own = f"ctl:m:i64[64] n key {rule.numbers}"
    sums = f"sums:{{}}:f64[{CHUNKS * rule.sums}] " if rule.sums else ""
    if rule.sums:
        read = f"{_operands(rule, 'r', 'n', 'n')} {sums.format('m')}ctl:r:i64[64] n {rule.numbers}"
        kernel(f"{rule.name}_sums", read, **texts)(_factory(rule, "sums"))
    texts |= {"writes": writes}
    moved = f"{_operands(rule, 'm', 'n', 'n')} {sums.format('r')}{own}"
    kernel(rule.name, moved, **texts)(_factory(rule, "whole"))
    if rule.wide:
        short = " and ".join(f"({letter} == 'f32' or {letter} == 'f16')" for letter in letters)
        when = f"lanes > 1 and {short}"
        kernel(rule.name, moved, **texts, variant="wide", when=when)(_factory(rule, "wide"))
    if not rule.sums:
        own = f"{LAYER_OPERANDS} {rule.numbers}"
        layer = f"{_operands(rule, 'm', 'slots', 'room')} {own}"
        texts |= {"blocks": "", "check": LAYER_CHECK}
        kernel(f"csr_{rule.name}", layer, **texts)(_factory(rule, "layer"))


def letters_of(states: Sequence[State]) -> list[str]:
    """Storage variables of a declaration: W, G, one for each state."""
    out = ["W", "G"]
    for state in states:
        own = state.operand[0].upper()
        free = (chr(code) for code in range(ord("A"), ord("Z")) if chr(code) not in out)
        out.append(own if own not in out else next(free))
    return out


def _operands(rule: Rule, mode: str, count: str, room: str) -> str:
    """w, g and states of a declaration; `room` is the size of g."""
    weight, gradient, *letters = letters_of(rule.states)
    states = (
        f"{state.operand}{'?' * state.optional}:{mode}:{letter}[{count}]"
        for state, letter in zip(rule.states, letters, strict=True)
    )
    return " ".join([f"w:{mode}:{weight}[{count}]", f"g:{mode}:{gradient}[{room}]", *states])


def _factory(rule: Rule, form: str) -> Callable:
    """Of a kernel; a form is a function of frame.py."""

    def factory(*storages: Any) -> Callable:
        from . import frame

        return getattr(frame, form)(rule, *storages)

    return factory
