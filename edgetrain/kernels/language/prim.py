"""The words kernels are written in: typed loads and stores, fp16, hashes, fma, division.

Addresses are int64; indices count elements. Everything lowers to target-independent LLVM, so the
same text serves every processor. A `Storage` says how one element lies in memory and is computed
with in float32 (DESIGN contract 3) or int64.
"""

from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .number import F16, F32, F64, I8, I16, I32, I64, lanewise, lanewise_of, like, of

POINTER = ir.PointerType()


def element(builder, address, index, nbytes):
    """Pointer to element `index`; a gep on the invariant base keeps loops analysable."""
    base = builder.inttoptr(address, POINTER)
    if nbytes != 1:
        index = builder.mul(index, ir.Constant(I64, nbytes))
    return builder.gep(base, [index], source_etype=I8)


def array_of(kind: ir.Type, count: int) -> ir.ArrayType:
    """The LLVM type of `count` numbers in memory."""
    return ir.ArrayType(kind, count)


def _load(llvm_type, nbytes, numba_type, widen):
    @intrinsic
    def load(typingctx, address, index):
        def codegen(context, builder, signature, args):
            pointer = element(builder, args[0], args[1], nbytes)
            return widen(builder, builder.load(pointer, typ=llvm_type, align=nbytes))

        return numba_type(types.int64, types.int64), codegen

    return load


def _store(nbytes, numba_type, narrow):
    @intrinsic
    def store(typingctx, address, index, value):
        def codegen(context, builder, signature, args):
            pointer = element(builder, args[0], args[1], nbytes)
            builder.store(narrow(builder, args[2]), pointer, align=nbytes)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, numba_type), codegen

    return store


GOLDEN = 0x9E3779B9


def mixed(builder, x):
    """The finaliser of `hash32`, of numbers or vectors."""
    for shift, factor in ((16, 0x21F0AAAD), (15, 0x735A2D97)):
        x = builder.mul(builder.xor(x, builder.lshr(x, like(x, shift))), like(x, factor))
    return builder.xor(x, builder.lshr(x, like(x, 15)))


@intrinsic
def hash32(typingctx, key, index):
    """32 random bits for (key, index): counter-based, one finaliser of murmur's kind."""

    def codegen(context, builder, signature, args):
        count = builder.mul(builder.trunc(args[1], I32), I32(GOLDEN))
        return mixed(builder, builder.add(count, args[0]))

    return types.uint32(types.uint32, types.int64), codegen


def rounded(builder, value, random):
    """Bits of fp16 of float32, rounded up with probability equal to the dropped fraction.

    Values at or above 2^16 in magnitude become infinity, NaN stays NaN (DESIGN contract 3).

    Args:
      value, random: numbers, or vectors of as many lanes.
    """
    b, bits = builder, builder.bitcast(value, random.type)

    def c(number):
        return like(bits, number)

    sign = b.and_(b.lshr(bits, c(16)), c(0x8000))
    size = b.and_(bits, c(0x7FFFFFFF))
    normal = b.add(size, b.and_(random, c(0x1FFF)))
    normal = b.select(b.icmp_unsigned("<", normal, c(0x47800000)), normal, c(0x47800000))
    normal = b.sub(b.lshr(normal, c(13)), c(112 << 10))  # of 2^16 and more that is infinity
    normal = b.select(b.icmp_unsigned("<=", size, c(0x7F800000)), normal, c(0x7E00))
    tiny = b.icmp_unsigned("<", size, c(0x38800000))
    small = b.bitcast(b.select(tiny, size, c(0x38800000)), value.type)
    steps = b.fptosi(b.fmul(small, like(small, 2.0**44)), bits.type)
    subnormal = b.lshr(b.add(steps, b.lshr(random, c(12))), c(20))
    return b.trunc(b.or_(b.select(tiny, subnormal, normal), sign), of(value, I16))


# (value, random), numbers or vectors -> bits of fp16, as `rounded`
round_f16 = lanewise_of(("float32", "uint32"), "uint16", rounded)
mix = lanewise(1, mixed)


@intrinsic
def _store_u16(typingctx, address, index, value):
    def codegen(context, builder, signature, args):
        builder.store(args[2], element(builder, args[0], args[1], 2), align=2)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.uint16), codegen


def _division(name):
    @intrinsic
    def divide(typingctx, a, b):
        def codegen(context, builder, signature, args):
            return getattr(builder, name)(*args)

        return types.int64(types.int64, types.int64), codegen

    return divide


def _rest32(builder, a, b):
    low, divisor = builder.trunc(a, I32), builder.trunc(b, I32)
    return builder.zext(builder.urem(low, divisor), a.type)


# a % b of u64 that are below 2^32, in 32 bits
urem32 = lanewise_of(("uint64", "uint64"), "uint64", _rest32)
div = _division("sdiv")  # truncating; operands of kernels are never negative
mod = _division("srem")


