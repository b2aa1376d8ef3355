"""Scale and shift after a normalisation: inside its kernel where they are fp32 vectors.

A kernel reads scale and shift as fp32, which a 1-D parameter or a buffer always is. Anything else
(computed, constant, of more dimensions) may be stored in another type and needs its gradient as a
value: it is multiplied or added by a node of its own.
"""

from collections.abc import Sequence

from ..ir import Value


def vector(context, value: Value) -> Value | None:
    """The fp32 vector that `value` is, or is a view of; None where it is none."""
    while value.view_of:
        value = context.named(value.view_of)
    if value.role == "buffer" or (value.role == "parameter" and len(value.shape) == 1):
        return value
    return None


def operand(context, node, index: int, neutral: float) -> Value | None:
    """An optional input; None also for a constant that changes nothing."""
    if not context.has(node, index):
        return None
    known = context.const(node, index)
    if known is not None and known.size and (known == neutral).all():
        return None
    return context.value(node, index)


def fits(shape: Sequence[int], to: Sequence[int]) -> bool:
    """Whether a shape broadcasts to another."""
    pairs = zip(shape[::-1], to[::-1], strict=False)
    return len(shape) <= len(to) and all(a in (1, b) for a, b in pairs)


def normalise(
    context,
    node,
    op: str,
    x: Value,
    affine: Sequence[Value | None],
    size: int,
    stat: Sequence[int],
    attrs,
    shape: Sequence[int] | None = None,
) -> None:
    """Emit ir op `op` (inputs x, scale, shift; outputs y, stat), and what its kernel cannot do.

    Args:
      affine: scale and, where the op has one, shift.
      size: elements of the vectors that the kernel takes.
      stat: shape of the statistics.
      shape: of scale and shift as they broadcast to x; their own by default.
    """
    inside: list[Value | str] = []
    after: list[tuple[str, Value]] = []
    for kind, value in zip(("mul", "add"), affine, strict=False):
        plain = vector(context, value) if value and value.size == size and not after else None
        inside.append(plain or "")
        if value and not plain:
            after.append((kind, value))
    saved = context.temporary(node, "stat", stat, role="statistic")
    y = context.temporary(node, "normal", x.shape) if after else node.outputs[0]
    shapes = [x.shape, stat]
    made = context.emit(node, op, [x, *inside], shapes, attrs, outputs=[y, saved])[0]
    if after:
        affinely(context, node, context.named(made), after, shape)


def affinely(
    context,
    node,
    x: Value,
    steps: Sequence[tuple[str, Value]],
    shape: Sequence[int] | None = None,
) -> None:
    """The node's output: x, multiplied or added to by nodes of their own.

    Args:
      steps: "mul" or "add", and by what.
      shape: of the values as they broadcast to x; their own by default.
    """
    made = x.name
    for k, (kind, value) in enumerate(steps):
        last = k == len(steps) - 1
        outputs = None if last else [context.temporary(node, "scaled", x.shape)]
        name = value.name
        if shape is not None and tuple(shape) != value.shape:
            name = context.reshaped(node, value, shape)
        (made,) = context.emit(node, kind, [made, name], [x.shape], outputs=outputs)
