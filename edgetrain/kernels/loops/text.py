"""The planner's loops as LLVM text: functions and their statements (expressions.py).

A function is compiled once for the kinds it is called with. A variable has one kind, that of
all it is given, found by going through the function until nothing changes.
"""

import ast
import builtins
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .expressions import Expressions
from .instructions import DECLARATIONS, returned
from .kinds import Entry
from .values import INT, NOTHING, Array, Kind, Value, joined, kind_of, parts, result_of


def text_of(entries: Mapping[str, Entry]) -> str:
    """LLVM text of a module with the entries by symbol, and all that they call."""
    made = _Module()
    ends = [made.entry(symbol, entry) for symbol, entry in entries.items()]
    return "\n".join([*made.texts, *ends, DECLARATIONS])


class _Module:
    """Functions by what they are of and what they take."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._known: dict[tuple[Callable, tuple[Kind, ...]], tuple[Kind, str]] = {}

    def function(self, loop: Any, kinds: list[Kind]) -> tuple[Kind, str]:
        """What a call returns, and the function's name; compiled where it is not yet."""
        assert hasattr(loop, "function"), f"{loop} is no loop"
        key = loop.function, tuple(kinds)
        if key not in self._known:
            name = f"{loop.function.__name__}.{len(self._known)}"
            self._known[key] = NOTHING, name  # no loop calls itself
            body = _Body(loop.function, kinds, self.function)
            self.texts.append(body.text(name))
            self._known[key] = body.result or NOTHING, name
        return self._known[key]

    def entry(self, symbol: str, entry: Entry) -> str:
        """What Python calls: it takes the words one after the other, and the result's first."""
        annotations, result = entry.kinds
        made = Expressions({}, self.function)
        values, at = [], 1
        for kind in map(kind_of, annotations):
            loaded = [made.word("%p", at + k, llvm) for k, llvm in enumerate(parts(kind))]
            values.append(Value(kind, tuple(loaded)))
            at += len(loaded)
        value = made.cast(made.called(entry, values), result_of(result))
        into = made.word("%p", 0, "ptr")
        for k, (llvm, part) in enumerate(zip(parts(value.kind), value.operands, strict=True)):
            address = made.new(f"getelementptr i64, ptr {into}, i64 {k}")
            made.lines.append(f"  store {llvm} {part}, ptr {address}")
        head = f"define void @{symbol}(i64 %base, i64 %args, i64 %thread, i64 %nthreads) {{"
        return "\n".join([head, "  %p = inttoptr i64 %args to ptr", *made.lines, "  ret void\n}"])


class _Body(Expressions):
    """One function; `result` is what it returns."""

    def __init__(self, function: Callable, kinds: list[Kind], call: Callable) -> None:
        super().__init__({**vars(builtins), **function.__globals__}, call)
        self.function = function
        self.node = _definitions(function.__code__.co_filename)[function.__name__]
        self.parameters = dict(zip([one.arg for one in self.node.args.args], kinds, strict=True))
        self.kinds |= self.parameters
        self.result: Kind | None = None
        self._loops: list[tuple[str, str]] = []

    def text(self, name: str) -> str:
        """The function, once all kinds are known."""
        before = None
        while before != (before := (dict(self.kinds), self.result)):
            self.lines, self.slots = [], []
            self._statements(self.node.body)
        heads, stores = [], []
        for one, kind in self.parameters.items():
            for k, llvm in enumerate(parts(kind)):
                heads.append(f"{llvm} %{one}.{k}.given")
                stores.append(f"  store {llvm} %{one}.{k}.given, ptr %{one}.{k}")
        slots = [
            f"  %{one}.{k} = alloca {llvm}"
            for one, kind in self.kinds.items()
            for k, llvm in enumerate(parts(kind))
        ]
        llvm = returned(self.result or NOTHING)
        end = "  ret void" if llvm == "void" else f"  ret {llvm} zeroinitializer"
        head = f"define internal {llvm} @{name}({', '.join(heads)}) nounwind {{"
        return "\n".join([head, *slots, *self.slots, *stores, *self.lines, end, "}"])

    def _statements(self, body: list[ast.stmt]) -> None:
        for one in body:
            try:
                getattr(self, f"_{type(one).__name__.lower()}_")(one)
            except Exception as error:
                file = self.function.__code__.co_filename
                error.add_note(f"{file}:{one.lineno}: {ast.unparse(one).splitlines()[0]}")
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
        """Assign; the parts of a tuple one after the other, all of which are known by then."""
        if isinstance(target, ast.Tuple):
            for one, item in zip(target.elts, self.items(value), strict=True):
                self._give(one, item)
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
        """Over a range, an array, or an array with places: bounds are those at the beginning."""
        start, stop, step, down, array = self._range(node.iter)
        counter = self.slot("i64")
        self.lines.append(f"  store i64 {start}, ptr {counter}")
        again, inside, following, end = (self.label() for _ in range(4))
        self.begin(again)
        at = self.new(f"load i64, ptr {counter}")
        more = self.new(f"icmp slt i64 {at}, {stop}")
        if down is not None:
            less = self.new(f"icmp sgt i64 {at}, {stop}")
            more = self.new(f"select i1 {down}, i1 {less}, i1 {more}")
        self.fork(more, inside, end)
        item = Value(INT, (at,))
        if array is not None:
            assert isinstance(array.kind, Array)
            element = self.item(array.kind, self.element(array, at))
            item = self.row([item, element]) if _is_call(node.iter, "enumerate") else element
        self._give(node.target, item)
        self._loops.append((following, end))
        self._statements(node.body)
        self._loops.pop()
        self.begin(following)
        at = self.new(f"load i64, ptr {counter}")
        self.lines.append(f"  store i64 {self.new(f'add nsw i64 {at}, {step}')}, ptr {counter}")
        self.lines += [f"  br label %{again}", f"{end}:"]

    def _range(self, node: ast.expr) -> tuple[str, str, str, str | None, Value | None]:
        """Start, stop, step, whether it goes down (None: it goes up), and the array if any."""
        if _is_call(node, "range"):
            given = [self.number(one) for one in node.args]  # type: ignore[attr-defined]
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
        whole, llvm = "undef", returned(self.result)
        operands = self.cast(value, self.result).operands
        if len(operands) > 1:
            for k, (part, one) in enumerate(zip(parts(self.result), operands, strict=True)):
                whole = self.new(f"insertvalue {llvm} {whole}, {part} {one}, {k}")
        self.lines.append(f"  ret {llvm} {whole}" if len(operands) > 1 else _ret(llvm, operands))
        self.lines.append(f"{self.label()}:")


def _ret(llvm: str, operands: tuple[str, ...]) -> str:
    return " ".join(["  ret", llvm, *operands])


def _is_call(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


@functools.cache
def _definitions(file: str) -> dict[str, ast.FunctionDef]:
    """The functions of a file by name."""
    tree = ast.parse(Path(file).read_text())
    return {one.name: one for one in tree.body if isinstance(one, ast.FunctionDef)}
