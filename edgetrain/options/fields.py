"""Makes a dataclass of the declared options."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from .option import Option
from .texts import attributes

C = TypeVar("C")


def with_fields(
    options: Mapping[str, Option], names: Mapping[str, Any]
) -> Callable[[type[C]], type[C]]:
    """Class decorator: makes a frozen dataclass with these options as fields.

    Args:
      names: the namespace of the names in their types.
    """

    def make(cls: type[C]) -> type[C]:
        cls.__annotations__ = {
            option.name: eval(option.type, dict(names)) for option in options.values()
        }
        for option in options.values():
            plain = not isinstance(option.default, dict)
            default = option.default if plain else dataclasses.field(default_factory=dict)
            setattr(cls, option.name, default)
        cls.__doc__ = f"{cls.__doc__}\n\nAttributes:\n{attributes(options.values())}\n"
        return dataclasses.dataclass(frozen=True)(cls)

    return make
