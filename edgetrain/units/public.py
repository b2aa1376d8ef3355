"""Checks for the public API: one-line errors for wrong arguments, and paths."""

import dataclasses
import functools
import os
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from types import FunctionType
from typing import Any, NoReturn, ParamSpec, TypeVar

from ..errors import UsageError

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)


def public(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: report unknown and missing arguments in one line.

    Raises:
      UsageError: names the argument, the known arguments and the closest one.
    """

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            trace = error.__traceback__
            if trace is not None and trace.tb_next is not None:
                raise  # raised inside the function
            wrong = error
        from .wrong_arguments import refuse

        refuse(function, args, kwargs, wrong)

    return called


def taking(*tables: type) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator: `**keywords` are the fields of these dataclasses. `help` and shells then list them
    with types and defaults, and the docstring describes them. Editors know them from the
    annotation's TypedDict."""
    import inspect  # already loaded by dataclasses

    named = [field for table in tables for field in dataclasses.fields(table)]

    def listed(function: Callable[P, R]) -> Callable[P, R]:
        result = inspect.signature(function)
        own = [p for p in result.parameters.values() if p.kind is not p.VAR_KEYWORD]
        known = {parameter.name for parameter in own}
        own += [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=_default_of(field),
                annotation=field.type,
            )
            for field in named
            if field.name not in known
        ]
        vars(function)["__signature__"] = result.replace(parameters=own)
        if function.__doc__:
            described = [(table.__doc__ or "").partition("Attributes:\n")[2] for table in tables]
            function.__doc__ = "\n".join([f"{inspect.getdoc(function)}\n", "Options:", *described])
        return function

    return listed


def _default_of(field: dataclasses.Field) -> Any:
    made = field.default_factory
    return field.default if made is dataclasses.MISSING else made()


def public_api(cls: C) -> C:
    """Class decorator: apply `public` to the constructor and all methods without "_"."""
    for name, item in [*vars(cls).items()]:
        if name != "__init__" and name[:1] == "_":
            continue
        if isinstance(item, FunctionType):
            setattr(cls, name, public(item))
        elif isinstance(item, classmethod):
            setattr(cls, name, classmethod(public(item.__func__)))
    return cls


def as_path(
    label: str, value: Any, what: str = "the path of a file", *, any_name: bool = False
) -> Path:
    """A path from a string or path-like object.

    Args:
      any_name: also names that no file has: empty, with a zero byte, or with characters that the
        file system cannot store; reading it will fail.
    Raises:
      UsageError: it is neither, or such a name.
    """
    result = _spelt(value) if isinstance(value, str | PathLike) else None
    if isinstance(result, str) and (any_name or _is_name(result)):
        return Path(result)
    shown = " ".join(repr(value[:40] if isinstance(value, bytes) else value).split())
    raise UsageError(f"{label} {shown[:80]}: expected {what}.")


def _is_name(text: str) -> bool:
    """Whether a file can have this name."""
    try:
        return bool(text) and b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _spelt(value: Any) -> Any:
    return value if isinstance(value, str) else value.__fspath__()


class Uncopied:
    """Base class of objects that own memory, threads and files, so can't be copied.

    Raises:
      UsageError: it is copied or pickled.
    """

    instead = "Make a new one from the same Program."

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise UsageError(
            f"{type(self).__name__}: it can't be copied or pickled, because it owns memory, "
            f"threads and files. {self.instead}"
        )
