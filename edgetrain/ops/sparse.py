"""Convolution, linear layer and embedding with a sparse weight in the pool; inserted by
compiler/model/sparsify.py.

Inputs of `conv_csr`: x, pool, bias, stat, gamma, beta, columns, pointers (see formats/csr.py); the
first six are those of `conv`. `linear_csr`, y[..., k] = x[..., c] w^T + bias, is a convolution of
one-pixel maps without prologue. Inputs of `gather_csr`: pool, columns, pointers, indices; it
returns rows of the weight. Attributes: the geometry, the weight's `shape`, its `chunk`, its initial
number of `nonzeros`, and its maximum `room` in the pool. Saved for backward: x (weight gradient)
and the pool (input gradient).
"""

from ..ir import Node
from .conv import GEOMETRY, PROLOGUE, Windows, contribute_bias, conv_sizes
from .registry import Op, register
from .winograd import row_flops

_LAYER = ("shape", "chunk", "nonzeros", "room")  # attributes of a layer


def _sizes(values, attrs) -> dict[str, int]:
    """Sizes of the maps, the weight and its slots; rows are one-pixel maps."""
    x, y, shape = values["x"], values["y"], attrs["shape"]
    shapes = [x.shape, shape, y.shape]
    if len(shape) == 2:
        rows = x.size // shape[1]
        shapes = [(rows, shape[1], 1, 1), (*shape, 1, 1), (rows, shape[0], 1, 1)]
    # reads the pool itself, unless it is unpacked (compiler/passes/packed.py)
    slots, written = values["columns"].size, values["dwt"].size if "dwt" in values else 0
    room = (
        written if written < slots else 0
    )  # a layer's own gradient (compiler/passes/fused_update.py)
    return conv_sizes(*shapes) | {"slots": slots, "room": room, "held": 0}


def _flops(values, attrs) -> int:
    return row_flops(_sizes(values, attrs), attrs["nonzeros"])


class _Rows(Windows):
    """A convolution with compressed rows, or its input gradient: nonzero by nonzero, or with fewer
    products, expanding a block of rows at a time (kernels/winograd/csr.py)."""

    def direct_flops(self, values, attrs) -> int:
        return _flops(values, attrs)


class ConvCsr(_Rows):
    """y = conv(prologue(x), sparse w) + bias."""

    fewer = "winograd_csr"

    def vjp(self, grads, node: Node) -> None:
        dy = grads.of(node.outputs[0])
        if not dy:
            return
        x, pool, bias = node.inputs[:3]
        pattern = node.inputs[6:8]
        attrs = {k: node.attrs[k] for k in (*GEOMETRY, *_LAYER)}
        if grads.needs(pool):
            grads.contribute(pool, "conv_csr_dw", [x, dy, "", "", "", *pattern], attrs)
        self.bias_gradient(grads, bias, dy)
        if grads.needs(x):
            grads.contribute(x, "conv_csr_dx", [dy, pool, *pattern], attrs)

    bias_gradient = staticmethod(contribute_bias)


class ConvCsrDx(_Rows):
    """dx (+)= gradient of the input."""

    fewer, windows = "winograd_csr_dx", "k"


class LinearCsr(ConvCsr):
    """y = x @ sparse w^T + bias over the last dimension."""

    @staticmethod
    def bias_gradient(grads, bias: str, dy: str) -> None:
        """Add the sums of the output gradient to the bias gradient, if any."""
        if bias and grads.needs(bias):
            grads.contribute(bias, "bgrad", [dy, "", ""], {"rule": "id"})


def _table(values, attrs) -> dict[str, int]:
    rows, channels = attrs["shape"]
    sizes = {"count": values["idx"].size, "slots": values["columns"].size}
    return sizes | {"rows": rows, "channels": channels, "taps": 1}


class GatherCsr(Op):
    """y = rows of a sparse table at the indices."""

    def vjp(self, grads, node: Node) -> None:
        dy, (pool, *pattern, indices) = grads.of(node.outputs[0]), node.inputs
        if dy and grads.needs(pool):
            attrs = {k: node.attrs[k] for k in _LAYER}
            grads.contribute(pool, "gather_csr_bwd", [dy, indices, *pattern], attrs)


def _taken(values, attrs) -> int:
    return values["idx"].size * attrs["nonzeros"] // attrs["shape"][0]


_PATTERN = "columns pointers"
_CONV = f"x w bias {PROLOGUE} {_PATTERN} -> y"
register(ConvCsr("conv_csr", _CONV, _sizes))
register(LinearCsr("linear_csr", _CONV, _sizes, kernel="conv_csr"))
register(ConvCsrDx("conv_csr_dx", f"dy w {_PATTERN} -> dx", _sizes))
# Gradients at the nonzeros, added to the pool's accumulator; conv_csr_dw reads x through the
# prologue.
_DW = f"x dy {PROLOGUE} {_PATTERN} -> dwt"
register(Op("conv_csr_dw", _DW, _sizes, cost=_flops, rounds=True, reads_rounded=True))
register(GatherCsr("gather_csr", f"w {_PATTERN} idx -> y", _table, cost=0, chooses=True))
register(Op("gather_csr_bwd", f"dy idx {_PATTERN} -> dwt", _table, cost=_taken, rounds=True))
