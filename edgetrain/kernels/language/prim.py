"""The intrinsics kernels are written in: typed loads and stores, hashes, fma, division.

Addresses are int64; indices count elements. Everything lowers to target-independent LLVM, so the
same text serves every processor. A `Storage` defines how an element is stored in memory, and
whether kernels compute with it in float32 or int64 (docs/ARCHITECTURE.md, Invariants).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ... import formats
from ...formats import FORMATS, Format
from ...formats.coded import Coded
from .formula import cutting, narrowing, rounding, widening
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
    """The finaliser of `hash32`, for numbers or vectors."""
    for shift, factor in ((16, 0x21F0AAAD), (15, 0x735A2D97)):
        x = builder.mul(builder.xor(x, builder.lshr(x, like(x, shift))), like(x, factor))
    return builder.xor(x, builder.lshr(x, like(x, 15)))


@intrinsic
def hash32(typingctx, key, index):
    """32 random bits for (key, index): counter-based, with one murmur-like finaliser."""

    def codegen(context, builder, signature, args):
        count = builder.mul(builder.trunc(args[1], I32), I32(GOLDEN))
        return mixed(builder, builder.add(count, args[0]))

    return types.uint32(types.uint32, types.int64), codegen


mix = lanewise(1, mixed)


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
    """The float32 with these 32 bits."""

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
    """How an element is stored in memory.

    Attributes:
      nbytes: bytes of one element.
      element: LLVM type of an element in memory.
      ld: (address, index) -> float32 or int64.
      st: (address, index, value), rounds to nearest even.
      sr: (address, index, value, key: uint32), rounds stochastically if the format is coarser than
        float32; otherwise equal to `st`.
      widen, narrow: (builder, value) -> float32 and back, to nearest even, for a scalar or a vector
        of `element`; only for floats.
      floats: whether kernels compute with it in float32.
      short_range: values that would be squared are stored as roots; `largest` is its largest
        number.
      rounded: (builder, float32, 32 random bits) -> bits that `sr` stores, for a scalar or a
        vector; None if it stores like `st`.
      drawn: like `rounded`, but returns the stored number as float32.
      random_bits: number of random bits that it uses, the lowest; `sr_upper` uses the highest.
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
    largest: float = math.inf
    rounded: Callable | None = None
    drawn: Callable | None = None
    random_bits: int = 0
    sr_upper: Callable | None = None

    @property
    def single(self) -> bool:
        """Whether elements are float32 in memory, as they are computed with."""
        return self.element == F32

    def vector(self, count: int) -> ir.VectorType:
        """Type of `count` elements in memory."""
        return ir.VectorType(self.element, count)


def _extend(builder, value):
    return builder.fpext(value, of(value, F32))


def _truncate(kind: ir.Type) -> Callable:
    return lambda builder, value: builder.fptrunc(value, of(value, kind))


ld_f64, st_f64 = _load(F64, 8, types.float64, _same), _store(8, types.float64, _same)
ld_i64, st_i64 = _load(I64, 8, types.int64, _same), _store(8, types.int64, _same)
ld_i32 = _load(I32, 4, types.int64, lambda b, v: b.sext(v, I64))
st_i32 = _store(4, types.int64, lambda b, v: b.trunc(v, I32))
ld_u16 = _load(I16, 2, types.int64, lambda b, v: b.zext(v, I64))
st_u16 = _store(2, types.int64, lambda b, v: b.trunc(v, I16))
ld_u8 = _load(I8, 1, types.int64, lambda b, v: b.zext(v, I64))
ld_i8 = _load(I8, 1, types.int64, lambda b, v: b.sext(v, I64))
st_u8 = _store(1, types.int64, lambda b, v: b.trunc(v, I8))
_WHOLE = {
    "int64": (I64, ld_i64, st_i64),
    "int32": (I32, ld_i32, st_i32),
    "uint16": (I16, ld_u16, st_u16),
    "uint8": (I8, ld_u8, st_u8),
}


def _stochastic(format: Format, emit: Callable) -> Callable:
    """(address, index, value, key): store the formula's bits, with random bits of the index."""
    from .inlining import inline

    name = f"uint{8 * format.block_nbytes}"
    bits = lanewise_of(("float32", "uint32"), name, emit)
    store = _store(format.block_nbytes, getattr(types, name), _same)

    @inline
    def sr(address, index, value, key):
        store(address, index, bits(value, hash32(key, index)))

    return sr


def of_upper(rounded: Callable, count: int) -> Callable:
    """A formula of a `Storage`, with the upper `count` random bits instead of the lower ones."""

    def emit(builder, value, random):
        return rounded(builder, value, builder.lshr(random, like(random, 32 - count)))

    return emit


def _widened(rounded: Callable, element: ir.Type, widen: Callable) -> Callable:
    """The formula `Storage.drawn`, made from the one for the stored bits."""

    def drawn(builder, value, random):
        stored = rounded(builder, value, random)
        kind = of(value, element)
        return widen(builder, stored if stored.type == kind else builder.bitcast(stored, kind))

    return drawn


def _nearest(store: Callable) -> Callable:
    from .inlining import inline

    @inline
    def sr(address, index, value, key):
        store(address, index, value)

    return sr


def _floats(format: Format) -> Storage:
    """Storage of a floating-point format: numpy's by the processor's own conversions, others by the
    format's formulas."""
    nbytes, kind = format.block_nbytes, ir.IntType(8 * format.block_nbytes)
    if isinstance(format, Coded):
        element, widen, narrow = kind, widening(format), narrowing(format, kind)
    elif format.array == "float32":
        element, widen, narrow = F32, _same, _same
    else:
        element, widen, narrow = F16, _extend, _truncate(F16)
    ld = _load(element, nbytes, types.float32, widen)
    st = _store(nbytes, types.float32, narrow)
    basics = format.name, nbytes, element, ld, st
    facts = widen, narrow, True, format.short_range, format.largest
    if not format.rounded:
        return Storage(*basics, _nearest(st), *facts, sr_upper=_nearest(st))
    rounded = rounding(format, kind)
    upper = _stochastic(format, of_upper(rounded, format.random_bits))
    drawn = cutting(format) if format.cut else _widened(rounded, element, widen)
    return Storage(
        *basics, _stochastic(format, rounded), *facts, rounded, drawn, format.random_bits, upper
    )


def _storages() -> dict[str, Storage]:
    out = {}
    for format in FORMATS.values():
        if format.array in _WHOLE:
            kind, ld, st = _WHOLE[format.array]
            out[format.name] = Storage(format.name, format.block_nbytes, kind, ld, st, st)
        elif format.block == 1 and (format.precision or format.memory):
            out[format.name] = _floats(format)
    return out


STORAGES = _storages()
FP32 = STORAGES[formats.FP32.name]
FP16 = STORAGES[formats.FP16.name]
