"""The update tape: gradient norm, skip decision, commit of running statistics, the optimizer's
calls for each parameter, and the counters that end a step.

Also the rewire tape, which is empty if no weight is sparse or the pattern is fixed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...formats.csr import POOL, Layer
from ...ir import Call, Graph, Value
from ...ir.keys import key_of
from ...kernels.cache import jit
from ...optim import Optimizer
from ...optim.base import CHUNKS, PARTIALS
from ...optim.loss_scale import loss_scale_of
from ...sparse import Rewiring
from ..arena.problem import aligned
from ..model.groups import update_calls
from ..options import Options
from ..passes.autodiff import accumulator_name
from ..passes.batch_norm import staged_name
from ..passes.fused_update import states_of, trained
from ..passes.touched_rows import spread_updates, spread_value
from .lowering import Instruction, bind_call
from .steps import ALIGN


@dataclass(frozen=True)
class UpdateTape:
    """Instructions of an update and every persistent value of the run, including optimizer state.

    Attributes:
      rewire: instructions of a rewiring; they need no scratch.
      calls, rewire_calls: the calls that the instructions were made from, on `values`.
      mapped: values that stay in the Program's file; `persistent` does not contain them.
      sums_nbytes: size of the sums at PARTIALS, which begin the transient bytes of an update and
        end with `rows_nbytes` of SPREAD (passes/touched_rows.py).
    """

    instructions: tuple[Instruction, ...]
    rewire: tuple[Instruction, ...]
    calls: tuple[Call, ...]
    rewire_calls: tuple[Call, ...]
    values: Mapping[str, Value]
    persistent: tuple[Value, ...]
    persistent_nbytes: int
    sums_nbytes: int
    transient_nbytes: int
    rows_nbytes: int = 0
    mapped: tuple[Value, ...] = ()


def update_tape(
    graph: Graph,
    options: Options,
    target: jit.Target,
    layers: Sequence[Layer] = (),
    method: Rewiring | None = None,
    optimizers: Mapping[str, Optimizer] | None = None,
) -> UpdateTape:
    """Build the update of every parameter that has an accumulator in `graph`.

    Args:
      optimizers: by parameter, where it differs from the run's optimizer.
    """
    states = states_of(graph, options)
    persistent = {n: v for n, v in graph.values.items() if v.persistent and not v.view_of}
    calls = _calls(graph, options, persistent, states, optimizers or {})
    rewire: list[Call] = []
    if layers and method is not None:
        calls += method.due_calls()
        roots = {s.name for s in states[POOL] if options.optimizer.is_root(s)}
        rewire = method.calls(layers, states[POOL], roots)
    calls = spread_updates(calls, graph)
    persistent |= {value.name: value for state in states.values() for value in state}
    count = CHUNKS * max(1, options.optimizer.sums)
    partials, spread = Value(PARTIALS, (count,), "f64", "statistic"), spread_value(graph)
    transient = {value.name: value for value in (partials, spread) if value is not None}
    scope = replace(graph, values={**persistent, **transient})
    instructions = tuple(bind_call(call, scope, options.threads, target) for call in calls)
    workspace = max((i.scratch for i in instructions), default=0) * options.threads
    rows_nbytes = aligned(spread.nbytes, ALIGN) if spread is not None else 0
    sums_nbytes = aligned(partials.nbytes, ALIGN) + rows_nbytes
    placed = _in_place_order([value for value in persistent.values() if not value.mapped])
    return UpdateTape(
        instructions,
        rewire=tuple(bind_call(call, scope, options.threads, target) for call in rewire),
        calls=tuple(calls),
        rewire_calls=tuple(rewire),
        values=scope.values,
        persistent=placed,
        persistent_nbytes=sum(aligned(value.nbytes, ALIGN) for value in placed),
        sums_nbytes=sums_nbytes,
        transient_nbytes=sums_nbytes + workspace,
        rows_nbytes=rows_nbytes,
        mapped=tuple(value for value in persistent.values() if value.mapped),
    )


def _calls(
    graph: Graph,
    options: Options,
    persistent: Mapping[str, Value],
    states: Mapping[str, list[Value]],
    optimizers: Mapping[str, Optimizer],
) -> list[Call]:
    """The kernel calls of an update without rewiring."""
    statistics = [(n, staged_name(n), v.size) for n, v in persistent.items()]
    moving = [(n, staged, c) for n, staged, c in statistics if staged in persistent]
    check = [Call("stat_check", {"s": s, "partials": PARTIALS, "n": c}) for _, s, c in moving]
    commit = [Call("stat_commit", {"s": s, "r": r, "ctl": "ctl", "n": c}) for r, s, c in moving]
    is_scaled = options.optimizer.is_scaled
    scaled = any(is_scaled(value) for state in states.values() for value in state)
    finish = {"partials": PARTIALS, "ctl": "ctl"}
    if options.fused_update:
        calls = [Call("fused_sums", {"partials": PARTIALS}), *check]
        calls += [Call("fused_finish", finish), *commit]
    else:
        ready = [*commit, Call("state_begin", {"ctl": "ctl"})] if scaled else commit
        finishing = [*check, Call("grad_finish", finish)]
        calls = _updates(graph, options, states, finishing, ready, optimizers)
    if scaled:
        calls.append(Call("state_end", {"ctl": "ctl"}))
    return [*calls, loss_scale_of(options.precision, options.loss_scale).call()]


def _in_place_order(values: Sequence[Value]) -> tuple[Value, ...]:
    """The order of values in the arena. Constants are last because their shapes may depend on a
    length, and persistent values need the same offsets at every length (program/sets.py).
    """
    return tuple(sorted(values, key=lambda value: value.role == "constant"))


def _updates(
    graph: Graph,
    options: Options,
    states: Mapping[str, list[Value]],
    finish: Sequence[Call],
    commit: Sequence[Call],
    optimizers: Mapping[str, Optimizer],
) -> list[Call]:
    """The norm of all gradients, calls that depend on it, and each parameter's update.

    Args:
      finish: calls after the norm; the last one is `grad_finish`.
      commit: calls after the decision to skip the update or not.
    """
    optimizer, parameters = options.optimizer, trained(graph)
    b1, b2 = optimizer.betas
    *check, last = finish
    decide = {"max_norm": options.max_grad_norm, "c1": 1.0 - b1, "c2": 1.0 - b2}
    sums, updates = [], []
    for k, parameter in enumerate(parameters):
        grad = graph.values[accumulator_name(parameter.name)]
        args: dict = {"g": grad.name, "partials": PARTIALS, "n": grad.size, "first": int(k == 0)}
        sums.append(Call("grad_sumsq", args))
        key = key_of(f"update {parameter.name}")
        updates += update_calls(optimizer, optimizers, parameter, grad, states[parameter.name], key)
    if not sums:  # only inputs have gradients
        sums.append(Call("fused_sums", {"partials": PARTIALS}))
    return [*sums, *check, replace(last, args={**last.args, **decide}), *commit, *updates]
