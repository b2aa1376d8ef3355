"""Sequence lengths within a time segment; inserted by compiler/segments."""

from .registry import Op, register

# out[i] = number of row i's steps in [attrs start, start + count).
register(
    Op(
        "segment_lengths",
        "lens -> out",
        lambda values, attrs: {"b": values["lens"].size},
        cost=1,
        gradient="",
    )
)
