"""What each integer of a kernel may be: a range by its name, with the reason for its ends.

A declaration gives an integer its range (`power=1..64`) or a kind of range (`after=flag`); without
either the name does (`_NAMES`), and a name that is not there is refused when its kernel is
registered. Ranges hold
for one integer alone; `check` and extents relate integers to each other and to the operands.
"""

from typing import NamedTuple

_WORD = 2**63  # words of a tape are int64


class Range(NamedTuple):
    """Integers from `least` to `most`, both included.

    Attributes:
      measures: elements of an operand or between them, which are never more than an arena's bits.
    """

    kind: str
    least: int
    most: int
    measures: bool = False


_KINDS = {
    found.kind: found
    for found in (
        # Elements, rows, pixels, and forward steps between them. No target's address space holds
        # as many elements, and sums of some thousand such numbers stay within an int64.
        Range("size", 0, 2**48, True),
        # Steps that may lead backward, and crops: the kernel's `check` keeps them in the operand.
        Range("signed", -(2**48), 2**48, True),
        # How far a band of keys reaches beyond a query's own position, either way.
        Range("reach", -(2**48), 2**48, True),
        # Kernels compare it with 0 or with 1: both readings agree on these two alone.
        Range("flag", 0, 1),
        # Directions of a recurrence, modes of padding, kinds of gates: the branches that exist.
        Range("three", 0, 2),
        # Ways to hide a score: none, added, replaced, standing for a sum (attention/layout.py).
        Range("mask", 0, 3),
        # Updates of a run; times 1e9 they are the largest product that is taken of them.
        Range("turns", 0, 2**53),
        # Billionths of a run, from its beginning to its end.
        Range("share", 0, 10**9),
        # A label or index that is only compared, and a seed that is only mixed: any word will do.
        Range("compared", -_WORD, _WORD - 1),
        # Addresses and words of the runtime's own calls; no tape may hold these kernels.
        Range("host", -_WORD, _WORD - 1),
    )
}

_NAMES = {
    "size": (
        "axis b batch c channels chunk classes cols count ct d e each g gates group groups h held "
        "inner k k2 kh kw layer layers m n na nb nbias nc ndy nk nm nmask nout nq nv nx ny oh "
        "outer ow pb ph pr pw r room rows rt s samples size skip slots span start stride sh sw "
        "dh dw t taps target wd width xo yo z1 z2 "
        "ak ak2 am az1 az2 bk bk2 bn bz1 bz2 cm cz1 cz2 "
        "bc bh br bz kr kz mc mh mr mz qh qr qz vh vr vz yh yr yz"
    ),
    "signed": "ka kb ks ky p ra rb rs ry sa sb sm xs ys",
    "reach": "after before",
    "flag": (
        "acc decoupled dynamic exclusive first guard include_pad keep nesterov own relu reverse "
        "root sr want weighted whole"
    ),
    "three": "back kind mode",
    "mask": "band how",
    "turns": "at base cooldown interval least patience scale short window",
    "share": "last until",
    "compared": "epoch ignore key padding seed",
    "host": (
        "accuracy barrier block call code end factor field fill loss memo memory number parts "
        "patient plan rates raw read rom run shift source storage store table tape threads to "
        "train user x yield_"
    ),
}
_BY_NAME = {name: _KINDS[kind] for kind, names in _NAMES.items() for name in names.split()}


def range_of(name: str, kind: str = "") -> Range:
    """The range of an integer, or of a group of integers.

    Args:
      kind: as the declaration has it, a kind or LEAST..MOST; "" for what the name says.
    Raises:
      ValueError: neither gives a range.
    """
    least, dots, most = kind.partition("..")
    if dots:
        ends = [int(end) for end in (least, most) if end.lstrip("-").isdigit()]
        if len(ends) == 2 and -_WORD <= ends[0] <= ends[1] < _WORD:
            return Range("given", ends[0], ends[1])
    found = _KINDS.get(kind) if kind else _BY_NAME.get(name)
    if found is None:
        wrong = f"unknown kind {kind!r}" if kind else "its name has no range"
        raise ValueError(
            f"integer {name!r} in a kernel declaration: {wrong}; expected {name}=LEAST..MOST, or "
            f"{name}=KIND with KIND one of {', '.join(_KINDS)}."
        )
    return found
