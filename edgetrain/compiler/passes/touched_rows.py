"""Stores gradients of embeddings only for rows that a minibatch touches.

The gradient of an embedding table is nonzero only at rows of tokens in the minibatch, so the number
of these rows is at most the number of tokens. If that is less than the number of words, the
accumulator has one row per token, assigned in order of occurrence, and a map from word to row. The
update expands it for some words at a time, with zeros elsewhere, so optimizers see the same
gradient as before: float32 weights get the same bits. Stochastic rounding uses other random
numbers, and the gradient norm is summed over other chunks.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ...errors import ModelError, UsageError
from ...formats import decoded
from ...ir import Call, Graph, Node, Value
from ...units.memory_options import ROWS
from ..options import Options
from .autodiff import accumulator_name

SPREAD = "update.rows"  # the value with the words that an update is processing
_MOST, _PARTS = 2**18, 16  # its largest size in float32 numbers; the fewest parts of a table
_LAST = ".rows"  # suffix of a map's name, after the name of its gradient


def map_name(gradient: str) -> str:
    """Name of the map from rows of a table to rows of its gradient."""
    return f"{gradient}{_LAST}"


def by_touched_rows(graph: Graph, options: Options, microbatch: int) -> Graph:
    """The training graph with gradients by rows, if `options` allow it.

    Raises:
      ModelError: rows are allowed, but no table has more rows than a minibatch can use.
      UsageError: rows are allowed together with fused_update.
    """
    if ROWS not in options.allow:
        return graph
    if options.fused_update:
        raise UsageError(
            f"allow {ROWS}: it has no effect with fused_update. Leave one of them out."
        )
    values, rooms = dict(graph.values), _rooms(graph, options, options.minibatch // microbatch)
    if not rooms:
        raise ModelError(
            f"allow {ROWS}: no embedding table has more rows than a minibatch of "
            f"{options.minibatch} samples can use (with optimizer {options.optimizer.name}). Leave "
            f"{ROWS} out."
        )
    nodes: list[Node] = []
    for node in graph.nodes:
        out = node.outputs[0] if node.outputs else ""
        if out in rooms:
            table, room = values[out], rooms[out]
            rows = graph.values[out].shape[0]
            index = values[node.inputs[1]]
            places = Value(f"{node.name}.places", (index.size,), "i32", "statistic")
            known = Value(map_name(out), (rows + 1,), "i32", "accumulator")
            values |= {places.name: places, known.name: known}
            values[out] = replace(table, shape=(room, *table.shape[1:]))
            attrs = {"rows": rows, "room": room}
            nodes.append(
                Node(
                    places.name,
                    "row_places",
                    (index.name,),
                    (places.name, known.name),
                    attrs,
                    node.phase,
                    node.origin,
                )
            )
            node = replace(node, inputs=(node.inputs[0], places.name))
        nodes.append(node)
    return graph.with_nodes(nodes, values)


def _rooms(graph: Graph, options: Options, microbatches: int) -> dict[str, int]:
    """{gradient of a table: maximal number of rows a minibatch touches}, if that is fewer."""
    written: dict[str, list[Node]] = {}
    for node in graph.nodes:
        for name in node.writes:
            written.setdefault(graph.root(name), []).append(node)
    out = {}
    for name, parameter in graph.values.items():
        gradient = accumulator_name(name)
        writers = written.get(gradient, [])
        if parameter.role != "parameter" or not writers or len(parameter.shape) != 2:
            continue
        by_index = all(
            node.op == "gather_bwd" and node.attrs["axis"] == 0 and node.outputs == (gradient,)
            for node in writers
        )
        if not by_index:
            continue
        tokens = microbatches * sum(graph.values[node.inputs[1]].size for node in writers)
        if tokens < parameter.shape[0] and _elementwise(parameter, options):
            out[gradient] = tokens
    return out


def _elementwise(parameter: Value, options: Options) -> bool:
    """Whether the optimizer treats each element of a table independently, in one call."""
    optimizer = options.optimizer
    state = optimizer.init(parameter)
    calls = optimizer.update(parameter, parameter, state, 0)
    return not optimizer.sums and len(calls) == 1 and {s.size for s in state} <= {parameter.size}


def spread_value(graph: Graph) -> Value | None:
    """The value into which an update expands words; None if no gradient is stored by rows."""
    sizes = []
    for name in _by_rows(graph):
        width = graph.values[name].shape[1]
        sizes.append(_step(graph.values[map_name(name)].size - 1, width) * width)
    return Value(SPREAD, (max(sizes),), "f32", "statistic") if sizes else None


def _by_rows(graph: Graph) -> Iterator[str]:
    for name in graph.values:
        if name.endswith(_LAST) and graph.values[name].role == "accumulator":
            yield name.removesuffix(_LAST)


def _step(rows: int, width: int) -> int:
    """Words per part: whole blocks of 64 elements in any storage; part of a small table."""
    return max(64, min(_MOST // width, rows // _PARTS) // 64 * 64)


def spread_updates(calls: Sequence[Call], graph: Graph) -> list[Call]:
    """Calls of an update; for a gradient stored by rows, one call for each part of the table."""
    gradients = set(_by_rows(graph))
    out: list[Call] = []
    for call in calls:
        gradient = call.args.get("g")
        if gradient in gradients and call.kernel != "grad_sumsq":
            out += _parts(call, graph.values[gradient], graph.values)
        else:
            out.append(call)
    return out


def _parts(call: Call, gradient: Value, values: Mapping[str, Value]) -> Iterator[Call]:
    room, width = gradient.shape
    known = values[map_name(gradient.name)]
    rows, step = known.size - 1, _step(known.size - 1, width)
    size = rows * width
    for start in range(0, rows, step):
        count = min(step, rows - start)
        spread = {"x": gradient.name, "map": known.name, "y": SPREAD}
        sizes = {"count": count, "width": width, "room": room}
        yield Call("row_spread", spread | sizes, {"map": start} if start else {})
        moved = [
            name
            for name, arg in call.args.items()
            if isinstance(arg, str) and arg not in ("ctl", gradient.name)
        ]
        key = (call.args["key"] + start) & 0x7FFFFFFF
        args = {**call.args, "g": SPREAD, "n": count * width, "key": key}
        assert call.args["n"] == size, call
        yield Call(call.kernel, args, dict.fromkeys(moved, start * width) if start else {})
    yield Call(
        "row_reset",
        {"g": gradient.name, "g_map": known.name, "n": gradient.size, "size": known.size},
    )


def whole(arrays: Mapping[str, np.ndarray], gradient: str, shape: tuple[int, ...]) -> np.ndarray:
    """A gradient in its parameter's shape, decoded, with zeros in untouched rows.

    Args:
      arrays: stored persistent values by name.
    """
    known = arrays.get(map_name(gradient))
    if known is None:
        return decoded(arrays[gradient], shape)
    touched, out = np.flatnonzero(known[:-1]), np.zeros(shape, np.float32)
    rows = decoded(arrays[gradient]).reshape(-1)
    room = rows.size // shape[1]
    out[touched] = rows[: room * shape[1]].reshape(room, shape[1])[known[touched] - 1]
    return out
