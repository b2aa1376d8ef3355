"""Tables of a model's layers and of a Program's weights, as `summary` prints them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..units.wording import counted
from .tables import account_lines, table

# (name, op, output shape, numbers of its parameters)
Layer = tuple[str, str, Sequence[int | str], int]


class Summary:
    """A printed table: `str()` is the text, `rows` the data."""

    def __init__(self, lines: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        self.lines, self.rows = list(lines), list(rows)

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def __repr__(self) -> str:
        return f"Summary({counted(len(self.rows), 'row')})"


def model_summary(
    title: str, layers: Sequence[Layer], counts: Mapping[str, int], notes: Iterable[str]
) -> Summary:
    """A table of a model's layers with output shapes and parameter counts.

    Args:
      counts: totals, such as parameters and buffers.
    """
    rows = [
        (name, op, f"[{', '.join(map(str, shape))}]", f"{numbers:,}" if numbers else "")
        for name, op, shape, numbers in layers
    ]
    lines = [title, *table(rows, "lllr", ("layer", "op", "output", "parameters"))]
    lines += [f"{what}: {numbers:,}" for what, numbers in counts.items() if numbers]
    return Summary([*lines, *(f"note: {note}" for note in notes)], list(layers))


def program_summary(
    title: str, weights: Sequence[tuple[str, Sequence[int], int, str]], account: Mapping[str, Any]
) -> Summary:
    """A table of a Program's weights, then its memory.

    Args:
      weights: (name, shape, number of elements, how it is trained).
    """
    rows = [(n, f"[{', '.join(map(str, s))}]", f"{k:,}", what) for n, s, k, what in weights]
    lines = [title, *table(rows, "llrl", ("weight", "shape", "numbers", ""))]
    return Summary([*lines, *account_lines(account)], list(weights))
