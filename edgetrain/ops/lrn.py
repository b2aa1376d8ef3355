"""Local response normalisation (AlexNet). Saved: the input; the divisor is recomputed."""

from collections.abc import Callable

from . import samples
from .onnx_ops import images, onnx_rule
from .registry import Op, register
from .strides import channels

_FLOATS = ("alpha", "beta", "bias")


def _cost(passes: int) -> Callable[..., int]:
    return lambda values, attrs: (passes * attrs["size"] + 40) * values["x"].size


# y = x / (bias + alpha / size * sum of squares of neighbouring channels)^beta; dx (+)= gradient
# from x and dy, may overwrite dy.
register(Op("lrn", "x -> y", channels, cost=_cost(2), gradient="x dy", samples=samples.images))
register(Op("lrn_bwd", "x dy -> dx", channels, cost=_cost(4), in_place=((0, 1),)))


@onnx_rule("LRN", joined=images)
def lrn(context, node) -> None:
    x = context.value(node, 0)
    size = int(node.attrs["size"])
    if len(x.shape) < 2 or size < 1:
        raise node.fail(
            f"size {size}, input shape {list(x.shape)}", "a channel axis and a size above 0"
        )
    attrs = {"size": size} | {
        key: float(node.attrs.get(key, default))
        for key, default in zip(_FLOATS, (1e-4, 0.75, 1.0), strict=True)
    }
    context.emit(node, "lrn", [x], [x.shape], attrs)
