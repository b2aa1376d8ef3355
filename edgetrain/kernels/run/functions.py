"""Kernels and their helpers as plain Python functions.

An interpreted function has the original's code, line by line, so debuggers stop in the source. The
objects that its names refer to are replaced: helpers by interpreted ones, intrinsics by their
interpreters (intrinsics.py), Python's numbers by numpy's, with the types that numba gives them.
"""

import builtins
import contextlib
import functools
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numba.core.extending import _Intrinsic

from ..language.inlining import Inline
from .faults import MARK, Fault
from .intrinsics import Running, intrinsic_of
from .lanes import lanewise
from .memory import Memory, Region

_ROOM = __name__.split(".")[0]


def _range(*bounds: int) -> Iterator[np.int64]:
    return map(np.int64, builtins.range(*bounds))


def _float(value: Any) -> Any:
    """float() as numba compiles it: a float32 stays one."""
    return value if np.asarray(value).dtype.kind == "f" else np.float64(value)


_BUILTINS = vars(builtins) | {
    "range": _range,
    "int": lanewise(np.int64),
    "float": lanewise(_float),
    "len": lambda values: np.int64(builtins.len(values)),
}


class Interpreter:
    """A machine (instructions.py) with the memory of one kernel call."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self._calls: list[dict[object, Region]] = []  # buffers of each running function

    def local(self, site: object, nbytes: int, item: int) -> Region:
        """The buffer of an alloca. One line of one call gets the same buffer each time it asks."""
        frame = sys._getframe(1)
        while MARK not in frame.f_globals:
            frame = frame.f_back  # type: ignore[assignment]
        buffers = self._calls[-1]
        key = site, frame.f_lasti
        if key not in buffers:
            name = f"buffer of {frame.f_code.co_name}"
            buffers[key] = self.memory.buffer(name, nbytes, item)
        return buffers[key]

    def call(self, address: int, values: tuple) -> Any:
        """Call a function by its address, as tapes call kernels."""
        function = self.memory.functions.get(int(address))
        if function is None:
            raise Fault(f"address {int(address):#x} called; it is not a function")
        return function(*values)

    @contextlib.contextmanager
    def activation(self) -> Iterator[None]:
        """Runs a function; its buffers are released at the end."""
        self._calls.append({})
        try:
            yield
        finally:
            for region in self._calls.pop().values():
                self.memory.release(region)


@contextlib.contextmanager
def interpreting(memory: Memory) -> Iterator[Interpreter]:
    """In this context, intrinsics work on this memory, and numbers overflow silently, as in
    compiled code."""
    before = Running.machine
    machine = Interpreter(memory)
    Running.machine, Running.interpreted = machine, interpreted
    try:
        with np.errstate(all="ignore"):
            yield machine
    finally:
        Running.machine = before


def _number(value: Any) -> Any:
    """A constant with the type that numba gives it."""
    if type(value) is int:
        return np.int64(value) if value < 2**63 else np.uint64(value)
    if type(value) is float:
        return np.float64(value)
    if type(value) is tuple:
        return tuple(map(_number, value))
    return value


class _Namespace:
    """A module whose functions are replaced by interpreted ones."""

    def __init__(self, module: types.ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return replaced(getattr(self._module, name))


def replaced(thing: Any) -> Any:
    """The interpreted replacement of an object that a kernel's name refers to."""
    if isinstance(thing, Inline):
        return interpreted(thing.py_func)
    if isinstance(thing, _Intrinsic):
        return intrinsic_of(thing)
    if isinstance(thing, types.ModuleType) and thing.__name__.split(".")[0] == _ROOM:
        return _Namespace(thing)
    if isinstance(thing, tuple):
        members = [replaced(member) for member in thing]
        return type(thing)(*members) if hasattr(thing, "_fields") else tuple(members)
    return _number(thing)


def _code(code: types.CodeType) -> types.CodeType:
    """The code, with constants in the types that numba gives them."""
    constants = tuple(
        _code(c) if isinstance(c, types.CodeType) else _number(c) for c in code.co_consts
    )
    return code.replace(co_consts=constants)


def _names(code: types.CodeType) -> set[str]:
    inner = (_names(c) for c in code.co_consts if isinstance(c, types.CodeType))
    return set(code.co_names).union(*inner)


@functools.cache
def interpreted(function: Callable) -> Callable:
    """A kernel or helper as a function that Python runs.

    Args:
      function: the original, not compiled.
    """
    names: dict[str, Any] = {MARK: True, "__builtins__": _BUILTINS, "__name__": function.__module__}
    code = _code(function.__code__)
    cells = tuple(types.CellType() for _ in code.co_freevars)
    plain = types.FunctionType(code, names, function.__name__, function.__defaults__, cells)
    done: list[bool] = []

    @functools.wraps(function)
    def run(*values):
        if not done:  # on the first call, since functions may refer to each other
            done.append(True)
            known = _names(code) & function.__globals__.keys()
            names.update({name: replaced(function.__globals__[name]) for name in known})
            for cell, original in zip(cells, function.__closure__ or (), strict=True):
                cell.cell_contents = replaced(original.cell_contents)
        assert isinstance(Running.machine, Interpreter)
        with Running.machine.activation():
            return plain(*values)

    return run
