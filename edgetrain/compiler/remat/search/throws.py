"""Random numbers for the Python part of a search: the same ones as in the compiled moves."""

import numpy as np

_WORD = 2**64 - 1


def throws(state: np.ndarray, count: int) -> list[float]:
    """The next `count` numbers in [0, 1), as from `moves.random`; advances the state.

    Uses Python's integers: numpy's take ten times as long one by one.
    """
    x, result = int(state[0]), []
    for _ in range(count):
        x ^= (x << 13) & _WORD
        x ^= x >> 7
        x ^= (x << 17) & _WORD
        result.append((x >> 11) * (1.0 / 9007199254740992.0))
    state[0] = x
    return result
