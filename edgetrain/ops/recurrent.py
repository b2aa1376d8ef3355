"""LSTM, GRU and RNN over a whole sequence: one node each, which loops inside its kernels.

Inputs x [t, b, i], w [d, gates * n, i], r [d, gates * n, n], bias, lens, h0, c0, peepholes (all but
the first three may be ""); outputs in the order of attrs['made'], `y` [t, d, b, n] always. attrs:
n, back (0 forward, 1 in reverse, 2 both), after (GRU's linear_before_reset), relu (RNN).
Saved: gates after their activations (a GRU: one slot more), an LSTM's cells, the states y.
Backward turns the gates into their gradients in place; gradients of w, r, bias and x are nodes of
their own that read them.
"""

from typing import Any

import numpy as np

from ..ir import Graph, Node, Value
from .registry import Call, Op, onnx_rule, register
from .storing import store_as
from .strides import contiguous, prod

GATES = {"lstm": 4, "gru": 3, "rnn": 1}
SLOTS = {"lstm": 4, "gru": 4, "rnn": 1}
_INPUTS = ("x", "w", "r", "bias", "lens", "h0", "c0", "peep")


def _outputs(node: Node) -> dict[str, str]:
    return dict(zip(node.attrs["made"], node.outputs, strict=True))


def _sizes(attrs) -> dict[str, int]:
    """t, b, d, n, back of every kernel."""
    return {key: attrs[key] for key in ("t", "b", "d", "n", "back")}


def _kind(attrs) -> int:
    """How a GRU's third gate meets the states (kernels/recurrent/grad.py)."""
    return (1 if attrs["after"] else 2) if attrs["cell"] == "gru" else 0


def _extra(attrs) -> dict[str, int]:
    """The integers that one kind of cell has."""
    return {"gru": {"after": attrs["after"]}, "rnn": {"relu": attrs["relu"]}, "lstm": {}}[
        attrs["cell"]
    ]


def _product(a: Value, b: Value, c: Value, **strides) -> Call:
    """A gemm over directions (z1) of whole values."""
    names = ("z2", "az1", "az2", "am", "ak2", "ak", "bz1", "bz2", "bn", "bk2", "bk", "cz1", "cz2")
    args: dict = dict.fromkeys(names, 0) | {"z1": 1, "z2": 1, "k2": 1, "alpha": 1.0}
    args |= {"a": a.name, "b": b.name, "c": c.name, "bias": None, "ctl": None}
    args |= {"na": a.size, "nb": b.size, "nc": c.size, "acc": 0, "sr": 0, "key": 0}
    return Call("gemm", args | strides)


