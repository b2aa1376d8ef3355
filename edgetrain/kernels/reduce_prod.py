"""The gradient of a product over any dimensions."""

from .registry import kernel
from .words import strides

_STEPS = " ".join(strides.names(prefix) for prefix in ("k", "r", "ks", "rs"))
_Y = strides.product("k")
_CHECK = ";".join(
    [
        strides.positive("k"),
        strides.positive("r"),
        strides.reach("nx", ("k", "ks"), ("r", "rs")),
        strides.distinct("nx", "k", "r"),
    ]
)


@kernel(
    "reduce_prod_bwd",
    f"x:r:S[nx] y:r:S[{_Y}] dy:r:S[{_Y}] dx:m:S[nx] {_STEPS} nx acc",
    check=_CHECK,
)
def reduce_prod_bwd(S):
    """dx[k, r] (+)= dy[k] * product over the other r of x[k, r]; x and dx have the same strides.

    Exact at zeros: a single one gets the product of the rest. y is not read. The product is
    float64 in the order of r; threads split k.
    """
    from .words.prim import div
    from .words.strided import count, place

    ld, st = S.ld, S.st

    def run(
        thread, nthreads, x, y, dy, dx, k0, k1, k2, k3, k4, k5, r0, r1, r2, r3, r4, r5,
        ks0, ks1, ks2, ks3, ks4, ks5, rs0, rs1, rs2, rs3, rs4, rs5, nx, acc,
    ):  # fmt: skip
        kept, ks = (k0, k1, k2, k3, k4, k5), (ks0, ks1, ks2, ks3, ks4, ks5)
        reduced, rs = (r0, r1, r2, r3, r4, r5), (rs0, rs1, rs2, rs3, rs4, rs5)
        nk, nr = count(kept), count(reduced)
        for k in range(div(nk * thread, nthreads), div(nk * (thread + 1), nthreads)):
            at, product, zeros = place(k, kept, ks), 1.0, 0
            for r in range(nr):
                v = float(ld(x, at + place(r, reduced, rs)))
                if v == 0.0:
                    zeros += 1
                else:
                    product *= v
            for r in range(nr):
                i = at + place(r, reduced, rs)
                v = float(ld(x, i))
                if v == 0.0:
                    share = product if zeros == 1 else 0.0
                else:
                    share = product / v if zeros == 0 else 0.0
                value = float(ld(dy, k)) * share
                st(dx, i, value + float(ld(dx, i)) if acc else value)

    return run
