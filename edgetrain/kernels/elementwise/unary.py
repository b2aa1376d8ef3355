"""Elementwise functions of one tensor and their gradients; relu with a bit mask.

All in float32 registers, one pass, threads split the elements. The output may be one of the inputs.
"""

from ..registry import kernel
from .formulas import ROWS, Row
from .intrinsics import compiled


def _unary(row: Row):
    def factory(S):
        """y[i] = f(x[i]); x, y: n elements; a, b: the function's parameters."""
        from ..language.block import first
        from ..language.elementwise_access import loads_apart, stores_apart

        value, ld, st = compiled(row.value), loads_apart(S), stores_apart(S)

        def run(thread, nthreads, args):
            for i in range(first(args.n, thread, nthreads), first(args.n, thread + 1, nthreads)):
                st(args.y, i, value(ld(args.x, i), args.a, args.b))

        return run

    return factory


def _unary_bwd(row: Row):
    def factory(S):
        """dx[i] (+)= f'(s[i]) * dy[i]; s is x or y, depending on the row; acc 1 adds."""
        from ..language.block import first, rounding
        from ..language.elementwise_access import loads_apart, stores_apart

        vjp, stored = compiled(row.vjp), rounding(S)
        ld, st = loads_apart(S), stores_apart(S)
        of_output = row.saved == "y"

        def run(thread, nthreads, args):
            a, b = args.a, args.b
            if of_output:
                a, b = stored(a), stored(b)
            lo, hi = first(args.n, thread, nthreads), first(args.n, thread + 1, nthreads)
            if args.acc:
                for i in range(lo, hi):
                    st(args.dx, i, vjp(ld(args.s, i), ld(args.dy, i), a, b) + ld(args.dx, i))
            else:
                for i in range(lo, hi):
                    st(args.dx, i, vjp(ld(args.s, i), ld(args.dy, i), a, b))

        return run

    return factory


for _row in ROWS.values():
    kernel(f"un_{_row.name}", "x:r:S[n] y:w:S[n] a:f b:f n", check="n > 0")(_unary(_row))
    if _row.vjp is not None:
        _operands = "s:r:S[n] dy:r:S[n] dx:m:S[n] a:f b:f n acc=flag"
        kernel(f"un_{_row.name}_bwd", _operands, check="n > 0", revision=str(_row.revision))(
            _unary_bwd(_row)
        )


@kernel("relu_mask", "x:r:S[n] y:w:S[n] mask:w:u8[(n+7)//8] n", check="n > 0")
def relu_mask(S):
    """y = relu(x); bit i % 8 of mask[i // 8] is 1 if x[i] is positive or NaN."""
    from ..language.block import first
    from ..language.mask import relu64, store_bits
    from ..language.mathf import ZERO

    ld, st, vector = S.ld, S.st, relu64(S)

    def run(thread, nthreads, args):
        stop = first(args.n, thread + 1, nthreads)
        i = first(args.n, thread, nthreads)
        while i + 64 <= stop:
            vector(args.x, args.y, args.mask, i)
            i += 64
        while i < stop:
            bits = 0
            for j in range(min(8, stop - i)):
                value = ld(args.x, i + j)
                positive = not value <= ZERO
                st(args.y, i + j, value if positive else ZERO)
                bits |= positive << j
            store_bits(args.mask, i >> 3, bits)
            i += 8

    return run


@kernel("relu_mask_bwd", "mask:r:u8[(n+7)//8] dy:r:S[n] dx:m:S[n] n acc=flag", check="n > 0")
def relu_mask_bwd(S):
    """dx (+)= dy if the mask's bit is 1, else 0."""
    from ..language.block import first
    from ..language.mask import load_bits, masked64
    from ..language.mathf import ZERO

    ld, st, keep, add = S.ld, S.st, masked64(S, False), masked64(S, True)

    def run(thread, nthreads, args):
        stop = first(args.n, thread + 1, nthreads)
        i = first(args.n, thread, nthreads)
        while i + 64 <= stop:
            if args.acc:
                add(args.mask, args.dy, args.dx, i)
            else:
                keep(args.mask, args.dy, args.dx, i)
            i += 64
        while i < stop:
            value = ld(args.dy, i) if (load_bits(args.mask, i >> 3) >> (i & 7)) & 1 else ZERO
            st(args.dx, i, value + ld(args.dx, i) if args.acc else value)
            i += 1

    return run
