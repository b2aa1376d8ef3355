"""ReduceL1, L2, SumSquare, LogSum and LogSumExp, one kernel each. Saved: input and output.

Powers and exponentials of elements are not stored, because they would underflow or overflow in
fp16.

If a norm is 0, its gradient is 0, like torch.linalg.vector_norm.
"""

from ..kernels.reductions.norms import PULLED, SCALED
from . import samples
from .onnx_ops import onnx_rule
from .reduce import _reduced, _walks, reduced_shape
from .registry import Op, register

# ONNX name -> (op, exponent).
_OPS = {
    "ReduceL1": ("l1", 1.0),
    "ReduceL2": ("norm", 2.0),
    "ReduceSumSquare": ("sumsq", 2.0),
    "ReduceLogSum": ("logsum", 1.0),
    "ReduceLogSumExp": ("logsumexp", 1.0),
}

_TOTALS = ("sumsq", "l1")  # sums of a function of each element

# y = (sum |x|^p)^(1/p), log(sum x), log(sum exp x), sum x^2, sum |x| over attrs['axes'], kept as
# dimensions of size 1; dx (+)= gradient from x, y and dy.
for _name in PULLED:
    register(
        Op(
            f"reduce_{_name}",
            "x -> y",
            _reduced if _name in SCALED else _walks,
            cost=4,
            gradient="x y dy",
            samples=samples.totalled if _name in _TOTALS else samples.reduced,
        )
    )
    register(Op(f"reduce_{_name}_bwd", "x y dy -> dx", _walks))


@onnx_rule(*_OPS, integers=(0,))
def reduce_norm(context, node) -> None:
    x = context.value(node, 0)
    name, p = _OPS[node.op_type]
    result = reduced_shape(context, node, x)
    axes, shape, _ = result or ((), list(x.shape), None)
    context.emit(node, f"reduce_{name}", [x], [shape], {"axes": axes, "p": p})
