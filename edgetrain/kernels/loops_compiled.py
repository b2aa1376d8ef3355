"""The planner's loops through numba and LLVM: imported only where one has to be compiled."""

import itertools
import re
from collections.abc import Callable, Mapping
from typing import Any

import llvmlite.binding as llvm
import numba
from llvmlite import ir
from numba.core import types
from numba.core.compiler import CompilerBase
from numba.core.compiler_machinery import PassManager
from numba.core.typed_passes import (
    IRLegalization,
    NativeLowering,
    NoPythonBackend,
    NopythonTypeInference,
    PreLowerStripPhis,
)
from numba.core.typing.templates import AttributeTemplate
from numba.core.untyped_passes import (
    DeadBranchPrune,
    FixupArgs,
    GenericRewrites,
    IRProcessing,
    ReconstructSSA,
    RewriteSemanticConstants,
    TranslateByteCode,
)
from numba.extending import infer_getattr, lower_getattr_generic, models, register_model
from numba.np.arrayobj import populate_array

from . import native
from .loop_kinds import Entry, array_kind, fields, words_of
from .processor import Target

_wrapped: list[Any] = []  # numba's types refer to functions weakly


class _Passes(CompilerBase):
    """What loops need of numba's passes: most of the time of compiling them is Python's.

    Left out is what looks for closures, literals to unroll, expressions of arrays, loops of
    threads.
    """

    def define_pipelines(self) -> list[PassManager]:
        passes = PassManager("loops")
        for one in (
            TranslateByteCode, FixupArgs, IRProcessing, RewriteSemanticConstants,
            DeadBranchPrune, GenericRewrites, ReconstructSSA, NopythonTypeInference,
            PreLowerStripPhis, IRLegalization, NativeLowering, NoPythonBackend,
        ):  # fmt: skip
            passes.add_pass(one, one.__name__)
        passes.finalize()
        return [passes]


def callee(function: Callable) -> types.Type:
    """The type of a loop as others call it."""
    wrap = numba.njit(
        error_model="numpy",
        no_cpython_wrapper=True,
        no_cfunc_wrapper=True,
        _nrt=False,
        pipeline_class=_Passes,
    )
    _wrapped.append(wrap(function))
    return types.Dispatcher(_wrapped[-1])


def object_of(entries: Mapping[str, Entry], target: Target) -> bytes:
    """One object with the entries by symbol; what they share is in it once."""
    native._numba_contexts()
    results = {}
    with native._text_only():
        for symbol, entry in entries.items():
            parameters, result = entry.kinds
            signature = _returned_kind(result)(*map(_numba_kind, parameters))
            function = entry._numba_type_.dispatcher
            function.compile(signature)
            results[symbol] = function.overloads[signature.args]
    module = _linked([result.library for result in results.values()])
    text = re.sub(r"^target (triple|datalayout) = .*\n", "", str(module), flags=re.M)
    text = re.sub(r'"(target-cpu|target-features|tune-cpu)"="[^"]*"', "", text)
    for symbol, result in results.items():
        text += _entry_text(symbol, result.fndesc.llvm_func_name, entries[symbol])
    return _emitted(text, set(entries), target)


def _linked(libraries: list) -> llvm.ModuleRef:
    """One module of libraries and all that they call, each once."""
    module, pending, seen = libraries[0]._final_module.clone(), list(libraries), {id(libraries[0])}
    pending += libraries[0]._linking_libraries
    while pending:
        library = pending.pop()
        if id(library) not in seen:
            seen.add(id(library))
            module.link_in(library._final_module.clone())
            pending.extend(library._linking_libraries)
    return module


class Record(types.Type):
    """A NamedTuple as the address of its words: a number, or address and shape of each array."""

    def __init__(self, kind: type) -> None:
        self.kinds = dict(zip(kind._fields, fields(kind) or (), strict=True))  # type: ignore[attr-defined]
        super().__init__(name=f"Record({kind.__module__}.{kind.__qualname__})")

    def place(self, name: str) -> int:
        """Number of the first word of a field."""
        before = itertools.takewhile(lambda field: field != name, self.kinds)
        return sum(words_of(self.kinds[field]) for field in before)


@register_model(Record)
class _RecordModel(models.PrimitiveModel):
    def __init__(self, manager, record) -> None:
        super().__init__(manager, record, ir.IntType(64))


@infer_getattr
class _RecordFields(AttributeTemplate):
    key = Record

    def generic_resolve(self, record, name):
        return _numba_kind(record.kinds[name]) if name in record.kinds else None


