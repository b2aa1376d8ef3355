"""Replaces the last layer of a file by one for other classes, with new random weights.

The layer is the Gemm, MatMul or Conv (of one group) that makes an output; later nodes (activations,
changes of shape, an added bias) stay. Weights and biases are uniform within 1/sqrt(fan-in), the
initial values of torch's Linear and Conv.
Source: torch.nn.Linear.reset_parameters (He et al. 2015, a = sqrt(5)).
"""

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ...errors import ModelError, UsageError
from ...ops.model import Model
from ...ops.onnx_ops import OnnxNode, onnx_op
from ...program.new_head import Changes, with_changes
from ..bind import bind
from .lora import matrices
from .model_options import ModelOptions
from .outputs import computable, with_output

_NAMED = 5  # layers in messages


@dataclass(frozen=True)
class Layer:
    """A last layer.

    Attributes:
      weight, axis: its weight, and the weight's axis that counts the outputs.
      fan_in: number of terms in the sum of one output.
      bias: bias of the node itself, or "".
    """

    node: OnnxNode
    weight: str
    axis: int
    fan_in: int
    bias: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Names that select it: the weight, its modules from the innermost outwards, the node."""
        ends = [k for k, letter in enumerate(self.weight) if letter in "./" and k]
        return (self.weight, *(self.weight[:k] for k in reversed(ends)), self.node.name)


@dataclass
class _Work:
    """The changes to a model, apart from the bytes of its file."""

    arrays: dict[str, np.ndarray]
    nodes: dict[int, OnnxNode] = field(default_factory=dict)
    fresh: list[str] = field(default_factory=list)
    changes: Changes = field(default_factory=Changes)


def with_new_heads(model: Model, options: ModelOptions) -> Model:
    """The model with the last layers named in `options.new_head` in new sizes.

    A model that already has them is unchanged.

    Args:
      model: laid out.
    Raises:
      UsageError: no such layer, several to choose from, or one that cannot be replaced.
    """
    asked = options.new_head
    if not isinstance(asked, Mapping) or not asked or dict(model.heads) == dict(asked):
        return model
    work, sizes = _Work(dict(model.initializers)), {}
    for name, size in asked.items():
        layer = _chosen(model, options, name)
        if layer.weight in sizes:
            raise UsageError(f"new head: layer {layer.weight!r} is named twice. Name it once.")
        sizes[layer.weight] = work.arrays[layer.weight].shape[layer.axis], size
        _resize(model, layer, size, work, options.seed)
    nodes = tuple(work.nodes.get(k, node) for k, node in enumerate(model.nodes))
    fresh = tuple(work.fresh)
    made = replace(
        model,
        nodes=nodes,
        initializers=work.arrays,
        heads=dict(asked),
        fresh=fresh,
        frozen=tuple(n for n in model.frozen if n not in fresh),
        untrained=tuple(n for n in model.untrained if n not in fresh),
        parameters=(*model.parameters, *(n for n in fresh if n not in model.parameters)),
    )
    work.changes.outputs = _outputs(model, made, options, list(sizes.values()))
    return replace(made, weightless=with_changes(model.weightless, work.changes))


def _chosen(model: Model, options: ModelOptions, name: str) -> Layer:
    """The layer with this name; "": the last one."""
    if name:
        layers, _ = last_layers(model, model.outputs)
        named = [layer for layer in layers if name in layer.names]
        aliases = [model.aliases[n] for n in (name, f"{name}.weight") if n in model.aliases]
        named = named or [layer for layer in layers if layer.weight in aliases]
        if len(named) == 1:
            return _replaceable(model, named[0])
        raise UsageError(
            f"new head {name!r}: it names {len(named) or 'none'} of the model's last layers: "
            f"{_listed(layers)}. Name one by its weight, module or node."
        )
    output = options.output or with_output(model, None).outputs[0]
    layers, others = last_layers(model, [output])
    if len(layers) == 1:
        return _replaceable(model, layers[0])
    if layers:
        raise UsageError(
            f"new head: output {output!r} is made by {len(layers)} layers: {_listed(layers)}. Name "
            f"each of them, such as {layers[0].names[1]}=4."
        )
    made = f"node {others[0].name!r} ({others[0].op_type})" if others else "no layer"
    raise UsageError(
        f"new head: output {output!r} is made by {made}; expected a Gemm, MatMul or Conv of one "
        "group whose weight is constant. Change the model before it is exported."
    )


def _listed(layers: Sequence[Layer]) -> str:
    names = [layer.names[1] for layer in layers]
    return (", ".join(names[:_NAMED]) or "none") + (", .." if len(names) > _NAMED else "")


def last_layers(model: Model, outputs: Iterable[str]) -> tuple[list[Layer], list[OnnxNode]]:
    """The last layers on all paths to these outputs, and other nodes with weights on them."""
    makers = {name: node for node in model.nodes for name in node.outputs}
    layers, others, seen = list[Layer](), list[OnnxNode](), set[str]()
    pending, paths = list(outputs)[::-1], matrices(model)
    while pending:
        node = makers.get(pending.pop())
        if node is None or node.outputs[0] in seen or onnx_op(node.op_type).measure:
            continue
        seen.add(node.outputs[0])
        layer = _layer(model, node, paths)
        if layer is not None:
            layers.append(layer)
        elif any(_is_matrix(model, name) for name in node.inputs):
            others.append(node)
        else:
            pending += reversed(node.inputs)
    return layers, others


def _is_matrix(model: Model, name: str) -> bool:
    """Whether it is a weight with more than one axis longer than 1."""
    if name not in model.parameters:
        return False
    return sum(size > 1 for size in model.initializers[name].shape) > 1


def _layer(model: Model, node: OnnxNode, paths: Mapping[str, tuple[str, bool]]) -> Layer | None:
    if len(node.inputs) < 2:
        return None
    given, weights = node.inputs[1], model.initializers
    bias = node.inputs[2] if len(node.inputs) > 2 and node.op_type in ("Gemm", "Conv") else ""
    if node.op_type == "Conv" and given in weights and node.attrs.get("group", 1) == 1:
        shape = weights[given].shape
        return Layer(node, given, 0, math.prod(shape[1:]), bias)
    if node.op_type in ("Gemm", "MatMul") and given in paths and node.inputs[0] not in weights:
        weight, turned = paths[given]
        if node.op_type == "Gemm" and node.attrs.get("transB", 0):
            turned = not turned
        return Layer(node, weight, int(turned), weights[weight].shape[1 - turned], bias)
    return None


def _replaceable(model: Model, layer: Layer) -> Layer:
    """Returns the layer if it can be replaced.

    Raises:
      UsageError: something else reads its weight or bias, or the bias is not constant.
    """
    paths = matrices(model)
    chain = {name for name, (weight, _) in paths.items() if weight == layer.weight}
    chain |= {layer.weight, layer.bias} - {""}
    for node in model.nodes:
        inside = node.outputs[0] in chain or node.outputs == layer.node.outputs
        if not inside and chain.intersection(node.inputs):
            raise UsageError(
                f"new head: {layer.weight!r} or its bias is also read by node {node.name!r} "
                f"({node.op_type}). Export the model with separate weights for the layer."
            )
    if layer.bias and layer.bias not in model.initializers:
        raise UsageError(
            f"new head: the bias {layer.bias!r} of {layer.weight!r} is computed; expected a "
            "constant. Export the model again."
        )
    return layer


def _resize(model: Model, layer: Layer, size: int, work: _Work, seed: int) -> None:
    """Draw the layer's weights, and change the nodes after it."""
    was = model.initializers[layer.weight].shape[layer.axis]

    def draw(name: str, axis: int) -> None:
        shape = [*model.initializers[name].shape]
        shape[axis] = size
        work.arrays[name] = _uniform(name, shape, layer.fan_in, seed)
        work.changes.shapes[name] = tuple(shape)
        work.fresh.append(name)

    draw(layer.weight, layer.axis)
    if layer.bias:
        which = _axis_of(model, layer.bias, was)
        if which is None:
            raise UsageError(
                f"new head: bias {layer.bias!r} of {layer.weight!r} has shape "
                f"{list(model.initializers[layer.bias].shape)}; expected {was} numbers."
            )
        draw(layer.bias, which)
    behind, biased = {*layer.node.outputs}, bool(layer.bias)
    for k, node in enumerate(model.nodes):
        op = onnx_op(node.op_type)
        if not behind.intersection(node.inputs) or op.measure:
            continue
        behind.update(node.outputs)
        for which, name in enumerate(node.inputs):
            if name not in model.initializers:
                continue
            if which in op.sizes:
                _set_size(model, k, which, was, size, work)
            elif (axis := _axis_of(model, name, was)) is not None and _counts(model, name):
                if not op.adds or biased or name not in model.parameters:
                    raise UsageError(
                        f"new head: after {layer.weight!r}, node {node.name!r} ({node.op_type}) "
                        f"reads {was} numbers {name!r}, one per class of the file. Export the "
                        "model without this node."
                    )
                draw(name, axis)
                biased = True
    turned = {name for name, (weight, _) in matrices(model).items() if weight in work.fresh}
    work.changes.behind |= behind | turned


