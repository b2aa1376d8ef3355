"""Small valid files whose nodes produce enormous values, by name."""

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper

from .models import info, model, node, tensor

_EXPONENTS = (24, 26, 28, 31)
Made = Callable[[], onnx.ModelProto]


def ints(name: str, *numbers: int) -> TensorProto:
    """An int64 vector."""
    return helper.make_tensor(name, TensorProto.INT64, [len(numbers)], numbers)


def scalar(name: str, number: int) -> TensorProto:
    """An int64 scalar."""
    return helper.make_tensor(name, TensorProto.INT64, [], [number])


def _fill(shape: str, output: str, kind=np.float32) -> onnx.NodeProto:
    value = onnx.numpy_helper.from_array(np.ones(1, kind), "one")
    return node("ConstantOfShape", shape, output, value=value)


def _summed(nodes, arrays, *, given=("batch", 4), opset=17) -> onnx.ModelProto:
    """Add x and the enormous `big`, or its mean; a weight is trained."""
    return model(
        [node("MatMul", "x w", "h"), *nodes], [tensor("w", 4, 4), *arrays],
        inputs=[info("x", *given)], outputs=[info("y")], opset=opset,
    )  # fmt: skip


def _constants(n: int) -> dict[str, Made]:
    """Enormous values that do not depend on an input."""
    add = node("Add", "h big", "y")
    total = [node("ReduceSum", "big", "t", keepdims=0), node("Add", "h t", "y")]
    half = 2 ** (n.bit_length() // 2)
    other = n // half
    two = [ints("s", half, other)]
    tri = node("Trilu", "big", "tri")
    return {
        "filled": lambda: _summed([_fill("s", "big"), *total], [ints("s", n)]),
        "filled and added": lambda: _summed([_fill("s", "big"), add], [ints("s", n // 4, 1, 4)]),
        "filled weight": lambda: _summed(
            [_fill("s", "big"), node("MatMul", "h big", "y")], [ints("s", 4, n // 4)]
        ),
        "expanded": lambda: _summed(
            [node("Expand", "one s", "big"), *total], [tensor("one", 1, 1), ints("s", n // 8, 8)]
        ),
        "tiled": lambda: _summed(
            [node("Tile", "one s", "big"), *total], [tensor("one", 4, 4), ints("s", 1, n // 16)]
        ),
        "counted": lambda: _summed(
            [node("Range", "a b c", "r"), node("Cast", "r", "big", to=1), *total],
            [scalar("a", 0), scalar("b", n), scalar("c", 1)],
        ),
        "summed by broadcast": lambda: _summed(
            [_fill("s", "p"), _fill("t", "q"), node("Sum", "p q", "big"),
             node("ReduceSum", "big", "k", keepdims=0), node("Add", "h k", "y")],
            [ints("s", half, 1), ints("t", 1, other)],
        ),
        "added by broadcast": lambda: _summed(
            [_fill("s", "p"), _fill("t", "q"), node("Add", "p q", "big"),
             node("ReduceSum", "big", "k", keepdims=0), node("Add", "h k", "y")],
            [ints("s", half, 1), ints("t", 1, other)],
        ),
        "product of constants": lambda: _summed(
            [_fill("s", "p"), _fill("t", "q"), node("MatMul", "p q", "big"),
             node("ReduceMean", "big", "k", keepdims=0), node("Add", "h k", "y")],
            [ints("s", half, 64), ints("t", 64, other)],
        ),
        "gemm of constants": lambda: _summed(
            [_fill("s", "p"), node("Gemm", "p p", "big", transB=1),
             node("ReduceMean", "big", "k", keepdims=0), node("Add", "h k", "y")],
            [ints("s", half, 64)],
        ),
        "einsum of constants": lambda: _summed(
            [_fill("s", "p"), _fill("t", "q"), node("Einsum", "p q", "big", equation="a,b->ab"),
             node("ReduceMean", "big", "k", keepdims=0), node("Add", "h k", "y")],
            [ints("s", half), ints("t", other)],
        ),
        "triangle": lambda: _summed(
            [_fill("s", "big"), tri, node("ReduceSum", "tri", "k", keepdims=0),
             node("Add", "h k", "y")], two,
        ),
        "unit matrix": lambda: _summed(
            [_fill("s", "m"), node("EyeLike", "m", "big"), *total], two
        ),
        "one-hot": lambda: _summed(
            [node("OneHot", "i d v", "big"), *total],
            [ints("i", *range(8)), scalar("d", n // 8), tensor("v", 2)],
        ),
        "gathered": lambda: _summed(
            [_fill("s", "i", np.int64), node("Gather", "w i", "big"),
             node("ReduceSum", "big", "k", keepdims=0), node("Add", "h k", "y")],
            [ints("s", n // 8)],
        ),
        "non-zero": lambda: _summed(
            [_fill("s", "m"), node("NonZero", "m", "z"), node("Cast", "z", "big", to=1), *total],
            [ints("s", 2, 2, 2, 2, 2, 2, n // 64)],
        ),
        "padded constant": lambda: _summed(
            [node("Pad", "one p", "big"), *total], [tensor("one", 4), ints("p", 0, n)]
        ),
        "resized constant": lambda: _summed(
            [node("Resize", "one - - z", "big"), *total],
            [tensor("one", 1, 1, 2), ints("z", 1, 1, n)],
        ),
        "joined": lambda: _summed(
            [_fill("s", "p"), node("Concat", " ".join(["p"] * 64), "big", axis=0), *total],
            [ints("s", n // 64)],
        ),
    }  # fmt: skip


def _values(n: int) -> dict[str, Made]:
    """Enormous values computed from the input."""
    image = ("batch", 1, 4, 4)
    half = 2 ** (n.bit_length() // 2)
    kernel = tensor("k", 2, 1, 3, 3)
    mean = node("GlobalAveragePool", "big", "y")

    def pictured(nodes, arrays, given=image, opset=17):
        return model(
            [node("Conv", "x w", "h"), *nodes], [tensor("w", 1, 1, 1, 1, value=0.5), *arrays],
            inputs=[info("x", *given)], outputs=[info("y")], opset=opset,
        )  # fmt: skip

    return {
        "expanded input": lambda: _summed(
            [node("Unsqueeze", "h a", "u"), node("Expand", "u s", "big"),
             node("ReduceMean", "big", "y", axes=[1], keepdims=0)],
            [ints("a", 1), ints("s", 1, n // 8, 4)],
        ),
        "expanded output": lambda: _summed(
            [node("Unsqueeze", "h a", "u"), node("Expand", "u s", "y")],
            [ints("a", 1), ints("s", 1, n // 8, 4)],
        ),
        "tiled input": lambda: _summed(
            [node("Tile", "h s", "big"), node("ReduceMean", "big", "y", axes=[1])],
            [ints("s", 1, n // 8)],
        ),
        "padded input": lambda: _summed(
            [node("Pad", "h p", "big"), node("ReduceMean", "big", "y", axes=[1])],
            [ints("p", 0, 0, 0, n // 2)],
        ),
        "reflected input": lambda: _summed(
            [node("Pad", "h p", "big", mode="wrap"), node("ReduceMean", "big ax", "y")],
            [ints("p", 0, 0, 0, n // 2), ints("ax", 1)], opset=19,
        ),
        "broadcast input": lambda: _summed(
            [node("Unsqueeze", "h a", "u"), _fill("s", "f"), node("Add", "u f", "big"),
             node("ReduceMean", "big", "y", axes=[1], keepdims=0)],
            [ints("a", 1), ints("s", n // 8, 1)],
        ),
        "padded image": lambda: pictured(
            [node("Conv", "h k", "big", pads=[half // 2] * 4), mean], [kernel]
        ),
        "padded pool": lambda: pictured(
            [node("Pad", "h p", "b"), node("MaxPool", "b", "big", kernel_shape=[3, 3]), mean],
            [ints("p", 0, 0, 0, 0, 0, 0, half, half)],
        ),
        "strided transposed convolution": lambda: pictured(
            [node("ConvTranspose", "h k", "big", strides=[half // 4, half // 4]), mean],
            [tensor("k", 1, 2, 3, 3)],
        ),
        "nearest resize": lambda: pictured(
            [node("Resize", "h - - z", "big", mode="nearest"), mean], [ints("z", 1, 1, half, half)]
        ),
        "wide resize": lambda: pictured(
            [node("Resize", "h - - z", "big", mode="cubic"), mean], [ints("z", 1, 1, 4, n // 4)]
        ),
        "scaled": lambda: pictured(
            [node("Upsample", "h f", "big", mode="nearest"), mean],
            [helper.make_tensor("f", TensorProto.FLOAT, [4], [1, 1, half / 4, half / 4])], opset=9,
        ),
        "narrowed": lambda: pictured(
            [node("Resize", "h - - z", "big", mode="linear", antialias=1), mean],
            [ints("z", 1, 1, 4, 1000)], ("batch", 1, 4, n // 16), 18,
        ),
        "dilated pool": lambda: pictured(
            [node("AveragePool", "h", "big", kernel_shape=[half // 2, half // 2], dilations=[2, 2],
                  pads=[half] * 4), mean], [], opset=19,
        ),
        "power pool": lambda: pictured(
            [node("LpPool", "h", "big", kernel_shape=[half, half], pads=[half] * 4), mean], []
        ),
        "triangle of the input": lambda: _summed(
            [node("Unsqueeze", "h a", "u"), node("Expand", "u s", "e"), node("Trilu", "e", "big"),
             node("ReduceMean", "big", "y", axes=[1, 2])],
            [ints("a", 2), ints("s", 1, 4, n // 8)],
        ),
        "square triangle": lambda: pictured(
            [node("Expand", "h s", "e"), node("Trilu", "e", "big"), mean],
            [ints("s", 1, 1, half, half)], ("batch", 1, 1, 1),
        ),
        "outer product": lambda: _summed(
            [node("MatMul", "u v", "big"), node("ReduceMean", "big", "y", axes=[1, 2])][:0]
            + [node("Tile", "h s", "t"), node("Unsqueeze", "t a", "u"),
               node("Unsqueeze", "t b", "v"), node("MatMul", "u v", "big"),
               node("ReduceMean", "big", "y", axes=[1, 2])],
            [ints("s", 1, half // 4), ints("a", 2), ints("b", 1)],
        ),
        "attention": lambda: _summed(
            [node("Unsqueeze", "h a", "u"), node("Expand", "u s", "e"),
             node("Attention", "e e e", "big", q_num_heads=1, kv_num_heads=1, is_causal=1),
             node("ReduceMean", "big m", "y", keepdims=0)],
            [ints("a", 1), ints("s", 1, half, 4), ints("m", 1)], opset=23,
        ),
        "long sequence": lambda: _summed(
            [node("Unsqueeze", "h a", "u"), node("Expand", "u s", "e"),
             node("LSTM", "e lw lr", "- big", hidden_size=2), node("Squeeze", "big a", "y")],
            [ints("a", 0), ints("s", n // 16, 1, 1), tensor("lw", 1, 8, 4), tensor("lr", 1, 8, 2)],
        ),
        "gathered rows": lambda: _summed(
            [_fill("s", "i", np.int64), node("Gather", "h i", "big", axis=1),
             node("ReduceMean", "big", "y", axes=[1])], [ints("s", n // 8)],
        ),
        "running sums": lambda: _summed(
            [node("Tile", "h s", "t"), node("CumSum", "t b", "big"),
             node("ReduceMean", "big", "y", axes=[1])], [ints("s", 1, n // 8), scalar("b", 1)],
        ),
        "huge input": lambda: _summed([node("Relu", "h", "y")], [], given=("batch", n // 16, 4)),
    }  # fmt: skip


def _work() -> dict[str, Made]:
    """Values that are enormous only together, or need enormous work."""
    square = [ints("s", 2000, 2000)]

    def chained(op: str, count: int, *more: str, **attrs) -> onnx.ModelProto:
        nodes = [_fill("s", "v0")]
        for k in range(count):
            nodes.append(node(op, " ".join([f"v{k}", *more]), f"v{k + 1}", **attrs))
        nodes += [node("ReduceMean", f"v{count}", "t", keepdims=0), node("Add", "h t", "y")]
        return _summed(nodes, square)

    def parallel(op: str, count: int, **attrs) -> onnx.ModelProto:
        """Every result is used."""
        nodes = [_fill("s", "v")]
        nodes += [node(op, "v", f"r{k}", **attrs) for k in range(count)]
        nodes += [node("Sum", " ".join(["h", *(f"r{k}" for k in range(count))]), "y")]
        return _summed(nodes, square)

    def long_shape(op: str) -> onnx.ModelProto:
        nodes = [_fill("s", "i", np.int64), node(op, "h i", "y")]
        return _summed(nodes, [ints("s", 2**22)])

    def batched(count: int) -> onnx.ModelProto:
        """Constants are folded anew for every batch size that is tried."""
        nodes = [node("Shape", "x", "sh"), node("Gather", "sh zero", "b"),
                 node("Concat", "b two", "s", axis=0)]  # fmt: skip
        nodes += [_fill("s", f"c{k}") for k in range(count)]
        nodes += [node("Pow", f"c{k} c{k}", f"p{k}") for k in range(count)]
        nodes += [node("ReduceMean", f"p{k}", f"m{k}", axes=[1]) for k in range(count)]
        nodes += [node("Sum", " ".join(["h", *(f"m{k}" for k in range(count))]), "y")]
        return _summed(nodes, [ints("zero", 0), ints("two", 100_000)])

    def baked(count: int) -> onnx.ModelProto:
        """A fixed batch that is freed by trial, with much to fold in every trial."""
        nodes = [_fill("s", "c0")]
        nodes += [node("Pow", f"c{k} c{k}", f"c{k + 1}") for k in range(count)]
        nodes += [node("ReduceMean", f"c{count}", "m", keepdims=0), node("Add", "h m", "g"),
                  node("Reshape", "g r0", "f"), node("Reshape", "f r1", "y")]  # fmt: skip
        return _summed(nodes, [ints("s", 2**22), ints("r0", 16), ints("r1", 4, 4)], given=(4, 4))

    return {
        "chain of powers": lambda: chained("Pow", 500, "v0"),
        "chain of quotients": lambda: chained("Div", 500, "v0"),
        "chain of sums": lambda: chained("Add", 2000, "v0"),
        "chain of copies": lambda: chained("Exp", 2000),
        "chain of casts": lambda: chained("Cast", 2000, to=1),
        "chain of transposes": lambda: chained("Transpose", 2000),
        "many means": lambda: parallel("ReduceMean", 2000, keepdims=0),
        "many extremes": lambda: parallel("ReduceMax", 2000, keepdims=0),
        "long Reshape": lambda: long_shape("Reshape"),
        "long Tile": lambda: long_shape("Tile"),
        "long Expand": lambda: long_shape("Expand"),
        "of each batch": lambda: batched(64),
        "in each trial": lambda: baked(100),
    }


CONSTANTS = {f"{k} 2^{e}": make for e in _EXPONENTS for k, make in _constants(2**e).items()}
VALUES = {f"{k} 2^{e}": make for e in _EXPONENTS for k, make in _values(2**e).items()}
WORK = _work()
ENORMOUS: dict[str, Made] = {**CONSTANTS, **VALUES, **WORK}
