"""Operations between scores and softmax: biases, masks and bands.

A constant mask that hides all keys except a band around the query (causal, or a window) is replaced
by two numbers, and blocks outside the band are not computed.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from ...ir import Node
from .walks import Index, Walker, affine

ADDED, REPLACED, STANDS = 1, 2, 3
_LOWEST = -1e30  # an added mask value this low swamps the score
_LOW = -1e4  # an added mask value this low hides a key


@dataclass(frozen=True)
class Table:
    """A value, and its strides along batch, head, query and key."""

    name: str = ""
    strides: tuple[int, ...] = (0, 0, 0, 0)


@dataclass(frozen=True)
class Masks:
    """Operations on a score; attributes as in kernels/attention/layout.py."""

    bias: Table = Table()
    mask: Table = Table()
    attrs: dict = field(
        default_factory=lambda: {
            **dict.fromkeys(("keep", "how", "band", "first", "before", "after"), 0),
            "fill": 0.0,
            "low": 0.0,
        }
    )

    def but(self, **changed) -> "Masks":
        """A copy with some attributes changed."""
        return replace(self, attrs={**self.attrs, **changed})


@dataclass(frozen=True)
class Scores:
    """Sizes of the scores."""

    z1: int
    z2: int
    m: int
    n: int

    def table(self, walker: Walker, name: str, shape: tuple[int, ...]) -> Table | None:
        """A value broadcast to scores of `shape`, traced back as far as possible."""
        value_shape = walker.graph.values[name].shape
        full = (1,) * (len(shape) - len(value_shape)) + value_shape
        steps = [0 if d == 1 else int(np.prod(full[k + 1 :])) for k, d in enumerate(full)]

        def at(z, h, i, j):
            linear = ((z * self.z2 + h) * self.m + i) * self.n + j
            places = np.unravel_index(linear, shape)
            return sum(p * s for p, s in zip(places, steps, strict=True))

        result = None
        for source in walker.sources(name):
            if source.scale != 1.0:
                break
            strides = affine(_behind(at, source.back), (self.z1, self.z2, self.m, self.n))
            if strides is None or min(strides) < 0:
                continue
            size = walker.graph.values[source.name].size
            if result is None or size < walker.graph.values[result.name].size:
                result = Table(source.name, tuple(strides))
        return result


def _behind(index_of: Index, back: Index) -> Index:
    return lambda *axes: back(index_of(*axes))


def band_of(hidden: np.ndarray, m: int, n: int) -> tuple[int, int] | None:
    """(before, after) if each query i sees exactly the keys j with i - before <= j <= i + after;
    otherwise None. A bound without effect is m or n.
    """
    if hidden.shape[-2:] != (m, n) or hidden.ndim < 2:
        return None
    masks = hidden.reshape(-1, m, n)
    if any((mask != masks[0]).any() for mask in masks[1:]):
        return None
    seen = ~masks[0]
    if not seen.any(1).all():
        return None
    queries = np.arange(m)
    first, last = seen.argmax(1), n - 1 - seen[:, ::-1].argmax(1)
    begun, ended = first > 0, last < n - 1
    before = int((queries - first)[begun][0]) if begun.any() else m
    after = int((last - queries)[ended][0]) if ended.any() else n
    if before < 0 or after < 0:
        return None
    ahead = np.arange(n) - queries[:, None]
    return (before, after) if (((ahead >= -before) & (ahead <= after)) == seen).all() else None


class Reader:
    """Collects the masks of an attention, from scores to softmax."""

    def __init__(self, walker: Walker, scores: Scores) -> None:
        self.walker, self.scores = walker, scores
        self.masks = Masks()

    def add(self, name: str, shape: tuple[int, ...]) -> bool:
        """Handle an added value; False if not supported."""
        known = self.walker.constant(name)
        if known is not None and not known.any():
            return True
        if known is not None and self._added_band(known):
            return True
        picked = self._picked(name)
        if picked is not None:
            return self._hide(*picked, ADDED, shape)
        attrs = self.masks.attrs
        moved = (attrs["how"], attrs["fill"]), (attrs["band"], attrs["low"])
        late = any(kind == REPLACED and number != -np.inf for kind, number in moved)
        table = self.scores.table(self.walker, name, shape)
        if self.masks.bias.name or late or table is None or name in self.walker.trained:
            return False
        if self.walker.graph.values[name].dtype != "f32":
            return False
        self.masks = replace(self.masks, bias=table)
        return True

    def where(self, node: Node, scores: str) -> bool:
        """Handle scores that a mask replaces; False if not supported."""
        mask, a, b = node.inputs
        keep, other = (1, b) if a == scores else (0, a)
        fill = self.walker.number(other)
        shape = self.walker.graph.values[node.outputs[0]].shape
        if fill is None or fill > _LOW or a == b:
            return False
        return self._hide(mask, keep, fill, REPLACED, shape)

    def _added_band(self, known: np.ndarray) -> bool:
        low = float(known.min())
        if not (low <= _LOW and ((known == 0) | (known == low)).all()):
            return False
        band = band_of(known == low, self.scores.m, self.scores.n)
        return band is not None and self._band(band, low, ADDED)

    def _band(self, band: tuple[int, int], low: float, kind: int) -> bool:
        if self.masks.attrs["band"]:
            return False
        first = int(not self.masks.mask.name)
        before, after = band
        self.masks = self.masks.but(band=kind, first=first, before=before, after=after, low=low)
        return True

    def _picked(self, name: str) -> tuple[str, int, float] | None:
        """(mask, keep, fill) of a value that is 0 or `fill` depending on a mask."""
        walker = self.walker
        for source in walker.sources(name):
            node = walker.makers.get(source.name)
            if node is not None and node.op == "where" and source.scale == 1.0:
                numbers = [walker.number(other) for other in node.inputs[1:]]
                for keep, (kept, fill) in ((1, numbers), (0, numbers[::-1])):
                    if kept == 0 and fill is not None and fill <= _LOW:
                        shape = walker.graph.values[name].shape
                        same = walker.graph.values[source.name].shape == shape
                        return (node.inputs[0], keep, fill) if same else None
        return None

    def _hide(self, mask: str, keep: int, fill: float, kind: int, shape) -> bool:
        """Hide keys where `mask` is not `keep`."""
        walker = self.walker
        node = walker.makers.get(mask)
        while node is not None and node.op == "truth":
            dtype = walker.graph.values[node.inputs[0]].dtype
            if dtype != "u8":
                break
            mask, keep = node.inputs[0], int(keep == node.attrs["want"])
            node = walker.makers.get(mask)
        known = walker.constant(mask)
        if known is not None:
            hidden = (known != 0) != bool(keep)
            if not hidden.any():
                return True
            band = band_of(hidden, self.scores.m, self.scores.n)
            if band is not None and self._band(band, fill, kind):
                return True
        joined = {"and": 1, "or": 0}.get(node.op if node is not None else "", -1)
        before = self.masks
        if node is not None and joined == keep and (kind != ADDED or fill <= _LOWEST):
            # both parts hide keys, and one may be a band; the fill value is added only once
            kind = STANDS if kind == ADDED else kind
            parts = sorted(node.inputs[:2], key=lambda name: walker.constant(name) is None)
            if all(self._hide(part, keep, fill, kind, shape) for part in parts):
                self.masks = self.masks.but(first=0)
                return True
            self.masks, kind = before, ADDED if kind == STANDS else kind
        table = self.scores.table(walker, mask, shape)
        if self.masks.mask.name or table is None or walker.graph.values[mask].dtype != "u8":
            return False
        self.masks = replace(self.masks, mask=table).but(keep=keep, how=kind, fill=fill)
        return True
