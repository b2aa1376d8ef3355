"""What the kernels of attention share: sizes, strides, masks, scratch.

q [z1, z2, m, d], k [z1, z2 / group, n, d], v [z1, z2 / group, n, e], y [z1, z2, m, e]: each has
strides along batch, head and row, in elements; numbers of a row are neighbours. Gradients lie as
their values do. A score is scale * q . k, plus bias, then masked, in this order:

    mask (u8, broadcast by strides): if it is not `keep`, `fill` is added (how 1), is the score
      (how 2), or stands for a sum in which nothing else is left (how 3: gradients pass)
    a band: key j counts for query i where i - before <= j <= i + after; beyond, `low` is added,
      is the score or stands for a sum (band 1, 2, 3); before the mask where `first` is 1

A query whose weights are no numbers (it has no key) gets zeros where `guard` is 1.
Weights are dropped with probability p as `dropout` of the whole matrix with this key drops them.
Blocks of ROWS queries and COLUMNS keys have these sizes whatever the plan, the first of each begins
at 0. Blocks beyond the band are left out, unless a query of the block has no score above half of
`low`: its weights would be those of its masked keys.
"""

from ...formats import FP32

ROWS, COLUMNS = 64, 64  # queries and keys of a block
SCALARS = (
    "z1 z2 group m n d e qz qh qr kz kh kr vz vh vr yz yh yr mz mh mr mc bz bh br bc "
    "nq nk nv ny nmask nbias guard=flag keep=flag how=0..3 band=0..3 first=flag before=reach "
    "after=reach scale:f fill:f low:f p:f key=compared"
)
INPUTS = "q:r:Q[nq] k:r:K[nk] v:r:V[nv] mask?:r:u8[nmask] bias?:r:B[nbias] ctl:r:i64[64]"
_REACH = "(z1-1)*{0}z + ({1}-1)*{0}h + ({2}-1)*{0}r + {3} - 1 < n{0}"
_READ = "(z1-1)*{0}z + (z2-1)*{0}h + (m-1)*{0}r + (n-1)*{0}c < n{1}"
CHECK = ";".join(
    (
        "min(z1, z2, group, m, n, d, e) >= 1;z2 % group == 0",
        "min(how, band) >= 0;max(how, band) <= 3",
        # No operand begins before its place: steps lead forward.
        "min(qz, qh, qr, kz, kh, kr, vz, vh, vr, yz, yh, yr, mz, mh, mr, mc, bz, bh, br, bc) >= 0",
        _REACH.format("q", "z2", "m", "d"),
        _REACH.format("k", "z2//group", "n", "d"),
        _REACH.format("v", "z2//group", "n", "e"),
        _REACH.format("y", "z2", "m", "e"),
        _READ.format("m", "mask"),
        _READ.format("b", "bias"),
        "z1*z2*m*d <= nq;z1*z2*n*d <= nk*group;z1*z2*n*e <= nv*group;z1*z2*m*e <= ny",
    )
)
WORK = "z1*z2*m*n*(d + e)"


def meeting(variables: str) -> str:
    """Storages of a kernel: these of activations and gradients are one; a bias of scores is in fp32
    or in the same."""
    first, others = variables[0], variables[1:]
    alike = "".join(f" and {first} == {other}" for other in others)
    return f"(B == {FP32.name!r} or B == {first}){alike}"


# Bytes of scratch: tiles of scores and of sums, panels of the factors, numbers of queries.
_D, _E = "16*((d + 15)//16)", "16*((e + 15)//16)"
_M = f"min({ROWS}, 16*((m + 15)//16))"
FORWARD = f"4*({_M}*({COLUMNS} + d + {_E} + 2) + {COLUMNS}*(d + {_E}))"
QUERIES = f"4*({_M}*(2*{COLUMNS} + d + e + {_D}) + {COLUMNS}*(d + e + {_D}))"
KEYS = f"4*({_M}*(2*{COLUMNS} + d + e + {_D} + {_E}) + {COLUMNS}*(d + e + {_D} + {_E}))"
