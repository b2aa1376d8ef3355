"""Functions of kernels as one LLVM module: statements, calls and called functions.

A function is compiled once for each combination of argument types and known numbers. Helpers become
functions that are always inlined; functions of language/calls.py are not inlined.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from numba.core import callconv, types
from numba.core.errors import TypingError
from numba.core.registry import cpu_target
from numba.core.types import containers

from .expressions import Expressions
from .statements import Body
from .values import (
    NOTHING,
    Value,
    builder_at,
    constant,
    function_of,
    module_of,
    parameters_of,
    set_return_types,
    undefined,
)


class _Made(NamedTuple):
    """A compiled function, and its result: a value whose leaves are placeholders for the results of
    the LLVM function."""

    function: Any
    result: Value


class Module:
    """A kernel's functions.

    Attributes:
      typing, target: numba's contexts.
    """

    def __init__(self) -> None:
        cpu_target.typing_context.refresh()
        cpu_target.target_context.refresh()
        self.typing = cpu_target.typing_context
        target = cpu_target.target_context.subtarget()
        target.error_model = callconv.create_error_model("numpy", target)
        self.target, self.ir = target, module_of("kernel")
        self._made: dict[Any, _Made] = {}
        self._operations: dict[Any, Any] = {}
        self._count = 0
        self._kept: list[Any] = []  # keeps objects alive, so that no id is reused

    def kernel(self, name: str, function: Callable, kinds: Sequence[types.Type]) -> None:
        """Add the kernel itself; its tuples are passed as separate members."""
        with self.target.push_code_library(None):  # nothing of numba's is linked
            self._function(name, function, self._blank(kinds), "")

    def call(
        self,
        caller: Expressions,
        function: Callable,
        values: list[Value],
        named: dict[str, Value],
    ) -> Value:
        """Call a helper."""
        parameters = parameters_of(function)
        if len(values) < len(parameters):
            values = [*values, *self._further(function, parameters[len(values) :], named)]
        if len(values) != len(parameters):
            raise TypingError(f"{function.__qualname__} takes {len(parameters)} arguments")
        key = id(function), tuple(value.key for value in values)
        if key not in self._made:
            self._kept += [function, values]
            blank = list(values)
            self._count += 1
            name = f"{function.__name__.strip('<>')}.{self._count}"
            self._made[key] = self._function(name, function, blank, "alwaysinline")
        made = self._made[key]
        leaves = [leaf.text for value in values for leaf in value.leaves()]
        return self._result(caller, made, caller.builder.call(made.function, leaves))

    @staticmethod
    def _further(function: Any, parameters: list[str], named: dict[str, Value]) -> "list[Value]":
        given = function.__defaults__ or ()
        first = len(parameters_of(function)) - len(given)
        defaults = dict(zip(parameters_of(function)[first:], given, strict=True))
        return [named[item] if item in named else constant(defaults[item]) for item in parameters]

    @staticmethod
    def _result(caller: Expressions, made: _Made, called: Any) -> Value:
        leaves = list(made.result.leaves())
        if len(leaves) == 1:
            return made.result.rebuilt(iter([called]))
        texts = [caller.builder.extract_value(called, k) for k in range(len(leaves))]
        return made.result.rebuilt(iter(texts))

    def call_outlined(self, caller: Expressions, outlined: Any, values: list[Value]) -> Value:
        """Call a function that is not inlined (language/calls.py `outline`).

        Its parameters have their declared types, so it is compiled once per module. Records are
        passed as separate fields, and it returns nothing.
        """
        name, function, kinds = outlined.name, outlined.function, outlined.kinds
        if name not in self._made:
            self._made[name] = self._function(name, function, self._blank(kinds), "noinline")
        made = [caller.cast(*pair) for pair in zip(values, kinds, strict=True)]
        leaves = [leaf for value in made for leaf in self._all_leaves(value)]
        caller.builder.call(self._made[name].function, leaves)
        return NOTHING

    def _all_leaves(self, value: Value) -> list[Any]:
        if value.items is None:
            return [value.text]
        return [leaf for item in value.items for leaf in self._all_leaves(item)]

    def _blank(self, kinds: Sequence[types.Type]) -> list[Value]:
        """Parameters of these types, with values unknown at compile time."""
        return [
            Value(kind, items=self._blank(list(kind)))
            if isinstance(kind, containers.BaseTuple)
            else Value(kind, undefined(self.target.get_value_type(kind)))
            for kind in kinds
        ]

    def _function(self, name: str, function: Any, values: list[Value], mark: str) -> _Made:
        leaves = [leaf for value in values for leaf in value.leaves()]
        made = function_of(self.ir, name, [leaf.text.type for leaf in leaves])
        if mark:
            made.linkage = "internal"
            made.attributes.add(mark)
        entry = made.append_basic_block("entry")
        first = made.append_basic_block("first")
        body = Body(self, function, builder_at(first))
        given = iter(made.args)
        result = body.made([value.rebuilt(given) for value in values])
        builder_at(entry).branch(first)
        set_return_types(made, [leaf.text.type for leaf in result.leaves()])
        return _Made(made, result)

    def intrinsic(self, intrinsic: Any, kinds: tuple) -> Any:
        """An intrinsic's signature for these types, and the function that emits instructions."""
        key = id(intrinsic), kinds
        if key not in self._operations:
            result = intrinsic._defn(self.typing, *kinds)
            if result is None:
                raise TypingError(f"{intrinsic._name} does not accept {', '.join(map(str, kinds))}")
            self._operations[key] = result
        return self._operations[key]

    def known(self, function: Any, kinds: tuple) -> Any:
        """The signature of one of numba's operators, and the function that emits instructions."""
        key = function, kinds
        if key not in self._operations:
            typed = self.typing.resolve_function_type(function, kinds, {})
            if typed is None:
                raise TypingError(f"{function} does not accept {', '.join(map(str, kinds))}")
            casts = function in (int, float, bool)
            self._operations[key] = (
                typed,
                None if casts else self.target.get_function(function, typed),
            )
        return self._operations[key]
