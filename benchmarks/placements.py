"""Placement problems of any size whose optimum is known, for tests and tables.

Each is cut out of a rectangle of time and bytes, so that its buffers fit in the rectangle's
height; one moment is left full, so that nothing lower holds them. Where a buffer was cut out is
not told.
"""

from itertools import pairwise

import numpy as np

# The height, the share of it that lives all the time, and buffers of that; bytes of the thinnest.
TALL, WEIGHTS, MATRICES, THIN = 1 << 20, 0.3, 30, 32


def tiling(count: int, seed: int, kept: float = 1.0) -> tuple[np.ndarray, int]:
    """A rectangle cut in two again and again, by time or by bytes: no room is left over.

    Args:
      count: of buffers before some are left out.
      kept: the share of buffers that are not left out, but for those of one moment.
    Returns:
      start, stop and nbytes of each buffer, int64 (buffers, 3); the least height in bytes.
    """
    random = np.random.default_rng(seed)
    steps = 2 * count
    held = int(WEIGHTS * TALL)
    parts = [(0, steps, held, TALL)]
    while len(parts) < count - MATRICES:
        # The largest of a few, so that sizes are mixed.
        tried = random.integers(0, len(parts), 4)
        at = max(tried, key=lambda k: _area(parts[k]))
        start, stop, low, high = parts[at]
        share = random.uniform(0.1, 0.9)
        if random.random() < 0.5 and stop - start > 1:
            cut = min(max(start + int(share * (stop - start)), start + 1), stop - 1)
            parts[at] = (start, cut, low, high)
            parts.append((cut, stop, low, high))
        elif high - low > 2 * THIN:
            cut = min(max(low + int(share * (high - low)), low + THIN), high - THIN)
            parts[at] = (start, stop, low, cut)
            parts.append((start, stop, cut, high))
    full = steps // 2
    chosen = [p for p in parts if p[0] <= full < p[1] or random.random() < kept]
    bounds = np.linspace(0, held, MATRICES + 1).astype(int).tolist()
    chosen += [(0, steps, low, high) for low, high in pairwise(bounds)]
    return _table(chosen, random), TALL


def training(layers: int, seed: int, shorts: int = 4) -> tuple[np.ndarray, int]:
    """Lives of a training step: what a layer saves lives until its backward, nested in one another;
    what it needs meanwhile fills the rest for a moment.

    Args:
      layers: of the net; `shorts` buffers of each layer, forward and backward, live briefly.
    Returns:
      As `tiling`.
    """
    random = np.random.default_rng(seed)
    sizes = (2.0 ** random.uniform(6, 18, layers)).astype(np.int64) // 64 * 64 + 64
    ends = np.cumsum(sizes).tolist()
    top, steps = ends[-1] + 6400, 4 * layers
    parts = []
    for layer, (end, nbytes) in enumerate(zip(ends, sizes.tolist(), strict=True)):
        begin = 2 * layer
        parts.append((begin, steps - begin, end - nbytes, end))
        for at in (begin, steps - begin - 2):
            cuts = np.sort(random.integers(end, top, shorts - 1)).tolist()
            parts += [
                (at, at + 2, low, high)
                for low, high in zip([end, *cuts], [*cuts, top], strict=True)
                if low < high
            ]
    return _table(parts, random), top


def _area(part: tuple[int, int, int, int]) -> int:
    start, stop, low, high = part
    return (stop - start) * (high - low)


def _table(parts: list[tuple[int, int, int, int]], random: np.random.Generator) -> np.ndarray:
    rows = np.array([(start, stop, high - low) for start, stop, low, high in parts], np.int64)
    return rows[random.permutation(len(rows))]
