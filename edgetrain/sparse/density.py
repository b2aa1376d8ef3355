"""The number of nonzeros of each layer, and their initial positions."""

from collections.abc import Collection, Mapping

import numpy as np

from ..formats.csr import Layer

GROWTH = 1.5  # a layer may grow to this multiple of its first share
_GOLDEN = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1


def shares(
    shapes: Mapping[str, tuple[int, ...]],
    density: float,
    distribution: str = "uniform",
    overrides: Mapping[str, float] | None = None,
) -> dict[str, int]:
    """Nonzeros of each weight, without weights that stay dense.

    uniform: all weights have the same density. erk (Erdos-Renyi-kernel): a weight's density is
    proportional to the sum of its dimensions over their product, with `density` in total; the
    excess of full weights goes to the others.

    Args:
      shapes: dense shapes by name.
      density: density of all weights without an override.
      overrides: densities by name.
    Source: Mocanu et al. 2018 (Erdos-Renyi); Evci et al. 2020, section 3 (kernels).
    """
    given = dict(overrides or {})
    free = {name: shape for name, shape in shapes.items() if name not in given}
    if distribution == "erk":
        given |= _erdos_renyi(free, density)
    else:
        given |= dict.fromkeys(free, density)
    out = {}
    for name, shape in shapes.items():
        size = int(np.prod(shape))
        count = max(1, round(size * given[name]))
        if count < size:
            out[name] = count
    return out


def _erdos_renyi(shapes: Mapping[str, tuple[int, ...]], density: float) -> dict[str, float]:
    sizes = {name: int(np.prod(shape)) for name, shape in shapes.items()}
    raw = {name: sum(shape) / sizes[name] for name, shape in shapes.items()}
    full: set[str] = set()
    while True:
        wanted = density * sum(sizes.values()) - sum(sizes[name] for name in full)
        weight = sum(raw[name] * sizes[name] for name in shapes if name not in full)
        scale = wanted / weight if weight else 0.0
        over = {name for name in shapes if name not in full and raw[name] * scale >= 1.0}
        if not over:
            return {name: 1.0 if name in full else raw[name] * scale for name in shapes}
        full |= over


def cap(share: int, size: int) -> int:
    """The most nonzeros a layer of `size` elements may have."""
    return min(size, int(share * GROWTH))


def make_layers(
    shapes: Mapping[str, tuple[int, ...]],
    counts: Mapping[str, int],
    turned: Collection[str] = (),
) -> list[Layer]:
    """Layers of the pool in the order of `counts`.

    Args:
      turned: names of weights stored as [c, k].
    """
    return [
        Layer(
            name, tuple(shapes[name]), count, cap(count, int(np.prod(shapes[name]))), name in turned
        )
        for name, count in counts.items()
    ]


def first_positions(layer: Layer, seed: int, number: int, weight: np.ndarray) -> np.ndarray:
    """Sorted flat positions of a layer's initial nonzeros: those with the smallest hashes.

    If the weight is already sparse (trained before), its nonzeros come first.

    Args:
      number: number of the layer; each has its own random stream.
      weight: dense initial values, flat.
    """
    key = np.uint64(_mix_int(_mix_int(seed & _MASK) + number + 1))
    counters = np.arange(layer.size, dtype=np.uint64) * np.uint64(_GOLDEN) + key
    bits = _mix(counters)
    empty = weight == 0
    if empty.any():
        bits = (bits >> np.uint64(1)) | (empty.astype(np.uint64) << np.uint64(63))
    return np.sort(np.argpartition(bits, layer.share - 1)[: layer.share])


def _mix(values: np.ndarray) -> np.ndarray:
    """64 well-mixed bits for each u64. Source: Steele, Lea, Flood 2014 (SplitMix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _mix_int(value: int) -> int:
    return int(_mix(np.array([value & _MASK], np.uint64))[0])
