"""Matrix products: MatMul with batch dimensions, Gemm and their gradients, with one gemm kernel.

The ir op `matmul` has inputs a, b, bias and attrs ta, tb (transpose the last two dimensions),
alpha. Batch dimensions broadcast; the gradient of a broadcast operand sums over them inside the
kernel (its second k dimension), so no larger value is made. Saved: both operands.
"""

from collections.abc import Sequence

import numpy as np

from ..errors import ModelError
from ..ir import Graph, Node, Value
from . import samples
from .onnx_ops import WEIGHT_AND_BIAS, Fold, onnx_rule
from .registry import Call, Op, register
from .storing import store_as
from .strides import broadcast, contiguous, merged, prod
from .structure import Structure


def _matrix(value: Value, transposed: bool) -> tuple[tuple[int, ...], int, int, int, int]:
    """(batch dims, rows, columns, row stride, column stride) of an operand."""
    *batch, rows, columns = value.shape
    if transposed:
        return tuple(batch), columns, rows, 1, columns
    return tuple(batch), rows, columns, columns, 1


def _batched(dims, *strides) -> list[list[int]]:
    """At most two batch dimensions for each operand: [sizes, strides of a, ...]."""
    columns = [[part[k] for part in merged(dims, *strides)] for k in range(6)]
    real = [c for c in columns if c[0] != 1]
    if len(real) > 2:
        raise ModelError(f"matrix product: batch dimensions {list(dims)} differ in over 2 axes.")
    padded = [[1] + [0] * len(strides)] * (2 - len(real)) + real
    return [list(row) for row in zip(*padded, strict=True)]


class MatMul(Op):
    """y[..., m, n] = alpha * a @ b + bias[n]."""

    structure = Structure.PRODUCT

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        a, b, y = (graph.values[n] for n in (*node.inputs[:2], node.outputs[0]))
        abatch, m, k, am, ak = _matrix(a, node.attrs.get("ta", False))
        bbatch, _, n, bk, bn = _matrix(b, node.attrs.get("tb", False))
        ybatch = y.shape[:-2]
        strides = [
            [s * m * k for s in broadcast(abatch, ybatch)],
            [s * n * k for s in broadcast(bbatch, ybatch)],
            [s * m * n for s in contiguous(ybatch)],
        ]
        if m and ybatch and not any(strides[1]) and prod(abatch) == prod(ybatch) and ak == 1:
            # With a shared right operand, batch and rows form one long dimension.
            m, ybatch, strides = m * prod(ybatch), (), [[], [], []]
        dims, az, bz, cz = _batched(ybatch, *strides)
        args: dict = {"a": a.name, "b": b.name, "c": y.name}
        args |= {"bias": (node.inputs[2] or None) if len(node.inputs) > 2 else None, "ctl": None}
        for name, pair in (("z", dims), ("az", az), ("bz", bz), ("cz", cz)):
            args |= {f"{name}1": pair[0], f"{name}2": pair[1]}
        args |= {"m": m, "n": n, "k2": 1, "k": k, "am": am, "ak2": 0, "ak": ak}
        args |= {"bn": bn, "bk2": 0, "bk": bk, "cm": n, "na": a.size, "nb": b.size, "nc": y.size}
        args |= {"alpha": node.attrs.get("alpha", 1.0), "acc": 0, "sr": 0, "key": 0}
        return [Call("gemm", args)]

    def vjp(self, grads, node: Node) -> None:
        dy = grads.of(node.outputs[0])
        if not dy:
            return
        a, b = node.inputs[:2]
        bias = node.inputs[2] if len(node.inputs) > 2 else ""
        attrs = {key: node.attrs.get(key, default) for key, default in _ATTRS.items()}
        if grads.needs(b):
            grads.contribute(b, "matmul_grad", [dy, a], attrs | {"side": "b"})
        if bias and grads.needs(bias):
            grads.contribute(bias, "bgrad", [dy, "", ""], {"rule": "id"})
        if grads.needs(a):
            grads.contribute(a, "matmul_grad", [dy, b], attrs | {"side": "a"})

    def flops(self, node: Node, graph: Graph) -> int:
        k = graph.values[node.inputs[0]].shape[-2 if node.attrs.get("ta") else -1]
        return 2 * k * graph.values[node.outputs[0]].size


_ATTRS = {"ta": False, "tb": False, "alpha": 1.0}


