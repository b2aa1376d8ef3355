"""Argument types of the planner's loops (numbers, arrays, records of both), and their words."""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, NamedTuple, Protocol, get_args, get_origin, get_type_hints

import numpy as np

ZERO: Any = np.int64(0)  # start of counts: a literal has its own type, compiled separately
Ints = Annotated[np.ndarray, "int64", 1]
Ints32 = Annotated[np.ndarray, "int32", 1]
Words = Annotated[np.ndarray, "uint64", 1]
Floats = Annotated[np.ndarray, "float64", 1]
Floats32 = Annotated[np.ndarray, "float32", 1]
Flags = Annotated[np.ndarray, "bool", 1]
IntRows = Annotated[np.ndarray, "int64", 2]
IntRows32 = Annotated[np.ndarray, "int32", 2]
FloatRows32 = Annotated[np.ndarray, "float32", 2]


class Entry(Protocol):
    """A loop that is called from Python."""

    function: Callable

    @property
    def kinds(self) -> tuple[tuple[Any, ...], Any]:
        """Kinds of the parameters and of the result, from the annotations."""


def fields(kind: Any) -> tuple[Any, ...] | None:
    """Kinds of a NamedTuple's fields; None if it is not a NamedTuple."""
    if isinstance(kind, type) and issubclass(kind, tuple):
        return tuple(get_type_hints(kind, include_extras=True).values())
    return None


class Array(NamedTuple):
    """An array's kind."""

    dtype: str
    dimensions: int


@functools.cache
def array_kind(kind: Any) -> Array:
    """The array kind of one of the annotations above."""
    assert get_origin(kind) is Annotated, kind
    return Array(*get_args(kind)[1:])


def words_of(kind: Any) -> int:
    """Number of words of one field: a number, or address and shape of an array."""
    return 1 if kind in (int, float) else 1 + array_kind(kind).dimensions


def layout(kinds: Iterable[Any]) -> str:
    """struct format of the words of these numbers and arrays, one after the other."""
    return "".join("d" if kind is float else "q" * words_of(kind) for kind in kinds)


_dtype = functools.cache(np.dtype)


def flattened(kind: Any, value: Any) -> Sequence[float]:
    """The words of a number or an array."""
    if kind is int or kind is float:
        return (value,)
    dtype, dimensions = array_kind(kind)
    assert value.dtype == _dtype(dtype) and value.ndim == dimensions and value.flags.c_contiguous
    return (value.__array_interface__["data"][0], *value.shape)