@intrinsic
def float_bits(typingctx, value):
    """The 32 bits of a float32."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], I32)

    return types.uint32(types.float32), codegen


@intrinsic
def bits_float(typingctx, bits):
    """The float32 of 32 bits."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], F32)

    return types.float32(types.uint32), codegen


@intrinsic
def to_float(typingctx, value):
    """int64 (of at most 31 bits) -> float32, without a call on 32-bit processors."""

    def codegen(context, builder, signature, args):
        return builder.sitofp(builder.trunc(args[0], I32), F32)

    return types.float32(types.int64), codegen


@intrinsic
def to_int(typingctx, value):
    """float32 -> int64, truncating; the value fits 31 bits."""

    def codegen(context, builder, signature, args):
        return builder.sext(builder.fptosi(args[0], I32), I64)

    return types.int64(types.float32), codegen


@intrinsic
def to_real(typingctx, value):
    """int64 (of at most 31 bits) -> float64, without a call on 32-bit processors."""

    def codegen(context, builder, signature, args):
        return builder.sitofp(builder.trunc(args[0], I32), F64)

    return types.float64(types.int64), codegen


@intrinsic
def real_to_int(typingctx, value):
    """float64 -> int64, truncating; the value fits 31 bits."""

    def codegen(context, builder, signature, args):
        return builder.sext(builder.fptosi(args[0], I32), I64)

    return types.int64(types.float64), codegen


@intrinsic
def u32(typingctx, value):
    """Low 32 bits of an int64."""

    def codegen(context, builder, signature, args):
        return builder.trunc(args[0], I32)

    return types.uint32(types.int64), codegen


def _same(builder, value):
    return value


@dataclass(frozen=True, slots=True)
class Storage:
    """How an element lies in memory.

    Attributes:
      nbytes: bytes of one element.
      element: LLVM type of one in memory.
      ld: (address, index) -> float32 or int64.
      st: (address, index, value), round to nearest even.
      sr: (address, index, value, key: uint32), rounded stochastically where the format is coarser
        than float32; equals `st` elsewhere.
      widen, narrow: (builder, value) -> float32 and back, to nearest even, of a scalar or a vector
        as `element` has it; of floats alone.
      floats: it is computed with in float32.
      short_range: numbers of 2^16 are infinite: what would be squared is kept as its root.
    """

    name: str
    nbytes: int
    element: ir.Type
    ld: Callable
    st: Callable
    sr: Callable
    widen: Callable = _same
    narrow: Callable = _same
    floats: bool = False
    short_range: bool = False

    def vector(self, count: int) -> ir.VectorType:
        """Type of `count` elements in memory."""
        return ir.VectorType(self.element, count)


def _widen_f16(builder, value):
    return builder.fpext(value, of(value, F32))


def _narrow_f16(builder, value):
    return builder.fptrunc(value, of(value, F16))


_ld_f32, _st_f32 = _load(F32, 4, types.float32, _same), _store(4, types.float32, _same)
_ld_f16 = _load(F16, 2, types.float32, _widen_f16)
_st_f16 = _store(2, types.float32, _narrow_f16)
ld_f64, st_f64 = _load(F64, 8, types.float64, _same), _store(8, types.float64, _same)
ld_i64, st_i64 = _load(I64, 8, types.int64, _same), _store(8, types.int64, _same)
ld_i32 = _load(I32, 4, types.int64, lambda b, v: b.sext(v, I64))
st_i32 = _store(4, types.int64, lambda b, v: b.trunc(v, I32))
ld_u16 = _load(I16, 2, types.int64, lambda b, v: b.zext(v, I64))
st_u16 = _store(2, types.int64, lambda b, v: b.trunc(v, I16))
ld_u8 = _load(I8, 1, types.int64, lambda b, v: b.zext(v, I64))
ld_i8 = _load(I8, 1, types.int64, lambda b, v: b.sext(v, I64))
st_u8 = _store(1, types.int64, lambda b, v: b.trunc(v, I8))


def _storages() -> dict[str, Storage]:
    from .inlining import inline

    @inline
    def sr_f32(address, index, value, key):
        _st_f32(address, index, value)

    @inline
    def sr_f16(address, index, value, key):
        _store_u16(address, index, round_f16(value, hash32(key, index)))

    return {
        "f32": Storage("f32", 4, F32, _ld_f32, _st_f32, sr_f32, floats=True),
        "f16": Storage(
            "f16", 2, F16, _ld_f16, _st_f16, sr_f16, _widen_f16, _narrow_f16, True, True
        ),
        "i64": Storage("i64", 8, I64, ld_i64, st_i64, st_i64),
        "i32": Storage("i32", 4, I32, ld_i32, st_i32, st_i32),
        "u16": Storage("u16", 2, I16, ld_u16, st_u16, st_u16),
        "u8": Storage("u8", 1, I8, ld_u8, st_u8, st_u8),
    }


STORAGES = _storages()
FP32 = STORAGES["f32"]