class MatMulGrad(Op):
    """out (+)= the gradient of operand a or b: dy times the other operand, over the batch.

    Computed as out[i, j] = sum over batch and k of p[i, k] * q[k, j]; `side` and the transpositions
    determine which of p and q is dy and which is the other operand.
    """

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        dy, other = (graph.values[n] for n in node.inputs[:2])
        out = graph.values[node.outputs[0]]
        ta, tb, left = node.attrs["ta"], node.attrs["tb"], node.attrs["side"] == "a"
        # a: da = dy @ b^T, stored transposed when ta.  b: db = a^T @ dy, transposed when tb.
        if left:
            p, q = (dy, False), (other, not tb)
        else:
            p, q = (other, not ta), (dy, False)
        if ta if left else tb:
            p, q = (q[0], not q[1]), (p[0], not p[1])
        pbatch, m, k, pm, pk = _matrix(*p)
        qbatch, _, n, qk, qn = _matrix(*q)
        full = dy.shape[:-2]
        ps = [s * m * k for s in broadcast(pbatch, full)]
        qs = [s * n * k for s in broadcast(qbatch, full)]
        own = broadcast(out.shape[:-2], full)
        kept = [x for x, s in enumerate(own) if s or full[x] == 1]
        summed = [x for x in range(len(full)) if x not in kept]
        pick = lambda items, axes: [items[x] for x in axes]  # noqa: E731
        dims, pz, qz, cz = _batched(
            pick(full, kept), pick(ps, kept), pick(qs, kept), [s * m * n for s in pick(own, kept)]
        )
        sums, p2, q2 = _batched(pick(full, summed), pick(ps, summed), pick(qs, summed))
        if sums[0] != 1:
            raise ModelError(f"node {node.name!r}: batch dimensions {list(full)} can't be summed.")
        args: dict = {"a": p[0].name, "b": q[0].name, "c": out.name, "bias": None}
        args |= {"z1": dims[0], "z2": dims[1], "az1": pz[0], "az2": pz[1]}
        args |= {"bz1": qz[0], "bz2": qz[1], "cz1": cz[0], "cz2": cz[1]}
        args |= {"m": m, "n": n, "k2": sums[1], "k": k, "am": pm, "ak2": p2[1], "ak": pk}
        args |= {"bn": qn, "bk2": q2[1], "bk": qk, "cm": n}
        args |= {"na": p[0].size, "nb": q[0].size, "nc": out.size, "alpha": node.attrs["alpha"]}
        return [Call("gemm", args | store_as(node, graph, out))]

    def flops(self, node: Node, graph: Graph) -> int:
        dy, other = (graph.values[n] for n in node.inputs[:2])
        if node.attrs["side"] == "b":
            inner = other.shape[-2 if node.attrs["ta"] else -1]
        else:
            inner = other.shape[-1 if node.attrs["tb"] else -2]
        return 2 * dy.size * inner


register(MatMul("matmul", samples=samples.product, sparse="linear_csr", layer=True))
register(MatMulGrad("matmul_grad", rounds=True, reads_rounded=True))


def _multiplications(node, inputs) -> int:
    """More than there are elements in the result."""
    a, b = inputs
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return prod(batch) * prod((*a.shape[-2:], *b.shape[-1:]))


@onnx_rule(
    "MatMul",
    weights=(0, 1),
    names={0: "weight", 1: "weight"},
    integers=(0, 1),
    width=lambda node, shape: shape[-1],
    fold=Fold(lambda node, inputs: np.matmul(*inputs), _multiplications),
)
def matmul(context, node) -> None:
    a, b = context.value(node, 0), context.value(node, 1)
    if not a.shape or not b.shape or a.shape[-1] != b.shape[max(-2, -len(b.shape))]:
        raise node.fail(f"shapes {list(a.shape)} and {list(b.shape)}", "equal inner sizes")
    if min(len(a.shape), len(b.shape)) < 2:
        _vector(context, node, a, b)
        return
    context.emit(node, "matmul", [a, b, ""], [_product_shape(a, b)], dict(_ATTRS))


def _product_shape(a: Value, b: Value) -> tuple[int, ...]:
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return (*batch, a.shape[-2], b.shape[-1])


def _vector(context, node, a, b) -> None:
    """A 1-D operand is a matrix with one row or column, which is dropped from the result."""
    rows, columns = (1, *a.shape), (*b.shape, 1)
    left = context.reshaped(node, a, rows) if len(a.shape) == 1 else a.name
    right = context.reshaped(node, b, columns) if len(b.shape) == 1 else b.name
    product = _product_shape(context.named(left), context.named(right))
    out = context.temporary(node, "product", product)
    context.emit(node, "matmul", [left, right, ""], [product], dict(_ATTRS), outputs=[out])
    columns_kept = product[-1:] if len(b.shape) > 1 else ()
    rows_kept = product[-2:-1] if len(a.shape) > 1 else ()
    context.view(node, out, (*product[:-2], *rows_kept, *columns_kept))


def _width(node, shape: Sequence[int]) -> int:
    return shape[0 if node.attrs.get("transB", 0) else -1]


@onnx_rule("Gemm", weights=(0, 1, 2), names=WEIGHT_AND_BIAS, width=_width, integers=(0, 1, 2))
def gemm(context, node) -> None:
    a, b = context.value(node, 0), context.value(node, 1)
    ta, tb = bool(node.attrs.get("transA", 0)), bool(node.attrs.get("transB", 0))
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise node.fail(f"shapes {list(a.shape)} and {list(b.shape)}", "two matrices")
    m, k = a.shape[::-1] if ta else a.shape
    inner, n = b.shape[::-1] if tb else b.shape
    if k != inner:
        raise node.fail(f"inner sizes {k} and {inner}", "equal ones")
    alpha, beta = float(node.attrs.get("alpha", 1.0)), float(node.attrs.get("beta", 1.0))
    attrs = {"ta": ta, "tb": tb, "alpha": alpha}
    c = context.value(node, 2) if context.has(node, 2) and beta != 0 else None
    if c and np.broadcast_shapes(c.shape, (m, n)) != (m, n):
        raise node.fail(f"C has shape {list(c.shape)}", f"a shape that broadcasts to [{m}, {n}]")
    # The kernel's bias is an fp32 vector, such as a 1-D parameter (C of [1, n] uses Add).
    if c is None or (beta == 1.0 and alpha == 1.0 and c.shape == (n,) and c.role != "activation"):
        context.emit(node, "matmul", [a, b, c or ""], [(m, n)], attrs)
        return
    product = context.temporary(node, "product", (m, n))
    context.emit(node, "matmul", [a, b, ""], [(m, n)], attrs, outputs=[product])
    if beta != 1.0:
        scale = context.constant(node, "beta", np.float32(beta).reshape([1] * len(c.shape)))
        scaled = context.temporary(node, "scaled", c.shape)
        context.emit(node, "mul", [c, scale], [c.shape], outputs=[scaled])
        c = context.named(scaled)
    context.emit(node, "add", [product, c], [(m, n)])
