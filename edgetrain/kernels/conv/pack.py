"""Packs maps into panels (fast_tile.py): the loop over channels and banks, and the choice of a way.

Which of six ways is fastest depends on how a tile's lines are laid out in the map; all write the
same panel. A vector store may spill up to 15 floats beyond its row. The rows of a region are
written in ascending order, and a region ends with room for a vector, so a spill overwrites nothing
that is still needed.
"""

import functools

from ..language.calls import outline
from ..language.fused_activation import NONE
from ..language.inlining import inline
from ..language.prim import Storage
from ..language.vector import prefetch
from .fast_tile import pitch_of, pixels_of, tile_region
from .pack_contiguous import contiguous
from .pack_even_odd import even_odd
from .pack_lines import lines
from .pack_parts import Way, affine_of
from .pack_shifted import shifted
from .pack_strided import strided
from .pack_three_columns import three_columns
from .records import AS_IT_IS, Ahead, Bank, Map, Prologue, Tile, Window

# The first way that suits a tile packs it.
WAYS = contiguous, three_columns, lines, even_odd, strided, shifted


@inline
def _fetch(source, first, tile, ahead, nbytes):
    """Prefetch what the next tile reads from a channel; `first` is this tile's first element."""
    for image in range(tile.images):
        start = first + image * source.channels * source.height * source.width + ahead.start
        for j in range(0, ahead.span * nbytes, 64):
            prefetch(source.address + start * nbytes + j)


def _channels(way: Way, S: Storage):
    """Inline function that packs a chunk of channels in one way; same arguments as `panel_fill`."""
    write, middle_of, finish, nbytes = way.bank(S), way.middle, way.finish, S.nbytes
    one_bank, fetched = way.one_bank, way.fetched

    @inline
    def pack(panel, nothing, source, first, channels, tile, window, prologue, ahead):
        rows, middle = tile.rows + window.extra, middle_of(window.columns)
        region, step = 4 * tile_region(window, tile), 4 * rows * pitch_of(tile)
        row0 = tile.row0 * window.row_stride
        start = row0 * source.width + tile.column0 * window.column_stride
        plane = (tile.image0 * source.channels + first) * source.height * source.width
        for i in range(channels):
            how = affine_of(prologue, first + i, source.channels)
            if pixels_of(tile) >= fetched:
                _fetch(source, plane + start, tile, ahead, nbytes)
            for b in range(1 if one_bank else window.banks):
                low = row0 + window.rows.low + b * window.rows.distance
                target = panel + middle * region + b * step
                write(Bank(target, region, plane, low, nothing), source, tile, window, how)
            finish(panel, region, middle, tile, window)
            panel += window.columns.taps * region
            plane += source.height * source.width

    return pack


def _packing(way: Way, S: Storage):
    """`_channels` as a function of its own, so that a kernel's loops keep their registers."""
    pack, unchanged = _channels(way, S), way.unchanged

    def fill(
        panel,
        nothing,
        source: Map,
        first,
        channels,
        tile: Tile,
        window: Window,
        prologue: Prologue,
        ahead: Ahead,
    ):
        if unchanged and prologue.stat == 0 and prologue.act == NONE:
            pack(panel, nothing, source, first, channels, tile, window, AS_IT_IS, ahead)
        else:
            pack(panel, nothing, source, first, channels, tile, window, prologue, ahead)

    return outline(f"et_pack_{way.name}_{S.name}", fill)


@functools.cache
def panel_fill(S: Storage):
    """Function that packs a chunk of channels into a panel."""
    fill = _chosen(WAYS, S)

    def panel_of(
        panel,
        nothing,
        source: Map,
        first,
        channels,
        tile: Tile,
        window: Window,
        prologue: Prologue,
        ahead: Ahead,
    ):
        """Write the panel of a tile, with the map's channels from `first` on.

        `nothing` is a 0 that the compiler must not recognise: it would call memset for rows of a
        few zeros.
        """
        fill(panel, nothing, source, first, channels, tile, window, prologue, ahead)

    return outline(f"et_panel_{S.name}", panel_of)


def _chosen(ways: tuple[Way, ...], S: Storage):
    """Inline function that packs in the first of these ways that suits."""
    pack, suits = _packing(ways[0], S), ways[0].suits
    others = _chosen(ways[1:], S) if len(ways) > 1 else pack

    @inline
    def choose(panel, nothing, source, first, channels, tile, window, prologue, ahead):
        if suits(tile, source, window, prologue):
            pack(panel, nothing, source, first, channels, tile, window, prologue, ahead)
        else:
            others(panel, nothing, source, first, channels, tile, window, prologue, ahead)

    return choose
