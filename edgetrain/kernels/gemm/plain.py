"""Plain matrix products with two batch axes, two contracted axes and any strides.

    c[z1,z2,i,j] (+)= alpha * sum over k2,k of a[z1,z2,i,k2,k] * b[z1,z2,k2,k,j]  (+ bias[j])

Strides are in elements; a stride of 0 repeats. The columns j of c are contiguous.
"""

import numpy as np

from ..language.inlining import inline
from ..language.number import fma
from ..language.prim import FP32, div, mod
from ..language.rng import stream
from ..registry import kernel

ZERO = np.float32(0)

_REACH = "(z1-1)*{0}z1 + (z2-1)*{0}z2 + ({1}-1)*{0}{2} + (k2-1)*{0}k2 + (k-1)*{0}k < n{0}"
CHECK = ";".join(
    (
        "min(z1, z2, m, n, k2, k) >= 1",
        "min(az1, az2, am, ak2, ak, bz1, bz2, bn, bk2, bk, cz1, cz2, cm) >= 0",
        _REACH.format("a", "m", "m"),
        _REACH.format("b", "n", "n"),
        "(z1-1)*cz1 + (z2-1)*cz2 + (m-1)*cm + n - 1 < nc",
        # elements of c are distinct, and a sum's terms are not all the same
        "z1*z2*m*n <= nc;k2*k <= max(na, nb)",
    )
)
WORK = "z1*z2*m*n*k2*k"


def operands(scratch: str) -> str:
    """Declaration of every variant of gemm, with its bytes of scratch."""
    return (
        f"a:r:A[na] b:r:B[nb] c:m:C[nc] bias?:r:f32[n] ctl?:r:i64[64] ws:t[{scratch}] "
        "z1 z2 m n k2 k az1 az2 am ak2 ak bz1 bz2 bn bk2 bk cz1 cz2 cm na nb nc "
        "alpha:f acc=flag sr=flag key=compared"
    )


def element_store(C):
    """Inline function that stores one element of c, added if acc, rounded stochastically if sr."""
    ld, st, sr_store = C.ld, C.st, C.sr

    @inline
    def put(c, offset, value, acc, sr, random_key):
        if acc != 0:
            value = ld(c, offset) + value
        if sr != 0:
            sr_store(c, offset, value, random_key)
        else:
            st(c, offset, value)

    return put


@kernel("gemm", operands("0"), check=CHECK, work=WORK)
def gemm(A, B, C):
    """Handles any shape. One thread computes an element: a chain of fma over k, and the chains of
    k2 are summed.

    a, b, c may have different storages; their extents are na, nb, nc. bias: float32 [n], added
    after alpha. acc 1: added to c, else c is overwritten. sr 1: stored with stochastic rounding,
    drawn from (ctl, key) and the element's index. No workspace.
    """
    put = element_store(C)
    lda, ldb, ld32 = A.ld, B.ld, FP32.ld

    @inline
    def dot(args, a0, b0):
        total = ZERO
        for q in range(args.k2):
            a1, b1, chain = a0 + q * args.ak2, b0 + q * args.bk2, ZERO
            for p in range(args.k):
                chain = fma(lda(args.a, a1 + p * args.ak), ldb(args.b, b1 + p * args.bk), chain)
            total += chain
        return total

    def run(thread, nthreads, args):
        random_key = stream(args.ctl, args.key) if args.sr != 0 and args.ctl != 0 else np.uint32(0)
        rows = args.z1 * args.z2 * args.m
        for row in range(div(rows * thread, nthreads), div(rows * (thread + 1), nthreads)):
            z, i = div(row, args.m), mod(row, args.m)
            p1, p2 = div(z, args.z2), mod(z, args.z2)
            a0 = p1 * args.az1 + p2 * args.az2 + i * args.am
            b0 = p1 * args.bz1 + p2 * args.bz2
            c0 = p1 * args.cz1 + p2 * args.cz2 + i * args.cm
            for j in range(args.n):
                value = args.alpha * dot(args, a0, b0 + j * args.bn)
                if args.bias != 0:
                    value += ld32(args.bias, j)
                put(args.c, c0 + j, value, args.acc, args.sr, random_key)

    return run
