"""Statements of kernels as LLVM basic blocks: variables, branches, loops, returns."""

import ast
import types as python
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from numba.core import types
from numba.core.errors import TypingError

from .expressions import Expressions
from .syntax import written
from .values import I1, I64, NOTHING, Value, constant, parameters_of, row, together, undefined


@dataclass
class _Loop:
    """A loop being compiled.

    Attributes:
      again, end: targets of `continue` and `break`.
      before: variables at its start.
      read: those variables that the loop reads with their type at the start.
      changed: those variables whose type differs when the loop repeats or ends.
    """

    again: Any
    end: Any
    before: dict[str, Value]
    read: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)

    def leave(self, slots: dict[str, Value]) -> None:
        """Note the variables that have changed when the loop repeats or ends."""
        self.changed |= {name for name, item in self.before.items() if slots.get(name) is not item}


class Body(Expressions):
    """One function; `made` writes its blocks."""

    def __init__(self, module: Any, function: python.FunctionType, builder: Any) -> None:
        super().__init__(module, function, builder)
        self._function = function
        self._source = written(function)
        # variables in memory, as visible here and all of them; their leaves are addresses
        self._slots: dict[str, Value] = {}
        self._memory: dict[tuple[str, Any], Value] = {}
        self._returns: list[tuple[Value, Any]] = []
        self._loops: list[_Loop] = []

    def made(self, given: Sequence[Value]) -> Value:
        """Write the function for these parameters and return its result."""
        for name, value in zip(parameters_of(self._function), given, strict=True):
            self._give(name, value)
        if not self._statements(self._source.body):
            self._returns.append((NOTHING, self.builder.block))
        return self._returned()

    def _returned(self) -> Value:
        if len(self._returns) == 1:
            ((result, block),) = self._returns
        else:
            values = [value.forgotten() for value, _ in self._returns]
            kind = self.common(values)
            result = values[0]
        for value, block in self._returns:
            self.builder.position_at_end(block)
            found = value
            if len(self._returns) > 1:
                found = result = self.cast(value.forgotten(), kind)
            texts = [leaf.text for leaf in found.leaves()]
            if len(texts) < 2:
                self.builder.ret(texts[0]) if texts else self.builder.ret_void()
                continue
            row = undefined(together([text.type for text in texts]))
            for k, text in enumerate(texts):
                row = self.builder.insert_value(row, text, k)
            self.builder.ret(row)
        return result

    def _statements(self, body: list[ast.stmt]) -> bool:
        """Write the statements; True if control never reaches the end."""
        for statement in body:
            try:
                if getattr(self, f"_{type(statement).__name__.lower()}_")(statement):
                    return True
            except Exception as error:
                if not getattr(error, "__notes__", None):
                    file = self._function.__code__.co_filename
                    error.add_note(
                        f"{file}:{statement.lineno}: {ast.unparse(statement).splitlines()[0]}"
                    )
                raise
        return False

    def _name(self, node: ast.Name) -> Value:
        slots = self._slots.get(node.id)
        if slots is None:
            of_types = (name for name, _ in self._memory)
            if node.id not in self.variables and node.id in of_types:
                raise TypingError(f"{node.id} has different types on different paths")
            return super()._name(node)
        for loop in self._loops:
            if loop.before.get(node.id) is slots:
                loop.read.add(node.id)
        loaded = (self.builder.load(leaf.text) for leaf in slots.leaves())
        return slots.rebuilt(loaded)

    def _give(self, name: str, value: Value) -> None:
        if name in self._source.kept:
            self.variables[name] = value
            return
        value = value.forgotten()
        if (name, value.key) not in self._memory:
            slots = value.rebuilt(self.slot(leaf.text.type) for leaf in value.leaves())
            self._memory[name, value.key] = slots
        slots = self._slots[name] = self._memory[name, value.key]
        for leaf, slot in zip(value.leaves(), slots.leaves(), strict=True):
            self.builder.store(leaf.text, slot.text)

    def _take(self, target: ast.expr, value: Value) -> None:
        for name, item in _bound(target, value):
            self._give(name, item)

    def _pass_(self, node: ast.Pass) -> None:
        pass

    def _expr_(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring
            self.value(node.value)

    def _assign_(self, node: ast.Assign) -> None:
        value = self.value(node.value)
        for target in node.targets:
            self._take(target, value)

    def _augassign_(self, node: ast.AugAssign) -> None:
        assert isinstance(node.target, ast.Name), ast.unparse(node)
        before = self.value(ast.copy_location(ast.Name(node.target.id, ast.Load()), node))
        self._give(node.target.id, self.binary(node.op, before, self.value(node.value)))

    def _return_(self, node: ast.Return) -> bool:
        value = NOTHING if node.value is None else self.value(node.value)
        self._returns.append((value, self.builder.block))
        return True

    def _if_(self, node: ast.If) -> bool:
        decided = self.decided(node.test)
        if decided is not None:
            return self._statements(node.body if decided else node.orelse)
        yes, no = self.block(), self.block()
        self.branch(node.test, yes, no)
        open_ends, before, known = [], self._slots, []
        for block, body in ((yes, node.body), (no, node.orelse)):
            self.builder.position_at_end(block)
            self._slots = dict(before)
            if not self._statements(body):
                open_ends.append(self.builder.block)
                known.append(self._slots)
        if not open_ends:
            return True
        self._slots = self._merged(open_ends, known)
        end = self.block()
        for block in open_ends:
            self.builder.position_at_end(block)
            self.builder.branch(end)
        self.builder.position_at_end(end)
        return False

    def _merged(self, ends: list[Any], ways: list[dict[str, Value]]) -> dict[str, Value]:
        """Variables where control flow paths join. A variable that only some paths assign may be
        read afterwards. One with several types is converted to their common type at the end of each
        path, as in numba."""
        result: dict[str, Value] = {}
        for name in dict.fromkeys(name for way in ways for name in way):
            given = [(end, way[name]) for end, way in zip(ends, ways, strict=True) if name in way]
            first = given[0][1]
            if all(slot is first for _, slot in given):
                result[name] = first
            else:
                result[name] = self._unified(name, given)
        return result

    def _unified(self, name: str, given: list[tuple[Any, Value]]) -> Value:
        kind = self.common([slot for _, slot in given])
        for end, slot in given:
            self.builder.position_at_end(end)
            loaded = slot.rebuilt(self.builder.load(leaf.text) for leaf in slot.leaves())
            self._give(name, self.cast(loaded, kind))
        return self._slots[name]

    def _while_(self, node: ast.While) -> None:
        again, inside, end = self.block(), self.block(), self.block()
        self.builder.branch(again)
        self.builder.position_at_end(again)
        self.branch(node.test, inside, end)
        self.builder.position_at_end(inside)
        self._loop(node.body, again, end)
        self.builder.position_at_end(end)

    def _loop(self, body: list[ast.stmt], again: Any, end: Any) -> None:
        self._loops.append(_Loop(again, end, dict(self._slots)))
        if not self._statements(body):
            self._leave(again)
        ended = self._loops.pop()
        if ended.changed & ended.read:
            raise TypingError(f"{ended.changed & ended.read} change type between loop iterations")
        for loop in self._loops:
            loop.read |= ended.read
        self._slots = {k: v for k, v in ended.before.items() if k not in ended.changed} | {
            k: v for k, v in self._slots.items() if k not in ended.before
        }

    def _leave(self, block: Any) -> bool:
        self._loops[-1].leave(self._slots)
        self.builder.branch(block)
        return True

    def _break_(self, node: ast.Break) -> bool:
        return self._leave(self._loops[-1].end)

    def _continue_(self, node: ast.Continue) -> bool:
        return self._leave(self._loops[-1].again)

    def _for_(self, node: ast.For) -> None:
        """A loop over a range, with its bounds evaluated once, or unrolled over a tuple."""
        call = node.iter
        if not isinstance(call, ast.Call) or self.value(call.func).known is not range:
            return self._each(node)
        bounds = [self.cast(self.value(item), types.int64) for item in call.args]
        start = bounds[0] if len(bounds) > 1 else constant(0)
        stop, step = bounds[min(1, len(bounds) - 1)], bounds[2] if len(bounds) > 2 else constant(1)
        again, inside, following, end = (self.block() for _ in range(4))
        before = self.builder.block
        self.builder.branch(again)
        self.builder.position_at_end(again)
        counter = self.builder.phi(I64)
        counter.add_incoming(start.text, before)
        self.builder.cbranch(self._more(counter, stop.text, step), inside, end)
        self.builder.position_at_end(inside)
        self._take(node.target, Value(types.int64, counter))
        self._loop(node.body, following, end)
        self.builder.position_at_end(following)
        counter.add_incoming(self.builder.add(counter, step.text, flags=["nsw"]), following)
        self.builder.branch(again)
        self.builder.position_at_end(end)

    def _each(self, node: ast.For) -> None:
        end = self.block()
        for item in self._items(node.iter):
            following = self.block()
            self._take(node.target, item)
            self._loop(node.body, following, end)
            self.builder.position_at_end(following)
        self.builder.branch(end)
        self.builder.position_at_end(end)

    def _items(self, node: ast.expr) -> list[Value]:
        """The items of a tuple, `enumerate` or `zip`; their number is known."""
        function = self.value(node.func).known if isinstance(node, ast.Call) else None
        if function is enumerate:
            items = self._items(node.args[0])  # type: ignore[attr-defined]
            return [row([constant(number), item]) for number, item in enumerate(items)]
        if function is zip:
            columns = map(self._items, node.args)  # type: ignore[attr-defined]
            return [row(items) for items in zip(*columns, strict=True)]
        return list(self.value(node).items or ())

    def _generatorexp(self, node: ast.GeneratorExp) -> Value:
        """A tuple with a value for each item; its variables are local to it."""
        (loop,) = node.generators
        assert not loop.ifs, ast.unparse(node)
        variables, slots = self.variables, self._slots
        values = []
        for item in self._items(loop.iter):
            bound = dict(_bound(loop.target, item))
            self.variables = variables | bound
            self._slots = {name: slot for name, slot in slots.items() if name not in bound}
            values.append(self.value(node.elt))
        self.variables, self._slots = variables, slots
        return row(values)

    def _more(self, counter: Any, stop: Any, step: Value) -> Any:
        if step.known is not None:
            return self.builder.icmp_signed("<" if step.known > 0 else ">", counter, stop)
        less = self.builder.icmp_signed("<", counter, stop)
        more = self.builder.icmp_signed(">", counter, stop)
        up = self.builder.icmp_signed(">", step.text, I64(0))
        return self.builder.select(up, less, self.builder.and_(more, I1(1)))


def _bound(target: ast.expr, value: Value) -> Iterator[tuple[str, Value]]:
    """A target's names with their values."""
    if isinstance(target, ast.Tuple):
        for part, item in zip(target.elts, value.items or (), strict=True):
            yield from _bound(part, item)
    else:
        assert isinstance(target, ast.Name), ast.unparse(target)
        yield target.id, value