@lower_getattr_generic(Record)
def _field(context, builder, record, value, name):
    """Read a field's words; they never change while a loop runs, so each is read once."""

    def word(number: int):
        at = builder.add(value, ir.Constant(value.type, 8 * (record.place(name) + number)))
        loaded = builder.load(builder.inttoptr(at, value.type.as_pointer()))
        loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
        return loaded

    kind = _numba_kind(record.kinds[name])
    if not isinstance(kind, types.Array):
        return word(0) if kind == types.int64 else builder.bitcast(word(0), ir.DoubleType())
    array = context.make_array(kind)(context, builder)
    shape = [word(1 + k) for k in range(kind.ndim)]
    itemsize = ir.Constant(value.type, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
    strides = [itemsize]
    for extent in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], extent))
    data = builder.inttoptr(word(0), array.data.type)
    populate_array(array, data, shape, strides, itemsize, None)
    return array._getvalue()


def _numba_kind(kind: Any) -> types.Type:
    """Of what is passed, and of a field."""
    if kind in (int, float):
        return types.int64 if kind is int else types.float64
    if fields(kind) is not None:
        return Record(kind)
    dtype, dimensions = array_kind(kind)
    return types.Array(getattr(types, "boolean" if dtype == "bool" else dtype), dimensions, "C")


def _returned_kind(kind: Any) -> types.Type:
    inner = fields(kind)
    if inner is None:
        return types.none if kind is None else _numba_kind(kind)
    known: Any = types
    parts = [_numba_kind(one) for one in inner]
    if len(set(parts)) == 1:
        return known.NamedUniTuple(parts[0], len(parts), kind)
    return known.NamedTuple(parts, kind)


class _Entry:
    """Text of an entry in the making: words are loaded one after the other."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.arguments: list[str] = []
        self.count = 0

    def word(self) -> str:
        k = self.count
        self.count += 1
        self.lines.append(f"  %q{k} = getelementptr i64, ptr %p, i32 {k}")
        self.lines.append(f"  %w{k} = load i64, ptr %q{k}")
        return f"%w{k}"

    def pass_on(self, kind: Any) -> None:
        if kind is int or fields(kind) is not None:
            self.arguments.append(f"i64 {self.word()}")
        elif kind is float:
            word = self.word()
            self.lines.append(f"  {word}f = bitcast i64 {word} to double")
            self.arguments.append(f"double {word}f")
        else:
            self.array(*array_kind(kind))

    def array(self, dtype: str, dimensions: int) -> None:
        """Numba's record: owner and parent (none), items, item size, data, shape, strides."""
        size = 1 if dtype == "bool" else int(re.sub(r"\D", "", dtype)) // 8
        data = self.word()
        self.lines.append(f"  {data}p = inttoptr i64 {data} to ptr")
        shape = [self.word() for _ in range(dimensions)]
        strides: list[str] = []
        items, stride = "1", str(size)
        for extent in reversed(shape):
            strides.insert(0, stride)
            self.lines.append(f"  {extent}s = mul i64 {stride}, {extent}")
            self.lines.append(f"  {extent}n = mul i64 {items}, {extent}")
            stride, items = f"{extent}s", f"{extent}n"
        self.arguments += ["ptr null", "ptr null", f"i64 {items}", f"i64 {size}", f"ptr {data}p"]
        self.arguments += [f"i64 {word}" for word in (*shape, *strides)]


def _entry_text(symbol: str, native_name: str, entry: Entry) -> str:
    made = _Entry()
    result = made.word()
    for kind in entry.kinds[0]:
        made.pass_on(kind)
    arguments = ", ".join(["ptr %ret", "ptr %exc", *made.arguments])
    return "\n".join(
        [
            f"define void @{symbol}(i64 %base, i64 %args, i64 %thread, i64 %nthreads) {{",
            "  %exc = alloca ptr\n  %p = inttoptr i64 %args to ptr",
            *made.lines,
            f"  %ret = inttoptr i64 {result} to ptr",
            f'  %status = call i32 @"{native_name}"({arguments})\n  ret void\n}}\n',
        ]
    )


def _emitted(text: str, symbols: set[str], target: Target) -> bytes:
    """The object: helpers stay functions unless they are small, loops stay as they are written."""
    machine = native.machine_of(target)
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = target.triple, str(machine.target_data)
    for function in module.functions:
        function.add_function_attribute("nounwind")
        if not function.is_declaration and function.name not in symbols:
            function.linkage = "internal"
    for variable in module.global_variables:
        if not variable.is_declaration:
            variable.linkage = "internal"
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return machine.emit_object(module)