def _axis_of(model: Model, name: str, size: int) -> int | None:
    """The axis of a constant that is one row of `size` numbers; None if it has another shape."""
    shape = model.initializers[name].shape
    if math.prod(shape) != size or not shape:
        return None
    return next((k for k, n in enumerate(shape) if n == size), None)


def _counts(model: Model, name: str) -> bool:
    """Whether a vector has one number per class; with one class, only a parameter does."""
    array = model.initializers[name]
    return array.dtype.kind == "f" and (array.size > 1 or name in model.parameters)


def _set_size(model: Model, k: int, index: int, was: int, size: int, work: _Work) -> None:
    """Replace the number of classes in a node's constant sizes, if it occurs exactly once."""
    node = work.nodes.get(k, model.nodes[k])
    array = model.initializers[node.inputs[index]]
    places = np.flatnonzero(array == was) if array.dtype.kind == "i" else np.zeros(0)
    if array.ndim != 1 or was == size or len(places) != 1 or was == 1:
        return
    changed, name = array.copy(), f"{node.outputs[0]}.sizes"
    while name in work.arrays:
        name += "'"
    changed[places[0]] = size
    work.arrays[name] = changed
    inputs = (*node.inputs[:index], name, *node.inputs[index + 1 :])
    work.nodes[k] = replace(node, inputs=inputs)
    work.changes.sizes[node.outputs[0], index] = name, changed.astype(np.int64)


