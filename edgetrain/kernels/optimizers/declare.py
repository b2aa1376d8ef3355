"""Declares the kernels of an optimizer's rule; frame.py has what they share."""

from collections.abc import Callable, Sequence
from typing import Any

from ..registry import kernel, of_numbers
from .rule import Rule
from .states import CHUNKS, State

# Operands of an update of a layer of the pool, in place of n; see spans.py.
LAYER_OPERANDS = "pointers:r:i32[groups+1] ctl:m:i64[64] slots groups room key=compared"
LAYER_CHECK = "min(slots, groups, room) > 0;room <= slots"


def declare(rule: Rule) -> None:
    """Register NAME and, unless the rule has sums, csr_NAME for a layer's slots of the pool, each
    also with vectors if the rule is wide. With sums, NAME_sums computes them before NAME runs."""
    roles = {"w": "parameter", "g": "accumulator"} | {s.operand: "state" for s in rule.states}
    writes = " ".join(f"{operand}={role}" for operand, role in roles.items())
    letters = letters_of(rule.states)
    declaration = {"module": rule.module, "blocks": " ".join(letters)}
    words = f"ctl:m:i64[64] n key=compared {rule.numbers}"
    sums = f"sums:{{}}:f64[{CHUNKS * rule.sums}] " if rule.sums else ""
    if rule.sums:
        read = f"{_operands(rule, 'r', 'n', 'n')} {sums.format('m')}ctl:r:i64[64] n {rule.numbers}"
        kernel(f"{rule.name}_sums", read, **declaration)(_factory(rule, "sums"))
    declaration |= {"writes": writes}
    moved = f"{_operands(rule, 'm', 'n', 'n')} {sums.format('r')}{words}"
    kernel(rule.name, moved, **declaration)(_factory(rule, "whole"))
    when = " and ".join(["lanes > 1", *map(of_numbers, letters)])
    if rule.wide:
        kernel(rule.name, moved, **declaration, variant="wide", when=when)(_factory(rule, "wide"))
    if not rule.sums:
        words = f"{LAYER_OPERANDS} {rule.numbers}"
        layer = f"{_operands(rule, 'm', 'slots', 'room')} {words}"
        declaration |= {"blocks": "", "check": LAYER_CHECK}
        kernel(f"csr_{rule.name}", layer, **declaration)(_factory(rule, "layer"))
        if rule.wide:
            wide = _factory(rule, "wide_layer")
            kernel(f"csr_{rule.name}", layer, **declaration, variant="wide", when=when)(wide)


def letters_of(states: Sequence[State]) -> list[str]:
    """Storage variables of a declaration: W, G, then one for each state."""
    out = ["W", "G"]
    for state in states:
        letter = state.operand[0].upper()
        free = (chr(code) for code in range(ord("A"), ord("Z")) if chr(code) not in out)
        out.append(letter if letter not in out else next(free))
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
    """Factory of a kernel; `form` is the name of a function in frame.py."""

    def factory(*storages: Any) -> Callable:
        from . import frame

        return getattr(frame, form)(rule, *storages)

    return factory