class Recurrent(Op):
    """One of lstm, gru, rnn."""

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        inputs: dict[str, Any] = {
            key: name or None for key, name in zip(_INPUTS, node.inputs, strict=True)
        }
        made, attrs = _outputs(node), node.attrs
        x, w, gates = (graph.values[n] for n in (inputs["x"], inputs["w"], made["gates"]))
        rows, width, slots = attrs["t"] * attrs["b"], GATES[self.name] * attrs["n"], gates.shape[-1]
        i = x.shape[-1]
        projection = _product(
            x, w, gates, z1=attrs["d"], m=rows, n=width, k=i, am=i, ak=1, bz1=width * i, bn=i,
            bk=1, cz1=rows * slots, cm=slots,
        )  # fmt: skip
        args: dict = {key: inputs[key] for key in ("r", "bias", "lens", "h0")}
        args |= {key: made.get(key) for key in ("y", "yh", "gates")} | _sizes(attrs) | _extra(attrs)
        if self.name == "lstm":
            args |= {"c0": inputs["c0"], "peep": inputs["peep"]}
            args |= {"cells": made["cells"], "yc": made.get("yc")}
        return [projection, Call(self.name, args)]

    def vjp(self, grads, node: Node) -> None:
        made, attrs = _outputs(node), dict(node.attrs)
        x, w, r, bias, lens, h0, c0, peep = node.inputs
        dy, dyh, dyc = (grads.of(made[k]) if k in made else "" for k in ("y", "yh", "yc"))
        if not (dy or dyh or dyc):
            return
        del attrs["made"]
        states = grads.value(made["y"]).shape[1:]
        slots = grads.value(made["gates"]).shape
        dgates = grads.builder.value(f"{made['gates']}.grad", slots, "f32", "gradient")
        dh0, dc0 = (
            grads.temporary(f"{name}.{tag}", states) if name and grads.needs(name) else ""
            for name, tag in ((h0, "dh0"), (c0, "dc0"))
        )
        saved = [made["gates"] if self.name != "rnn" else "", made.get("cells", ""), made["y"]]
        inputs = [*saved, dy, dyh, dyc, r, lens, h0, c0, peep]
        grads.emit(f"{self.name}_bwd", inputs, [dgates, dh0, dc0], attrs)
        parts = (
            (w, "recurrent_dw", [dgates, x]),
            (r, "recurrent_dr", [dgates, made["y"], lens, h0]),
            (bias, "recurrent_db", [dgates]),
            (peep, "recurrent_dp", [dgates, made.get("cells", ""), lens, c0]),
            (x, "recurrent_dx", [dgates, w]),
        )
        for name, op, operands in parts:
            if name and grads.needs(name):
                grads.contribute(name, op, operands, attrs)
        for name, part in ((h0, dh0), (c0, dc0)):
            if part:
                size = (prod(states),)
                grads.contribute(name, "copy", [part], {"moves": ((0, 0, 0, size, (1,), (1,)),)})

    def flops(self, node: Node, graph: Graph) -> int:
        x, w, r = (graph.values[name] for name in node.inputs[:3])
        return 2 * node.attrs["t"] * node.attrs["b"] * (w.size + r.size)


class RecurrentBackward(Op):
    """Outputs dgates (in place of gates), dh0, dc0: back through time."""

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        gates, cells, y, dy, dyh, dyc, r, lens, h0, c0, peep = (n or None for n in node.inputs)
        dgates, dh0, dc0 = (n or None for n in node.outputs)
        args: dict = {"r": r, "lens": lens, "dy": dy, "dyh": dyh, "dgates": dgates, "dh0": dh0}
        args |= {
            "lstm_bwd": {
                "gates": gates,
                "cells": cells,
                "dyc": dyc,
                "c0": c0,
                "dc0": dc0,
                "peep": peep,
            },
            "gru_bwd": {"gates": gates, "y": y, "h0": h0},
            "rnn_bwd": {"y": y},
        }[self.name]
        return [Call(self.name, args | _sizes(node.attrs) | _extra(node.attrs))]

    def inplace(self, node: Node) -> tuple[tuple[int, int], ...]:
        return ((0, 0),) if node.inputs[0] else ()

    def flops(self, node: Node, graph: Graph) -> int:
        return 2 * node.attrs["t"] * node.attrs["b"] * graph.values[node.inputs[6]].size


class InputWeightGrad(Op):
    """dw (+)= sum over steps and rows of dgates^T x."""

    rounds = True

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        dgates, x = (graph.values[name] for name in node.inputs[:2])
        out, attrs = graph.values[node.outputs[0]], node.attrs
        rows, width, i = attrs["t"] * attrs["b"], GATES[attrs["cell"]] * attrs["n"], x.shape[-1]
        slots = dgates.shape[-1]
        call = _product(
            dgates, x, out, z1=attrs["d"], m=width, n=i, k=rows, az1=rows * slots, am=1, ak=slots,
            bn=1, bk=i, cz1=width * i, cm=i,
        )  # fmt: skip
        return [Call("gemm", {**call.args, **store_as(node, graph, out)})]

    def flops(self, node: Node, graph: Graph) -> int:
        return 2 * node.attrs["t"] * node.attrs["b"] * graph.values[node.outputs[0]].size


