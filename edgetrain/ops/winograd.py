"""Rules for using Winograd kernels (kernels/winograd), and their operation counts.

Only shapes decide, and for a weight in compressed rows its number of nonzeros. So every plan,
target, lane width and number of threads uses the same kernels. Tables: docs/convolutions.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ..kernels.registry import variants
from .registry import Attrs

Sizes = Mapping[str, int]

# Enough tiles to amortise the transformed weights, and a workspace no larger than the memory the
# layer takes anyway. Networks with fewer channels gain too, but mostly train in less memory than
# the workspace takes.
LEAST_CHANNELS, LEAST_TILES, MOST_SCRATCH = 32, 4, 2**20


def _tiles(sizes: Sizes) -> int:
    """Number of 4 x 4 tiles in the output."""
    return sizes["n"] * (-(-sizes["oh"] // 4)) * (-(-sizes["ow"] // 4))


def row_flops(sizes: Sizes, nonzeros: int) -> int:
    """Operations of a kernel that processes compressed rows nonzero by nonzero."""
    return 2 * nonzeros * sizes["n"] * sizes["oh"] * sizes["ow"]


@dataclass(frozen=True)
class Winograd:
    """Rule for one kernel with a dense weight.

    Attributes:
      kernel: the kernel's name.
    """

    kernel: str

    def flops(self, sizes: Sizes, attrs: Attrs) -> int:
        """Operations: 36 products for 16 outputs; a transform of a tile of 16 channels takes about
        150 adds."""
        tiles, c, k = _tiles(sizes), sizes["c"], sizes["k"]
        return 72 * tiles * c * k + 150 * tiles * (c + k) + 100 * c * k

    def stored(self, sizes: Sizes, attrs: Attrs) -> int:
        """Number of stored weight elements."""
        return 9 * sizes["c"] * sizes["k"]

    def pays(self, sizes: Sizes, attrs: Attrs) -> bool:
        """Whether a convolution or its gradient uses the kernel."""
        ones = all(attrs[key] == 1 for key in ("sh", "sw", "dh", "dw", "g"))
        if not ones or (sizes["kh"], sizes["kw"]) != (3, 3) or max(attrs["ph"], attrs["pw"]) > 2:
            return False
        channels = sizes["c"], sizes["k"]
        # padding lanes and pixels are multiplied too
        full = all(n >= LEAST_CHANNELS and 4 * n >= 3 * (-(-n // 16) * 16) for n in channels)
        pixels, tiles = sizes["n"] * sizes["oh"] * sizes["ow"], _tiles(sizes)
        if not full or tiles < LEAST_TILES or pixels < 8 * tiles:
            return False
        spec = variants(self.kernel)[0].spec
        known = {o.name: attrs.get(o.name, 0) for o in spec.operands if o.mode == "i"}
        scratch = spec.scratch_nbytes(known | dict(sizes), 1, 1)
        # float32: both maps; weights, gradient and momentum
        layer = 4 * (pixels * sum(channels) + 3 * self.stored(sizes, attrs))
        return scratch <= min(MOST_SCRATCH, layer)


@dataclass(frozen=True)
class WinogradOfRows(Winograd):
    """Rule for one kernel with a weight in compressed rows; its density counts too.

    Attributes:
      read, made: names of the sizes ("c" or "k") of the channels that are read and written.
      time: time per operation, relative to `row_flops`. Input gradients gather each channel's
        nonzeros first, which makes nonzero-by-nonzero kernels slower.
    """

    read: str
    made: str
    time: float

    def flops(self, sizes: Sizes, attrs: Attrs) -> int:
        """Time, in operations of `row_flops`. Placing a nonzero takes as long as 60 operations, and
        each block of 16 or 32 channels reads the map again."""
        read, made = sizes[self.read], sizes[self.made]
        again = -(-made // (32 if read <= 64 else 16)) - 1
        more = 150 * _tiles(sizes) * read * again + 60 * self.stored(sizes, attrs)
        return int(self.time * (super().flops(sizes, attrs) + more))

    def stored(self, sizes: Sizes, attrs: Attrs) -> int:
        """Number of stored weight elements at the start of a run."""
        return attrs["nonzeros"]

    def pays(self, sizes: Sizes, attrs: Attrs) -> bool:
        """Whether the shapes are suitable and it takes fewer operations."""
        nonzero_by_nonzero = row_flops(sizes, self.stored(sizes, attrs))
        return self.flops(sizes, attrs) < nonzero_by_nonzero and super().pays(sizes, attrs)


RULES = {
    rule.kernel: rule
    for rule in (
        Winograd("winograd"),
        Winograd("winograd_dx"),
        Winograd("winograd_dw"),
        WinogradOfRows("winograd_csr", "c", "k", 0.95),
        WinogradOfRows("winograd_csr_dx", "k", "c", 0.85),
    )
}
