"""Keys of kernels: a digest of everything that determines a kernel's code, found by walking it.

A function contributes its bytecode, its constants and the meaning of its names, closure and
defaults: other functions, intrinsics with the code that emits them, classes, numbers. Docstrings,
comments, line numbers, paths and functions that are not called don't count. Files that the walk
cannot reach are part of every key, as syntax trees: the one that defines operators of vectors, and
those that lower and emit.
"""

import ast
import dataclasses
import functools
import inspect
import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ...units.sha import sha256
from ..cache import closures, sources
from ..language.inlining import Inline

_ROOM = __name__.partition(".")[0]
# Files that register things no function names: operators of vectors.
_REGISTERING = ("language.number",)
# Members of classes that don't affect code.
_SKIPPED = {
    "__doc__", "__module__", "__annotations__", "__qualname__", "__dataclass_fields__",
    "__dataclass_params__", "__match_args__", "__slots__", "_abc_impl", "__abstractmethods__",
    "__orig_bases__", "__parameters__", "_field_defaults", "_fields", "__firstlineno__",
    "__static_attributes__", "__annotate__", "__annotate_func__", "__annotations_cache__",
    "__classdictcell__", "__classcell__",
}  # fmt: skip


_VALUES = (bool, int, float, complex, str, bytes, range, slice, type(None), type(Ellipsis))


class _Unknown(Exception):
    """An object whose effect on the code is unknown."""


def key_of(function: Callable) -> str:
    """A key that changes whenever the sources of a kernel's code do; "" if some are unknown."""
    walk = _Walk()
    try:
        walk.visit(function)
    except _Unknown:
        return ""
    text = "\n".join((*walk.parts, _for_all(), sys.version))
    return sha256(text.encode(errors="backslashreplace")).hexdigest()


@functools.cache
def _for_all() -> str:
    files = sorted({*_REGISTERING, *(name for top in closures.COMPILERS for name in _with(top))})
    return "\n".join(f"{name} {_tree(name)}" for name in files)


def _with(module: str) -> tuple[str, ...]:
    """The modules of emission that a module depends on, itself included."""
    return tuple(name for name in closures.closure(module) if name.startswith("emission."))


def _tree(module: str) -> str:
    """Digest of a file's syntax tree without docstrings."""
    tree = ast.parse(sources.path_of(module).read_text())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and _is_text(body[0]):
            body[:1] = [ast.Pass()] if len(body) == 1 else []
    return sha256(ast.dump(tree).encode()).hexdigest()


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


