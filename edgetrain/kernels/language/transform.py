"""Small constant matrices applied to both axes of a square of vectors: M X M', lane by lane.

Sums are unrolled with fma, in the same order on every target. Addresses are int64, steps bytes.
"""

import functools
from collections.abc import Sequence

from .number import fused, like
from .prim import I8, I64, POINTER
from .vector import VECTOR, outlined

Matrix = tuple[tuple[float, ...], ...]


def _combined(b, factors: Sequence[float], values: Sequence):
    """Sum of factors[j] * values[j]: factors 1 and -1 come last, others by fma; None if empty."""
    total = None
    terms = [(f, v) for f, v in zip(factors, values, strict=True) if f]
    for factor, value in sorted(terms, key=lambda term: abs(term[0]) == 1):
        if total is None:
            total = value if factor == 1 else b.fmul(value, like(value, factor))
        elif factor == 1:
            total = b.fadd(total, value)
        elif factor == -1:
            total = b.fsub(total, value)
        else:
            total = fused(b, value, like(value, factor), total)
    return total


def _opposite(row: Sequence[float], other: Sequence[float]) -> bool:
    """Whether the numbers are equal up to sign."""
    return all(abs(a) == abs(b) for a, b in zip(row, other, strict=True))


def _columns_paired(b, matrix: Matrix, values: list) -> tuple[list, list]:
    """(columns, values), after combining neighbouring columns that differ only in signs: their
    values become sum and difference."""
    columns: list[Sequence[float]] = list(zip(*matrix, strict=True))
    left: list[Sequence[float]] = []
    out: list = []
    while columns:
        if len(columns) > 1 and _opposite(*columns[:2]) and len(matrix) < len(values):
            same = [a if a == c else 0.0 for a, c in zip(*columns[:2], strict=True)]
            other = [a if a != c else 0.0 for a, c in zip(*columns[:2], strict=True)]
            left += [same, other]
            out += [b.fadd(*values[:2]), b.fsub(*values[:2])]
            columns, values = columns[2:], values[2:]
        else:
            left.append(columns.pop(0))
            out.append(values[0])
            values = values[1:]
    return left, out


def _applied(b, matrix: Matrix, values: Sequence) -> list:
    """matrix x values; rows that differ only in signs share their even and odd parts."""
    columns, values = _columns_paired(b, matrix, list(values))
    rows, out = list(zip(*columns, strict=True)), []
    while rows:
        if len(rows) > 1 and rows[0] != rows[1] and _opposite(*rows[:2]):
            even = [p if p == q else 0.0 for p, q in zip(*rows[:2], strict=True)]
            odd = [p if p != q else 0.0 for p, q in zip(*rows[:2], strict=True)]
            e, o = _combined(b, even, values), _combined(b, odd, values)
            if e is not None and o is not None:
                out += [b.fadd(e, o), b.fsub(e, o)]
                rows = rows[2:]
                continue
        out.append(_combined(b, rows.pop(0), values))
    return out


@functools.cache
def two_sided(name: str, matrix: Matrix):
    """(source, row, column, target, down, across): target[i][j] = (M X M')[i][j], of vectors.

    X[r][c] is the vector at source + r * row + c * column bytes; steps may be negative.
    """

    def emit(b, args):
        source, row, column, target, down, across = args
        size = len(matrix[0])
        from_, to = b.inttoptr(source, POINTER), b.inttoptr(target, POINTER)

        def place(base, i, step, j, other):
            offset = b.add(b.mul(step, I64(i)), b.mul(other, I64(j)))
            return b.gep(base, [offset], source_etype=I8)

        stage = []
        for c in range(size):
            values = [
                b.load(place(from_, r, row, c, column), typ=VECTOR, align=64) for r in range(size)
            ]
            stage.append(_applied(b, matrix, values))
        for i in range(len(matrix)):
            for j, value in enumerate(_applied(b, matrix, [part[i] for part in stage])):
                b.store(value, place(to, i, down, j, across), align=64)

    return outlined(f"et_two_sided_{name}", 6, emit)
