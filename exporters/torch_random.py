"""Random numbers in a traced module: draws that torch's export doesn't support, and masks as
Dropout.

A random mask, as in stochastic depth or in-place dropout, keeps a share of elements with a few
comparison nodes. Dropout of ones has the same meaning in training, doesn't store the random
numbers, and in evaluation gives the mask's mean, which the following division turns into 1.
"""

import contextlib
import pickle
import random
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import onnx_ir as ir
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

DRAWN_OUTSIDE = (
    "The forward pass draws with Python's random or with numpy.random, and a file can only hold "
    "what was drawn, as constants: draw with torch, or turn it off (apply_spec_augment=False in a "
    "transformers configuration)."
)
_DRAWN = ("RandomUniform", "RandomUniformLike")
_SELU = 1.7580993408473766  # minus the limit of SELU, the value of dropped elements
# Comparisons that hold for a share p of numbers u in [0, 1): as (u, p), and as (p, u).
_BELOW, _ABOVE = ("Less", "LessOrEqual"), ("Greater", "GreaterOrEqual")


def outside_state() -> bytes:
    """State of Python's and numpy's generators, which tracing doesn't see: a draw changes it."""
    return pickle.dumps((random.getstate(), np.random.get_state()))  # noqa: NPY002


@contextlib.contextmanager
def traceable_random_numbers() -> Iterator[None]:
    """Trace every draw as rand, randn or Dropout; disable value checks of distributions."""

    def uniform(x: Tensor, *bounds: float, **named: Any) -> Tensor:
        given = dict(zip(("from", "to"), bounds, strict=False)) | named
        low, high = given.get("from", 0.0), given.get("to", 1.0)
        return x.copy_(torch.rand_like(x) * (high - low) + low)

    def normal(x: Tensor, mean: float = 0.0, std: float = 1.0, **_: Any) -> Tensor:
        return x.copy_(torch.randn_like(x) * std + mean)

    def rrelu(
        x: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False
    ) -> Tensor:
        middle = (lower + upper) / 2
        slope = torch.rand_like(x) * (upper - lower) + lower if training else middle
        return torch.where(x >= 0, x, x * slope)

    checked = torch.distributions.Distribution._validate_args
    with contextlib.ExitStack() as stack:
        for name, drop in _DROPS.items():
            stack.enter_context(mock.patch.object(torch._VF, name, drop, create=True))
        stack.enter_context(mock.patch.object(torch.Tensor, "uniform_", uniform))
        stack.enter_context(mock.patch.object(torch.Tensor, "normal_", normal))
        stack.enter_context(mock.patch.object(torch, "rrelu", rrelu))
        torch.distributions.Distribution.set_default_validate_args(False)
        try:
            yield
        finally:
            torch.distributions.Distribution.set_default_validate_args(checked)


def _channels(x: Tensor) -> Tensor:
    """Ones [batch, channels, 1, ...]."""
    return x.new_ones((*x.shape[:2], *(1 for _ in x.shape[2:])))


def _drop_channels(x: Tensor, p: float, train: bool) -> Tensor:
    """Dropout1d, 2d and 3d as a product with Dropout of ones."""
    return x * torch.nn.functional.dropout(_channels(x), p, train)


def _alpha(x: Tensor, p: float, train: bool, ones: Tensor) -> Tensor:
    """Alpha dropout (Klambauer et al. 2017) from Dropout of ones, which is 1 in evaluation; there
    the result is x."""
    dropped = torch.nn.functional.dropout(ones, p, train)
    if p == 1.0:
        return x * dropped
    scale = ((_SELU**2 * p + 1) * (1 - p)) ** -0.5
    noise = dropped * (1 - p)
    return torch.where(dropped == 1, x, scale * (x * noise - _SELU * (1 - noise - p)))


def _alpha_dropout(x: Tensor, p: float, train: bool) -> Tensor:
    return _alpha(x, p, train, torch.ones_like(x))


