"""Functions of two operands with broadcasting, y = f(a, b), and the gradients of a and of b.

Shapes have 6 axes, padded with 1 on the left. An operand is read with a step per axis, in elements;
a step of 0 repeats it along that axis. The gradient of a repeated operand is summed over the
repetitions, so a gradient kernel has two groups of axes: k, which the operand has, and r, along
which it was repeated.
"""

from ..registry import kernel
from .pair_formulas import PAIRS, reads_of

# gradient (a function of two numbers and dy in language/pairs.py) -> operands that it reads
GRADIENTS = {
    "id": "",
    "neg": "",
    "mul_a": "b",
    "mul_b": "a",
    "div_a": "b",
    "div_b": "ab",
    "pow_a": "ab",
    "pow_b": "ab",
    "min_a": "ab",
    "min_b": "ab",
    "fmod_b": "ab",
    "mod_b": "ab",
} | {name: reads_of(vjp) for row in PAIRS.values() for name, vjp in row.vjps.items()}
# function or gradient of an added row -> revision of its kernel
_REVISIONS = {name: row.revision for row in PAIRS.values() for name in (row.name, *row.rules)}
ROW = 32  # elements in a row that are worth a loop of their own
TOGETHER = 4  # rows of terms that are added at once
BINARY = ("add", "sub", "mul", "div", "pow", "min", "max", "fmod", "mod", *PAIRS)


def _binary(name):
    def factory(A, B, S):
        """y[i] = f(a[i . sa], b[i . sb]), i an index of 6 axes of sizes d; y is contiguous.

        Computed in float32. Elements are read in place if, along the last axis, one operand is
        contiguous and the other is too or repeats an element. Otherwise they are copied to buffers
        of 256 first. Threads split y. y may be the same array as a contiguous a or b.
        """
        from ..language.block import BLOCK, first, get, new
        from ..language.elementwise_access import loads_apart, stores_apart
        from ..language.inlining import inline
        from ..language.pairs import VALUE
        from ..language.prim import mod
        from ..language.strided import count, filler, place

        value, load_a, load_b, store = VALUE[name], *map(loads_apart, (A, B)), stores_apart(S)
        fill_a, fill_b = filler(A.ld), filler(B.ld)

        @inline
        def compute_in_place(args, i, m):
            """Elements i to i + m - 1 of y, of one row."""
            a, b = place(i, args.d, args.sa), place(i, args.d, args.sb)
            if args.sb[5] == 0:
                right = load_b(args.b, b)
                for j in range(m):
                    store(args.y, i + j, value(load_a(args.a, a + j), right))
            elif args.sa[5] == 0:
                left = load_a(args.a, a)
                for j in range(m):
                    store(args.y, i + j, value(left, load_b(args.b, b + j)))
            else:
                for j in range(m):
                    store(args.y, i + j, value(load_a(args.a, a + j), load_b(args.b, b + j)))

        def run(thread, nthreads, args):
            left, right = new(), new()
            n, width = count(args.d), args.d[5]
            steps = min(args.sa[5], args.sb[5]), max(args.sa[5], args.sb[5])
            rows = width >= ROW and steps[0] >= 0 and steps[1] == 1
            i, stop = first(n, thread, nthreads), first(n, thread + 1, nthreads)
            while i < stop:
                if rows:
                    m = min(stop - i, width - mod(i, width))
                    compute_in_place(args, i, m)
                else:
                    m = min(stop - i, BLOCK)
                    fill_a(left, args.a, 0, i, m, args.d, args.sa)
                    fill_b(right, args.b, 0, i, m, args.d, args.sb)
                    for j in range(m):
                        store(args.y, i + j, value(get(left, j), get(right, j)))
                i += m

        return run

    return factory


def _gradient(name):
    def factory(A, B, S, G):
        """out[k] (+)= sum over r of g(a, b, dy); out is contiguous over the axes k.

        Element (k, r) of dy is at k . ky + r . ry, and likewise for a and b, which are absent if g
        does not read them. Sums are float64, in the order of language/reduction.py. sr 1: `out` is
        rounded stochastically, with random bits by element.
        """
        from ..language.block import new, new_wide
        from ..language.mathf import ONE
        from ..language.prim import u32
        from ..language.reduction import SUM, Result, Walk, reduction
        from ..language.rng import stream
        from ..language.terms import packer, term

        reads = GRADIENTS[name]
        pack, operands = packer(reads), len(reads) + 1
        reduce = reduction(term(name, reads, A, B, S), SUM, G, operands)

        def run(thread, nthreads, args):
            random = stream(args.ctl, args.key) if args.sr and args.ctl != 0 else u32(0)
            buffers, addresses = (new(), new(), new()), pack(args.a, args.b, args.dy)
            kept = Walk(args.k, pack(args.ka, args.kb, args.ky))
            reduced = Walk(args.r, pack(args.ra, args.rb, args.ry))
            to = Result(args.out, ONE, args.acc, args.sr and args.ctl != 0, random)
            reduce(thread, nthreads, buffers, new_wide(), addresses, kept, reduced, to)

        return run

    return factory


