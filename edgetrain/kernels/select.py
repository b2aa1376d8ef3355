"""Masks: comparisons and logic of two tensors, selection by a mask, and its gradient.

A mask is uint8, 1 where true; any other format counts as true where it is not zero. Dims d and the
operands' strides are in elements, 0 repeats; what is written is dense over dims d.
"""

from .registry import kernel
from .words import strides

COMPARE = ("less", "less_equal", "greater", "greater_equal", "equal", "and", "or", "xor")


def _relations():
    from .jit import inline

    @inline
    def less(a, b):
        return a < b

    @inline
    def less_equal(a, b):
        return a <= b

    @inline
    def greater(a, b):
        return a > b

    @inline
    def greater_equal(a, b):
        return a >= b

    @inline
    def equal(a, b):
        return a == b

    @inline
    def both(a, b):
        return a != 0 and b != 0

    @inline
    def either(a, b):
        return a != 0 or b != 0

    @inline
    def one(a, b):
        return (a != 0) != (b != 0)

    found = less, less_equal, greater, greater_equal, equal, both, either, one
    return dict(zip(COMPARE, found, strict=True))


def _compare(name):
    def factory(A, B):
        """y[i] = relation of a[i . as] and b[i . bs]: integers as integers, floats as float32."""
        from .words.block import first
        from .words.prim import STORAGES
        from .words.strided import count, place

        relation, lda, ldb, st = _relations()[name], A.ld, B.ld, STORAGES["u8"].st

        def run(
            thread, nthreads, a, b, y, na, nb, d0, d1, d2, d3, d4, d5,
            as0, as1, as2, as3, as4, as5, bs0, bs1, bs2, bs3, bs4, bs5,
        ):  # fmt: skip
            dims = (d0, d1, d2, d3, d4, d5)
            sa, sb = (as0, as1, as2, as3, as4, as5), (bs0, bs1, bs2, bs3, bs4, bs5)
            n = count(dims)
            for i in range(first(n, thread, nthreads), first(n, thread + 1, nthreads)):
                true = relation(lda(a, place(i, dims, sa)), ldb(b, place(i, dims, sb)))
                st(y, i, 1 if true else 0)

        return run

    return factory


def _register() -> None:
    steps = " ".join(strides.names(prefix) for prefix in ("d", "as", "bs"))
    operands = f"a:r:A[na] b:r:B[nb] y:w:u8[{strides.product('d')}] na nb {steps}"
    reach = [strides.reach("na", ("d", "as")), strides.reach("nb", ("d", "bs"))]
    check = ";".join([strides.positive("d"), *reach])
    for name in COMPARE:
        kernel(f"cmp_{name}", operands, check=check)(_compare(name))


_register()


@kernel("truth", "x:r:S[n] y:w:u8[n] n want", check="n > 0;0 <= want <= 1")
def truth(S):
    """y[i] = 1 where (x[i] != 0) is `want`, else 0; NaN is not zero."""
    from .words.block import first
    from .words.prim import STORAGES

    ld, st = S.ld, STORAGES["u8"].st

    def run(thread, nthreads, x, y, n, want):
        for i in range(first(n, thread, nthreads), first(n, thread + 1, nthreads)):
            true = 1 if ld(x, i) != 0 else 0
            st(y, i, 1 if true == want else 0)

    return run


_SELECT = " ".join(strides.names(prefix) for prefix in ("d", "ms", "as", "bs"))


@kernel(
    "where",
    f"mask:r:M[nm] a:r:A[na] b:r:B[nb] y:w:S[{strides.product('d')}] nm na nb {_SELECT}",
    check=";".join(
        [strides.positive("d"), *(strides.reach(f"n{p}", ("d", f"{p}s")) for p in "mab")]
    ),
)
def where(M, A, B, S):
    """y[i] = a[i . as] where mask[i . ms] is not zero, else b[i . bs]; threads split y."""
    from .words.block import first
    from .words.strided import count, place

    ldm, lda, ldb, st = M.ld, A.ld, B.ld, S.st

    def run(
        thread, nthreads, mask, a, b, y, nm, na, nb, d0, d1, d2, d3, d4, d5,
        ms0, ms1, ms2, ms3, ms4, ms5, as0, as1, as2, as3, as4, as5, bs0, bs1, bs2, bs3, bs4, bs5,
    ):  # fmt: skip
        dims, sm = (d0, d1, d2, d3, d4, d5), (ms0, ms1, ms2, ms3, ms4, ms5)
        sa, sb = (as0, as1, as2, as3, as4, as5), (bs0, bs1, bs2, bs3, bs4, bs5)
        n = count(dims)
        for i in range(first(n, thread, nthreads), first(n, thread + 1, nthreads)):
            if ldm(mask, place(i, dims, sm)) != 0:
                st(y, i, lda(a, place(i, dims, sa)))
            else:
                st(y, i, ldb(b, place(i, dims, sb)))

    return run


_KEEP = " ".join(strides.names(prefix) for prefix in ("d", "ms"))


@kernel(
    "mask_keep",
    f"mask:r:M[nm] dy:r:S[{strides.product('d')}] dx:m:S[{strides.product('d')}] nm {_KEEP} "
    "want acc",
    check=";".join([strides.positive("d"), strides.reach("nm", ("d", "ms")), "0 <= want <= 1"]),
)
def mask_keep(M, S):
    """dx[i] (+)= dy[i] where (mask[i . ms] != 0) is `want`, else 0; dx may be dy where acc is 0."""
    from .words.block import first
    from .words.mathf import ZERO
    from .words.strided import count, place

    ldm, ld, st = M.ld, S.ld, S.st

    def run(
        thread, nthreads, mask, dy, dx, nm, d0, d1, d2, d3, d4, d5,
        ms0, ms1, ms2, ms3, ms4, ms5, want, acc,
    ):  # fmt: skip
        dims, steps = (d0, d1, d2, d3, d4, d5), (ms0, ms1, ms2, ms3, ms4, ms5)
        n = count(dims)
        for i in range(first(n, thread, nthreads), first(n, thread + 1, nthreads)):
            true = 1 if ldm(mask, place(i, dims, steps)) != 0 else 0
            value = ld(dy, i) if true == want else ZERO
            st(dx, i, value + ld(dx, i) if acc else value)

    return run
