"""Tracks which version is in which bytes."""

from bisect import bisect_left, bisect_right

# (offset from the start of the read range, bytes, version, offset in the version's own bytes)
Piece = tuple[int, int, int, int]
Pieces = tuple[Piece, ...]


class Contents:
    """Disjoint ranges of bytes in order, each of one version; a write replaces previous content.

    Parts that never touch each other's bytes may share a range, wherever in it they are (layers in
    a pool of nonzeros). Writes to a single part, since the last write to the bytes as a whole, are
    recorded for that part.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ranges: list[tuple[int, int, int, int]] = []  # start, stop, version, its offset
        self._parts: dict[Pieces, Contents] = {}

    def read(self, start: int, nbytes: int, part: Pieces | None = None) -> Pieces:
        """The content of [start, start + nbytes), without undefined bytes.

        Args:
          part: as this part sees it; None: as a whole, followed by what parts see differently.
        """
        whole = self._read(start, nbytes)
        if not self._parts:
            return whole
        if part is None:
            ordered = sorted(self._parts.items())
            return whole + tuple(p for _, item in ordered for p in item.read(start, nbytes))
        own = self._parts[part].read(start, nbytes) if part in self._parts else ()
        if not own:
            return whole
        seen = Contents()
        for place, count, version, offset in (*whole, *own):
            seen.write(place, count, version, offset)
        return seen.read(0, nbytes)

    def _read(self, start: int, nbytes: int) -> Pieces:
        place = bisect_right(self._starts, start) - 1
        if place >= 0:
            low, high, version, offset = self._ranges[place]
            if start + nbytes <= high:
                return ((0, nbytes, version, offset + start - low),) if nbytes else ()
        out: list[Piece] = []
        stop = start + nbytes
        for low, high, version, offset in self._ranges[max(place, 0) :]:
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

    def write(
        self, start: int, nbytes: int, version: int, offset: int = 0, part: Pieces | None = None
    ) -> None:
        """Set the bytes, or a part's view of them, to those of a version from its `offset` on."""
        if not nbytes:
            return
        if part is not None:
            self._parts.setdefault(part, Contents()).write(start, nbytes, version, offset)
            return
        for item in self._parts.values():
            item.erase(start, nbytes)
        result = start, start + nbytes, version, offset
        index = bisect_left(self._starts, start)
        if index < len(self._starts) and self._ranges[index][:2] == result[:2]:
            self._ranges[index] = result
            return
        self.erase(start, nbytes)
        index = bisect_left(self._starts, start)
        self._starts.insert(index, start)
        self._ranges.insert(index, result)

    def erase(self, start: int, nbytes: int) -> None:
        """Make the bytes undefined."""
        for item in self._parts.values():
            item.erase(start, nbytes)
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
    place, nbytes, version, offset = one
    return (place + nbytes, version, offset + nbytes) == (other[0], other[2], other[3])
