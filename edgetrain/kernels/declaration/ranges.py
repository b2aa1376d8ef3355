"""Ranges of a kernel's integers.

A declaration states each range beside the integer's name: `power=1..64` gives both ends, `acc=flag`
names one of the kinds below. An integer without a range is a `size`, and must occur in an extent,
`check` or `work` of its declaration; otherwise registration refuses it.

A range limits one integer alone. `check` and extents express how integers depend on each other.
"""

from typing import NamedTuple

_WORD = 2**63  # words of a tape are int64


class Range(NamedTuple):
    """Integers from `least` to `most`, both included.

    Attributes:
      measures: the integer counts elements, or the distance between two of them. A processor with
        32-bit addresses holds such integers in 32 bits.
    """

    kind: str
    least: int
    most: int
    measures: bool = False


_KINDS = {
    known.kind: known
    for known in (
        # Elements, rows or pixels, and steps forward between them. 2**48 exceeds every address
        # space, and the sum of thousands of such integers fits into an int64.
        Range("size", 0, 2**48, True),
        # Steps that may lead backward, and crops. `check` must keep them inside the operand.
        Range("signed", -(2**48), 2**48, True),
        # How far an attention band extends beyond a query's position, in either direction.
        Range("reach", -(2**48), 2**48, True),
        # Kernels test it as `!= 0` or as `== 1`, which agree only for 0 and 1.
        Range("flag", 0, 1),
        # Updates of a run. Kernels multiply them by up to 1e9.
        Range("turns", 0, 2**53),
        # Billionths of a run, from its start to its end.
        Range("share", 0, 10**9),
        # Any word: a label or index that is only compared, or a seed that is only mixed.
        Range("compared", -_WORD, _WORD - 1),
        # Addresses and words of the runtime's own calls; never in a tape.
        Range("host", -_WORD, _WORD - 1),
    )
}
SIZE = _KINDS["size"]


def range_of(name: str, text: str) -> Range:
    """The range of an integer, or of each integer of a group.

    Args:
      text: as declared, KIND or LEAST..MOST; "" is a size.
    Raises:
      ValueError: `text` is neither.
    """
    least, dots, most = text.partition("..")
    if dots:
        ends = [int(end) for end in (least, most) if end.lstrip("-").isdigit()]
        if len(ends) == 2 and -_WORD <= ends[0] <= ends[1] < _WORD:
            return Range("given", ends[0], ends[1])
    if text and text not in _KINDS:
        raise refusal(name, f"unknown kind {text!r}")
    return _KINDS[text] if text else SIZE


def refusal(name: str, wrong: str) -> ValueError:
    """The error for an integer whose range is missing or unknown."""
    return ValueError(
        f"integer {name!r} in a kernel declaration: {wrong}; expected {name}=LEAST..MOST, or "
        f"{name}=KIND with KIND one of {', '.join(_KINDS)}."
    )
