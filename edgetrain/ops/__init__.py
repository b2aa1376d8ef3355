"""One file per family of ops: ONNX names, shapes, gradient rule, saved values, cost.

A new op is a new row or class in its family's file (and a kernel, and a test case); importing this
package fills the tables of registry.py.
"""

from . import (
    attention,
    control,
    conv,
    conv_transpose,
    dropout,
    einsum,
    elementwise,
    gather,
    groupnorm,
    linear,
    loss,
    lrn,
    movement,
    norm,
    pad,
    pool,
    rearrange,
    recurrent,
    reduce,
    reduce_norms,
    resize,
    select,
    softmax,
    sparse,
)

__all__ = [
    "attention",
    "control",
    "conv",
    "conv_transpose",
    "dropout",
    "einsum",
    "elementwise",
    "gather",
    "groupnorm",
    "linear",
    "loss",
    "lrn",
    "movement",
    "norm",
    "pad",
    "pool",
    "rearrange",
    "recurrent",
    "reduce",
    "reduce_norms",
    "resize",
    "select",
    "softmax",
    "sparse",
]
