"""Which version lies in which bytes."""

from bisect import bisect_left, bisect_right

# (offset from the start of what was read, bytes, version, offset in the version's own bytes)
Piece = tuple[int, int, int, int]
Pieces = tuple[Piece, ...]


class Contents:
    """Disjoint ranges of bytes in order, each of one version; a write hides what lay there."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ranges: list[tuple[int, int, int, int]] = []  # start, stop, version, its offset

    def read(self, start: int, nbytes: int) -> Pieces:
        """What lies in [start, start + nbytes), undefined bytes left out."""
        at = bisect_right(self._starts, start) - 1
        if at >= 0:
            low, high, version, offset = self._ranges[at]
            if start + nbytes <= high:
                return ((0, nbytes, version, offset + start - low),) if nbytes else ()
        out: list[Piece] = []
        stop = start + nbytes
        for low, high, version, offset in self._ranges[max(at, 0) :]:
            if low >= stop:
                break
            first, last = max(low, start), min(high, stop)
            if first >= last:
                continue
            piece = first - start, last - first, version, offset + first - low
            if out and _continues(out[-1], piece):
                piece = out[-1][0], out[-1][1] + piece[1], version, out[-1][3]
                out.pop()
            out.append(piece)
        return tuple(out)

    def write(self, start: int, nbytes: int, version: int, offset: int = 0) -> None:
        """The bytes hold those of a version from its `offset` on."""
        if not nbytes:
            return
        found = start, start + nbytes, version, offset
        at = bisect_left(self._starts, start)
        if at < len(self._starts) and self._ranges[at][:2] == found[:2]:
            self._ranges[at] = found
            return
        self.erase(start, nbytes)
        at = bisect_left(self._starts, start)
        self._starts.insert(at, start)
        self._ranges.insert(at, found)

    def erase(self, start: int, nbytes: int) -> None:
        """The bytes are undefined."""
        stop = start + nbytes
        first = max(0, bisect_right(self._starts, start) - 1)
        if first < len(self._ranges) and self._ranges[first][1] <= start:
            first += 1
        last = bisect_left(self._starts, stop, first)
        if first >= last:
            return
        kept = []
        low, high, version, offset = self._ranges[first]
        if low < start:
            kept.append((low, start, version, offset))
        low, high, version, offset = self._ranges[last - 1]
        if high > stop:
            kept.append((stop, high, version, offset + stop - low))
        self._ranges[first:last] = kept
        self._starts[first:last] = [row[0] for row in kept]


def _continues(one: Piece, other: Piece) -> bool:
    at, nbytes, version, offset = one
    return (at + nbytes, version, offset + nbytes) == (other[0], other[2], other[3])
