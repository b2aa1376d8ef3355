"""What is computed once of a model and options, and which options it hangs on: those it reads."""

import functools
from collections.abc import Callable, Mapping
from types import FunctionType, MethodType
from typing import Any, TypeVar, cast

from ..ops.model import Model
from .options import Options

T = TypeVar("T")


class Asked:
    """Stands for options while something is computed, and keeps what was read of them."""

    def __init__(self, options: Any, read: dict[str, Any], changes: Mapping[str, Any]) -> None:
        self._options, self.read, self._changes = options, read, changes

    def __getattr__(self, name: str) -> Any:
        if name in self._changes:
            return self._changes[name]
        of_class = getattr(Options, name, None)
        if isinstance(of_class, FunctionType):
            return MethodType(of_class, self)
        if isinstance(of_class, property) and of_class.fget is not None:
            return of_class.fget(self)
        value = getattr(self._options, name)
        if name not in self.read:
            self.read[name] = _kept(value)
        return value


def _kept(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def changed(options: Options, **changes: Any) -> Options:
    """Options with other values, for what `once` computes; the others are read as they are."""
    asked: Any = options
    if not isinstance(asked, Asked):
        return cast(Options, Asked(options, {}, changes))
    return cast(Options, Asked(asked._options, asked.read, {**asked._changes, **changes}))


def once(function: Callable[[Model, Options], T]) -> Callable[[Model, Options], T]:
    """(model, options) -> what the function gave for this model and the options that it read.

    It is kept with the model (`Model.computed`), for all microbatches and candidates of a search.
    """
    name = f"{function.__module__}.{function.__qualname__}"

    @functools.wraps(function)
    def known(model: Model, options: Options) -> T:
        entries = model.computed.setdefault(name, [])
        for read, found in entries:
            if all(_kept(getattr(options, key)) == value for key, value in read.items()):
                return cast(T, found)
        asked = Asked(options, {}, {})
        found = function(model, cast(Options, asked))
        entries.append((asked.read, found))
        return found

    return known
