"""When a convolution takes Winograd's kernels (kernels/winograd): the rule, and their operations.

Shapes decide, and of a weight in compressed rows how many numbers it stores. So every plan, target,
lane width and number of threads takes the same kernels. Tables: docs/convolutions.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ..kernels.registry import variants
from .registry import Attrs

Sizes = Mapping[str, int]

# Enough tiles to pay for the transformed weights, and a workspace no larger than what the layer
# takes anyway. Networks of fewer channels gain too, but mostly train in less memory than the
# workspace takes.
LEAST_CHANNELS, LEAST_TILES, MOST_SCRATCH = 32, 8, 2**20


def _tiles(sizes: Sizes) -> int:
    """Number of 4 x 4 tiles in the output."""
    return sizes["n"] * (-(-sizes["oh"] // 4)) * (-(-sizes["ow"] // 4))


def row_flops(sizes: Sizes, nonzeros: int) -> int:
    """Of a kernel that takes the nonzeros of compressed rows one by one."""
    return 2 * nonzeros * sizes["n"] * sizes["oh"] * sizes["ow"]


@dataclass(frozen=True)
class Winograd:
    """The rule of one kernel of a dense weight.

    Attributes:
      kernel: name.
    """

    kernel: str

    def flops(self, sizes: Sizes, attrs: Attrs) -> int:
        """36 products for 16 outputs; a transform of a tile of 16 channels takes about 150 adds."""
        tiles, c, k = _tiles(sizes), sizes["c"], sizes["k"]
        return 72 * tiles * c * k + 150 * tiles * (c + k) + 100 * c * k

    def stored(self, sizes: Sizes, attrs: Attrs) -> int:
        """Numbers of the weight."""
        return 9 * sizes["c"] * sizes["k"]

    def pays(self, sizes: Sizes, attrs: Attrs) -> bool:
        """Whether a convolution or its gradient uses the kernel."""
        ones = all(attrs[key] == 1 for key in ("sh", "sw", "dh", "dw", "g"))
        if not ones or (sizes["kh"], sizes["kw"]) != (3, 3) or max(attrs["ph"], attrs["pw"]) > 2:
            return False
        channels = sizes["c"], sizes["k"]
        # lanes beyond the channels, and pixels beyond the map, are multiplied too
        full = all(n >= LEAST_CHANNELS and 4 * n >= 3 * (-(-n // 16) * 16) for n in channels)
        pixels, tiles = sizes["n"] * sizes["oh"] * sizes["ow"], _tiles(sizes)
        if not full or tiles < LEAST_TILES or pixels < 8 * tiles:
            return False
        spec = variants(self.kernel)[0].spec
        known = {o.name: attrs.get(o.name, 0) for o in spec.operands if o.mode == "i"}
        scratch = spec.scratch_nbytes(known | dict(sizes), 1, 1)
        # in float32: both maps; the weights, their gradient and a momentum
        layer = 4 * (pixels * sum(channels) + 3 * self.stored(sizes, attrs))
        return scratch <= min(MOST_SCRATCH, layer)


@dataclass(frozen=True)
class WinogradOfRows(Winograd):
    """The rule of a kernel of a weight in compressed rows: the density decides too.

    Attributes:
      read, made: channels of the map that is read, and of the one that is made.
      time: of an operation, in that of `row_flops`. Input gradients gather each channel's nonzeros
        first, which makes those slower.
    """

    read: str
    made: str
    time: float

    def flops(self, sizes: Sizes, attrs: Attrs) -> int:
        """In the time of `row_flops`. A nonzero comes to its place in the time of 60 operations;
        each block of 16 or 32 channels reads the map again."""
        read, made = sizes[self.read], sizes[self.made]
        again = -(-made // (32 if read <= 64 else 16)) - 1
        more = 150 * _tiles(sizes) * read * again + 60 * self.stored(sizes, attrs)
        return int(self.time * (super().flops(sizes, attrs) + more))

    def stored(self, sizes: Sizes, attrs: Attrs) -> int:
        """Numbers of the weight at the start of a run."""
        return attrs["nonzeros"]

    def pays(self, sizes: Sizes, attrs: Attrs) -> bool:
        """Whether it takes fewer operations, and the shapes are such."""
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