class _Walk:
    """Walks objects depth first, each once.

    Attributes:
      parts: lines of text that describe the objects.
    """

    def __init__(self) -> None:
        self.parts: list[str] = []
        self._seen: dict[int, int] = {}
        self._kept: list[Any] = []  # keeps objects alive, so that no id is reused

    def visit(self, thing: Any) -> None:
        """Add the description of an object."""
        if isinstance(thing, _VALUES):
            self._say("value", type(thing).__name__, repr(thing))
            return
        if id(thing) in self._seen:
            self._say("again", str(self._seen[id(thing)]))
            return
        self._seen[id(thing)] = len(self._seen)
        self._kept.append(thing)
        for kinds, method in _KINDS:
            if isinstance(thing, kinds):
                method(self, thing)
                return
        self._other(thing)

    def _say(self, *words: str) -> None:
        self.parts.append(" ".join(words))

    def _array(self, array: np.generic | np.ndarray) -> None:
        self._say("array", str(array.dtype), str(array.shape), array.tobytes().hex())

    def _several(self, items: tuple | list) -> None:
        self._say("several", str(len(items)))
        for item in items:
            self.visit(item)

    def _set(self, items: set | frozenset) -> None:
        self._several(sorted(items, key=repr))

    def _mapping(self, items: Mapping) -> None:
        self._say("mapping", str(len(items)))
        for name in sorted(items, key=repr):
            self.visit(name)
            self.visit(items[name])

    def _code(self, code: types.CodeType) -> None:
        constants, flags = code.co_consts, code.co_flags
        if _has_text(code):
            constants = constants[1:]  # the docstring
            flags &= ~_HAS_TEXT
        counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, flags
        names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
        self._say("code", repr(counts), repr(names), code.co_code.hex())
        self._say(code.co_exceptiontable.hex())
        self._several(constants)

    def _function(self, function: types.FunctionType) -> None:
        if not self._is_ours(function.__module__):
            self._say("of others", function.__module__, function.__qualname__)
            return
        self._say("function")
        self._code(function.__code__)
        self.visit(function.__defaults__)
        self.visit(function.__kwdefaults__)
        self._mapping(vars(function))
        names = sorted(set(_names(function.__code__)))
        for cell in function.__closure__ or ():
            self._global(cell.cell_contents, names)
        for name in names:
            if name in function.__globals__:
                self._say("name", name)
                self._global(function.__globals__[name], names)

    def _global(self, thing: Any, names: list[str]) -> None:
        """Add what a function's name refers to; for a module, the members that it may use."""
        if not isinstance(thing, types.ModuleType):
            self.visit(thing)
        elif self._is_ours(thing.__name__):
            for name in names:
                if name in vars(thing):
                    self._say("name", name)
                    self._global(vars(thing)[name], names)
        else:
            self._say("module", thing.__name__)

    def _class(self, kind: type) -> None:
        if not self._is_ours(kind.__module__):
            self._say("class of others", kind.__module__, kind.__qualname__)
            return
        self._say("class", kind.__name__)
        self._several(kind.__bases__)
        for name, member in sorted(vars(kind).items()):
            if name not in _SKIPPED and not _is_place(member):
                self._say("member", name)
                self.visit(member)

    def _wrapper(self, thing: Any) -> None:
        self.visit(thing.__func__)

    def _property(self, thing: property) -> None:
        self._several([thing.fget, thing.fset, thing.fdel])

    def _partial(self, thing: functools.partial) -> None:
        self._several([thing.func, thing.args, thing.keywords])

    def _builtin(self, thing: Any) -> None:
        self._say("builtin", getattr(thing, "__module__", None) or "", thing.__qualname__)

    def _signature(self, thing: inspect.Signature) -> None:
        self._say("signature", str(thing))

    def _pattern(self, thing: re.Pattern) -> None:
        self._say("pattern", str(thing.flags), thing.pattern)

    def _other(self, thing: Any) -> None:
        kind = type(thing)
        room = kind.__module__.partition(".")[0]
        if isinstance(thing, Inline):
            self._say("inline")
            self.visit(thing.py_func)
        elif room == "numba":
            self._of_numba(thing)
        elif room == "llvmlite":
            self._say("llvmlite", kind.__name__, str(thing))
        elif hasattr(thing, "cache_info"):
            self.visit(thing.__wrapped__)
        elif self._is_ours(kind.__module__):
            self.visit(kind)
            names = (
                [field.name for field in dataclasses.fields(thing)]
                if (dataclasses.is_dataclass(thing))
                else sorted(vars(thing))
            )
            for name in names:
                self._say("field", name)
                self.visit(getattr(thing, name))
        elif kind.__module__ == "numpy" and kind.__name__ == "ufunc":
            self._say("ufunc", thing.__name__)
        else:
            raise _Unknown(repr(thing))

    def _of_numba(self, thing: Any) -> None:
        from numba.core import types as numba_types
        from numba.core.extending import _Intrinsic

        if isinstance(thing, _Intrinsic):
            self._say("intrinsic")
            self.visit(thing._defn)
            self.visit(getattr(thing, "outlined", None))
        elif isinstance(thing, numba_types.Type):
            self._say("type", str(thing))
            self.visit(type(thing))
        elif type(thing).__name__ == "Signature":
            self._say("signature", str(thing))
        else:
            raise _Unknown(repr(thing))

    @staticmethod
    def _is_ours(module: str | None) -> bool:
        """Whether a module is part of edgetrain or its tests. Functions that a formula's frame
        creates have no module."""
        return module is None or module.partition(".")[0] in (_ROOM, "tests")


_HAS_TEXT = 0x4000000 if sys.version_info >= (3, 13) else 0  # of co_flags


def _has_text(code: types.CodeType) -> bool:
    """Whether the first constant is a docstring."""
    if _HAS_TEXT:
        return bool(code.co_flags & _HAS_TEXT)
    constants = code.co_consts
    return bool(constants) and isinstance(constants[0], str) and code.co_name != "<lambda>"


def _is_place(member: Any) -> bool:
    """Whether a class member is the slot of an instance field."""
    return inspect.isdatadescriptor(member) and not isinstance(member, property)


def _names(code: types.CodeType) -> Iterator[str]:
    """Names that a function and its inner functions use."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


_KINDS: tuple[tuple[Any, Callable], ...] = (
    ((np.generic, np.ndarray), _Walk._array),
    ((tuple, list), _Walk._several),
    ((set, frozenset), _Walk._set),
    ((dict, types.MappingProxyType), _Walk._mapping),
    (types.CodeType, _Walk._code),
    (types.FunctionType, _Walk._function),
    ((staticmethod, classmethod), _Walk._wrapper),
    (property, _Walk._property),
    (functools.partial, _Walk._partial),
    (
        (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType),
        _Walk._builtin,
    ),
    (re.Pattern, _Walk._pattern),
    (inspect.Signature, _Walk._signature),
    (type, _Walk._class),
)
