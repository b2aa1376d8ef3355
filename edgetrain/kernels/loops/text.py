"""Compiles the planner's loops to LLVM text and objects: functions, statements, expressions.

A function is compiled once for each combination of argument kinds. A variable has one kind, which
can represent all values assigned to it; kinds are found by repeating passes over the function until
nothing changes. An index must not be negative and must be inside its array; a slice is clipped at
the array's ends. In a chain of comparisons, all are evaluated.
"""

import ast
import builtins
import functools
import operator
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ..cache.processor import Target
from ..emission.objects import LOOPS, emit_object
from .instructions import (
    COMPARE,
    DECLARATIONS,
    FLOAT,
    INT,
    NOTHING,
    SINGLE,
    TRUTH,
    WORD,
    Array,
    Instructions,
    Kind,
    Number,
    Record,
    Row,
    Value,
    constant,
    joined,
    kind_of,
    parts,
    result_of,
    returned,
)
from .kinds import Entry


def object_of(entries: Mapping[str, Entry], target: Target) -> bytes:
    """One object with the entries by symbol; code that they share is in it once.

    Helpers stay functions unless they are small.
    """
    return emit_object(text_of(entries), target, LOOPS)


_NUMBERS: dict[Any, Number] = {bool: TRUTH, int: INT, np.int64: INT, np.uint64: WORD}
_NUMBERS |= {float: FLOAT, np.float64: FLOAT, np.float32: SINGLE}
_FUNCTIONS = {np.log: "log", np.exp: "exp", np.sqrt: "sqrt"}