def _columns(A, B, S, G):
    """Variant of `bgrad_id` for sums of rows: out[j] (+)= sum over r of dy[r][j], contiguous along
    j.

    Vectors run along j, so each output adds its terms in the order of r, in float64.
    """
    import numpy as np

    from ..language.block import BLOCK, new, new_wide
    from ..language.elementwise_access import get_wide, loads_apart, put_wide
    from ..language.inlining import inline
    from ..language.lanes import LANES, reset
    from ..language.mathf import ONE
    from ..language.prim import div, u32
    from ..language.reduction import Result, _finisher
    from ..language.rng import stream
    from ..language.strided import count, place

    ld, finish = loads_apart(S), _finisher(G)

    @inline
    def add_four(args, q, t, m, wide):
        a, b = q + place(t, args.r, args.ry), q + place(t + 1, args.r, args.ry)
        c, d = q + place(t + 2, args.r, args.ry), q + place(t + 3, args.r, args.ry)
        for j in range(m):
            total = get_wide(wide, j) + np.float64(ld(args.dy, a + j))
            total = total + np.float64(ld(args.dy, b + j))
            total = total + np.float64(ld(args.dy, c + j))
            put_wide(wide, j, total + np.float64(ld(args.dy, d + j)))

    @inline
    def add(args, q, t, m, wide):
        a = q + place(t, args.r, args.ry)
        for j in range(m):
            put_wide(wide, j, get_wide(wide, j) + np.float64(ld(args.dy, a + j)))

    def run(thread, nthreads, args):
        random = stream(args.ctl, args.key) if args.sr and args.ctl != 0 else u32(0)
        to = Result(args.out, ONE, args.acc, args.sr and args.ctl != 0, random)
        wide, values, nk, nr = new_wide(), new(), args.k[5], count(args.r)
        together = div(nr, TOGETHER) * TOGETHER
        hi = div(nk * (thread + 1), nthreads)
        for q in range(div(nk * thread, nthreads), hi, BLOCK):
            m = min(BLOCK, hi - q)
            for j in range(0, m, LANES):
                reset(wide, j, 0.0)
            for t in range(0, together, TOGETHER):
                add_four(args, q, t, m, wide)
            for t in range(together, nr):
                add(args, q, t, m, wide)
            finish(to, q, m, wide, values)

    return run


def _gradient_operands(reads: str) -> str:
    a, b = ("" if v in reads else "?" for v in "ab")
    return (
        f"a{a}:r:A[na] b{b}:r:B[nb] dy:r:S[ndy] out:m:G[nout] ctl?:r:i64[64] key=compared "
        "acc=flag sr=flag k[6] r[6] ky[6]=signed ka[6]=signed kb[6]=signed ry[6]=signed "
        "ra[6]=signed rb[6]=signed na nb ndy nout"
    )


def _gradient_check(reads: str) -> str:
    checks = ["least(k) > 0;least(r) > 0;nout == prod(k);prod(k)*prod(r) <= ndy"]
    checks.append("covers(ndy, 0, k, ky, r, ry)")
    checks += [f"covers(n{v}, 0, k, k{v}, r, r{v})" for v in reads]
    return ";".join(checks)


def _register() -> None:
    operands = "a:r:A[na] b:r:B[nb] y:w:S[prod(d)] na nb d[6] sa[6]=signed sb[6]=signed"
    check = "least(d) > 0;covers(na, 0, d, sa);covers(nb, 0, d, sb)"
    for name in BINARY:
        facts = {"check": check, "revision": str(_REVISIONS.get(name, 1))}
        kernel(f"bin_{name}", operands, **facts)(_binary(name))
    for name, reads in GRADIENTS.items():
        facts = {"check": _gradient_check(reads), "revision": str(_REVISIONS.get(name, 1))}
        kernel(f"bgrad_{name}", _gradient_operands(reads), **facts)(_gradient(name))
    when = "lanes > 1 and k5 == prod(k) and k5 >= 8 and ky5 == 1"
    declaration = {"variant": "columns", "when": when, "check": _gradient_check("")}
    kernel("bgrad_id", _gradient_operands(""), **declaration)(_columns)


_register()
