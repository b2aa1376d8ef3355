"""What a command was told: options by name, those that were not given left out."""

from typing import Any


class Namespace:
    """As argparse's own, which is not imported for it."""

    # Whether options of plug-ins may be in it.
    has_plugins = True

    def __contains__(self, name: str) -> bool:
        return name in vars(self)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def __setattr__(self, name: str, value: Any) -> None:
        vars(self)[name] = value


class Plain(Namespace):
    """One in which no option of a plug-in can be."""

    has_plugins = False