class Expressions(Instructions):
    """The text of one function being compiled.

    Args:
      names: names in the function's module.
      call: compiles a call of another loop; returns the kind of its result and its LLVM name.
    """

    def __init__(
        self, names: dict[str, Any], call: Callable[[Any, list[Kind]], tuple[Kind, str]]
    ) -> None:
        super().__init__()
        self.names, self.call = names, call
        self.kinds: dict[str, Kind] = {}

    def value(self, node: ast.expr) -> Value:
        """An expression's value."""
        known, result = self._known(node)
        if known:
            return constant(result)
        make = getattr(self, f"_{type(node).__name__.lower()}", None)
        if make is None:
            raise NotImplementedError(f"{type(node).__name__} is not supported in loops")
        return make(node)

    def number(self, node: ast.expr, kind: Number = INT) -> str:
        """An expression's value as an operand of this kind."""
        return self.cast(self.value(node), kind).text

    def truth(self, node: ast.expr) -> str:
        """An expression's truth value."""
        result = self.value(node)
        if result.kind == TRUTH:
            return result.text
        zero = "0" if result.kind in (INT, WORD) else "0.0"
        return self.compared("ne" if zero == "0" else "une", result, Value(result.kind, (zero,)))

    def load(self, name: str) -> Value:
        """A variable's value."""
        kind = self.kinds[name]
        loaded = [self.new(f"load {llvm}, ptr %{name}.{k}") for k, llvm in enumerate(parts(kind))]
        return Value(kind, tuple(loaded))

    def place(self, node: ast.Subscript) -> tuple[Array, str]:
        """An element's array and address."""
        array = self.value(node.value)
        assert isinstance(array.kind, Array), array.kind
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        assert len(inner) == array.kind.dimensions, ast.unparse(node)
        index = self.number(inner[0])
        for extent, following in zip(array.operands[2:], inner[1:], strict=True):
            index = self.new(f"mul nsw i64 {index}, {extent}")
            index = self.new(f"add nsw i64 {index}, {self.number(following)}")
        return array.kind, self.element(array, index)

    def _known(self, node: ast.expr) -> tuple[bool, Any]:
        """Whether an expression is a constant number, of the module or the text, and its value."""
        if isinstance(node, ast.Constant):
            return True, node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            known, result = self._known(node.operand)
            return known, -result if known else None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            ((base, left_value), (power, other)) = self._known(node.left), self._known(node.right)
            return (True, left_value**other) if base and power else (False, None)
        known, result = self._object(node)
        return known and isinstance(result, (int, float, np.generic)), result

    def _object(self, node: ast.expr) -> tuple[bool, Any]:
        """Whether a node refers to an object outside the function, and that object."""
        if isinstance(node, ast.Attribute):
            known, result = self._object(node.value)
            inside = known and isinstance(result, ModuleType)
            return (True, getattr(result, node.attr)) if inside else (False, None)
        if not isinstance(node, ast.Name) or node.id in self.kinds:
            return False, None
        return (node.id in self.names), self.names.get(node.id)

    def _name(self, node: ast.Name) -> Value:
        return self.load(node.id)

    def _attribute(self, node: ast.Attribute) -> Value:
        of = self.value(node.value)
        if isinstance(of.kind, Record):
            offset, annotation = of.kind.field(node.attr)
            kind = kind_of(annotation)
            return Value(
                kind, tuple(self.word(of.text, offset + k, p) for k, p in enumerate(parts(kind)))
            )
        if isinstance(of.kind, Row):
            return self.items(of)[of.kind.names.index(node.attr)]
        extents = [Value(INT, (item,)) for item in of.operands[1:]]
        if node.attr == "shape":
            return self.row(extents)
        assert node.attr == "size", node.attr
        size = extents[0]
        for other in extents[1:]:
            size = self.binary(ast.Mult(), size, other)
        return size

    def _subscript(self, node: ast.Subscript) -> Value:
        of = self.value(node.value)
        if isinstance(of.kind, Row):
            return self.items(of)[operator.index(ast.literal_eval(node.slice))]
        assert isinstance(of.kind, Array), of.kind
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if len(inner) == of.kind.dimensions and not isinstance(inner[-1], ast.Slice):
            return self.item(*self.place(node))
        if of.kind.dimensions == 2:
            index = self.new(f"mul nsw i64 {self.number(inner[0])}, {of.operands[2]}")
            of = Value(Array(of.kind.dtype, 1), (self.element(of, index), of.operands[2]))
            inner = inner[1:]
        return self._slice(of, inner[0]) if inner else of

    def _slice(self, array: Value, part: ast.expr) -> Value:
        assert isinstance(part, ast.Slice) and part.step is None
        extent = array.operands[1]
        start = self._within(part.lower, extent) if part.lower else "0"
        stop = self._within(part.upper, extent) if part.upper else extent
        length = self.new(f"sub nsw i64 {stop}, {start}")
        length = self.new(f"call i64 @llvm.smax.i64(i64 {length}, i64 0)")
        return Value(array.kind, (self.element(array, start), length))

    def _within(self, node: ast.expr, extent: str) -> str:
        """A slice bound: counted from the end if negative, and clipped to the array."""
        index = self.number(node)
        back = self.new(f"add i64 {index}, {extent}")
        negative = self.new(f"icmp slt i64 {index}, 0")
        index = self.new(f"select i1 {negative}, i64 {back}, i64 {index}")
        index = self.new(f"call i64 @llvm.smax.i64(i64 {index}, i64 0)")
        return self.new(f"call i64 @llvm.smin.i64(i64 {index}, i64 {extent})")

    def _tuple(self, node: ast.Tuple) -> Value:
        return self.row([self.value(item) for item in node.elts])

    def _binop(self, node: ast.BinOp) -> Value:
        return self.binary(node.op, self.value(node.left), self.value(node.right))

    def _unaryop(self, node: ast.UnaryOp) -> Value:
        if isinstance(node.op, ast.Not):
            return Value(TRUTH, (self.new(f"xor i1 {self.truth(node.operand)}, true"),))
        of = self.value(node.operand)
        if isinstance(node.op, ast.UAdd):
            return of
        assert isinstance(node.op, ast.USub), ast.unparse(node)
        if of.kind in (FLOAT, SINGLE):
            assert isinstance(of.kind, Number)
            return Value(of.kind, (self.new(f"fneg {of.kind.llvm} {of.text}"),))
        return self.binary(ast.Sub(), constant(0), of)

    def _compare(self, node: ast.Compare) -> Value:
        values = [self.value(operand) for operand in (node.left, *node.comparators)]
        held = [
            self.compared(COMPARE[type(op)], *pair)
            for op, pair in zip(node.ops, zip(values, values[1:], strict=False), strict=True)
        ]
        all_held = held[0]
        for operand in held[1:]:
            all_held = self.new(f"and i1 {all_held}, {operand}")
        return Value(TRUTH, (all_held,))

    def _boolop(self, node: ast.BoolOp) -> Value:
        """As in Python: later operands are evaluated only if they matter."""
        end, held = self.label(), self.slot("i1")
        for number, item in enumerate(node.values):
            truth = self.truth(item)
            self.lines.append(f"  store i1 {truth}, ptr {held}")
            following = self.label() if number < len(node.values) - 1 else end
            yes, no = (following, end) if isinstance(node.op, ast.And) else (end, following)
            self.lines.append(f"  br i1 {truth}, label %{yes}, label %{no}")
            self.lines.append(f"{following}:")
        return Value(TRUTH, (self.new(f"load i1, ptr {held}"),))

    def _ifexp(self, node: ast.IfExp) -> Value:
        yes, no, end = self.label(), self.label(), self.label()
        self.fork(self.truth(node.test), yes, no)
        before, self.lines = self.lines, []
        value_if, first, self.lines = self.value(node.body), self.lines, []
        other, second = self.value(node.orelse), self.lines
        kind = joined(value_if.kind, other.kind)
        slots = [self.slot(llvm) for llvm in parts(kind)]
        self.lines = [*before, *first]
        for value, lines, label in ((value_if, second, no), (other, [], end)):
            for slot, llvm, part in zip(
                slots, parts(kind), self.cast(value, kind).operands, strict=True
            ):
                self.lines.append(f"  store {llvm} {part}, ptr {slot}")
            self.lines += [f"  br label %{end}", f"{label}:", *lines]
        loaded = [self.new(f"load {p}, ptr {s}") for p, s in zip(parts(kind), slots, strict=True)]
        return Value(kind, tuple(loaded))

    def _call(self, node: ast.Call) -> Value:
        _, function = self._object(node.func)
        values = [self.value(item) for item in node.args]
        if function in (min, max):
            return self.most(function is max, values)
        if function in _FUNCTIONS:
            text = self.cast(values[0], FLOAT).text
            called = f"call double @llvm.{_FUNCTIONS[function]}.f64(double {text})"
            return Value(FLOAT, (self.new(called),))
        if function in _NUMBERS:
            return self.cast(values[0], _NUMBERS[function])
        if isinstance(function, type) and hasattr(function, "_fields"):
            kinds = function.__annotations__.values()
            made = [self.cast(*pair) for pair in zip(values, map(kind_of, kinds), strict=True)]
            return self.row(made, function._fields)
        return self.called(function, values)

    def called(self, function: Any, values: list[Value]) -> Value:
        """The result of calling another loop."""
        kind, name = self.call(function, [item.kind for item in values])
        row = self.row(values)
        typed = [f"{item} {part}" for item, part in zip(parts(row.kind), row.operands, strict=True)]
        llvm, count = returned(kind), len(parts(kind))
        if not count:
            self.lines.append(f"  call void @{name}({', '.join(typed)})")
            return Value(kind, ())
        result = self.new(f"call {llvm} @{name}({', '.join(typed)})")
        if count == 1:
            return Value(kind, (result,))
        return Value(
            kind, tuple(self.new(f"extractvalue {llvm} {result}, {k}") for k in range(count))
        )