class InputGrad(Op):
    """dx (+)= sum over directions of dgates w."""

    rounds = True

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        dgates, w = (graph.values[name] for name in node.inputs[:2])
        out, attrs = graph.values[node.outputs[0]], node.attrs
        rows, width, i = attrs["t"] * attrs["b"], GATES[attrs["cell"]] * attrs["n"], w.shape[-1]
        slots = dgates.shape[-1]
        call = _product(
            dgates, w, out, m=rows, n=i, k2=attrs["d"], k=width, am=slots, ak2=rows * slots, ak=1,
            bn=1, bk2=width * i, bk=i, cm=i,
        )  # fmt: skip
        return [Call("gemm", {**call.args, **store_as(node, graph, out)})]

    def flops(self, node: Node, graph: Graph) -> int:
        return 2 * node.attrs["t"] * node.attrs["b"] * graph.values[node.inputs[1]].size


class StateWeightGrad(Op):
    """dr (+)= sum over steps and rows of dgates^T (h of the step before)."""

    rounds = True

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        dgates, y, lens, h0 = node.inputs[:4]
        out = graph.values[node.outputs[0]]
        args: dict[str, Any] = {
            "dgates": dgates,
            "y": y,
            "lens": lens or None,
            "h0": h0 or None,
            "out": out.name,
        }
        return [Call(self.name, args | _gate_sizes(node) | store_as(node, graph, out))]

    def flops(self, node: Node, graph: Graph) -> int:
        return 2 * node.attrs["t"] * node.attrs["b"] * graph.values[node.outputs[0]].size


class BiasGrad(Op):
    """db (+)= sums of dgates over steps and rows."""

    rounds = True

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        out = graph.values[node.outputs[0]]
        args = {"dgates": node.inputs[0], "out": out.name}
        return [Call(self.name, args | _gate_sizes(node) | store_as(node, graph, out))]


class PeepholeGrad(Op):
    """dp (+)= sums over steps and rows of dgates times the cells that they looked at."""

    rounds = True

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        dgates, cells, lens, c0 = node.inputs[:4]
        out = graph.values[node.outputs[0]]
        args: dict[str, Any] = {
            "dgates": dgates,
            "cells": cells,
            "lens": lens or None,
            "c0": c0 or None,
        }
        args |= {"out": out.name} | _sizes(node.attrs)
        return [Call(self.name, args | store_as(node, graph, out))]


def _gate_sizes(node: Node) -> dict[str, int]:
    cell = node.attrs["cell"]
    sizes = {"slots": SLOTS[cell], "gates": GATES[cell], "kind": _kind(node.attrs)}
    return _sizes(node.attrs) | sizes


for _name in GATES:
    register(Recurrent(_name))
    register(RecurrentBackward(f"{_name}_bwd"))
register(InputWeightGrad("recurrent_dw"))
register(InputGrad("recurrent_dx"))
register(StateWeightGrad("recurrent_dr"))
register(BiasGrad("recurrent_db"))
register(PeepholeGrad("recurrent_dp"))

_DIRECTIONS = {"forward": 0, "reverse": 1, "bidirectional": 2}
_ACTIVATIONS = {"lstm": ["sigmoid", "tanh", "tanh"], "gru": ["sigmoid", "tanh"], "rnn": ["tanh"]}
_OPTIONS = {"clip": None, "input_forget": 0, "activation_alpha": None, "activation_beta": None}


