"""Layer, RMS and group normalisation with their gradients.

All three are one scheme: x is [images, groups, c, s] (c channels of a group, s pixels), a row is
one (image, group) of c * s neighbours, gamma and beta (absent: 1 and 0) belong to a channel. Layer
and RMS normalisation have groups = s = 1. Statistics are float32: the means of all rows, then
1 / sqrt(var + eps) of all rows (RMS: only those of the mean square). Sums are float64: along a row
64 partial sums and a fixed tree. Threads split rows (forward, dx) or channels (dparam). y may be
x, dx may be dy.
"""

from .registry import kernel


def _bodies(S, centre):
    from .words import normrow

    return normrow.forward(S, centre), normrow.dx(S, centre), normrow.dparam(S, centre)


@kernel(
    "layer_norm",
    "x:r:S[rows*n] gamma?:r:f32[n] beta?:r:f32[n] y:w:S[rows*n] stat:w:f32[2*rows] rows n eps:f",
    check="min(rows, n) > 0",
)
def layer_norm(S):
    """y = (x - mean) / sqrt(var + eps) * gamma + beta over the last n; stat: see above."""
    body = _bodies(S, True)[0]

    def run(thread, nthreads, x, gamma, beta, y, stat, rows, n, eps):
        body(thread, nthreads, x, gamma, beta, y, stat, stat + 4 * rows, rows, 1, n, 1, eps)

    return run


@kernel(
    "layer_norm_dx",
    "x:r:S[rows*n] gamma?:r:f32[n] stat:r:f32[2*rows] dy:r:S[rows*n] dx:m:S[rows*n] rows n acc",
    check="min(rows, n) > 0",
)
def layer_norm_dx(S):
    """dx (+)= invstd * (dz - mean(dz) - xhat * mean(dz * xhat)), dz = dy * gamma."""
    body = _bodies(S, True)[1]

    def run(thread, nthreads, x, gamma, stat, dy, dx, rows, n, acc):
        body(thread, nthreads, x, gamma, stat, stat + 4 * rows, dy, dx, rows, 1, n, 1, acc)

    return run


@kernel(
    "layer_norm_dparam",
    "x:r:S[rows*n] stat:r:f32[2*rows] dy:r:S[rows*n] dgamma?:m:f32[n] dbeta?:m:f32[n] rows n",
    check="min(rows, n) > 0",
)
def layer_norm_dparam(S):
    """dgamma += sum over rows of dy * xhat, dbeta += sum of dy."""
    body = _bodies(S, True)[2]

    def run(thread, nthreads, x, stat, dy, dgamma, dbeta, rows, n):
        body(thread, nthreads, x, stat, stat + 4 * rows, dy, dgamma, dbeta, rows, 1, n, 1)

    return run


@kernel(
    "rms_norm",
    "x:r:S[rows*n] gamma?:r:f32[n] y:w:S[rows*n] stat:w:f32[rows] rows n eps:f",
    check="min(rows, n) > 0",
)
def rms_norm(S):
    """y = x / sqrt(mean(x^2) + eps) * gamma over the last n; stat: the factor of each row."""
    body = _bodies(S, False)[0]

    def run(thread, nthreads, x, gamma, y, stat, rows, n, eps):
        body(thread, nthreads, x, gamma, 0, y, 0, stat, rows, 1, n, 1, eps)

    return run


@kernel(
    "rms_norm_dx",
    "x:r:S[rows*n] gamma?:r:f32[n] stat:r:f32[rows] dy:r:S[rows*n] dx:m:S[rows*n] rows n acc",
    check="min(rows, n) > 0",
)
def rms_norm_dx(S):
    """dx (+)= r * (dz - xhat * mean(dz * xhat)), dz = dy * gamma, xhat = x * r."""
    body = _bodies(S, False)[1]

    def run(thread, nthreads, x, gamma, stat, dy, dx, rows, n, acc):
        body(thread, nthreads, x, gamma, 0, stat, dy, dx, rows, 1, n, 1, acc)

    return run


@kernel(
    "rms_norm_dparam",
    "x:r:S[rows*n] stat:r:f32[rows] dy:r:S[rows*n] dgamma?:m:f32[n] rows n",
    check="min(rows, n) > 0",
)
def rms_norm_dparam(S):
    """dgamma += sum over rows of dy * xhat."""
    body = _bodies(S, False)[2]

    def run(thread, nthreads, x, stat, dy, dgamma, rows, n):
        body(thread, nthreads, x, 0, stat, dy, dgamma, 0, rows, 1, n, 1)

    return run


_GROUP_CHECK = "min(n, c, s, groups) > 0;c % groups == 0"


@kernel(
    "group_norm",
    "x:r:S[n*c*s] gamma?:r:f32[c] beta?:r:f32[c] y:w:S[n*c*s] stat:w:f32[2*n*groups] "
    "n c s groups eps:f",
    check=_GROUP_CHECK,
)
def group_norm(S):
    """x [n, c, s] normalised over each of `groups` groups of channels (and s) of an image."""
    from .words.prim import div

    body = _bodies(S, True)[0]

    def run(thread, nthreads, x, gamma, beta, y, stat, n, c, s, groups, eps):
        rows, part = n * groups, div(c, groups)
        body(thread, nthreads, x, gamma, beta, y, stat, stat + 4 * rows, rows, groups, part, s, eps)

    return run


@kernel(
    "group_norm_dx",
    "x:r:S[n*c*s] gamma?:r:f32[c] stat:r:f32[2*n*groups] dy:r:S[n*c*s] dx:m:S[n*c*s] "
    "n c s groups acc",
    check=_GROUP_CHECK,
)
def group_norm_dx(S):
    """As layer_norm_dx, over each group."""
    from .words.prim import div

    body = _bodies(S, True)[1]

    def run(thread, nthreads, x, gamma, stat, dy, dx, n, c, s, groups, acc):
        rows, part = n * groups, div(c, groups)
        body(thread, nthreads, x, gamma, stat, stat + 4 * rows, dy, dx, rows, groups, part, s, acc)

    return run


@kernel(
    "group_norm_dparam",
    "x:r:S[n*c*s] stat:r:f32[2*n*groups] dy:r:S[n*c*s] dgamma?:m:f32[c] dbeta?:m:f32[c] "
    "n c s groups",
    check=_GROUP_CHECK,
)
def group_norm_dparam(S):
    """dgamma += sum over images and pixels of dy * xhat, dbeta += sum of dy."""
    from .words.prim import div

    body = _bodies(S, True)[2]

    def run(thread, nthreads, x, stat, dy, dgamma, dbeta, n, c, s, groups):
        rows, part = n * groups, div(c, groups)
        body(thread, nthreads, x, stat, stat + 4 * rows, dy, dgamma, dbeta, rows, groups, part, s)

    return run
