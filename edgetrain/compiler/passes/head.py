"""Merges a final linear layer and the cross-entropy after it into one pair of nodes.

They compute a slice of the classes at a time (ops/linear_loss.py), so the logits, which take most
of a language model's memory, never exist as a whole. The mathematics is the same, with another
order of sums. The graph and `allow` decide this before remat, so it is the same in all plans.
Reshapes, transposes and a bias between product and loss are included; if they move time before the
batch, the targets are reordered like the product's rows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ...errors import ModelError
from ...formats import BLOCKED
from ...ir import Builder, Graph, Node, Value
from ...losses import CrossEntropy
from ...ops import linear_loss
from ...ops.linear_loss import BEST, ROWS, WIDTH
from ...ops.strides import contiguous
from ...program import TARGET
from ..options import Options
from .precision import storages, stored_as

SLICES = "slices"  # its name in `allow`
BEST_CLASSES = "loss.best"  # replaces the logits as output of evaluation


@dataclass(frozen=True)
class Head:
    """The last product of a forward graph, whose logits are computed in slices.

    Attributes:
      forward: the graph up to x, its only output.
      x, w, bias: operands of the product; bias may be "".
      tb: w is [classes, width].
      logits: the value the loss would have read, for its shape.
      walk: (dims, strides) to read targets in the order of the product's rows; None if that is
        their order already.
      batch, each: the sample of row r is (r // each) % batch.
    """

    forward: Graph
    x: str
    w: str
    bias: str
    tb: bool
    logits: Value
    walk: tuple[tuple[int, ...], tuple[int, ...]] | None
    batch: int
    each: int

    @property
    def classes(self) -> int:
        return self.forward.values[self.w].shape[0 if self.tb else 1]

    @property
    def width(self) -> int:
        return self.forward.values[self.w].shape[1 if self.tb else 0]

    @property
    def rows(self) -> int:
        return self.forward.values[self.x].size // self.width


def sliced_head(graph: Graph, output: str, options: Options) -> Head | None:
    """The head of `graph` if `options` allow slices, else None.

    Args:
      output: the value the loss is computed from.
    Raises:
      ModelError: slices are allowed, but the graph doesn't end in such a head.
    """
    if SLICES not in options.allow:
        return None
    result = _found(graph, output, options)
    if isinstance(result, Head):
        return result
    raise ModelError(
        f"allow {SLICES}: output {output!r} of shape {list(graph.values[output].shape)}: {result}; "
        f"expected a dense linear layer with more than {WIDTH} classes and cross_entropy. Leave "
        f"{SLICES} out."
    )


def _found(graph: Graph, output: str, options: Options) -> Head | str:
    """The head, or a description of what was found instead."""
    loss = options.loss
    if not isinstance(loss, CrossEntropy):
        return f"loss {loss.name}"
    logits, users = graph.values[output], _uses(graph)
    shape = loss.target_shape(logits.shape)
    base = np.arange(int(np.prod(shape)))
    name, axis, places, bias = output, loss.axis(logits.shape), base.reshape(shape), ""
    makers = {name: node for node in graph.nodes for name in node.writes}
    gone: list[str] = []
    while True:
        node = makers.get(name)
        if node is None or users[name] != 1:
            return "its logits are also read elsewhere"
        gone.append(node.name)
        if node.op == "matmul":
            break
        step = _STEPS[node.op](node, graph, axis, places) if node.op in _STEPS else None
        if step is None or (step[3] and bias):
            return f"it comes from {node.op} ({node.origin})"
        name, axis, places = step[:3]
        bias = bias or step[3]
    return _of_product(graph, node, gone, (logits, axis, places, base, bias))


def _of_product(graph: Graph, node: Node, gone: list[str], found: tuple) -> Head | str:
    logits, axis, places, base, bias = found
    x, w, added = (*node.inputs, "")[:3]
    value, y = graph.values[w], graph.values[node.outputs[0]]
    root = graph.values[graph.root(w)]
    plain = (
        not node.attrs.get("ta") and node.attrs.get("alpha", 1.0) == 1.0 and not (added and bias)
    )
    if not plain or len(value.shape) != 2 or axis != len(y.shape) - 1:
        return "its matrix product has an unsupported form"
    if root.role not in ("parameter", "constant") or root.shape != value.shape:
        return f"weight {w!r} is computed"
    if value.shape[0 if node.attrs.get("tb") else 1] <= WIDTH:
        return "it has too few classes"
    each, batch = _samples(places.ravel() // (base.size // logits.shape[0]), logits.shape[0])
    if not each or (places.ravel() != base).any() and not np.shares_memory(places, base):
        return "its positions are in an unsupported order"
    walk = None
    if (places.ravel() != base).any():
        walk = (places.shape, tuple(stride // base.itemsize for stride in places.strides))
    kept = [n for n in graph.nodes if n.name not in gone]
    forward = replace(graph, outputs=(x,)).with_nodes(kept)
    tb = bool(node.attrs.get("tb"))
    return Head(forward, x, w, added or bias, tb, logits, walk, batch, each)


def _samples(samples: np.ndarray, batch: int) -> tuple[int, int]:
    """(each, batch) such that row r belongs to sample (r // each) % batch; (0, 0) if none fit."""
    changes = np.flatnonzero(samples != samples[0])
    each = int(changes[0]) if changes.size else samples.size
    right = (np.arange(samples.size) // each % batch == samples).all()
    return (each, batch) if right else (0, 0)


def _uses(graph: Graph) -> Mapping[str, int]:
    """{value: how often it is read, including as the graph's output}."""
    out = dict.fromkeys(graph.values, 0)
    for name in (*graph.outputs, *(name for node in graph.nodes for name in node.reads)):
        out[name] += 1
    return out


_Step = tuple[str, int, np.ndarray, str] | None  # value before, its class axis, places, bias


def _view(node: Node, graph: Graph, axis: int, places: np.ndarray) -> _Step:
    """A reshape that keeps the class axis."""
    before, after = (graph.values[n].shape for n in (node.inputs[0], node.outputs[0]))
    inner = int(np.prod(after[axis + 1 :]))
    for class_axis, size in enumerate(before):
        if size == after[axis] and int(np.prod(before[class_axis + 1 :])) == inner:
            others = (*before[:class_axis], *before[class_axis + 1 :])
            return node.inputs[0], class_axis, places.reshape(others), ""
    return None


def _transpose(node: Node, graph: Graph, axis: int, places: np.ndarray) -> _Step:
    """A copy that only permutes axes."""
    shape = graph.values[node.inputs[0]].shape
    moves = node.attrs["moves"]
    if len(moves) != 1 or node.attrs.get("fill") is not None or 1 in shape and len(shape) > 4:
        return None
    _, xo, yo, dims, xs, ys = moves[0]
    steps, to = contiguous(shape), graph.values[node.outputs[0]].shape
    if xo or yo or list(dims) != list(to) or list(ys) != contiguous(to):
        return None
    perm, left = [], list(range(len(shape)))
    for size, stride in zip(dims, xs, strict=True):
        fits = [k for k in left if shape[k] == size and (size == 1 or steps[k] == stride)]
        if not fits:
            return None
        perm.append(fits[0])
        left.remove(fits[0])
    class_axis = perm[axis]
    # positions of the input's axes, except the class axis, among the output's axes
    order = [perm.index(k) for k in range(len(shape)) if k != class_axis]
    order = [k - (k > axis) for k in order]
    return node.inputs[0], class_axis, places.transpose(order), ""


def _add(node: Node, graph: Graph, axis: int, places: np.ndarray) -> _Step:
    """A bias over classes."""
    y = graph.values[node.outputs[0]]
    for x, bias in (node.inputs[:2], node.inputs[1::-1]):
        vector = graph.values[bias]
        root = graph.values[graph.root(bias)]
        along = vector.shape[-1:] == y.shape[axis:] and vector.size == y.shape[-1]
        stored = root.role in ("parameter", "constant") and len(root.shape) == 1
        if along and stored and root.size == vector.size and graph.values[x].shape == y.shape:
            return x, axis, places, root.name
    return None


_STEPS: Mapping[str, Callable[[Node, Graph, int, np.ndarray], _Step]] = {
    "view": _view,
    "copy": _transpose,
    "add": _add,
}


def add_sliced_loss(
    builder: Builder,
    head: Head,
    x: str,
    arrays: Mapping[str, str],
    options: Options,
    evaluate: bool = False,
) -> dict[str, str]:
    """Append the loss after x; the target already exists.

    Args:
      arrays: {operand of the loss kernels: value}.
      evaluate: keep the best classes of each position.
    Returns:
      The new values t, stat and, for an evaluation, best.
    """
    target = _target(builder, head)
    made = {
        "partials": builder.value("loss.partials", (256 if arrays else 192,), "f64", "statistic"),
        "stat": builder.value("loss.stat", (head.rows, 5), "f64", "statistic"),
    }
    made |= _rooms(builder, head, options)
    if evaluate:
        made["best"] = builder.value(f"{BEST_CLASSES}.rows", (head.rows, BEST), "f32", "statistic")
        made["scores"] = builder.value("loss.scores", (head.rows, BEST), "f32", "statistic")
    attrs = _attrs(head, arrays, made, options)
    inputs = [x, head.w, head.bias, target, *arrays.values()]
    builder.node("linear_loss", inputs, made.values(), attrs, name="loss", phase="loss")
    result = {"t": target, "stat": made["stat"]}
    return result | ({"best": _best(builder, head, made["best"])} if evaluate else {})


def add_sliced_gradient(
    grads, head: Head, found: Mapping[str, str], arrays: Mapping[str, str], options: Options
) -> None:
    """Append the gradients of x, weight and bias.

    Args:
      grads: see compiler/passes/autodiff.py.
      found: the result of `add_sliced_loss`.
    """
    builder, shape = grads.builder, grads.value(head.x).shape
    made = {
        "dx": builder.value(f"{head.x}.grad", shape, "f32", "gradient")
        if grads.needs(head.x)
        else "",
        "dw": grads.accumulator(head.w),
        "db": grads.accumulator(head.bias),
    }
    made |= _rooms(builder, head, options)
    block = linear_loss.largest(head.rows, ROWS), linear_loss.largest(head.classes, WIDTH)
    chosen = storages(options)
    if made["dx"] and chosen["activation"] != "f32":
        made["sum"] = builder.value("loss.sum", (block[0], head.width), "f32", "statistic")
    if made["dw"] and head.tb and _blocked(head, chosen["accumulator"]):
        made["add"] = builder.value("loss.add", (block[1], head.width), "f32", "statistic")
    inputs = [head.x, head.w, head.bias, found["t"], found["stat"], *arrays.values()]
    attrs = _attrs(head, arrays, made, options)
    builder.node("linear_loss_bwd", inputs, made.values(), attrs, name="loss.bwd", phase="backward")
    if made["dx"]:
        grads.alias(head.x, made["dx"])


def _blocked(head: Head, dtype: str) -> bool:
    root = head.forward.values[head.forward.root(head.w)]
    return stored_as(root, dtype) in BLOCKED


def _rooms(builder: Builder, head: Head, options: Options) -> dict[str, str]:
    """Values for the current slice, and for the unpacked rows of a weight stored in blocks."""
    classes = linear_loss.largest(head.classes, WIDTH)
    shape = linear_loss.largest(head.rows, ROWS), classes
    out = {"part": builder.value("loss.part", shape, "f32", "gradient")}
    if head.tb and _blocked(head, storages(options)["parameter"]):
        out["room"] = builder.value("loss.room", (classes, head.width), "f32", "gradient")
    return out


def _attrs(head: Head, arrays: Mapping[str, str], made: Mapping[str, str], options: Options):
    loss = options.loss
    assert isinstance(loss, CrossEntropy)
    return {
        "rows": head.rows,
        "width": head.width,
        "classes": head.classes,
        "tb": head.tb,
        "batch": head.batch,
        "each": head.each,
        "smoothing": loss.label_smoothing,
        "ignore": loss.ignore_index,
        "arrays": tuple(arrays),
        "made": tuple(made),
    }


def _target(builder: Builder, head: Head) -> str:
    """The targets in the order of the product's rows."""
    if head.walk is None:
        return TARGET
    dims, strides = head.walk
    out = builder.value("loss.target.rows", (head.rows,), "i32", "statistic")
    moves = ((0, 0, 0, dims, strides, tuple(contiguous(dims))),)
    builder.node("copy", [TARGET], [out], {"moves": moves, "fill": None}, phase="loss")
    return out


def _best(builder: Builder, head: Head, rows: str) -> str:
    """The best classes [batch, ..., BEST] in the order of the targets."""
    shape = (*builder.values[TARGET].shape, BEST)
    if head.walk is None:
        return builder.value(BEST_CLASSES, shape, "f32", "statistic", rows)
    dims, strides = head.walk
    out = builder.value(BEST_CLASSES, shape, "f32", "statistic")
    to = (*(BEST * stride for stride in strides), 1)
    padded = (*dims, BEST)
    moves = ((0, 0, 0, padded, tuple(contiguous(padded)), to),)
    builder.node("copy", [rows], [out], {"moves": moves, "fill": None}, phase="eval")
    return out