def _alpha_channels(x: Tensor, p: float, train: bool) -> Tensor:
    return _alpha(x, p, train, _channels(x))


_Drop = Callable[[Tensor, float, bool], Tensor]


def _in_place(drop: _Drop) -> _Drop:
    return lambda x, p, train: x.copy_(drop(x, p, train))


# Functions of torch._VF that the export lacks -> what is traced in their place.
_DROPS: dict[str, _Drop] = {
    "dropout_": _in_place(torch.nn.functional.dropout),
    "feature_dropout": _drop_channels,
    "feature_dropout_": _in_place(_drop_channels),
    "alpha_dropout": _alpha_dropout,
    "alpha_dropout_": _in_place(_alpha_dropout),
    "feature_alpha_dropout": _alpha_channels,
    "feature_alpha_dropout_": _in_place(_alpha_channels),
}


def masks_as_dropout(graph: ir.Graph) -> int:
    """Replace random masks of 0 and 1 by Dropout of ones, and count them; dead nodes are left in
    the graph."""
    count = 0
    for node in list(graph.all_nodes()):
        result = _mask(node)
        if result is None:
            continue
        drawn, keep = result
        _replace(graph, node, drawn, keep)
        count += 1
    return count


def draws_in_evaluation(module: torch.nn.Module, inputs: tuple[Tensor, ...]) -> bool:
    """Whether two runs in evaluation mode give different outputs."""
    results = []
    try:
        for _ in range(2):
            with module_kept(module), torch.no_grad():
                results.append(tree_leaves(module.eval()(*(tensor.clone() for tensor in inputs))))
    except Exception:  # a module that only works in training
        return False
    first, second = results
    pairs = zip(first, second, strict=False)
    return any(
        isinstance(a, Tensor) and not torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs
    )


@contextlib.contextmanager
def module_kept(module: torch.nn.Module) -> Iterator[None]:
    """Restore buffers, modes and other attributes of all parts after the block."""
    parts = [(p, dict(p.__dict__), dict(p._buffers)) for p in module.modules()]
    copies = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
    try:
        yield
    finally:
        for part, attributes, buffers in parts:
            for name in part.__dict__.keys() - attributes.keys():
                del part.__dict__[name]
            part.__dict__.update(attributes)
            part._buffers.clear()
            part._buffers.update(buffers)
        with torch.no_grad():
            for buffer, copy in copies:
                buffer.copy_(copy)


def random_nodes(graph: ir.Graph) -> list[str]:
    """Names of nodes that draw random numbers in every mode."""
    return [node.name or "" for node in graph.all_nodes() if node.op_type.startswith("Random")]


def _mask(node: ir.Node) -> tuple[ir.Node, float] | None:
    """(the draw, share of ones) of a node that makes a float mask; None for other nodes."""
    if node.op_type == "Cast" and node.attributes.get_int("to", 0) == ir.DataType.FLOAT:
        compared = node.inputs[0].producer() if node.inputs[0] is not None else None
        return _compared(compared) if compared is not None and _is_read_once(compared) else None
    if node.op_type == "Floor" and node.inputs[0] is not None:
        added = node.inputs[0].producer()
        if added is None or added.op_type != "Add" or not _is_read_once(added):
            return None
        return _share(*added.inputs) or _share(*reversed(added.inputs))
    return None


def _is_read_once(node: ir.Node) -> bool:
    """Whether a mask is all that comes from this node: masks of one draw belong together."""
    output = node.outputs[0]
    return len(output.uses()) == 1 and not output.is_graph_output()


def _compared(node: ir.Node) -> tuple[ir.Node, float] | None:
    if node.op_type not in (*_BELOW, *_ABOVE):
        return None
    left, right = node.inputs
    below = node.op_type in _BELOW
    result = _share(left, right)
    if result is None:
        result, below = _share(right, left), not below
    if result is None:
        return None
    return result if below else (result[0], 1.0 - result[1])


