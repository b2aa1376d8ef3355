"""What a run without callbacks has in their place; callbacks.py is not loaded for it."""

from typing import Any


class NoCallbacks:
    """Like `Callbacks` of an empty list."""

    def __len__(self) -> int:
        return 0

    def nothing(self, *arguments: Any, **named: Any) -> None:
        """Any event."""

    check_monitors = begin_fit = begin_epoch = begin_step = nothing
    end_step = end_evaluation = end_epoch = end_fit = call = check_outside = nothing

    def state(self) -> list[list[Any]]:
        """Of no callbacks."""
        return []

    def load_state(self, states: list[list[Any]], label: str) -> None:
        """Refuse a run that had some, as `Callbacks.load_state`."""
        if states:
            from .callbacks import Callbacks

            Callbacks(()).load_state(states, label)