def _uniform(name: str, shape: Sequence[int], fan_in: int, seed: int) -> np.ndarray:
    """Initial values that depend only on name, shape and seed, not on the rest of the model."""
    bound = 1 / math.sqrt(max(1, fan_in))
    draw = np.random.default_rng([seed & (2**63 - 1), zlib.crc32(name.encode())])
    return draw.uniform(-bound, bound, shape).astype(np.float32)


def _outputs(
    model: Model, made: Model, options: ModelOptions, sizes: Sequence[tuple[int, int]]
) -> dict[str, dict[int, int]]:
    """Output -> the new sizes of its changed axes.

    Raises:
      UsageError: an output changes in several axes or to another size, or the trained one does not
        change although the number of classes does.
    """
    before, trained = _shapes(model, options), options.output or with_output(model, None).outputs[0]
    try:
        after = _shapes(made, options)
    except ModelError as error:
        raise UsageError(
            f"new head {_words(options)}: it does not fit the model: {error}"
        ) from error
    out: dict[str, dict[int, int]] = {}
    for name, shape in before.items():
        now = after.get(name, ())
        axes = {k: n for k, (m, n) in enumerate(zip(shape, now, strict=False)) if m != n}
        told = len(shape) == len(now) and all((shape[k], n) in sizes for k, n in axes.items())
        same = all(m == n for m, n in sizes)
        if not told or len(axes) > 1 or (name == trained and not axes and not same):
            raise UsageError(
                f"new head {_words(options)}: output {name!r} has shape {list(shape)}, and "
                f"{list(now)} with it; expected one axis of "
                f"{' or '.join(str(m) for m, _ in sizes)} to change. Replace another layer, or "
                "export a model for these classes."
            )
        if axes:
            out[name] = axes
    return out


def _words(options: ModelOptions) -> str:
    asked = options.new_head
    pairs = asked.items() if isinstance(asked, Mapping) else ()
    return ", ".join(f"{name}={size}" if name else str(size) for name, size in pairs)


def _shapes(model: Model, options: ModelOptions) -> dict[str, tuple[int, ...]]:
    bound = bind(computable(model), 2, options.dims)
    return {name: bound.graph.values[value].shape for name, value in bound.outputs.items()}
