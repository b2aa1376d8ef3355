"""Layer, RMS and group normalisation with their gradients.

All three follow one scheme: x is [images, groups, c, s] (c channels per group, s pixels), a row is
one (image, group) of c * s contiguous elements, gamma and beta (absent: 1 and 0) are per channel.
Layer and RMS normalisation have groups = s = 1. Statistics are float32: the means of all rows, then
1 / sqrt(var + eps) of all rows (RMS: only 1 / sqrt(mean square + eps)). The mean is subtracted
before anything is squared or multiplied, so that a large mean costs no precision. Threads split
rows (forward, dx) or channels (dparam). y may be x, dx may be dy.

    forward  y = (x - mean) * (invstd * gamma) + beta; RMS without mean and beta
    dx       dx (+)= invstd * (dz - mean(dz) - xhat * mean(dz * xhat)), dz = dy * gamma
    dparam   dgamma += sum over images and pixels of dy * xhat, dbeta += sum of dy

The order of sums depends on the shape alone: along a row, and along the pixels of a channel, as in
row_sums.py; over the channels of a row if they have several pixels, and over images of such
channels, one after the other in float64; over images of channels with one pixel, in float32 for 64
images, whose sums are added in float64. Variant `fast` uses vectors of 16, `plain` scalars.
"""

from ..registry import kernel
from .batch_lines import BOTH


def _factory(kind: str, part: str, vectors: bool):
    def factory(S):
        from . import row_lines, row_parameters
        from . import rows as shapes

        file = row_parameters if part == "dparam" else row_lines
        rows, body = getattr(shapes, kind), getattr(file, part)(S, kind != "rms", vectors)

        def run(thread, nthreads, args):
            body(thread, nthreads, args, rows(args))

        return run

    return factory


def _register(kind: str, x: str, c: str, stat: str, sizes: str, check: str) -> None:
    """Register the three kernels of a normalisation.

    Args:
      x, c, stat: elements of x, of gamma, of the statistics.
    """
    beta, dbeta = (f"beta?:r:f32[{c}]", f"dbeta?:m:f32[{c}]") if kind != "rms" else ("", "")
    gamma, dy = f"gamma?:r:f32[{c}]", f"dy:r:S[{x}]"
    for part, name, operands in (
        ("forward", "", f"{gamma} {beta} y:w:S[{x}] stat:w:f32[{stat}] {sizes} eps:f"),
        ("dx", "_dx", f"{gamma} stat:r:f32[{stat}] {dy} dx:m:S[{x}] {sizes} acc=flag"),
        ("dparam", "_dparam", f"stat:r:f32[{stat}] {dy} dgamma?:m:f32[{c}] {dbeta} {sizes}"),
    ):
        for vectors, texts in BOTH:
            declared = {**texts, "check": check, "revision": "2"}
            kernel(f"{kind}_norm{name}", f"x:r:S[{x}] {operands}", **declared)(
                _factory(kind, part, vectors)
            )


_register("layer", "rows*n", "n", "2*rows", "rows n", "min(rows, n) > 0")
_register("rms", "rows*n", "n", "rows", "rows n", "min(rows, n) > 0")
_register(
    "group", "n*c*s", "c", "2*n*groups", "n c s groups", "min(n, c, s, groups) > 0;c % groups == 0"
)
