"""Loads and stores of vectors (number.py), and operations across their lanes.

Addresses are int64, indices count elements. The default width is 16 lanes.
"""

import dataclasses
import functools

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .number import F32, F64, I32, I64, Vector, bits_as, copies, lanes_of, of, to, vector_of
from .prim import POINTER, Storage, element

WIDTH = 16
VECTOR = ir.VectorType(F32, WIDTH)
V16 = Vector(types.float32, WIDTH)

numbers16 = lanes_of("int32", WIDTH)  # () -> 0, 1, ... 15
ints, floats = bits_as("int32"), bits_as("float32")  # the bits of floats as integers, and back
unsigned = to("uint32")


def define(signature, emit):
    """An intrinsic of fixed numba types; `emit(builder, args)` returns its value or None."""
    names = ", ".join(f"a{i}" for i in range(len(signature.args)))
    scope: dict = {}

    def codegen(context, builder, sig, args):
        value = emit(builder, args)
        return context.get_dummy_value() if value is None else value

    exec(
        f"def operation(typingctx, {names}):\n    return signature, codegen\n",
        {"signature": signature, "codegen": codegen},
        scope,
    )
    return intrinsic(scope["operation"])


def outlined(name: str, parameters: int, emit):
    """An intrinsic with int64 parameters that calls a separate function, which is never inlined.

    The inner loops need every register: inlined in a large kernel, they would spill.
    """

    def call(builder, args):
        function = builder.module.globals.get(name)
        if function is None:
            kind = ir.FunctionType(ir.VoidType(), [I64] * parameters)
            function = ir.Function(builder.module, kind, name)
            function.linkage = "internal"
            function.attributes.add("noinline")
            inner = ir.IRBuilder(function.append_basic_block("entry"))
            emit(inner, function.args)
            inner.ret_void()
        builder.call(function, args)

    return define(types.void(*[types.int64] * parameters), call)


def constant(value: float) -> ir.Constant:
    """A vector with the same constant in every lane."""
    return ir.Constant(VECTOR, [value] * WIDTH)


def splat(builder, scalar):
    """A vector of copies of a scalar."""
    return copies(builder, scalar, WIDTH)


def shuffle(builder, a, b, lanes):
    """These lanes of a and b; b's lanes are numbered after a's."""
    mask = ir.Constant(ir.VectorType(I32, len(lanes)), list(lanes))
    return builder.shuffle_vector(a, b, mask)


def load_vector(builder, storage: Storage, pointer, count=WIDTH):
    """`count` consecutive elements, as float32."""
    value = builder.load(pointer, typ=storage.vector(count), align=storage.nbytes)
    return storage.widen(builder, value)


def first_lanes(builder, count, width: int):
    """The mask of the first `count` (int64) lanes."""
    lanes = ir.Constant(ir.VectorType(I32, width), list(range(width)))
    return builder.icmp_signed("<", lanes, copies(builder, builder.trunc(count, I32), width))


def load_first(builder, storage: Storage, pointer, count, width=WIDTH):
    """A vector with the first `count` (int64) lanes loaded, 0 in the others; reads no more."""
    mask, kind = first_lanes(builder, count, width), storage.vector(width)
    signature = ir.FunctionType(kind, [POINTER, I32, mask.type, kind])
    name = f"llvm.masked.load.v{width}{storage.element.intrinsic_name}.p0"
    load = builder.module.globals.get(name) or ir.Function(builder.module, signature, name)
    none = ir.Constant(kind, None)
    return storage.widen(builder, builder.call(load, [pointer, I32(storage.nbytes), mask, none]))


def _store_first(builder, value, pointer, count, storage: Storage):
    """Store the first `count` (int64) lanes, or all if `count` is larger."""
    value, align, width = storage.narrow(builder, value), storage.nbytes, value.type.count
    with builder.if_else(builder.icmp_signed(">=", count, I64(width))) as (full, part):
        with full:
            builder.store(value, pointer, align=align)
        with part:
            mask = first_lanes(builder, count, width)
            parameters = [value.type, POINTER, I32, mask.type]
            kind = ir.FunctionType(ir.VoidType(), parameters)
            name = f"llvm.masked.store.v{width}{storage.element.intrinsic_name}.p0"
            store = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
            builder.call(store, [value, pointer, I32(align), mask])


@functools.cache
def loads_first(storage: Storage, width: int = WIDTH):
    """(address, index, count) -> the first `count` lanes, 0 in the others; reads no more."""

    def emit(builder, args):
        address, index, count = args
        pointer = element(builder, address, index, storage.nbytes)
        return load_first(builder, storage, pointer, count, width)

    return define(Vector(types.float32, width)(types.int64, types.int64, types.int64), emit)


