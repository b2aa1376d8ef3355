"""Keys of the counter-based generator: every random number is addressed by key and counter.

A kernel draws `hash32(stream(ctl, key), i)` for element i; `key` is a constant of the instruction.
"""

from .. import control
from .inlining import inline
from .number import lanewise_of, like
from .prim import hash32, ld_i64, u32

SEED, STEP, MICROBATCH = control.SEED, control.STEP, control.MICROBATCH

# (random bits: uint32) -> the upper 24
upper24 = lanewise_of(("uint32",), "uint32", lambda b, bits: b.lshr(bits, like(bits, 8)))


@inline
def stream(ctl, key):
    """uint32 key of an instruction's random numbers in this run, step and microbatch."""
    seed = ld_i64(ctl, SEED)
    mixed = hash32(hash32(u32(seed), seed >> 32), key)
    return hash32(hash32(mixed, ld_i64(ctl, STEP)), ld_i64(ctl, MICROBATCH))
