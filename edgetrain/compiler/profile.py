"""How many bytes live when: the one profile that placement, chains and searches read."""

from typing import NamedTuple

import numpy as np

_DENSE = 16  # times for each thing, up to which all times are walked through


class Profile(NamedTuple):
    """`live[k]` bytes live from `times[k]` until the next of the rising times."""

    times: np.ndarray
    live: np.ndarray

    @property
    def peak(self) -> int:
        """The most bytes that live at once."""
        return int(self.live.max(initial=0))

    def at(self, positions: np.ndarray) -> np.ndarray:
        """Bytes at each position."""
        before = np.searchsorted(self.times, positions, "right")
        return np.concatenate([[0], self.live])[before]

    def most_within(self, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
        """The most bytes that live at once within each [start, stop)."""
        first, last = np.searchsorted(self.times, start), np.searchsorted(self.times, stop)
        return np.array(
            [self.live[a:b].max(initial=0) for a, b in zip(first, last, strict=True)], np.int64
        )


def profile(start: np.ndarray, stop: np.ndarray, nbytes: np.ndarray) -> Profile:
    """Of things that live on [start, stop); those that stop before they start count nothing."""
    start, stop, nbytes = (np.asarray(column, np.int64) for column in (start, stop, nbytes))
    alive = stop > start
    start, stop, nbytes = start[alive], stop[alive], nbytes[alive]
    times = distinct(np.concatenate([start, stop]))
    change = np.zeros(len(times), np.int64)
    np.add.at(change, np.searchsorted(times, start), nbytes)
    np.add.at(change, np.searchsorted(times, stop), -nbytes)
    return Profile(times, np.cumsum(change))


def peak(start: np.ndarray, stop: np.ndarray, nbytes: np.ndarray) -> int:
    """As `profile(...).peak`, quickly where things start and stop at small numbers."""
    end = int(stop.max(initial=0))
    if not len(start) or start.min() < 0 or end > _DENSE * len(start):
        return profile(start, stop, nbytes).peak
    change = np.zeros(end + 1, np.int64)
    alive = np.where(stop > start, nbytes, 0)
    np.add.at(change, start, alive)
    np.subtract.at(change, stop, alive)
    return int(np.cumsum(change).max(initial=0))


def distinct(numbers: np.ndarray) -> np.ndarray:
    """Each of some integers once, rising; np.unique imports much to do so."""
    rising = np.sort(numbers)
    first = np.ones(len(rising), np.bool_)
    first[1:] = rising[1:] != rising[:-1]
    return rising[first]
