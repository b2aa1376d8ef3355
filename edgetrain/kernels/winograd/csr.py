"""3 x 3 convolution with a sparse weight, and its input gradient, by F(4 x 4, 3 x 3).

These are the kernels of winograd/product.py with weights from compressed rows (conv/csr.py): a
block of channels is expanded in scratch before it is transformed to points. So a layer needs memory
for its nonzeros and a block's scratch. Bits are those of the dense kernel with the same weights.
"""

from ..conv.csr import CSR_CHECK, dx_operands, forward_operands, pool_base
from ..conv.plain import DX_WORK, WORK
from ..registry import kernel
from .layout import product_layout
from .product import WINDOW, backward, forward

# Expanding weights takes long, so a piece has more channels, and more panels use it.
_LARGE = {"most": 256, "held": 4}
# `taps`: a chunk of input channels, or a row's channels in a block
FORWARD = product_layout("c", "k", "oh", "ow", "576 * min(chunk, c)", **_LARGE)
BACKWARD = product_layout("k", "c", "h", "wd", "576 * 2", **_LARGE)


def _rows_of(W):
    """Inline function from the operands to the layer's rows."""
    from ..conv.records import PoolRows
    from ..language.inlining import inline
    from ..language.prim import div

    nbytes = W.nbytes

    @inline
    def rows(args):
        base, chunks = pool_base(args.w, nbytes, args), div(args.c + args.chunk - 1, args.chunk)
        return PoolRows(base, args.columns, args.pointers, 0, args.k, chunks, args.chunk)

    return rows


def _sparse(S, W, INDEX, rows: int, vectors: int):
    """`winograd_csr`: y = conv(prologue(x), w) + bias."""
    from .weights import of_rows

    return forward(S, of_rows(W, INDEX), rows, vectors, FORWARD, _rows_of(W))


def _sparse_dx(S, W, INDEX, rows: int, vectors: int):
    """`winograd_csr_dx`: dx (+)= the input gradient."""
    from .weights import of_rows_flipped

    return backward(S, of_rows_flipped(W, INDEX), rows, vectors, BACKWARD, _rows_of(W))


def _register(variant: str, rows: int, vectors: int, when: str = "") -> None:
    how = {"variant": variant, "check": CSR_CHECK + WINDOW, "blocks": "W"}
    how |= {"when": when} if when else {}
    kernel("winograd_csr", forward_operands(FORWARD.nbytes), work=WORK, **how)(
        lambda S, W, INDEX: _sparse(S, W, INDEX, rows, vectors)
    )
    kernel("winograd_csr_dx", dx_operands(BACKWARD.nbytes), work=DX_WORK, **how)(
        lambda S, W, INDEX: _sparse_dx(S, W, INDEX, rows, vectors)
    )


_register("wide", 8, 2, "lanes >= 16")
_register("plain", 4, 1)