def text_of(entries: Mapping[str, Entry]) -> str:
    """LLVM text of a module with the entries by symbol, and everything they call."""
    made = _Module()
    ends = [made.entry(symbol, entry) for symbol, entry in entries.items()]
    return "\n".join([*made.texts, *ends, DECLARATIONS])


class _Module:
    """Compiled functions, by Python function and argument kinds."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._known: dict[tuple[Callable, tuple[Kind, ...]], tuple[Kind, str]] = {}

    def function(self, loop: Any, kinds: list[Kind]) -> tuple[Kind, str]:
        """The kind of a call's result, and the LLVM function's name; compiles it on first use."""
        assert hasattr(loop, "function"), f"{loop} is no loop"
        key = loop.function, tuple(kinds)
        if key not in self._known:
            name = f"{loop.function.__name__}.{len(self._known)}"
            self._known[key] = NOTHING, name  # loops don't recurse
            body = _Body(loop.function, kinds, self.function)
            self.texts.append(body.text(name))
            self._known[key] = body.result or NOTHING, name
        return self._known[key]

    def entry(self, symbol: str, entry: Entry) -> str:
        """The function that Python calls, with the result's address, then the arguments' words."""
        annotations, result = entry.kinds
        made = Expressions({}, self.function)
        values, offset = [], 1
        for kind in map(kind_of, annotations):
            loaded = [made.word("%p", offset + k, llvm) for k, llvm in enumerate(parts(kind))]
            values.append(Value(kind, tuple(loaded)))
            offset += len(loaded)
        value = made.cast(made.called(entry, values), result_of(result))
        into = made.word("%p", 0, "ptr")
        for k, (llvm, part) in enumerate(zip(parts(value.kind), value.operands, strict=True)):
            address = made.new(f"getelementptr i64, ptr {into}, i64 {k}")
            made.lines.append(f"  store {llvm} {part}, ptr {address}")
        head = f"define void @{symbol}(i64 %base, i64 %args, i64 %thread, i64 %nthreads) {{"
        return "\n".join([head, "  %p = inttoptr i64 %args to ptr", *made.lines, "  ret void\n}"])


class _Body(Expressions):
    """One function; `result` is the kind of its result."""

    def __init__(self, function: Callable, kinds: list[Kind], call: Callable) -> None:
        super().__init__({**vars(builtins), **function.__globals__}, call)
        self.function = function
        self.node = _definitions(function.__code__.co_filename)[function.__name__]
        self.parameters = dict(zip([item.arg for item in self.node.args.args], kinds, strict=True))
        self.kinds |= self.parameters
        self.result: Kind | None = None
        self._loops: list[tuple[str, str]] = []

    def text(self, name: str) -> str:
        """The function's text, once all kinds are known."""
        before = None
        while before != (before := (dict(self.kinds), self.result)):
            self.lines, self.slots = [], []
            self._statements(self.node.body)
        heads, stores = [], []
        for parameter, kind in self.parameters.items():
            for k, llvm in enumerate(parts(kind)):
                heads.append(f"{llvm} %{parameter}.{k}.given")
                stores.append(f"  store {llvm} %{parameter}.{k}.given, ptr %{parameter}.{k}")
        slots = [
            f"  %{parameter}.{k} = alloca {llvm}"
            for parameter, kind in self.kinds.items()
            for k, llvm in enumerate(parts(kind))
        ]
        llvm = returned(self.result or NOTHING)
        end = "  ret void" if llvm == "void" else f"  ret {llvm} zeroinitializer"
        head = f"define internal {llvm} @{name}({', '.join(heads)}) nounwind {{"
        return "\n".join([head, *slots, *self.slots, *stores, *self.lines, end, "}"])

    def _statements(self, body: list[ast.stmt]) -> None:
        for statement in body:
            try:
                getattr(self, f"_{type(statement).__name__.lower()}_")(statement)
            except Exception as error:
                file = self.function.__code__.co_filename
                error.add_note(
                    f"{file}:{statement.lineno}: {ast.unparse(statement).splitlines()[0]}"
                )
                raise

    def _expr_(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring
            self.value(node.value)

    def _assign_(self, node: ast.Assign) -> None:
        value = self.value(node.value)
        for target in node.targets:
            self._give(target, value)

    def _augassign_(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Subscript):
            array, address = self.place(node.target)
            before = self.item(array, address)
            self.put(array, address, self.binary(node.op, before, self.value(node.value)))
            return
        assert isinstance(node.target, ast.Name)
        before = self.load(node.target.id)
        self._give(node.target, self.binary(node.op, before, self.value(node.value)))

    def _give(self, target: ast.expr, value: Value) -> None:
        """Assign a value; parts of a tuple are assigned in order, after all have been computed."""
        if isinstance(target, ast.Tuple):
            for name, item in zip(target.elts, self.items(value), strict=True):
                self._give(name, item)
        elif isinstance(target, ast.Subscript):
            self.put(*self.place(target), value)
        else:
            assert isinstance(target, ast.Name), ast.unparse(target)
            known = self.kinds.get(target.id, value.kind)
            kind = self.kinds[target.id] = joined(known, value.kind)
            for k, (llvm, part) in enumerate(
                zip(parts(kind), self.cast(value, kind).operands, strict=True)
            ):
                self.lines.append(f"  store {llvm} {part}, ptr %{target.id}.{k}")

    def _if_(self, node: ast.If) -> None:
        yes, no, end = self.label(), self.label(), self.label()
        self.fork(self.truth(node.test), yes, no)
        self._statements(node.body)
        self.lines += [f"  br label %{end}", f"{no}:"]
        self._statements(node.orelse)
        self.begin(end)

    def _while_(self, node: ast.While) -> None:
        again, inside, end = self.label(), self.label(), self.label()
        self.begin(again)
        self.fork(self.truth(node.test), inside, end)
        self._loops.append((again, end))
        self._statements(node.body)
        self._loops.pop()
        self.lines += [f"  br label %{again}", f"{end}:"]

    def _for_(self, node: ast.For) -> None:
        """A loop over a range, an array, or an enumerated array; bounds are evaluated once."""
        start, stop, step, down, array = self._range(node.iter)
        counter = self.slot("i64")
        self.lines.append(f"  store i64 {start}, ptr {counter}")
        again, inside, following, end = (self.label() for _ in range(4))
        self.begin(again)
        number = self.new(f"load i64, ptr {counter}")
        more = self.new(f"icmp slt i64 {number}, {stop}")
        if down is not None:
            less = self.new(f"icmp sgt i64 {number}, {stop}")
            more = self.new(f"select i1 {down}, i1 {less}, i1 {more}")
        self.fork(more, inside, end)
        item = Value(INT, (number,))
        if array is not None:
            assert isinstance(array.kind, Array)
            element = self.item(array.kind, self.element(array, number))
            item = self.row([item, element]) if _is_call(node.iter, "enumerate") else element
        self._give(node.target, item)
        self._loops.append((following, end))
        self._statements(node.body)
        self._loops.pop()
        self.begin(following)
        number = self.new(f"load i64, ptr {counter}")
        self.lines.append(f"  store i64 {self.new(f'add nsw i64 {number}, {step}')}, ptr {counter}")
        self.lines += [f"  br label %{again}", f"{end}:"]

    def _range(self, node: ast.expr) -> tuple[str, str, str, str | None, Value | None]:
        """Start, stop, step, whether it counts down (None: up), and the array if any."""
        if _is_call(node, "range"):
            given = [self.number(item) for item in node.args]  # type: ignore[attr-defined]
            if len(given) < 3:
                return *(["0", *given][-2:]), "1", None, None  # type: ignore[return-value]
            down = self.new(f"icmp slt i64 {given[2]}, 0")
            return given[0], given[1], given[2], down, None
        of = node.args[0] if _is_call(node, "enumerate") else node  # type: ignore[attr-defined]
        array = self.value(of)
        return "0", array.operands[1], "1", None, array

    def _break_(self, node: ast.Break) -> None:
        self.jump(self._loops[-1][1])

    def _continue_(self, node: ast.Continue) -> None:
        self.jump(self._loops[-1][0])

    def _pass_(self, node: ast.Pass) -> None:
        pass

    def _return_(self, node: ast.Return) -> None:
        value = Value(NOTHING, ()) if node.value is None else self.value(node.value)
        self.result = value.kind if self.result is None else joined(self.result, value.kind)
        result, llvm = "undef", returned(self.result)
        operands = self.cast(value, self.result).operands
        if len(operands) > 1:
            for k, (part, operand) in enumerate(zip(parts(self.result), operands, strict=True)):
                result = self.new(f"insertvalue {llvm} {result}, {part} {operand}, {k}")
        self.lines.append(f"  ret {llvm} {result}" if len(operands) > 1 else _ret(llvm, operands))
        self.lines.append(f"{self.label()}:")


def _ret(llvm: str, operands: tuple[str, ...]) -> str:
    return " ".join(["  ret", llvm, *operands])


def _is_call(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


@functools.cache
def _definitions(file: str) -> dict[str, ast.FunctionDef]:
    """The functions of a file by name."""
    tree = ast.parse(Path(file).read_text())
    return {item.name: item for item in tree.body if isinstance(item, ast.FunctionDef)}
