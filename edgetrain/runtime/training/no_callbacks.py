"""Stand-in for Callbacks in a run without any; avoids loading callbacks.py."""

from typing import Any


class NoCallbacks:
    """Behaves like an empty `Callbacks`."""

    begin_steps = False

    def __len__(self) -> int:
        return 0

    def nothing(self, *arguments: Any, **named: Any) -> None:
        """Ignore any event."""

    check_monitors = check_evaluated = begin_fit = begin_epoch = begin_step = nothing
    end_step = end_evaluation = end_epoch = end_fit = call = check_outside = restore = nothing

    def states(self) -> list[Any]:
        """The states of no callbacks."""
        return []

    def state(self, states: list[Any] | None = None) -> list[list[Any]]:
        """The same."""
        return []

    def within(self, *hooks: str) -> bool:
        """No hook is running."""
        return False

    def load_state(self, states: list[list[Any]], label: str) -> None:
        """Refuse a run that had callbacks, as `Callbacks.load_state`."""
        if states:
            from .callbacks import Callbacks

            Callbacks(()).load_state(states, label)