def _share(draw: ir.Value | None, number: ir.Value | None) -> tuple[ir.Node, float] | None:
    """(the draw, the number) of a uniform draw in [0, 1) and a constant between 0 and 1."""
    drawn = draw.producer() if draw is not None else None
    constant = number.const_value if number is not None else None
    if drawn is None or drawn.op_type not in _DRAWN or not _is_read_once(drawn):
        return None
    if constant is None or constant.size != 1:
        return None
    low, high = (drawn.attributes.get_float(name, d) for name, d in (("low", 0.0), ("high", 1.0)))
    share = float(np.ravel(constant.numpy())[0])
    return (drawn, share) if (low, high) == (0.0, 1.0) and 0.0 < share < 1.0 else None


def _replace(graph: ir.Graph, node: ir.Node, drawn: ir.Node, keep: float) -> None:
    """Replace uses of the mask: divided by its share, it is Dropout of ones; other uses get that
    times the share."""
    mask = node.outputs[0]
    made = [*_ones(drawn), *_dropout(graph, node, keep)]
    made[-1].replace_input_with(0, made[-2].outputs[0])
    kept = made[-1].outputs[0]
    kept.shape, kept.type = mask.shape, mask.type
    graph.insert_before(node, made)
    for user, _ in list(mask.uses()):
        if user.op_type == "Div" and user.inputs[0] is mask and _is(user.inputs[1], keep):
            user.outputs[0].replace_all_uses_with(kept, replace_graph_outputs=True)
    share = _number(graph, keep)
    scaled = ir.Node("", "Mul", [kept, share], metadata_props=dict(node.metadata_props))
    scaled.outputs[0].shape, scaled.outputs[0].type = mask.shape, mask.type
    graph.insert_before(node, scaled)
    mask.replace_all_uses_with(scaled.outputs[0], replace_graph_outputs=True)


def _ones(drawn: ir.Node) -> list[ir.Node]:
    """Nodes whose last output is ones in the shape of the draw."""
    item = ir.AttrTensor("value", ir.Tensor(np.ones(1, np.float32)))
    if drawn.op_type == "RandomUniformLike":
        shape = ir.Node("", "Shape", [drawn.inputs[0]])
        return [shape, ir.Node("", "ConstantOfShape", [shape.outputs[0]], [item])]
    sizes = ir.Tensor(np.array(drawn.attributes.get_ints("shape"), np.int64))
    constant = ir.Node("", "Constant", [], [ir.AttrTensor("value", sizes)])
    return [constant, ir.Node("", "ConstantOfShape", [constant.outputs[0]], [item])]


def _dropout(graph: ir.Graph, node: ir.Node, keep: float) -> list[ir.Node]:
    ratio, training = _number(graph, 1.0 - keep), constant(graph, "training_mode", np.array(True))
    return [
        ir.Node("", "Dropout", [None, ratio, training], metadata_props=dict(node.metadata_props))
    ]


def _number(graph: ir.Graph, number: float) -> ir.Value:
    return constant(graph, f"number_{np.float32(number)}", np.array(number, np.float32))


def _is(value: ir.Value | None, number: float) -> bool:
    constant = value.const_value if value is not None else None
    if constant is None or constant.size != 1:
        return False
    return bool(np.isclose(float(np.ravel(constant.numpy())[0]), number, rtol=1e-6))


def constant(graph: ir.Graph, name: str, array: np.ndarray) -> ir.Value:
    """The initializer `name`, created on first use."""
    if name in graph.initializers:
        return graph.initializers[name]
    value = ir.Value(
        name=name,
        shape=ir.Shape(array.shape),
        type=ir.TensorType(ir.DataType.from_numpy(array.dtype)),
        const_value=ir.Tensor(array, name=name),
    )
    graph.register_initializer(value)
    return value
