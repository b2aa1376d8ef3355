"""Placement problems of any size with a known optimum, for tests and tables.

Each problem is a rectangle of time and bytes cut into buffers, so the buffers fit in the
rectangle's height. One moment stays full, so no smaller height works. The positions of the cuts are
not given.
"""

from itertools import pairwise

import numpy as np

# Height; the share of it that is live all the time; number of such buffers; thinnest in bytes.
TALL, WEIGHTS, MATRICES, THIN = 1 << 20, 0.3, 30, 32


def tiling(count: int, seed: int, kept: float = 1.0) -> tuple[np.ndarray, int]:
    """Repeatedly cut a rectangle in two, by time or by bytes; no gaps are left.

    Args:
      count: number of buffers before some are dropped.
      kept: share of buffers that are not dropped; those live at one chosen moment always stay.
    Returns:
      start, stop and nbytes of each buffer, int64 (buffers, 3); the least height in bytes.
    """
    random = np.random.default_rng(seed)
    steps = 2 * count
    held = int(WEIGHTS * TALL)
    parts = [(0, steps, held, TALL)]
    while len(parts) < count - MATRICES:
        # The largest of a few, so that sizes vary.
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
    """Lifetimes of a training step.

    Values that a layer saves are live until its backward pass, so their lifetimes are nested.
    Short-lived buffers of each layer fill the rest.

    Args:
      layers: number of layers.
      shorts: short-lived buffers of each layer, in forward and in backward.
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
