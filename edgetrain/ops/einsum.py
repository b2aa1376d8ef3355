"""Einsum: sums over letters that occur in one operand, then matrix products of pairs.

Each operand is permuted to [batch, rows, columns] (free if already in order); only `copy`,
`reduce_sum` and `matmul` are used.
"""

from collections.abc import Sequence

from ..ir import Value
from ..units.wording import counted
from .onnx_ops import onnx_rule, unknown_width
from .strides import contiguous, prod


class _Terms:
    """Emits the parts of one node under numbered names."""

    def __init__(self, context, node, sizes: dict[str, int]) -> None:
        self.context, self.node, self.sizes, self.count = context, node, sizes, 0

    def _name(self, shape) -> str:
        self.count += 1
        return self.context.temporary(self.node, f"part{self.count}", shape)

    def shape(self, letters: str) -> list[int]:
        """Sizes of the letters."""
        return [self.sizes[letter] for letter in letters]

    def summed(self, value: Value, letters: str, kept: str) -> tuple[Value, str]:
        """`value` summed over the letters that are not in `kept`."""
        axes = tuple(k for k, letter in enumerate(letters) if letter not in kept)
        if not axes:
            return value, letters
        left = "".join(letter for letter in letters if letter in kept)
        out = self._name(self.shape(left))
        emit = self.context.emit
        emit(self.node, "reduce_sum", [value], [self.shape(left)], {"axes": axes}, outputs=[out])
        return self.context.named(out), left

    def ordered(self, value: Value, letters: str, wanted: str) -> Value:
        """`value` with its letters in another order."""
        if letters == wanted:
            return value
        steps, shape = contiguous(value.shape), self.shape(wanted)
        move = (0, 0, 0, shape, [steps[letters.index(x)] for x in wanted], contiguous(shape))
        out = self._name(shape)
        attrs = {"moves": (move,), "fill": None}
        self.context.emit(self.node, "copy", [value], [shape], attrs, outputs=[out])
        return self.context.named(out)

    def viewed(self, value: Value, shape: Sequence[int]) -> Value:
        """The same bytes with another shape."""
        if tuple(shape) == value.shape:
            return value
        return self.context.named(self.context.reshaped(self.node, value, shape))

    def unrepeated(self, value: Value, letters: str) -> tuple[Value, str]:
        """`value` without the letters along which it is repeated."""
        pairs = zip(letters, value.shape, strict=True)
        kept = "".join(letter for letter, size in pairs if size == self.sizes[letter])
        return self.viewed(value, self.shape(kept)), kept

    def product(self, left, right, kept: str) -> tuple[Value, str]:
        """The product of two (value, letters), summed over common letters not in `kept`."""
        (a, of_a), (b, of_b) = left, right
        a, of_a = self.summed(a, of_a, kept + of_b)
        b, of_b = self.summed(b, of_b, kept + of_a)
        both = [x for x in of_a if x in of_b]
        batch = "".join(x for x in both if x in kept)
        inner = "".join(x for x in both if x not in kept)
        rows = "".join(x for x in of_a if x not in of_b)
        columns = "".join(x for x in of_b if x not in of_a)
        m, k, n = (prod(self.shape(x)) for x in (rows, inner, columns))
        z = prod(self.shape(batch))
        a = self.viewed(self.ordered(a, of_a, batch + rows + inner), (z, m, k))
        b = self.viewed(self.ordered(b, of_b, batch + inner + columns), (z, k, n))
        out = self._name((z, m, n))
        attrs = {"ta": False, "tb": False, "alpha": 1.0}
        self.context.emit(self.node, "matmul", [a, b, ""], [(z, m, n)], attrs, outputs=[out])
        letters = batch + rows + columns
        return self.viewed(self.context.named(out), self.shape(letters)), letters


def _letters(node, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Letters of every operand and of the output; an ellipsis becomes capital ones."""
    equation = node.attrs["equation"].replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise node.fail(
            f"equation {equation!r} for {counted(len(ranks), 'input')}", "one term per input"
        )
    widest = max(
        (r - len(t.replace("...", "")) for t, r in zip(terms, ranks, strict=True) if "..." in t),
        default=0,
    )
    dots = "".join(chr(0x391 + k) for k in range(max(0, widest)))
    out = []
    for term, rank in zip(terms, ranks, strict=True):
        missing = rank - len(term.replace("...", ""))
        out.append(term.replace("...", dots[len(dots) - missing :] if missing > 0 else ""))
    if not arrow:
        joined = "".join(out)
        once = sorted({x for x in joined if joined.count(x) == 1 and x not in dots})
        return out, dots + "".join(once)
    return out, right.replace("...", dots)


@onnx_rule(
    "Einsum",
    weights=(0, 1),
    variadic=True,
    names={0: "weight", 1: "weight"},
    width=unknown_width,
    integers=(0, 1),
)
def einsum(context, node) -> None:
    values = [context.value(node, k) for k in range(len(node.inputs))]
    terms, wanted = _letters(node, [len(v.shape) for v in values])
    sizes: dict[str, int] = {}
    for value, letters in zip(values, terms, strict=True):
        if len(letters) != len(value.shape) or len(set(letters)) < len(letters):
            raise node.fail(
                f"term {letters!r} for shape {list(value.shape)}",
                "one distinct letter per axis",
            )
        for letter, size in zip(letters, value.shape, strict=True):
            known = sizes.get(letter, size)
            if 1 not in (known, size) and known != size:
                shown = f"letter {letter!r}" if letter.isascii() else "an axis of '...'"
                raise node.fail(f"{shown} with sizes {known} and {size}", "equal sizes, or 1")
            sizes[letter] = size if known == 1 else known
    if set(wanted) - set(sizes) or len(set(wanted)) < len(wanted):
        raise node.fail(f"output {wanted!r}", "letters of the inputs, each at most once")
    parts = _Terms(context, node, sizes)
    for k, (value, letters) in enumerate(zip(values, terms, strict=True)):
        values[k], terms[k] = parts.unrepeated(value, letters)
    value, letters = values[0], terms[0]
    for k in range(1, len(values)):
        later = "".join(terms[k + 1 :]) + wanted
        value, letters = parts.product((value, letters), (values[k], terms[k]), later)
    value, letters = parts.summed(value, letters, wanted)
    context.bind(node, 0, parts.ordered(value, letters, wanted).name)
