"""What our kernels compute, done in torch: float32, one thread, the same shapes."""

from collections.abc import Callable, Mapping

import torch
from torch import nn

from .kernel_cases import CONVOLUTION, product_of

Run = Callable[[], object]


def _convolution(name: str, v: Mapping[str, int]) -> list[Run]:
    x = torch.randn(v["n"], v["c"], v["h"], v["wd"])
    w = torch.randn(v["k"], v["c"] // v["g"], v["kh"], v["kw"])
    dy = torch.randn(v["n"], v["k"], v["oh"], v["ow"])
    how = [v["sh"], v["sw"]], [v["ph"], v["pw"]], [v["dh"], v["dw"]]
    mask = [name.endswith("_dx"), name.endswith("_dw"), False]

    def run(layout: torch.memory_format) -> Run:
        a, b, c = (t.to(memory_format=layout) for t in (x, w, dy))
        if not any(mask):
            return lambda: nn.functional.conv2d(a, b, None, *how, v["g"])
        backward = torch.ops.aten.convolution_backward
        return lambda: backward(c, a, b, None, *how, False, [0, 0], v["g"], mask)

    return [run(torch.contiguous_format), run(torch.channels_last)]


def _gemm(v: Mapping[str, int]) -> list[Run]:
    batch, m, n, k = v["z1"] * v["z2"], v["m"], v["n"], v["k2"] * v["k"]
    a = torch.randn(batch, k, m).transpose(1, 2) if v["am"] == 1 and m > 1 else None
    a = torch.randn(batch, m, k) if a is None else a
    b = torch.randn(batch, k, n) if v["bn"] == 1 else torch.randn(batch, n, k).transpose(1, 2)
    out = torch.empty(batch, m, n)
    if v["acc"]:
        return [lambda: out.baddbmm_(a, b)]
    if batch > 1:
        return [lambda: torch.bmm(a, b, out=out)]
    return [lambda: torch.mm(a[0], b[0], out=out[0])]


_ELEMENTWISE: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor], object]] = {
    "bin_add": lambda x, y, out: torch.add(x, y, out=out),
    "bin_mul": lambda x, y, out: torch.mul(x, y, out=out),
    "un_relu": lambda x, _, out: torch.clamp_min(x, 0, out=out),
    "un_gelu": lambda x, *_: nn.functional.gelu(x),
    "un_gelu_tanh": lambda x, *_: nn.functional.gelu(x, approximate="tanh"),
    "un_gelu_bwd": lambda x, y, _: torch.ops.aten.gelu_backward(y, x),
    "copy": lambda x, _, out: out.copy_(x),
    "grad_sumsq": lambda x, *_: torch.dot(x, x),
    "sgd": lambda x, y, out: out.mul_(0.9).add_(y) is x.add_(out, alpha=-0.01),
}


def _rows(name: str, v: Mapping[str, int], elements: int) -> list[Run]:
    columns = v.get("n") or v.get("c") or 1
    rows = max(1, elements // max(columns, 1))
    x, dy = torch.randn(rows, columns), torch.randn(rows, columns)
    if name == "softmax":
        return [lambda: torch.softmax(x, 1)]
    if name == "softmax_bwd":
        y = torch.softmax(x, 1)
        return [lambda: torch.ops.aten._softmax_backward_data(dy, y, 1, torch.float32)]
    if name == "layer_norm":
        gamma, beta = torch.ones(columns), torch.zeros(columns)
        return [lambda: nn.functional.layer_norm(x, (columns,), gamma, beta)]
    if name in ("layer_norm_dx", "layer_norm_dparam"):
        gamma, beta = torch.ones(columns), torch.zeros(columns)
        back = torch.ops.aten.native_layer_norm_backward
        _, mean, inverse = torch.native_layer_norm(x, (columns,), gamma, beta, 1e-5)
        mask = [name.endswith("_dx"), *[name.endswith("_dparam")] * 2]
        return [lambda: back(dy, x, (columns,), mean, inverse, gamma, beta, mask)]
    return []


def peers(name: str, values: Mapping[str, int], elements: int) -> list[Run]:
    """Return torch functions for an instruction; none if torch has no single function for it.

    Args:
      elements: of the largest operand.
    """
    direct = product_of(name)
    if direct.removesuffix("_dx").removesuffix("_dw") in CONVOLUTION:
        return _convolution(direct, values)
    if name == "gemm":
        return _gemm(values)
    if name in _ELEMENTWISE:
        x, y, out = torch.randn(elements), torch.randn(elements), torch.zeros(elements)
        return [lambda: _ELEMENTWISE[name](x, y, out)]
    return _rows(name, values, elements)
