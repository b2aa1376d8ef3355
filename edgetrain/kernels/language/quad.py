"""Sums of vectors of 16 float32, four at a time, as vectors of four float64.

The sums have the same bits as `vsum` (language/vector.py): halves are added first. Computing four
at a time fills the vectors of each addition, and no sum waits for another.
"""

from .inlining import inline
from .number import lane, lanes_of, shuffled, to, together
from .vector import WIDTH

none, _none8 = lanes_of("float64", 4, (0.0,) * 4), lanes_of("float64", 8, (0.0,) * 8)
first, second, third, fourth = (lane(k) for k in range(4))
_wide = to("float64")
_low, _high = shuffled(tuple(range(8))), shuffled(tuple(range(8, 16)))
_even, _odd = shuffled(tuple(range(0, 8, 2))), shuffled(tuple(range(1, 8, 2)))
_four_of_each = shuffled(tuple(k // 4 for k in range(WIDTH)))


def halves(run: int):
    """Inline (a, b) -> sums of the halves of each run of 2 * `run` lanes; a and b have 8 lanes."""
    low = tuple(k for k in range(16) if k % (2 * run) < run)
    lower, upper = shuffled(low), shuffled(tuple(k + run for k in low))

    @inline
    def added(a, b):
        return lower(a, b) + upper(a, b)

    return added


_fours, _twos = halves(4), halves(2)


@inline
def _eight(value):
    """Add lanes j and j + 8."""
    wide = _wide(value)
    return _low(wide, wide) + _high(wide, wide)


@inline
def _last(value):
    """Add each two neighbouring lanes."""
    return _even(value, value) + _odd(value, value)


@inline
def quad_sums(a, b, c, d):
    """The `vsum` of each."""
    return _last(_twos(_fours(_eight(a), _eight(b)), _fours(_eight(c), _eight(d))))


@inline
def pair_sums(a, b):
    """The `vsum` of each, then two zeros."""
    return _last(_twos(_fours(_eight(a), _eight(b)), _none8()))


@inline
def quarter_sums(value):
    """For every four lanes, the `vsum` of these lanes padded with zeros."""
    wide = _wide(value)
    return _last(_twos(_low(wide, wide), _high(wide, wide)))


@inline
def quarters(a, b, c, d):
    """A vector with four lanes of each float32."""
    value = together(a, b, c, d)
    return _four_of_each(value, value)
