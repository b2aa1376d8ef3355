"""Memory profiles: how many bytes are live when; shared by placement, chains and searches."""

from typing import NamedTuple

import numpy as np

_DENSE = 16  # up to this many times per lifetime, an array over all times is used


class Profile(NamedTuple):
    """`live[k]` bytes are live from `times[k]` to `times[k + 1]`; times rise."""

    times: np.ndarray
    live: np.ndarray

    @property
    def peak(self) -> int:
        """The most bytes live at once."""
        return int(self.live.max(initial=0))

    def at(self, positions: np.ndarray) -> np.ndarray:
        """Bytes at each position."""
        before = np.searchsorted(self.times, positions, "right")
        return np.concatenate([[0], self.live])[before]

    def most_within(self, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
        """The most bytes live at once within each [start, stop)."""
        first, last = np.searchsorted(self.times, start), np.searchsorted(self.times, stop)
        return np.array(
            [self.live[a:b].max(initial=0) for a, b in zip(first, last, strict=True)], np.int64
        )


def profile(start: np.ndarray, stop: np.ndarray, nbytes: np.ndarray) -> Profile:
    """The profile of lifetimes [start, stop); lifetimes that stop before they start are ignored."""
    start, stop, nbytes = (np.asarray(column, np.int64) for column in (start, stop, nbytes))
    alive = stop > start
    start, stop, nbytes = start[alive], stop[alive], nbytes[alive]
    times = distinct(np.concatenate([start, stop]))
    change = np.zeros(len(times), np.int64)
    np.add.at(change, np.searchsorted(times, start), nbytes)
    np.add.at(change, np.searchsorted(times, stop), -nbytes)
    return Profile(times, np.cumsum(change))


def peak(start: np.ndarray, stop: np.ndarray, nbytes: np.ndarray) -> int:
    """Like `profile(...).peak`, but fast if all times are small."""
    end = int(stop.max(initial=0))
    if not len(start) or start.min() < 0 or end > _DENSE * len(start):
        return profile(start, stop, nbytes).peak
    change = np.zeros(end + 1, np.int64)
    alive = np.where(stop > start, nbytes, 0)
    np.add.at(change, start, alive)
    np.subtract.at(change, stop, alive)
    return int(np.cumsum(change).max(initial=0))


def distinct(numbers: np.ndarray) -> np.ndarray:
    """The distinct integers in rising order; np.unique would import a lot."""
    rising = np.sort(numbers)
    first = np.ones(len(rising), np.bool_)
    first[1:] = rising[1:] != rising[:-1]
    return rising[first]
