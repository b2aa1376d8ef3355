"""The loss of an output in parts: the sum of one loss per part, computed where the part is made."""

from dataclasses import replace

from ...formats import FP32
from ...ir import Builder, Graph, Node, Value
from ...losses import Loss
from ...ops.strides import contiguous, prod
from ...program import TARGET, WEIGHT
from ..passes.autodiff import loss_arrays, loss_attrs
from .emit import Cut
from .layout import Axis, Span, inner_of
from .region import MARK

Shape = tuple[int, ...]


def target_layout(loss: Loss, shape: Shape, part: Shape, span: Span) -> int | None:
    """Layout of an output's targets; None if they can't be divided like the output."""
    if not part or part[0] != shape[0] or loss.takes_mean(shape):
        return None
    full, partial = loss.target_shape(shape), loss.target_shape(part)
    if len(full) != len(partial):
        return None
    other = [k for k, sizes in enumerate(zip(full, partial, strict=True)) if sizes[0] != sizes[1]]
    (axis,) = (k for k in range(len(shape)) if shape[k] != part[k])
    if axis in loss.joined_axes(shape):
        return None
    if len(other) != 1 or full[other[0]] != shape[axis] or partial[other[0]] != part[axis]:
        return None
    # The elements of the dimension after time are the same in the target.
    return inner_of(full, Axis(other[0], 1, 1)) if shape[axis] == span.steps else None


def with_losses(graph: Graph, cut: Cut, loss: Loss, shape: Shape) -> Graph:
    """Append a loss node after each part of the output.

    Args:
      graph: `cut.graph`, possibly after further passes.
      shape: of the whole output.
    """
    builder = Builder(graph.values)
    builder.values.setdefault("ctl", Value("ctl", (64,), "i64", "control"))
    target = builder.value(TARGET, loss.target_shape(shape), loss.target_dtype, "target")
    spans, placed = dict(cut.parts), False
    for node in graph.nodes:
        names = {"name": node.name, "phase": node.phase, "origin": node.origin}
        made = builder.node(node.op, node.inputs, node.outputs, node.attrs, **names)
        for name in made.writes:
            if name in spans:
                _add(builder, loss, name, shape, spans[name], target, made)
                placed = True
    assert placed
    staged = [WEIGHT, target] if loss.sample_weights else [target]
    outputs = [name for name in graph.outputs if name not in spans]
    return builder.graph([*graph.inputs, *staged], outputs)


def _add(
    builder: Builder, loss: Loss, name: str, shape: Shape, span: Span, target: str, behind: Node
) -> None:
    value, whole = builder.values[name], builder.values[target]
    inner = target_layout(loss, shape, value.shape, span)
    assert inner is not None
    dims = (whole.size // (span.steps * inner), span.length, inner)
    walk = (span.steps * inner, inner, 1)
    move = (0, span.start * inner, 0, dims, walk, tuple(contiguous(dims)))
    own = loss.target_shape(value.shape)
    assert prod(own) == prod(dims)
    role = "statistic" if whole.dtype == FP32.name else "activation"
    part = builder.value(f"{name}.{TARGET}", own, whole.dtype, role)
    attrs = {"moves": (move,), "fill": None}
    if MARK in behind.attrs:
        attrs[MARK] = behind.attrs[MARK]
    builder.node("copy", [target], [part], attrs, name=part, origin=behind.origin)
    arrays = loss_arrays(builder, loss, value)
    partials = builder.value(f"{name}.partials", (256 if arrays else 192,), "f64", "statistic")
    builder.node(
        "loss",
        [name, part, *arrays.values()],
        [partials],
        loss_attrs(value, loss, arrays),
        name=f"{name}.loss",
        phase="loss",
        origin=behind.origin,
    )


def with_output(graph: Graph, cut: Cut, output: Value) -> Graph:
    """The graph whose only output is the whole output, joined part by part."""
    values = {**graph.values, output.name: replace(output, view_of="")}
    spans, nodes = dict(cut.parts), []  # type: dict[str, Span], list[Node]
    for node in graph.nodes:
        nodes.append(node)
        for name in node.writes:
            if name in spans:
                span, inner = spans[name], cut.inner
                dims = (output.size // (span.steps * inner), span.length, inner)
                walk = (span.steps * inner, inner, 1)
                move = (0, 0, span.start * inner, dims, tuple(contiguous(dims)), walk)
                attrs = {"moves": (move,), "fill": None}
                copy = Node(f"{name}.whole", "copy", (name,), (output.name,), attrs)
                nodes.append(replace(copy, origin=node.origin))
    return replace(graph.with_nodes(nodes, values), outputs=(output.name,))
