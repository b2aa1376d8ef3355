"""Convolution with any kernel, stride, padding, dilation and groups; 1-D is 2-D with height 1.

Inputs of the ir op: x, w, bias, stat, gamma, beta ("" if absent). The last three are the prologue:
the convolution reads act(batch_norm(x)), which is never stored. Saved for backward: x (weight
gradient) and w (input gradient).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..ir import Call, Graph, Node, Value
from . import samples
from .registry import Adding, Attrs, Op, register
from .strides import prod
from .winograd import RULES

_WINDOWS = ("n", "oh", "ow", "kh", "kw")
GEOMETRY = ("sh", "sw", "ph", "pw", "dh", "dw", "g")


def flat(shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of a map or weight in 2-D: 1-D gets a height of 1."""
    return (*shape[:2], 1, shape[2]) if len(shape) == 3 else tuple(shape)


def conv_sizes(x: Sequence[int], w: Sequence[int], y: Sequence[int]) -> dict[str, int]:
    """Kernel integers from the shapes of input, weight and output."""
    xs, ws, ys = flat(x), flat(w), flat(y)
    sizes = dict(zip(("n", "c", "h", "wd"), xs, strict=True))
    return sizes | {"k": ws[0], "kh": ws[2], "kw": ws[3], "oh": ys[2], "ow": ys[3]}


def _weight(values) -> Sequence[int]:
    return (values["w"] if "w" in values else values["wt"]).shape


def _sizes(values, attrs) -> dict[str, int]:
    return conv_sizes(values["x"].shape, _weight(values), values["y"].shape)


WINOGRAD = "winograd"  # attribute of nodes


def pays_winograd(sizes: Mapping[str, int], attrs: Attrs, kernel: str) -> bool:
    """Whether a convolution or its gradient uses this Winograd kernel: see ops/winograd.py."""
    return RULES[kernel].pays(sizes, attrs)


class Windows(Op):
    """A convolution or its gradient: direct, or with fewer products (kernels/winograd).

    Attributes:
      fewer: the Winograd kernel.
      windows: channels of the map whose windows are read: of the input ("c") or the output ("k").
      arranges: rate of `arranged`, if the convolution is not depthwise.
    """

    fewer, windows, arranges = "winograd", "c", "maps"

    def __init__(self, name: str, operands: str, sizes, **flags: Any) -> None:
        super().__init__(name, operands, sizes, cost=self._cost, **flags)

    def _cost(self, values, attrs) -> int:
        if attrs.get(WINOGRAD):
            return RULES[self.fewer].flops(self.sizes(values, attrs), attrs)
        return self.direct_flops(values, attrs)

    def direct_flops(self, values, attrs) -> int:
        """Operations of the direct kernel."""
        return 2 * values["y"].size * prod(_weight(values)[1:])

    def arranged(self, node: Node, graph: Graph) -> Mapping[str, int]:
        """Elements of all windows; Winograd's operations already include its transforms."""
        if self.shortcut(node):
            return {}
        sizes = self.sizes(self._values(node, graph), node.attrs)
        channels = sizes[self.windows]
        depthwise = node.attrs["g"] == channels > 1
        count = channels * prod([sizes[name] for name in _WINDOWS])
        return {"planes" if depthwise else self.arranges: count}

    def chosen(self, node: Node, graph: Graph) -> Node:
        sizes = dict(self.sizes(self._values(node, graph), node.attrs))
        if not pays_winograd(sizes, node.attrs, self.fewer):
            return node
        return replace(node, attrs={**node.attrs, WINOGRAD: 1})

    def shortcut(self, node: Node) -> bool:
        return WINOGRAD in node.attrs

    def call(self, node: Node, graph: Graph, kernel: str = "") -> Call:
        """The call of the kernel that the node uses."""
        return super().call(node, graph, kernel or (self.fewer if self.shortcut(node) else ""))


def contribute_bias(grads, bias: str, dy: str) -> None:
    """Add the sums of an output gradient [n, channels, ...] to the bias gradient, if any."""
    if bias and grads.needs(bias):
        channels = (-1, *[1] * (len(grads.value(dy).shape) - 2))
        grads.contribute(bias, "bgrad", [dy, "", ""], {"rule": "id"}, shape=channels)


class Conv(Windows):
    """y = conv(prologue(x), w) + bias."""

    def vjp(self, grads, node: Node) -> None:
        dy = grads.of(node.outputs[0])
        if not dy:
            return
        x, w, bias = node.inputs[:3]
        geometry = {key: node.attrs[key] for key in GEOMETRY}
        if grads.needs(w):
            grads.contribute(w, "conv_dw", [x, dy, "", "", ""], geometry)
        contribute_bias(grads, bias, dy)
        if grads.needs(x):
            grads.contribute(x, "conv_dx", [dy, w], geometry)


PROLOGUE = "stat gamma beta"
CONV = register(
    Conv(
        "conv",
        f"x w bias {PROLOGUE} -> y",
        _sizes,
        samples=samples.images,
        sparse="conv_csr",
        layer=True,
    )
)