@onnx_rule("LSTM", "GRU", "RNN", weights=(1, 2, 3, 7))
def recurrent(context, node) -> None:
    cell = node.op_type.lower()
    x, w, r = (context.value(node, k) for k in range(3))
    attrs = _attributes(node, cell, len(w.shape) == 3 and w.shape[0])
    if len(x.shape) != 3:
        raise node.fail(f"input of shape {list(x.shape)}", "[time, batch, features]")
    batched = node.attrs.get("layout", 0) == 1
    if batched:
        x = _transposed(context, node, x, (1, 0, 2), "x")
    t, b, i = x.shape
    d, n, gates = w.shape[0], r.shape[-1], GATES[cell]
    wanted: dict[str, tuple[int, ...]] = {"w": (d, gates * n, i), "r": (d, gates * n, n)}
    inputs = {"x": x, "w": w, "r": r}
    key: str
    shape: tuple[int, ...]
    for index, key, shape in (
        (3, "bias", (d, 2 * gates * n)),
        (4, "lens", (b,)),
        (5, "h0", (d, b, n)),
        (6, "c0", (d, b, n)),
        (7, "peep", (d, 3 * n)),
    ):
        given = _given(context, node, index, key, t)
        if given and batched and key in ("h0", "c0"):
            given = _transposed(context, node, given, (1, 0, 2), key)
        inputs[key], wanted[key] = given, shape
    for key, shape in wanted.items():
        if inputs[key] and inputs[key].shape != shape:
            raise node.fail(f"{key} of shape {list(inputs[key].shape)}", f"{list(shape)}")
    attrs |= {"t": t, "b": b, "d": d, "n": n}
    _emit(context, node, cell, [inputs[key] or "" for key in _INPUTS], attrs, batched)


def _attributes(node, cell: str, directions: int) -> dict:
    """back, after, relu; refuses by name what has no kernel."""
    back = _DIRECTIONS.get(node.attrs.get("direction", "forward"))
    if back is None or directions != (2 if back == 2 else 1):
        raise node.fail(f"direction {node.attrs.get('direction')!r}", "as many as the weights have")
    for name, default in _OPTIONS.items():
        if node.attrs.get(name, default) not in (default, []):
            raise node.fail(f"{name} {node.attrs[name]}", f"no {name}")
    given = [str(a).lower() for a in node.attrs.get("activations") or _ACTIVATIONS[cell]]
    usual = _ACTIVATIONS[cell]
    relu = cell == "rnn" and set(given) == {"relu"}
    if not relu and given not in (usual, usual * directions):
        raise node.fail(f"activations {given}", f"{usual}" + " or relu" * (cell == "rnn"))
    after = int(node.attrs.get("linear_before_reset", 0) != 0)
    return {"cell": cell, "back": back, "after": after, "relu": int(relu)}


def _given(context, node, index: int, key: str, t: int) -> Value | None:
    """An optional input; None for zero states, and for lengths that are the whole sequence's."""
    if not context.has(node, index):
        return None
    known = context.const(node, index)
    if known is not None and not np.any(known != (t if key == "lens" else 0)):
        return None
    return context.value(node, index)


def _transposed(context, node, value: Value, perm: tuple[int, ...], tag: str) -> Value:
    """A copy with its axes in another order."""
    shape = [value.shape[p] for p in perm]
    strides = contiguous(value.shape)
    moves = ((0, 0, 0, shape, [strides[p] for p in perm], contiguous(shape)),)
    out = context.temporary(node, f"{tag}.transposed", shape)
    context.emit(node, "copy", [value], [shape], {"moves": moves}, outputs=[out])
    return context.named(out)


def _emit(context, node, cell: str, inputs: list, attrs: dict, batched: bool) -> None:
    t, b, d, n = (attrs[key] for key in ("t", "b", "d", "n"))
    shapes: dict[str, tuple[int, ...]] = {"y": (t, d, b, n), "gates": (d, t, b, SLOTS[cell] * n)}
    if cell == "lstm":
        shapes["cells"] = (d, t, b, n)
    names = dict(zip(("y", "yh", "yc"), node.outputs, strict=False))
    shapes |= {key: (d, b, n) for key in ("yh", "yc") if names.get(key)}
    outputs = [
        names[key] if names.get(key) and not batched else context.temporary(node, key, shape)
        for key, shape in shapes.items()
    ]
    attrs = attrs | {"made": tuple(shapes)}
    made = context.emit(node, cell, inputs, list(shapes.values()), attrs, outputs=outputs)
    if not batched:
        return
    for index, key in enumerate(("y", "yh", "yc")):
        if names.get(key):
            perm = (2, 0, 1, 3) if key == "y" else (1, 0, 2)
            value = context.named(made[list(shapes).index(key)])
            context.bind(node, index, _transposed(context, node, value, perm, key).name)
