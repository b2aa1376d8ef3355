"""Simulated microcontroller flash that can lose power at any write."""

import ctypes

import numpy as np

from tests.bundle.loaded import ERASE, MOVE, Store

PAGE = 256  # bytes programmed at once; power can fail within one page


class Flash:
    """Two slots of NOR flash: erased bytes are 0xFF, writing clears bits.

    Attributes:
      data: uint8 [2, nbytes].
      writes: pages programmed and slots erased so far.
      lost: number of a page write or erasure that reports success but does nothing (None: none).
    """

    def __init__(self, nbytes: int, seed: int = 0) -> None:
        self.data = np.full((2, nbytes), 0xFF, np.uint8)
        self._draw, self._left = np.random.default_rng(seed), None
        self.writes, self.worn = 0, False
        self.lost: int | None = None
        self.misused: list[str] = []
        self._kept = ERASE(self._erase), MOVE(self._write), MOVE(self._read)
        self.store = Store(None, *self._kept)

    @property
    def address(self) -> int:
        """Address of the C struct."""
        return ctypes.addressof(self.store)

    def cut_after(self, writes: int | None) -> None:
        """Lose power during the write after this many; None: never."""
        self._left = writes

    def _power(self) -> str:
        """Return the fate of the next write: done, lost, torn or nothing."""
        if self._left is None:
            self.writes += 1
            return "lost" if self.writes - 1 == self.lost else "done"
        self._left -= 1
        if self._left >= 0:
            self.writes += 1
            return "done"
        return "torn" if self._left == -1 else "nothing"

    def _erase(self, user, slot: int) -> int:
        power = self._power()
        if power == "done":
            self.data[slot] = 0xFF
        elif power == "torn":  # some bits are set, some are not
            noise = self._draw.integers(0, 256, self.data.shape[1], np.uint8)
            self.data[slot] |= noise
        return int(self.worn or power in ("torn", "nothing"))

    def _write(self, user, slot: int, offset: int, data: int, nbytes: int) -> int:
        given = np.frombuffer(ctypes.string_at(data, nbytes), np.uint8)
        if offset % 64 or nbytes % 64 or offset + nbytes > self.data.shape[1]:
            self.misused.append(f"write of {nbytes} bytes at {offset}")
            return 1
        for first in range(0, nbytes, PAGE):
            part = given[first : first + PAGE]
            place = self.data[slot, offset + first : offset + first + len(part)]
            power = self._power()
            if power == "done" and not self.worn:
                if (place != 0xFF).any():
                    self.misused.append(f"a second write at {offset + first}")
                place &= part
            elif power == "torn":
                cut = int(self._draw.integers(0, len(part) + 1))
                place[:cut] &= part[:cut]
                half_done = place[cut : cut + 8]
                half_done &= self._draw.integers(0, 256, len(half_done), np.uint8)
            if power in ("torn", "nothing"):
                return 1
        return 0

    def _read(self, user, slot: int, offset: int, data: int, nbytes: int) -> int:
        if offset + nbytes > self.data.shape[1]:
            self.misused.append(f"read of {nbytes} bytes at {offset}")
            return 1
        ctypes.memmove(data, self.data[slot, offset:].ctypes.data, nbytes)
        return 0
