"""Sums of vectors of 16 float32, four at a time as vectors of four float64.

Sums have the bits of `vsum` (language/vector.py): halves first. Four at a time their additions fill
vectors, and no sum waits for another.
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
    """Inline (a, b): of every run of lanes of a and of b, both of 8, the halves, added; `run` lanes
    are half a run."""
    low = tuple(k for k in range(16) if k % (2 * run) < run)
    lower, upper = shuffled(low), shuffled(tuple(k + run for k in low))

    @inline
    def added(a, b):
        return lower(a, b) + upper(a, b)

    return added


_fours, _twos = halves(4), halves(2)


@inline
def _eight(value):
    """Lanes j and j + 8, added."""
    wide = _wide(value)
    return _low(wide, wide) + _high(wide, wide)


@inline
def _last(value):
    """Each two lanes added."""
    return _even(value, value) + _odd(value, value)


@inline
def quad_sums(a, b, c, d):
    """`vsum` of each."""
    return _last(_twos(_fours(_eight(a), _eight(b)), _fours(_eight(c), _eight(d))))


@inline
def pair_sums(a, b):
    """`vsum` of each, then two zeros."""
    return _last(_twos(_fours(_eight(a), _eight(b)), _none8()))


@inline
def quarter_sums(value):
    """Of every four lanes what `vsum` makes of them with zeros after them."""
    wide = _wide(value)
    return _last(_twos(_low(wide, wide), _high(wide, wide)))


@inline
def quarters(a, b, c, d):
    """Four lanes of each float32."""
    value = together(a, b, c, d)
    return _four_of_each(value, value)