class ConvDx(Windows):
    """The input gradient of a convolution."""

    fewer, windows = "winograd_dx", "k"


class ConvDw(Windows, Adding):
    """The weight gradient; it reads x through the prologue."""

    fewer, arranges = "winograd_dw", "weights"


CONV_DX = register(ConvDx("conv_dx", "dy w -> dx", _sizes))
_SUMS: dict[str, Any] = {"rounds": True, "reads_rounded": True}
register(ConvDw("conv_dw", f"x dy {PROLOGUE} -> dwt", _sizes, **_SUMS))


AUTO_PADS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


def auto_pad(node) -> str:
    """The node's auto_pad, one of AUTO_PADS."""
    mode = node.attrs.get("auto_pad", "NOTSET") or "NOTSET"
    if mode not in AUTO_PADS:
        raise node.fail(f"auto_pad {mode!r}", f"one of {', '.join(AUTO_PADS)}")
    return mode


def window(node, sizes, kernel, strides, dilations, ceil_mode=0):
    """(pads before, pads after, output sizes) of a convolution or pool, by ONNX rules."""
    rank = len(kernel)
    pads = list(node.attrs.get("pads", [0] * 2 * rank))
    mode = auto_pad(node)
    if len(pads) != 2 * rank or len(strides) != rank or len(dilations) != rank:
        raise node.fail(
            f"pads {pads}, strides {strides}, dilations {dilations}", f"{rank} spatial dimensions"
        )
    if min(*strides, *dilations, *kernel) < 1 or min(pads) < 0:
        raise node.fail(
            f"kernel {list(kernel)}, strides {strides}, dilations {dilations}, pads {pads}",
            "positive sizes and pads of at least 0",
        )
    before, after, out = [], [], []
    for k in range(rank):
        span = dilations[k] * (kernel[k] - 1) + 1
        if mode in ("SAME_UPPER", "SAME_LOWER"):
            total = max(0, (-(-sizes[k] // strides[k]) - 1) * strides[k] + span - sizes[k])
            small = total // 2
            first = small if mode == "SAME_UPPER" else total - small
            before.append(first)
            after.append(total - first)
        elif mode == "VALID":
            before.append(0)
            after.append(0)
        else:
            before.append(pads[k])
            after.append(pads[k + rank])
        room = sizes[k] + before[k] + after[k] - span
        if room < 0:
            raise node.fail(
                f"a window of {span} for {sizes[k]} + {before[k]} + {after[k]} elements",
                "a window inside the padded input",
            )
        count = (-(-room // strides[k]) if ceil_mode else room // strides[k]) + 1
        if ceil_mode and (count - 1) * strides[k] >= sizes[k] + before[k]:
            count -= 1  # torch: a window must start inside the input or its left padding
        out.append(count)
    return before, after, out


def geometry(node, rank: int, kernel=None):
    """(kernel, strides, dilations) attributes of rank 1 or 2."""
    ones = [1] * rank
    kernel = list(node.attrs.get("kernel_shape", kernel or ones))
    strides = list(node.attrs.get("strides", ones)) or ones
    return kernel, strides, list(node.attrs.get("dilations", ones)) or ones


def planar(**numbers: Sequence[int]) -> dict[str, int]:
    """`planar(s=strides)` -> sh and sw; a single number belongs to the second axis."""
    attrs = {}
    for letter, part in numbers.items():
        attrs[f"{letter}h"], attrs[f"{letter}w"] = (int(letter != "p"), *part)[-2:]
    return attrs


def weighted(context, node, most: int = 2):
    """Input, weight, groups and `geometry` of a convolution or transposed convolution.

    Args:
      most: largest number of spatial axes.
    """
    x, w = context.value(node, 0), context.value(node, 1)
    rank = len(x.shape) - 2
    if not 1 <= rank <= most or len(w.shape) != rank + 2:
        raise node.fail(
            f"input has shape {list(x.shape)}, weight {list(w.shape)}",
            f"the same rank, 1-D to {most}-D",
        )
    numbers, groups = geometry(node, rank, w.shape[2:]), node.attrs.get("group", 1)
    if list(w.shape[2:]) != numbers[0]:
        raise node.fail(f"kernel_shape {numbers[0]}", f"the weight's {list(w.shape[2:])}")
    transposed = node.op_type == "ConvTranspose"
    channels = w.shape[0] if transposed else w.shape[1] * groups
    if groups < 1 or x.shape[1] != channels or w.shape[0] % groups:
        raise node.fail(
            f"{x.shape[1]} input channels, weight shape {list(w.shape)}, {groups} groups",
            "as many weight rows as channels, a multiple of the groups"
            if transposed
            else "channels = weight channels x groups",
        )
    return x, w, groups, numbers


def optional_bias(context, node, channels: int) -> Value | str:
    """Input 2, one number per channel; "" if absent."""
    if not context.has(node, 2):
        return ""
    bias: Value = context.value(node, 2)
    if bias.shape != (channels,):
        raise node.fail(f"bias has shape {list(bias.shape)}", f"[{channels}]")
    return bias
