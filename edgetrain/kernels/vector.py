"""Vectors of 16 float32 as values of kernels, and GEMM inner loops emitted as vector IR.

The width is fixed: LLVM splits a vector where the processor's registers are narrower, so results
do not depend on the target. Inside kernels a vector is an ordinary local variable; the functions
here are all that can be done with one. Addresses are int64, indices count elements.
"""

from llvmlite import ir
from numba import types
from numba.core import datamodel
from numba.extending import intrinsic, register_model

from .prim import F16, F32, I8, I32, I64, POINTER, Storage, element

WIDTH = 16
_V = ir.VectorType(F32, WIDTH)


class _Vector16(types.Type):
    def __init__(self) -> None:
        super().__init__(name="edgetrain_vector16")


V16 = _Vector16()


@register_model(_Vector16)
class _Vector16Model(datamodel.PrimitiveModel):
    def __init__(self, manager, fe_type) -> None:
        super().__init__(manager, fe_type, _V)


def _define(signature, emit):
    """An intrinsic of fixed numba types; `emit(builder, args)` returns the value or None."""
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


def _outlined(name: str, parameters: int, emit):
    """An intrinsic of int64 parameters that calls a function of its own, never inlined.

    The inner loops need every register: inlined in a large kernel they spill.
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

    return _define(types.void(*[types.int64] * parameters), call)


def outline(name: str, function, floats: tuple[str, ...] = ()):
    """An intrinsic that calls a Python function of int64 (named in `floats`: float32) arguments.

    It is compiled once for a kernel and not inlined, which keeps large kernels quick to compile
    and their registers free. `name` begins with et_ and is the function's alone.
    """
    code = function.__code__
    parameters = code.co_varnames[: code.co_argcount]
    kinds = [types.float32 if p in floats else types.int64 for p in parameters]
    signature = types.void(*kinds)
    scope: dict = {}

    def codegen(context, builder, sig, args):
        outlined = builder.module.globals.get(name)
        if outlined is None:
            kind = ir.FunctionType(ir.VoidType(), [F32 if p in floats else I64 for p in parameters])
            outlined = ir.Function(builder.module, kind, name)
            outlined.linkage = "internal"
            outlined.attributes.add("noinline")
            inner = ir.IRBuilder(outlined.append_basic_block("entry"))
            compiled = context.compile_subroutine(inner, function, signature)
            context.call_internal_no_propagate(inner, compiled.fndesc, signature, outlined.args)
            inner.ret_void()
        builder.call(outlined, args)
        return context.get_dummy_value()

    exec(
        f"def operation(typingctx, {', '.join(parameters)}):\n    return signature, codegen\n",
        {"signature": signature, "codegen": codegen},
        scope,
    )
    return intrinsic(scope["operation"])


def constant(value: float) -> ir.Constant:
    """A vector of equal numbers known when the kernel is compiled."""
    return ir.Constant(_V, [value] * WIDTH)


def splat(builder, scalar):
    """A vector of copies of a scalar."""
    width = ir.VectorType(scalar.type, WIDTH)
    first = builder.insert_element(ir.Constant(width, ir.Undefined), scalar, I32(0))
    zeros = ir.Constant(ir.VectorType(I32, WIDTH), [0] * WIDTH)
    return builder.shuffle_vector(first, ir.Constant(width, ir.Undefined), zeros)


def fused(builder, a, b, c):
    """a * b + c in each lane, rounded once."""
    name = f"llvm.fma.v{WIDTH}f32"
    known = builder.module.globals.get(name)
    return builder.call(
        known or ir.Function(builder.module, ir.FunctionType(_V, [_V] * 3), name), [a, b, c]
    )


def shuffle(builder, a, b, lanes):
    """Lanes of a (0..) and b (count of a..)."""
    mask = ir.Constant(ir.VectorType(I32, len(lanes)), list(lanes))
    return builder.shuffle_vector(a, b, mask)


def _load(builder, pointer, storage: str, count=WIDTH):
    if storage == "f16":
        half = builder.load(pointer, typ=ir.VectorType(F16, count), align=2)
        return builder.fpext(half, ir.VectorType(F32, count))
    return builder.load(pointer, typ=ir.VectorType(F32, count), align=4)


def _narrow(builder, value, storage: str):
    """(value as stored, its element type, bytes)."""
    if storage == "f16":
        return builder.fptrunc(value, ir.VectorType(F16, WIDTH)), F16, 2
    return value, F32, 4


def _store_first(builder, value, pointer, count, storage: str):
    """Store the first `count` (int64) lanes, all of them where it is 16 or more."""
    value, kind, align = _narrow(builder, value, storage)
    with builder.if_else(builder.icmp_signed(">=", count, I64(WIDTH))) as (whole, part):
        with whole:
            builder.store(value, pointer, align=align)
        with part:
            lanes = ir.Constant(ir.VectorType(I32, WIDTH), list(range(WIDTH)))
            mask = builder.icmp_signed("<", lanes, splat(builder, builder.trunc(count, I32)))
            short = {2: "f16", 4: "f32"}[align]
            parameters = [value.type, POINTER, I32, mask.type]
            kind = ir.FunctionType(ir.VoidType(), parameters)
            name = f"llvm.masked.store.v{WIDTH}{short}.p0"
            store = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
            builder.call(store, [value, pointer, I32(align), mask])


def loads(storage: Storage, stride: int = 1):
    """(address, index) -> vector of elements index, index + stride, ...; stride is 1 or 2.

    It reads 16 * stride elements.
    """

    def emit(builder, args):
        pointer = element(builder, *args, storage.nbytes)
        value = _load(builder, pointer, storage.name, WIDTH * stride)
        return value if stride == 1 else shuffle(builder, value, value, range(0, 2 * WIDTH, 2))

    return _define(V16(types.int64, types.int64), emit)


def stores(storage: Storage):
    """(address, index, value, count): the first `count` lanes, rounded to nearest."""

    def emit(builder, args):
        address, index, value, count = args
        pointer = element(builder, address, index, storage.nbytes)
        _store_first(builder, value, pointer, count, storage.name)

    return _define(types.void(types.int64, types.int64, V16, types.int64), emit)


def _interleave(builder, args):
    a, b, part = args
    low = shuffle(builder, a, b, [i // 2 + WIDTH * (i % 2) for i in range(WIDTH)])
    high = shuffle(builder, a, b, [8 + i // 2 + WIDTH * (i % 2) for i in range(WIDTH)])
    return builder.select(builder.icmp_signed("==", part, I64(0)), low, high)


def _relu(builder, args):
    zero = constant(0.0)
    return builder.select(builder.fcmp_ordered("<=", args[0], zero), zero, args[0])


def _clip(builder, args):
    z, low, high = args
    top = builder.select(builder.fcmp_ordered(">", z, high), high, z)
    return builder.select(builder.fcmp_ordered("<", z, low), low, top)


def _keep(builder, args):
    value, first, last = args
    lanes = ir.Constant(ir.VectorType(I32, WIDTH), list(range(WIDTH)))
    first, last = (splat(builder, builder.trunc(bound, I32)) for bound in (first, last))
    inside = builder.and_(
        builder.icmp_signed(">=", lanes, first), builder.icmp_signed("<", lanes, last)
    )
    return builder.select(inside, value, constant(0.0))


vsplat = _define(V16(types.float32), lambda b, args: splat(b, args[0]))
vadd = _define(V16(V16, V16), lambda b, args: b.fadd(*args))
vmul = _define(V16(V16, V16), lambda b, args: b.fmul(*args))
vfma = _define(V16(V16, V16, V16), lambda b, args: fused(b, *args))
vrelu = _define(V16(V16), _relu)
vclip = _define(V16(V16, V16, V16), _clip)
# (value, first, last): lanes first <= i < last, else 0
vkeep = _define(V16(V16, types.int64, types.int64), _keep)
# (a, b, 0 or 1) -> first or second half of a0 b0 a1 b1 ...
vinterleave = _define(V16(V16, V16, types.int64), _interleave)


def _prefetch(builder, args):
    kind = ir.FunctionType(ir.VoidType(), [POINTER, I32, I32, I32])
    name = "llvm.prefetch.p0"
    fetch = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    builder.call(fetch, [builder.inttoptr(args[0], POINTER), I32(0), I32(2), I32(1)])


# (address): bring its line into the second cache; any address will do
prefetch = _define(types.void(types.int64), _prefetch)


def _offset(builder, pointer, nbytes):
    return builder.gep(pointer, [nbytes], source_etype=I8)


def _loop(builder, count, values, body):
    """for j in range(count): values = body(j, values); returns the values after it."""
    before = builder.block
    head, inside, after = (builder.append_basic_block(name) for name in ("head", "body", "end"))
    builder.branch(head)
    builder.position_at_end(head)
    j = builder.phi(I64)
    j.add_incoming(I64(0), before)
    carried = []
    for value in values:
        phi = builder.phi(value.type)
        phi.add_incoming(value, before)
        carried.append(phi)
    builder.cbranch(builder.icmp_signed("<", j, count), inside, after)
    builder.position_at_end(inside)
    new = body(j, list(carried))
    j.add_incoming(builder.add(j, I64(1)), builder.block)
    for phi, value in zip(carried, new, strict=True):
        phi.add_incoming(value, builder.block)
    builder.branch(head)
    builder.position_at_end(after)
    return carried


def _multiply(builder, rows, columns, totals):
    """totals[m][v] + rows[m] * columns[v], flat."""
    return [
        fused(builder, rows[i // len(columns)], columns[i % len(columns)], total)
        for i, total in enumerate(totals)
    ]


def gemm_columns(rows: int, vectors: int):
    """(y, y_stride, panel, w, w_stride, table, count): y[m][:] += sum_k w[m][k] * panel[k].

    `rows` output rows of `vectors` vectors stay in registers; strides are bytes; w is float32;
    table holds a pair of int32 byte offsets for each k: into the panel, into a row of w. Order of
    a sum: what is in y, then k, by fma.
    """

    def emit(builder, args):
        y, y_stride, panel, w, w_stride, table, count = args
        y, panel, w, table = (builder.inttoptr(a, POINTER) for a in (y, panel, w, table))
        y_rows = [_offset(builder, y, builder.mul(y_stride, I64(m))) for m in range(rows)]
        w_rows = [_offset(builder, w, builder.mul(w_stride, I64(m))) for m in range(rows)]
        places = [_offset(builder, row, I64(64 * v)) for row in y_rows for v in range(vectors)]

        def body(k, totals):
            pair = _offset(builder, table, builder.mul(k, I64(8)))
            offset = builder.load(pair, typ=I32, align=4)
            column = _offset(builder, panel, builder.sext(offset, I64))
            offset = builder.load(_offset(builder, pair, I64(4)), typ=I32, align=4)
            step = builder.sext(offset, I64)
            columns = [
                builder.load(_offset(builder, column, I64(64 * v)), typ=_V, align=4)
                for v in range(vectors)
            ]
            weights = [
                splat(builder, builder.load(_offset(builder, row, step), typ=F32, align=4))
                for row in w_rows
            ]
            return _multiply(builder, weights, columns, totals)

        totals = [builder.load(place, typ=_V, align=64) for place in places]
        for place, total in zip(places, _loop(builder, count, totals, body), strict=True):
            builder.store(total, place, align=64)

    return _outlined(f"et_gemm_columns_{rows}x{vectors}", 7, emit)


def gemm_outer(rows: int, vectors: int):
    """(y, y_stride, panel, table, d, d_stride, count): y[m][:] += sum_p panel[table[m] + p] * d[p].

    y rows and d rows are `vectors` vectors wide; strides are bytes; table holds `rows` int32 byte
    offsets of float32 rows in the panel. Order: the sum over p from zero by fma, then y.
    """

    def emit(builder, args):
        y, y_stride, panel, table, d, d_stride, count = args
        y, panel, table, d = (builder.inttoptr(a, POINTER) for a in (y, panel, table, d))
        sources = []
        for m in range(rows):
            offset = builder.load(_offset(builder, table, I64(4 * m)), typ=I32, align=4)
            sources.append(_offset(builder, panel, builder.sext(offset, I64)))

        def body(p, totals):
            row = _offset(builder, d, builder.mul(p, d_stride))
            columns = [
                builder.load(_offset(builder, row, I64(64 * v)), typ=_V, align=64)
                for v in range(vectors)
            ]
            step = builder.mul(p, I64(4))
            weights = [
                splat(builder, builder.load(_offset(builder, source, step), typ=F32, align=4))
                for source in sources
            ]
            return _multiply(builder, weights, columns, totals)

        totals = _loop(builder, count, [constant(0.0)] * (rows * vectors), body)
        for m in range(rows):
            y_row = _offset(builder, y, builder.mul(y_stride, I64(m)))
            for v in range(vectors):
                place = _offset(builder, y_row, I64(64 * v))
                old = builder.load(place, typ=_V, align=64)
                builder.store(builder.fadd(old, totals[m * vectors + v]), place, align=64)

    return _outlined(f"et_gemm_outer_{rows}x{vectors}", 7, emit)


def gemm_dots(rows: int):
    """(sums, line, panel, table, count): sums[m][lane] += sum of panel[table[m] + p] * line[p].

    p runs over `count` floats, lane = p modulo 16; sums are `rows` vectors, table int32 byte
    offsets. What lies after `count` in line and panel is read, and taken for zero.
    """

    def emit(builder, args):
        sums, line, panel, table = (builder.inttoptr(a, POINTER) for a in args[:4])
        places = [_offset(builder, sums, I64(64 * m)) for m in range(rows)]
        sources = []
        for m in range(rows):
            offset = builder.load(_offset(builder, table, I64(4 * m)), typ=I32, align=4)
            sources.append(_offset(builder, panel, builder.sext(offset, I64)))
        lanes = ir.Constant(ir.VectorType(I32, WIDTH), list(range(WIDTH)))

        def add(v, totals, keep):
            step = builder.mul(v, I64(64))
            factor = keep(builder.load(_offset(builder, line, step), typ=_V, align=4))
            return [
                fused(
                    builder,
                    keep(builder.load(_offset(builder, source, step), typ=_V, align=4)),
                    factor,
                    total,
                )
                for source, total in zip(sources, totals, strict=True)
            ]

        whole = builder.ashr(args[4], I64(4))
        rest = builder.trunc(builder.sub(args[4], builder.shl(whole, I64(4))), I32)
        mask = builder.icmp_signed("<", lanes, splat(builder, rest))
        totals = [builder.load(place, typ=_V, align=64) for place in places]
        totals = _loop(builder, whole, totals, lambda v, t: add(v, t, lambda value: value))
        totals = add(whole, totals, lambda value: builder.select(mask, value, constant(0.0)))
        for place, total in zip(places, totals, strict=True):
            builder.store(total, place, align=64)

    return _outlined(f"et_gemm_dots_{rows}", 5, emit)


def _lane_sum(builder, args):
    value = builder.load(builder.inttoptr(args[1], POINTER), typ=_V, align=4)
    lanes = list(range(WIDTH))
    for half in (8, 4, 2, 1):
        swapped = shuffle(builder, value, value, [lane ^ half for lane in lanes])
        value = builder.fadd(value, swapped)
    total = builder.extract_element(value, I32(0))
    builder.store(total, builder.inttoptr(args[0], POINTER), align=4)


# (target, source): float32 sum of the 16 lanes at `source`, halves first
lane_sum = _define(types.void(types.int64, types.int64), _lane_sum)


def _transposed(builder, rows):
    """16 vectors -> the 16 columns, by exchanging blocks of 8, 4, 2, 1."""
    for half in (8, 4, 2, 1):
        low = [i + WIDTH - half if i & half else i for i in range(WIDTH)]
        high = [i + WIDTH if i & half else i + half for i in range(WIDTH)]
        out = list(rows)
        for i in range(WIDTH):
            if not i & half:
                out[i] = shuffle(builder, rows[i], rows[i + half], low)
                out[i + half] = shuffle(builder, rows[i], rows[i + half], high)
        rows = out
    return rows


def _transpose(builder, args):
    target, target_stride, source, source_stride = args
    source, target = (builder.inttoptr(a, POINTER) for a in (source, target))
    rows = []
    for i in range(WIDTH):
        place = _offset(builder, source, builder.mul(source_stride, I64(i)))
        rows.append(builder.load(place, typ=_V, align=4))
    for i, column in enumerate(_transposed(builder, rows)):
        place = _offset(builder, target, builder.mul(target_stride, I64(i)))
        builder.store(column, place, align=4)


# (target, target_stride, source, source_stride): 16 x 16 float32, strides in bytes
transpose16 = _outlined("et_transpose16", 4, _transpose)
