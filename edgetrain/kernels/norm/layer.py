"""Layer, RMS and group normalisation with their gradients.

All three are one scheme: x is [images, groups, c, s] (c channels of a group, s pixels), a row is
one (image, group) of c * s neighbours, gamma and beta (absent: 1 and 0) belong to a channel. Layer
and RMS normalisation have groups = s = 1. Statistics are float32: the means of all rows, then
1 / sqrt(var + eps) of all rows (RMS: only those of the mean square). Sums are float64: along a row
64 partial sums and a fixed tree. Threads split rows (forward, dx) or channels (dparam). y may be
x, dx may be dy.

    forward  y = (x - mean) / sqrt(var + eps) * gamma + beta; RMS without mean and beta
    dx       dx (+)= invstd * (dz - mean(dz) - xhat * mean(dz * xhat)), dz = dy * gamma
    dparam   dgamma += sum over images and pixels of dy * xhat, dbeta += sum of dy
"""

from ..registry import kernel

# how the sums of a row are made (language/rowsums.py), and where
_FAST = {
    "forward": ("moments", "lanes >= 4"),
    "dx": ("slopes", "lanes >= 4 and has_gamma and S == 'f32'"),
}


def _factory(kind: str, part: str, sums: str = ""):
    def factory(S):
        from ..language import normrow, rowsums

        given = (getattr(rowsums, sums),) if sums else ()
        rows, body = getattr(normrow, kind), getattr(normrow, part)(S, kind != "rms", *given)

        def run(thread, nthreads, k):
            body(thread, nthreads, k, rows(k))

        return run

    return factory


def _register(kind: str, x: str, c: str, stat: str, sizes: str, check: str) -> None:
    """The three kernels of a normalisation.

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
        operands = f"x:r:S[{x}] {operands}"
        kernel(f"{kind}_norm{name}", operands, check=check)(_factory(kind, part))
        if part in _FAST and (kind, part) != ("group", "dx"):
            sums, when = _FAST[part]
            texts = {"variant": "fast", "when": when, "check": check}
            kernel(f"{kind}_norm{name}", operands, **texts)(_factory(kind, part, sums))


_register("layer", "rows*n", "n", "2*rows", "rows n", "min(rows, n) > 0")
_register("rms", "rows*n", "n", "rows", "rows n", "min(rows, n) > 0")
_register(
    "group", "n*c*s", "c", "2*n*groups", "n c s groups", "min(n, c, s, groups) > 0;c % groups == 0"
)
