"""Masks: comparisons and logic of two tensors, selection by a mask, and its gradient.

A mask is uint8, 1 if true; elements of any other format are true if they are not zero. Strides of
the operands are in elements, 0 repeats; the output is dense over dims d.
"""

from ..registry import kernel, of_numbers

COMPARE = ("less", "less_equal", "greater", "greater_equal", "equal", "and", "or", "xor")


def _relations():
    from ..language.inlining import inline

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

    result = less, less_equal, greater, greater_equal, equal, both, either, one
    return dict(zip(COMPARE, result, strict=True))


def _compare(name):
    def factory(A, B):
        """y[i] = relation of a[i . sa] and b[i . sb], as integers or as float32."""
        from ..language.block import first
        from ..language.prim import STORAGES
        from ..language.strided import count, place

        relation, lda, ldb, st = _relations()[name], A.ld, B.ld, STORAGES["u8"].st

        def run(thread, nthreads, args):
            n = count(args.d)
            for i in range(first(n, thread, nthreads), first(n, thread + 1, nthreads)):
                at_a = place(i, args.d, args.sa)
                at_b = place(i, args.d, args.sb)
                true = relation(lda(args.a, at_a), ldb(args.b, at_b))
                st(args.y, i, 1 if true else 0)

        return run

    return factory


def _register() -> None:
    operands = "a:r:A[na] b:r:B[nb] y:w:u8[prod(d)] na nb d[6] sa[6]=signed sb[6]=signed"
    check = "least(d) > 0;covers(na, 0, d, sa);covers(nb, 0, d, sb)"
    one_type = f"{of_numbers('A')} == {of_numbers('B')}"  # as ONNX has it
    for name in COMPARE:
        kernel(f"cmp_{name}", operands, check=check, storages=one_type)(_compare(name))


_register()


@kernel("truth", "x:r:S[n] y:w:u8[n] n want=flag", check="n > 0")
def truth(S):
    """y[i] = 1 if (x[i] != 0) is `want`, else 0; NaN is not zero."""
    from ..language.block import first
    from ..language.prim import STORAGES

    ld, st = S.ld, STORAGES["u8"].st

    def run(thread, nthreads, args):
        for i in range(first(args.n, thread, nthreads), first(args.n, thread + 1, nthreads)):
            true = 1 if ld(args.x, i) != 0 else 0
            st(args.y, i, 1 if true == args.want else 0)

    return run


@kernel(
    "where",
    "mask:r:M[nm] a:r:A[na] b:r:B[nb] y:w:S[prod(d)] nm na nb d[6] "
    "sm[6]=signed sa[6]=signed sb[6]=signed",
    check="least(d) > 0;covers(nm, 0, d, sm);covers(na, 0, d, sa);covers(nb, 0, d, sb)",
    storages=f"{of_numbers('S')} or S == A",
)
def where(M, A, B, S):
    """y[i] = a[i . sa] if mask[i . sm] is not zero, else b[i . sb]; threads split y."""
    from ..language.block import first
    from ..language.strided import count, place

    ldm, lda, ldb, st = M.ld, A.ld, B.ld, S.st

    def run(thread, nthreads, args):
        n = count(args.d)
        for i in range(first(n, thread, nthreads), first(n, thread + 1, nthreads)):
            if ldm(args.mask, place(i, args.d, args.sm)) != 0:
                st(args.y, i, lda(args.a, place(i, args.d, args.sa)))
            else:
                st(args.y, i, ldb(args.b, place(i, args.d, args.sb)))

    return run


@kernel(
    "mask_keep",
    "mask:r:M[nm] dy:r:S[prod(d)] dx:m:S[prod(d)] nm d[6] sm[6]=signed want=flag acc=flag",
    check="least(d) > 0;covers(nm, 0, d, sm)",
)
def mask_keep(M, S):
    """dx[i] (+)= dy[i] if (mask[i . sm] != 0) is `want`, else 0; dx may be dy if acc is 0."""
    from ..language.block import first
    from ..language.mathf import ZERO
    from ..language.strided import count, place

    ldm, ld, st = M.ld, S.ld, S.st

    def run(thread, nthreads, args):
        n = count(args.d)
        for i in range(first(n, thread, nthreads), first(n, thread + 1, nthreads)):
            true = 1 if ldm(args.mask, place(i, args.d, args.sm)) != 0 else 0
            value = ld(args.dy, i) if true == args.want else ZERO
            st(args.dx, i, value + ld(args.dx, i) if args.acc else value)

    return run
