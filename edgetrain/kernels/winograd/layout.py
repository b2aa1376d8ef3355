"""Sizes and scratch of the kernels: how channels and tiles are split, the same for every thread.

A tile is 4 x 4 pixels of the output. A panel is `strips` consecutive rows of tiles, which may span
images, each `columns` tiles wide. Buffers hold 36 planes, one per point, of [tile][channel] or
[channel][output channel] in float32; 320 bytes are left free between planes, or their stores would
fall on the same cache sets.
"""

from ..conv.layout import Layout

APART = 320  # bytes between planes
POINTS = 36
TILES = 8  # most tiles of a panel; more make nothing faster
LINED = 64  # most input channels of a block of the weight gradient


def _planes(rows: str, lanes: str) -> str:
    return f"{POINTS} * (4 * ({rows}) * ({lanes}) + {APART})"


def _panel(height: str, width: str) -> dict[str, str]:
    return {
        "high": f"({height} + 3) // 4",  # tiles of an image: rows, columns
        "across": f"({width} + 3) // 4",
        "parts": f"(across + {TILES} - 1) // {TILES}",  # panels side by side
        "columns": "(across + parts - 1) // parts",
        "strips": f"max(1, min({TILES} // columns, n * high))",
        "tiles": "(strips * columns + 7) // 8 * 8",
    }


_PIXELS = "64 * ((4 * strips + 2) * (4 * columns + 2) + 32)"


def product_layout(
    read: str,
    made: str,
    height: str,
    width: str,
    taps: str = "64 * 176",
    most: int = 64,
    held: int = 2,
) -> Layout:
    """Layout of a convolution and of its input gradient.

    Args:
      read, made: channels of the map that is read, and of the map that is computed.
      height, width: of the map that is computed.
      taps: bytes of weights before they are transformed to points.
      most: channels that are read at once. If there are more, the sums of some panels are kept
        while the weights of the next channels are transformed, so the scratch stops growing.
      held: the most panels whose sums are kept.
    """
    sizes = {
        "lined": f"({read} + 15) // 16 * 16",
        "pieces": f"(lined + {most - 1}) // {most}",
        "piece": "(lined // 16 + pieces - 1) // pieces * 16",
        "block": f"min(({made} + 15) // 16 * 16, 16 + 16 * (piece <= 64))",  # channels computed
    } | _panel(height, width)
    panels = "parts * ((n * high + strips - 1) // strips)"
    sizes["held"] = f"min({held}, {panels}) if pieces > 1 else 1"
    parts = {
        "weights": _planes("piece", "block"),
        "values": _planes("tiles", "piece"),
        "sums": _planes("held * tiles", "block"),
        "turned": _PIXELS,
        "padded": f"max({_PIXELS}, {taps})",
        "square": "64 * 16",
    }
    return Layout(sizes, parts)


def gradient_layout() -> Layout:
    """Layout of `winograd_dw`."""
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
