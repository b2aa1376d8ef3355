"""A linear layer and the cross-entropy of its output, a slice of classes at a time.

Logits never exist as a whole: at most WIDTH classes and ROWS positions. Forward saves five numbers
per position; backward recomputes each slice, turns it into its gradient and uses it at once. Slices
have the same size and order in every plan, and sums over them are float32. compiler/passes/head.py
inserts these nodes.

attrs: rows, width (of a row of x), classes, tb (weight is [classes, width], else [width, classes]),
batch and each (sample of a position, see kernels/losses/ce_slices.py), smoothing, ignore; arrays:
names of the operands after the target; made: names of the outputs. These may include `part` (logits
of the current slice), `room` (its rows of a weight in blocks), `sum` (dx in float32), `add` (its
rows of the weight's gradient, before packing into blocks).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..ir import Graph, Node
from ..ir.keys import key_of
from .registry import Call, Op, register
from .storing import PLAIN

WIDTH, ROWS = 512, 512  # most classes and positions of a slice
BEST = 5  # classes kept per position in evaluation


def parts(count: int, most: int) -> list[tuple[int, int]]:
    """(start, length) of even parts of at most `most`; all lengths but the last are multiples of
    64."""
    number = -(-count // most)
    each = -(-count // number // 64) * 64
    return [(start, min(each, count - start)) for start in range(0, count, each)]


def largest(count: int, most: int) -> int:
    """Length of the longest of `parts`."""
    return parts(count, most)[0][1]


class _Walk:
    """Emits the calls of one node; its values are addressed by the names in the attributes."""

    def __init__(self, node: Node, graph: Graph, inputs: Sequence[str]) -> None:
        self.attrs, self.graph = node.attrs, graph
        names = (*inputs, *node.attrs["arrays"])
        self.of = {n: v for n, v in zip(names, node.inputs, strict=True) if v}
        self.of |= {n: v for n, v in zip(node.attrs["made"], node.outputs, strict=True) if v}
        self.arrays = {n: self.of[n] for n in node.attrs["arrays"]}
        self.name = node.name

    def sizes(self, name: str) -> int:
        return self.graph.values[self.of[name]].size

    def weight(self, start: int, count: int) -> tuple[str, int, int, int]:
        """(value, offset of class `start` in elements, stride of a class, stride along the
        width)."""
        width, classes = self.attrs["width"], self.attrs["classes"]
        if "room" in self.of:
            return self.of["room"], 0, width, 1
        if self.attrs["tb"]:
            return self.of["w"], start * width, width, 1
        return self.of["w"], start, 1, classes

    def unpacked(self, start: int, count: int) -> Iterator[Call]:
        """Unpack the rows of a weight in blocks to floats."""
        if "room" in self.of:
            width = self.attrs["width"]
            args = {"w": self.of["w"], "y": self.of["room"], "n": count * width}
            yield Call("unpack", args, {"w": start * width})

    def product(
        self,
        a: tuple[str, int, int, int],
        b: tuple[str, int, int, int],
        c: tuple[str, int, int],
        sizes: tuple[int, int, int],
        more: Mapping[str, Any],
    ) -> Call:
        """c[m, n] (+)= a[m, k] b[k, n]; each operand is (value, offset in elements, strides)."""
        (a_name, a_skip, am, ak), (b_name, b_skip, bn, bk), (c_name, c_skip, cm) = a, b, c
        m, n, k = sizes
        ones = {"z1": 1, "z2": 1, "k2": 1, "alpha": 1.0}
        zero = dict.fromkeys(("az1", "az2", "ak2", "bz1", "bz2", "bk2", "cz1", "cz2"), 0)
        args = {"a": a_name, "b": b_name, "c": c_name, "bias": None, **ones, **zero, **PLAIN}
        args |= {"m": m, "n": n, "k": k, "am": am, "ak": ak, "bn": bn, "bk": bk, "cm": cm}
        skips = {"a": a_skip, "b": b_skip, "c": c_skip}
        for name, value in (("a", a_name), ("b", b_name), ("c", c_name)):
            args[f"n{name}"] = self.graph.values[value].size - skips[name]
        bias_skip = more.get("bias_skip", 0)
        args |= {name: value for name, value in more.items() if name != "bias_skip"}
        skips["bias"] = bias_skip
        return Call("gemm", args, {n: s for n, s in skips.items() if s})

    def logits(self, first: int, rows: int, start: int, count: int) -> Iterator[Call]:
        """Compute the logits of `rows` positions and `count` classes into `part`."""
        width = self.attrs["width"]
        yield from self.unpacked(start, count)
        x = (self.of["x"], first * width, width, 1)
        w, skip, bn, bk = self.weight(start, count)
        more = {"bias": self.of["bias"], "bias_skip": start} if "bias" in self.of else {}
        out = (self.of["part"], 0, count)
        yield self.product(x, (w, skip, bn, bk), out, (rows, count, width), more)

    def slices(self) -> Iterator[tuple[int, int, int, int]]:
        """(first position, positions, first class, classes) in order."""
        for first, rows in parts(self.attrs["rows"], ROWS):
            for start, count in parts(self.attrs["classes"], WIDTH):
                yield first, rows, start, count

    def optional(self, *names: str) -> dict[str, str]:
        return {name: self.of[name] for name in names if name in self.of}


class LinearLoss(Op):
    """Inputs x, w, bias, target, arrays; outputs partials, stat, part and others named in
    `made`."""

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        walk = _Walk(node, graph, ("x", "w", "bias", "t"))
        attrs, of = node.attrs, walk.of
        calls: list[Call] = []
        args: dict[str, Any]
        for first, rows, start, count in walk.slices():
            calls += walk.logits(first, rows, start, count)
            args = {"x": of["part"], "t": of["t"], "stat": of["stat"]}
            args |= walk.optional("cw", "best", "scores")
            args |= {"rows": rows, "n": count, "start": start, "smoothing": attrs["smoothing"]}
            skip = {"t": first, "stat": 5 * first}
            skip |= {name: BEST * first for name in walk.optional("best", "scores")}
            calls.append(Call("ce_slice", args, skip if first else {}))
        weighted = int(bool(walk.arrays))
        args = {"t": of["t"], "stat": of["stat"], "partials": of["partials"], "ctl": "ctl"}
        args |= walk.arrays | {"weighted": weighted, "n": attrs["classes"]} | _positions(attrs)
        calls.append(Call("ce_slices_loss", {**args, "rows": attrs["rows"]}))
        total = "weighted_total" if weighted else "loss_total"
        calls.append(Call(total, {"partials": of["partials"], "ctl": "ctl"}))
        return calls

    def flops(self, node: Node, graph: Graph) -> int:
        attrs = node.attrs
        return 2 * attrs["rows"] * attrs["classes"] * (attrs["width"] + 4)


class LinearLossBackward(Op):
    """Inputs x, w, bias, target, stat, arrays; outputs dx, dw, db (each may be absent), part, ..

    dw and db are added to; a weight's accumulator gets one addition per slice.
    """

    rounds = True

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        walk = _Walk(node, graph, ("x", "w", "bias", "t", "stat"))
        attrs, of = node.attrs, walk.of
        calls: list[Call] = []
        args: dict[str, Any]
        for first, rows, start, count in walk.slices():
            calls += walk.logits(first, rows, start, count)
            args = {"x": of["part"], "t": of["t"], "stat": of["stat"], "ctl": "ctl"}
            args |= walk.arrays | _positions(attrs) | {"rows": rows, "n": count, "start": start}
            args |= {"classes": attrs["classes"], "before": first}
            skip = {"t": first, "stat": 5 * first} if first else {}
            calls.append(Call("ce_slice_bwd", args, skip))
            if "dx" in of:
                calls += _input_gradient(walk, first, rows, start, count)
            if "dw" in of:
                calls += _weight_gradient(walk, first, rows, start, count)
            if "db" in of:
                calls.append(_bias_gradient(walk, rows, start, count))
        return calls

    def flops(self, node: Node, graph: Graph) -> int:
        attrs = node.attrs
        products = 1 + sum(bool(name) for name in node.outputs[:2])
        return 2 * attrs["rows"] * attrs["classes"] * (products * attrs["width"] + 4)


def _positions(attrs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: attrs[name] for name in ("batch", "each", "smoothing", "ignore")}


def _input_gradient(walk: _Walk, first: int, rows: int, start: int, count: int) -> Iterator[Call]:
    """dx of these positions (+)= part w, in float32; summed in a separate buffer if dx is stored in
    a shorter format."""
    width, apart = walk.attrs["width"], "sum" in walk.of
    w, skip, row, along = walk.weight(start, count)
    out = (walk.of["sum"], 0, width) if apart else (walk.of["dx"], first * width, width)
    part = (walk.of["part"], 0, count, 1)
    sizes, more = (rows, width, count), {"acc": int(start > 0)}
    yield walk.product(part, (w, skip, along, row), out, sizes, more)
    if apart and start + count == walk.attrs["classes"]:
        n, to = rows * width, first * width
        walked = {"d": (1, 1, 1, 1, 1, n), "xs": (0, 0, 0, 0, 0, 1), "ys": (0, 0, 0, 0, 0, 1)}
        args = {"x": walk.of["sum"], "y": walk.of["dx"], "scale": 1.0, "xo": 0, "yo": to}
        args |= {"nx": walk.sizes("sum"), "ny": walk.sizes("dx")}
        yield Call("copy", {**args, **PLAIN, **walked})


def _weight_gradient(walk: _Walk, first: int, rows: int, start: int, count: int) -> Iterator[Call]:
    """dw of these classes += part^T x."""
    width, classes = walk.attrs["width"], walk.attrs["classes"]
    key = {"ctl": "ctl", "key": key_of(f"{walk.name} {first} {start}")}
    part = (walk.of["part"], 0, 1, count)
    x = (walk.of["x"], first * width, 1, width)
    if "add" in walk.of:
        out = (walk.of["add"], 0, width)
        yield walk.product(part, x, out, (count, width, rows), {})
        args = {"x": walk.of["add"], "g": walk.of["dw"], "n": count * width, **key}
        yield Call("pack_add", args, {"g": start * width})
        return
    more = {"acc": 1, "sr": 1, **key}
    if walk.attrs["tb"]:
        out = (walk.of["dw"], start * width, width)
        yield walk.product(part, x, out, (count, width, rows), more)
        return
    turned = (walk.of["x"], first * width, 1, width)
    columns = (walk.of["part"], 0, 1, count)
    out = (walk.of["dw"], start, classes)
    yield walk.product(turned, columns, out, (width, count, rows), more)


def _bias_gradient(walk: _Walk, rows: int, start: int, count: int) -> Call:
    """db of these classes += sums of part's columns."""
    one, none = (1, 1, 1, 1, 1), (0, 0, 0, 0, 0)
    args = {"dy": walk.of["part"], "out": walk.of["db"], "acc": 1, "sr": 1, "ctl": "ctl"}
    args |= {"k": (*one, count), "ky": (*none, 1), "ka": (*none, 0), "kb": (*none, 0)}
    args |= {"r": (*one, rows), "ry": (*none, count), "ra": (*none, 0), "rb": (*none, 0)}
    args |= {"ndy": rows * count, "nout": count, "na": 0, "nb": 0}
    key = key_of(f"{walk.name} bias {start}")
    return Call("bgrad_id", {**args, "key": key}, {"out": start} if start else {})


register(LinearLoss("linear_loss", recompute=False))
register(LinearLossBackward("linear_loss_bwd"))
