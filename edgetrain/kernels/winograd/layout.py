"""Sizes and scratch of the kernels: how channels and tiles are cut, the same for every thread.

A tile is 4 x 4 pixels of the output. It is a panel's: of `strips` rows of tiles that follow each
other, over images, each `columns` tiles wide. Buffers hold 36 planes, one a point, of
[tile][channel] or [channel][output channel] in float32; planes are 320 bytes further apart than
they are large, or their stores would fall on the same cache sets.
"""

from ..conv.layout import Layout

APART = 320  # bytes between planes
POINTS = 36
TILES = 8  # of a panel at most; more make nothing faster
LINED = 64  # input channels of a block of the weight gradient at most


def _planes(rows: str, lanes: str) -> str:
    return f"{POINTS} * (4 * ({rows}) * ({lanes}) + {APART})"


def _panel(height: str, width: str) -> dict[str, str]:
    return {
        "high": f"({height} + 3) // 4",  # tiles of an image: rows, columns
        "across": f"({width} + 3) // 4",
        "parts": f"(across + {TILES} - 1) // {TILES}",  # panels beside each other
        "columns": "(across + parts - 1) // parts",
        "strips": f"max(1, min({TILES} // columns, n * high))",
        "tiles": "(strips * columns + 7) // 8 * 8",
    }


_PIXELS = "64 * ((4 * strips + 2) * (4 * columns + 2) + 32)"


def product_layout(read: str, made: str, height: str, width: str, taps: str = "64 * 176") -> Layout:
    """Of a convolution and of its input gradient.

    Args:
      read, made: channels that are read, that are made.
      height, width: of the map that is made.
      taps: bytes of weights before they become points.
    """
    sizes = {
        "lined": f"({read} + 15) // 16 * 16",
        # channels that are made at once: their weights are 300 KB, up to 128 channels of input
        "block": f"min(({made} + 15) // 16 * 16, 16 + 16 * (lined <= 64))",
    } | _panel(height, width)
    parts = {
        "weights": _planes(read, "block"),
        "values": _planes("tiles", "lined"),
        "sums": _planes("tiles", "block"),
        "turned": _PIXELS,
        "padded": f"max({_PIXELS}, {taps})",
        "square": "64 * 16",
    }
    return Layout(sizes, parts)


def gradient_layout() -> Layout:
    """Of `winograd_dw`."""
    sizes = {
        "cuts": f"(c + {LINED - 1}) // {LINED}",
        "lined": "((c + cuts - 1) // cuts + 15) // 16 * 16",
        "block": "min((k + 15) // 16 * 16, 32)",
    } | _panel("oh", "ow")
    parts = {
        "sums": _planes("block", "lined"),
        "values": _planes("tiles", "lined"),
        "slopes": _planes("tiles", "block"),
        "turned": _PIXELS,
        "padded": _PIXELS,
        "square": "64 * 16",
        "lines": "64 * 16 + 4 * 9 * 16 + 64",
    }
    return Layout(sizes, parts)
