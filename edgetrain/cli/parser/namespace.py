"""Options of a command by name; options not given are missing."""

from typing import Any


class Namespace:
    """Like argparse.Namespace, without importing argparse."""

    # Whether it may contain plug-in options.
    has_plugins = True

    def __contains__(self, name: str) -> bool:
        return name in vars(self)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def __setattr__(self, name: str, value: Any) -> None:
        vars(self)[name] = value


class Plain(Namespace):
    """A namespace without plug-in options."""

    has_plugins = False