@functools.cache
def loads(storage: Storage, stride: int = 1, width: int = WIDTH):
    """(address, index) -> vector of elements index, index + stride, ...; stride is 1 or 2.

    Reads `width` * stride elements.
    """

    def emit(builder, args):
        pointer = element(builder, args[0], args[1], storage.nbytes)
        value = load_vector(builder, storage, pointer, width * stride)
        return value if stride == 1 else shuffle(builder, value, value, range(0, 2 * width, 2))

    return define(Vector(types.float32, width)(types.int64, types.int64), emit)


@functools.cache
def loads_two(storage: Storage, width: int = WIDTH):
    """(address, index, other) -> a vector: half from `index` on, half from `other` on."""
    half = width // 2

    def emit(builder, args):
        address, *indices = args
        parts = [
            builder.load(
                element(builder, address, index, storage.nbytes),
                typ=storage.vector(half),
                align=storage.nbytes,
            )
            for index in indices
        ]
        return storage.widen(builder, shuffle(builder, *parts, range(width)))

    return define(Vector(types.float32, width)(types.int64, types.int64, types.int64), emit)


@functools.cache
def stores(storage: Storage, width: int = WIDTH):
    """(address, index, value, count): store the first `count` lanes, rounded to nearest."""

    def emit(builder, args):
        address, index, value, count = args
        pointer = element(builder, address, index, storage.nbytes)
        _store_first(builder, value, pointer, count, storage)

    vector = Vector(types.float32, width)
    return define(types.void(types.int64, types.int64, vector, types.int64), emit)


@functools.cache
def loads_as(name: str, width: int = WIDTH):
    """(address, index) -> elements in their type in memory: float32, float16, int8, uint8, ..."""
    kind = Vector(getattr(types, name), width)
    nbytes = kind.element.bitwidth // 8

    def emit(builder, args):
        pointer = element(builder, args[0], args[1], nbytes)
        return builder.load(pointer, typ=vector_of(kind), align=nbytes)

    return define(kind(types.int64, types.int64), emit)


def counts(storage: Storage):
    """(loads, stores) for vectors of unsigned integers, as float32, which is exact for them."""
    counted = dataclasses.replace(
        storage,
        widen=lambda builder, value: builder.uitofp(value, of(value, F32)),
        narrow=lambda builder, value: builder.fptoui(value, of(value, storage.element)),
    )
    return loads(counted), stores(counted)


_BITS = Vector(types.boolean, 64)


def _mask_place(builder, address, index):
    return element(builder, address, builder.lshr(index, I64(3)), 1)


def _store_mask(builder, args):
    address, index, mask = args
    builder.store(builder.bitcast(mask, I64), _mask_place(builder, address, index), align=1)


def _load_mask(builder, args):
    bits = builder.load(_mask_place(builder, *args), typ=I64, align=1)
    return builder.bitcast(bits, vector_of(_BITS))


# (address, index: a multiple of 8, mask of 64 lanes): store one bit per lane; and load the mask
store_mask = define(types.void(types.int64, types.int64, _BITS), _store_mask)
load_mask = define(_BITS(types.int64, types.int64), _load_mask)


def _interleave(builder, args):
    a, b, part = args
    low = shuffle(builder, a, b, [i // 2 + WIDTH * (i % 2) for i in range(WIDTH)])
    high = shuffle(builder, a, b, [8 + i // 2 + WIDTH * (i % 2) for i in range(WIDTH)])
    return builder.select(builder.icmp_signed("==", part, I64(0)), low, high)


def _sum(builder, args):
    value = builder.fpext(args[0], ir.VectorType(F64, WIDTH))
    for half in (8, 4, 2, 1):
        low = shuffle(builder, value, value, range(half))
        value = builder.fadd(low, shuffle(builder, value, value, range(half, 2 * half)))
    return builder.extract_element(value, I32(0))


def _keep(builder, args):
    value, first, last = args
    lanes = ir.Constant(ir.VectorType(I32, WIDTH), list(range(WIDTH)))
    first, last = (splat(builder, builder.trunc(bound, I32)) for bound in (first, last))
    inside = builder.and_(
        builder.icmp_signed(">=", lanes, first), builder.icmp_signed("<", lanes, last)
    )
    return builder.select(inside, value, constant(0.0))


vsplat = define(V16(types.float32), lambda b, args: splat(b, args[0]))
# (value) -> float64 sum of the lanes, halves first
vsum = define(types.float64(V16), _sum)
# (value, first, last): lanes first <= i < last, else 0
vkeep = define(V16(V16, types.int64, types.int64), _keep)
# (a, b, 0 or 1) -> first or second half of a0 b0 a1 b1 ...
vinterleave = define(V16(V16, V16, types.int64), _interleave)


def _prefetch(builder, args):
    kind = ir.FunctionType(ir.VoidType(), [POINTER, I32, I32, I32])
    name = "llvm.prefetch.p0"
    fetch = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    builder.call(fetch, [builder.inttoptr(args[0], POINTER), I32(0), I32(2), I32(1)])


# (address): prefetch its line into the second-level cache; any address is allowed
prefetch = define(types.void(types.int64), _prefetch)
