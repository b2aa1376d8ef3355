"""LSTM, GRU and RNN over a whole sequence, one node each. Saved: gates and states.

Inputs x [t, b, i], w [d, gates * n, i], r [d, gates * n, n], bias, lens, h0, c0, peepholes (all but
the first three may be ""); outputs in the order of attrs['made'], `y` [t, d, b, n] always. attrs:
n, back (0 forward, 1 in reverse, 2 both), after (GRU's linear_before_reset), relu (RNN).
Saved: gates after activation (GRU: one slot more), an LSTM's cells, the states y. Backward turns
the gates into their gradients in place; gradients of w, r, bias and x are separate nodes that read
them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..ir import Graph, Node, Value
from . import samples
from .onnx_ops import OnnxNode, onnx_rule
from .registry import Call, Op, register
from .storing import PLAIN
from .strides import permuted, prod
from .structure import Structure

GATES = {"lstm": 4, "gru": 3, "rnn": 1}
SLOTS = {"lstm": 4, "gru": 4, "rnn": 1}
_INPUTS = ("x", "w", "r", "bias", "lens", "h0", "c0", "peep")


def _outputs(node: Node) -> dict[str, str]:
    return dict(zip(node.attrs["made"], node.outputs, strict=True))


def _gates(values, attrs) -> dict[str, int]:
    """Sizes for a kernel that reads the gates' gradients; kind: how a GRU's third gate uses the
    state (kernels/recurrent/grad.py)."""
    cell = attrs["cell"]
    kind = (1 if attrs["after"] else 2) if cell == "gru" else 0
    return {"slots": SLOTS[cell], "gates": GATES[cell], "kind": kind}


def _flops(weight: str) -> Callable[..., int]:
    """One multiply-add per element of a weight, in each row of a step."""
    return lambda values, attrs: 2 * attrs["t"] * attrs["b"] * values[weight].size


def _gemm(a: Value, b: Value, c: Value, **strides: int) -> dict[str, Any]:
    """Operands of a product over directions (z1) of whole values; other strides are 0."""
    names = ("z2", "az1", "az2", "am", "ak2", "ak", "bz1", "bz2", "bn", "bk2", "bk", "cz1", "cz2")
    sizes: dict[str, Any] = dict.fromkeys(names, 0) | {"z1": 1, "z2": 1, "k2": 1, "alpha": 1.0}
    return sizes | {"na": a.size, "nb": b.size, "nc": c.size} | strides


class Recurrent(Op):
    """One of lstm, gru, rnn."""

    structure = Structure.RECURRENT
    capped = True

    def indices(self, node: Node, graph: Graph) -> list[tuple[str, int]]:
        lens = node.inputs[_INPUTS.index("lens")]
        return [(lens, node.attrs["t"] + 1)] if lens else []

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        attrs, gates = node.attrs, graph.values[_outputs(node)["gates"]]
        x, w = (graph.values[name] for name in node.inputs[:2])
        rows, width, slots = attrs["t"] * attrs["b"], GATES[self.name] * attrs["n"], gates.shape[-1]
        i = x.shape[-1]
        sizes = _gemm(
            x,
            w,
            gates,
            z1=attrs["d"],
            m=rows,
            n=width,
            k=i,
            am=i,
            ak=1,
            bz1=width * i,
            bn=i,
            bk=1,
            cz1=rows * slots,
            cm=slots,
        )
        projection = {"a": x.name, "b": w.name, "c": gates.name} | PLAIN | sizes
        return [Call("gemm", projection), self.call(node, graph)]

    def named(self, node: Node) -> dict[str, str]:
        return super().named(node) | _outputs(node)

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


def _to_weight(values, attrs) -> dict[str, Any]:
    """dw (+)= sum over steps and rows of dgates^T x."""
    dgates, x, out = (values[name] for name in "abc")
    rows, width, i = attrs["t"] * attrs["b"], GATES[attrs["cell"]] * attrs["n"], x.shape[-1]
    slots = dgates.shape[-1]
    return _gemm(
        dgates,
        x,
        out,
        z1=attrs["d"],
        m=width,
        n=i,
        k=rows,
        az1=rows * slots,
        am=1,
        ak=slots,
        bn=1,
        bk=i,
        cz1=width * i,
        cm=i,
    )


def _to_input(values, attrs) -> dict[str, Any]:
    """dx (+)= sum over directions of dgates w."""
    dgates, w, out = (values[name] for name in "abc")
    rows, width, i = attrs["t"] * attrs["b"], GATES[attrs["cell"]] * attrs["n"], w.shape[-1]
    slots = dgates.shape[-1]
    return _gemm(
        dgates,
        w,
        out,
        m=rows,
        n=i,
        k2=attrs["d"],
        k=width,
        am=slots,
        ak2=rows * slots,
        ak=1,
        bn=1,
        bk2=width * i,
        bk=i,
        cm=i,
    )


_STATES = "- - r bias lens h0"
for _name, _operands in (("lstm", f"{_STATES} c0 peep"), ("gru", _STATES), ("rnn", _STATES)):
    _handed = ("yh", "yc") if "c0" in _operands else ("yh",)
    register(Recurrent(_name, _operands, samples=samples.recurrent, states=_handed))
# Back through time: gradients of the gates, in place, and of the initial states.
for _name, _operands, _in_place in (
    ("lstm_bwd", "gates cells - dy dyh dyc r lens - c0 peep -> dgates dh0 dc0", ((0, 0),)),
    ("gru_bwd", "gates - y dy dyh - r lens h0 -> dgates dh0", ((0, 0),)),
    ("rnn_bwd", "- - y dy dyh - r lens -> dgates dh0", ()),
):
    register(Op(_name, _operands, cost=_flops("r"), in_place=_in_place))
_OPERANDS = "a b -> c"
register(Op("recurrent_dw", _OPERANDS, _to_weight, kernel="gemm", cost=_flops("c"), rounds=True))
register(Op("recurrent_dx", _OPERANDS, _to_input, kernel="gemm", cost=_flops("b"), rounds=True))
# Sums over steps and rows: dr of dgates^T (previous h), db of dgates, dp of dgates times
# the cells that they read.
register(Op("recurrent_dr", "dgates y lens h0 -> out", _gates, cost=_flops("out"), rounds=True))
register(Op("recurrent_db", "dgates -> out", _gates, rounds=True))
register(Op("recurrent_dp", "dgates cells lens c0 -> out", rounds=True))

_DIRECTIONS = {"forward": 0, "reverse": 1, "bidirectional": 2}
_ACTIVATIONS = {"lstm": ["sigmoid", "tanh", "tanh"], "gru": ["sigmoid", "tanh"], "rnn": ["tanh"]}
_OPTIONS = {"clip": None, "input_forget": 0, "activation_alpha": None, "activation_beta": None}


def _over_time(context, node: OnnxNode, rank: int) -> tuple[set[int], str]:
    return set(range(rank)) - {0 if node.attrs.get("layout", 0) == 1 else 1}, "the axis of time"


@onnx_rule(
    "LSTM",
    "GRU",
    "RNN",
    weights=(1, 2, 3, 7),
    vectors=(3, 7),
    states=(5, 6),
    joined=_over_time,
    names={1: "weight_ih", 2: "weight_hh", 3: "bias"},
)
def recurrent(context, node) -> None:
    cell = node.op_type.lower()
    x, w, r = (context.value(node, k) for k in range(3))
    attrs = _attributes(node, cell, len(w.shape) == 3 and w.shape[0])
    if len(x.shape) != 3:
        raise node.fail(f"input has shape {list(x.shape)}", "[time, batch, features]")
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
            raise node.fail(f"{key} has shape {list(inputs[key].shape)}", f"{list(shape)}")
    attrs |= {"t": t, "b": b, "d": d, "n": n}
    _emit(context, node, cell, [inputs[key] or "" for key in _INPUTS], attrs, batched)


def _attributes(node, cell: str, directions: int) -> dict:
    """The attributes back, after and relu; refuses unsupported ones by name."""
    back = _DIRECTIONS.get(node.attrs.get("direction", "forward"))
    if back is None or directions != (2 if back == 2 else 1):
        raise node.fail(
            f"direction {node.attrs.get('direction')!r}", "as many directions as the weights have"
        )
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
    """An optional input; None for zero states, and for lengths equal to the sequence's."""
    if not context.has(node, index):
        return None
    known = context.const(node, index)
    if (
        known is not None
        and key == "lens"
        and known.size
        and not 0 <= known.min() <= known.max() <= t
    ):
        raise node.fail(f"lengths {known.tolist()}", f"lengths from 0 to {t}, those of the input")
    if known is not None and not np.any(known != (t if key == "lens" else 0)):
        return None
    return context.value(node, index)


def _transposed(context, node, value: Value, perm: tuple[int, ...], tag: str) -> Value:
    """A copy with its axes in another order."""
    shape, moves = permuted(value.shape, perm)
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
