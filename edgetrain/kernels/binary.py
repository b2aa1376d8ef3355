"""y = f(a, b) with broadcasting, and the gradient of each operand summed over what it broadcast."""

from .registry import kernel
from .words import strides

# name: (function of scalar pairs in words/pairs.py; whether it reads a, b)
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
    "max_a": "ab",
    "max_b": "ab",
    "prelu_a": "ab",
    "prelu_b": "a",
    "fmod_b": "ab",
    "mod_b": "ab",
}
BINARY = ("add", "sub", "mul", "div", "pow", "min", "max", "prelu", "fmod", "mod")


def _binary(name):
    def factory(A, B, S):
        """y[i] = f(a[i . as], b[i . bs]) over dims d; y is dense, strides in elements, 0 repeats.

        Computed in float32 in blocks of 256; threads split y. y may be a or b where that one is
        dense too.
        """
        from .words.block import BLOCK, first, get, new, put
        from .words.pairs import VALUE
        from .words.strided import count, filler

        value, store = VALUE[name], S.st
        fill_a, fill_b = filler(A.ld), filler(B.ld)

        def run(
            thread, nthreads, a, b, y, na, nb, d0, d1, d2, d3, d4, d5,
            as0, as1, as2, as3, as4, as5, bs0, bs1, bs2, bs3, bs4, bs5,
        ):  # fmt: skip
            dims = (d0, d1, d2, d3, d4, d5)
            left, right = new(), new()
            n = count(dims)
            stop = first(n, thread + 1, nthreads)
            for i in range(first(n, thread, nthreads), stop, BLOCK):
                m = min(stop - i, BLOCK)
                fill_a(left, a, 0, i, m, dims, (as0, as1, as2, as3, as4, as5))
                fill_b(right, b, 0, i, m, dims, (bs0, bs1, bs2, bs3, bs4, bs5))
                for j in range(m):
                    put(left, j, value(get(left, j), get(right, j)))
                for j in range(m):
                    store(y, i + j, get(left, j))

        return run

    return factory


def _gradient(name):
    def factory(A, B, S, G):
        """out[k] (+)= sum over r of g(a, b, dy); out is dense over dims k.

        Element (k, r) of dy lies at k . ky + r . ry, likewise a and b (absent where g does not
        read them). Sums are float64, in the order of words/reduction.py. sr 1: `out` is stored with
        stochastic rounding, numbered by its elements.
        """
        from .words.block import new, new_wide
        from .words.mathf import ONE
        from .words.prim import u32
        from .words.reduction import SUM, reduction
        from .words.rng import stream
        from .words.terms import packer, term

        reads = GRADIENTS[name]
        pack, operands = packer(reads), len(reads) + 1
        reduce = reduction(term(name, reads, A, B, S), SUM, G, operands)

        def run(
            thread, nthreads, a, b, dy, out, ctl, key, acc, sr,
            k0, k1, k2, k3, k4, k5, r0, r1, r2, r3, r4, r5,
            ky0, ky1, ky2, ky3, ky4, ky5, ka0, ka1, ka2, ka3, ka4, ka5,
            kb0, kb1, kb2, kb3, kb4, kb5, ry0, ry1, ry2, ry3, ry4, ry5,
            ra0, ra1, ra2, ra3, ra4, ra5, rb0, rb1, rb2, rb3, rb4, rb5,
            na, nb, ndy, nout,
        ):  # fmt: skip
            kept, reduced = (k0, k1, k2, k3, k4, k5), (r0, r1, r2, r3, r4, r5)
            ka, ra = (ka0, ka1, ka2, ka3, ka4, ka5), (ra0, ra1, ra2, ra3, ra4, ra5)
            kb, rb = (kb0, kb1, kb2, kb3, kb4, kb5), (rb0, rb1, rb2, rb3, rb4, rb5)
            ky, ry = (ky0, ky1, ky2, ky3, ky4, ky5), (ry0, ry1, ry2, ry3, ry4, ry5)
            random = stream(ctl, key) if sr and ctl != 0 else u32(0)
            reduce(
                thread, nthreads, pack(new(), new(), new()), new_wide(), pack(a, b, dy), out,
                kept, reduced, pack(ka, kb, ky), pack(ra, rb, ry), ONE, acc,
                sr and ctl != 0, random,
            )  # fmt: skip

        return run

    return factory


def _gradient_operands(reads: str) -> str:
    a, b = ("" if v in reads else "?" for v in "ab")
    steps = " ".join(strides.names(p) for p in ("k", "r", "ky", "ka", "kb", "ry", "ra", "rb"))
    return (
        f"a{a}:r:A[na] b{b}:r:B[nb] dy:r:S[ndy] out:m:G[nout] ctl?:r:i64[64] key acc sr "
        f"{steps} na nb ndy nout"
    )


def _gradient_check(reads: str) -> str:
    checks = [strides.positive("k"), strides.positive("r"), f"nout == {strides.product('k')}"]
    checks.append(strides.distinct("ndy", "k", "r"))
    for operand in ("y", *reads):
        n = "ndy" if operand == "y" else f"n{operand}"
        checks.append(strides.reach(n, ("k", f"k{operand}"), ("r", f"r{operand}")))
    return ";".join(checks)


def _register() -> None:
    steps = f"{strides.names('d')} {strides.names('as')} {strides.names('bs')}"
    operands = f"a:r:A[na] b:r:B[nb] y:w:S[{strides.product('d')}] na nb {steps}"
    reach = [strides.reach("na", ("d", "as")), strides.reach("nb", ("d", "bs"))]
    check = ";".join([strides.positive("d"), *reach])
    for name in BINARY:
        kernel(f"bin_{name}", operands, check=check)(_binary(name))
    for name, reads in GRADIENTS.items():
        kernel(f"bgrad_{name}", _gradient_operands(reads), check=_gradient_check(reads))(
            _gradient(name)
        )


_register()
