"""Scale and shift of normalisations: the kernel applies them if they are fp32 vectors.

Kernels read scale and shift as fp32, like 1-D parameters and buffers. Anything else (computed,
constant, or with more dimensions) may have another format and needs its gradient as a value, so it
is multiplied or added by a separate node.
"""

from collections.abc import Sequence

from ..ir import Value


def vector(context, value: Value) -> Value | None:
    """The fp32 vector behind `value` (through views), or None."""
    while value.view_of:
        value = context.named(value.view_of)
    if value.role == "buffer" or (value.role == "parameter" and len(value.shape) == 1):
        return value
    return None


def operand(context, node, index: int, neutral: float) -> Value | None:
    """An optional input; None also for a neutral constant."""
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
    """Emit ir op `op` (inputs x, scale, shift; outputs y, stat), and nodes for what its kernel
    can't do.

    Args:
      affine: scale and, if the op has one, shift.
      size: length of the vectors the kernel accepts.
      stat: shape of the statistics.
      shape: shape of scale and shift for broadcasting to x; default: their own.
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
    """The node's output: x, scaled and shifted by separate nodes.

    Args:
      steps: pairs of "mul" or "add", and the operand.
      shape: shape of the operands for broadcasting to x; default: their own.
    """
    made = x.name
    for k, (kind, value) in enumerate(steps):
        last = k == len(steps) - 1
        outputs = None if last else [context.temporary(node, "scaled", x.shape)]
        name = value.name
        if shape is not None and tuple(shape) != value.shape:
            name = context.reshaped(node, value, shape)
        (made,) = context.emit(node, kind, [made, name], [x.shape], outputs=outputs)
