"""Finds the parameters with their own optimizer: the groups of the options, matched by name."""

from collections.abc import Mapping, Sequence

import numpy as np

from ...errors import UsageError
from ...formats.csr import POOL, Layer
from ...ir import Call, Value
from ...ops.model import Model
from ...ops.onnx_ops import onnx_op
from ...optim import Optimizer
from ...optim.groups import optimizer_of
from ..options import Options
from .trained import Choice

_NAMED = 30  # parameters in a message


def own_optimizers(
    model: Model, options: Options, choice: Choice, layers: Sequence[Layer] = ()
) -> dict[str, Optimizer]:
    """Parameter -> its optimizer, if it is not that of the run.

    Args:
      layers: of the pool, which is one parameter.
    Raises:
      UsageError: a pattern matches no trained parameter, a group has a rate although the run's is
        0, or the groups of the pool's layers differ.
    """
    base, groups = options.optimizer, options.groups
    if not groups and not options.no_decay_1d:
        return {}
    names: dict[str, list[str]] = {name: [name] for name in model.parameters if choice(name)}
    for alias, kept in model.aliases.items():
        if kept in names:
            names[kept].append(alias)
    for group in groups:
        if not any(group.names(aliases) for aliases in names.values()):
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            raise UsageError(
                f"group {group.pattern!r}: it matches none of the {len(names)} trained parameters: "
                f"{', '.join([*names][:_NAMED])}{more}."
            )
        if group.lr and not base.lr:
            raise UsageError(
                f"group {group.pattern!r}: lr {group.lr:g} is stored as a multiple of the learning "
                "rate, which is 0. Freeze the other parameters (--train, --freeze) instead."
            )
    out, vectors = {}, _vectors(model)
    for name, aliases in names.items():
        decays = not options.no_decay_1d or name not in vectors
        optimizer = optimizer_of(base, groups, aliases, decays)
        if optimizer != base:
            out[name] = optimizer
    if layers:
        out |= _of_pool(base, out, layers)
    return out


def _vectors(model: Model) -> set[str]:
    """The parameters with fewer than two axes, without one of directions."""
    read = {
        node.inputs[k]
        for node in model.nodes
        for k in onnx_op(node.op_type).vectors
        if k < len(node.inputs)
    }
    return {n for n in model.parameters if n in read or model.initializers[n].ndim < 2}


def _of_pool(
    base: Optimizer, optimizers: Mapping[str, Optimizer], layers: Sequence[Layer]
) -> dict[str, Optimizer]:
    first = optimizers.get(layers[0].name, base)
    for layer in layers:
        other = optimizers.get(layer.name, base)
        if other != first:
            raise UsageError(
                f"group: sparse layers are updated together, but {layers[0].name!r} has lr "
                f"{first.lr:g} and weight decay {first.weight_decay:g}, {layer.name!r} has "
                f"{other.lr:g} and {other.weight_decay:g}. Give all of them the same, or keep one "
                f"dense: --density-override '{layer.name}=1'."
            )
    return {} if first == base else {POOL: first}


def update_calls(
    base: Optimizer,
    optimizers: Mapping[str, Optimizer],
    parameter: Value,
    grad: Value,
    state: list[Value],
    key: int,
) -> list[Call]:
    """The calls that update a parameter with its own optimizer and rate."""
    optimizer = optimizers.get(parameter.name, base)
    calls = optimizer.update(parameter, grad, state, key)
    if optimizer.lr == base.lr:
        return calls
    ratio = optimizer.lr / base.lr
    high = float(np.float32(ratio))
    begin = Call("group_begin", {"ctl": "ctl", "high": high, "low": ratio - high})
    return [begin, *calls, Call("group_end", {"ctl": "ctl"})]
