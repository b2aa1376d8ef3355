"""Declarations shared by the attention kernels: sizes, strides, masks, scratch.

q [z1, z2, m, d], k [z1, z2 / group, n, d], v [z1, z2 / group, n, e], y [z1, z2, m, e]: each has
strides along batch, head and row, in elements; a row is contiguous. Gradients have the strides of
their values. A score is scale * q . k, plus bias, then masked, in this order:

    mask (u8, broadcast by strides): if it is not `keep`, `fill` is added (how 1), replaces the
      score (how 2), or replaces it but lets gradients pass, as a sum that rounds to it (how 3)
    a band: query i sees key j if i - before <= j <= i + after; outside, `low` is added, replaces
      the score, or replaces it as a sum (band 1, 2, 3); applied before the mask if `first` is 1

A query that sees no key, so that its weights would be NaN, gets zeros if `guard` is 1. Dropout with
probability p drops the weights that `dropout` of the whole matrix with this key drops. Blocks have
ROWS queries and COLUMNS keys whatever the plan, starting at query 0 and key 0. Blocks outside the
band are skipped, unless a query of the block has no score above half of `low`: then its masked keys
would determine its weights.
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
        # No operand is read before its address: strides are not negative.
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
    """Condition on a kernel's storages: activations and gradients share one; a bias of scores is
    fp32 or the same."""
    first, others = variables[0], variables[1:]
    alike = "".join(f" and {first} == {other}" for other in others)
    return f"(B == {FP32.name!r} or B == {first}){alike}"


# Bytes of scratch: tiles of scores and of sums, panels of the factors, values of each query.
_D, _E = "16*((d + 15)//16)", "16*((e + 15)//16)"
_M = f"min({ROWS}, 16*((m + 15)//16))"
FORWARD = f"4*({_M}*({COLUMNS} + d + {_E} + 2) + {COLUMNS}*(d + {_E}))"
QUERIES = f"4*({_M}*(2*{COLUMNS} + d + e + {_D}) + {COLUMNS}*(d + e + {_D}))"
KEYS = f"4*({_M}*(2*{COLUMNS} + d + e + {_D} + {_E}) + {COLUMNS}*(d + e + {_D} + {_E}))"
