"""Rounds of callbacks that a resumed run repeats: before an epoch or a step, and after an epoch.

A checkpoint written within such a round holds what callbacks may change as it was before the round.
If the round fails, the same is restored, because the next `fit` repeats it too.
"""

import contextlib
from collections.abc import Callable, Iterator

from ..run.rollback import Changeable


class Rounds:
    """What callbacks may change, as it was before the running round.

    Args:
      read, restore: get and set the current values.
      steps: returns the steps done; a round ends with the next one.
    """

    def __init__(
        self,
        read: Callable[[], Changeable],
        restore: Callable[[Changeable], None],
        steps: Callable[[], int],
    ) -> None:
        self._read, self._restore, self._steps = read, restore, steps
        self._kept: tuple[int, Changeable] | None = None

    @property
    def before(self) -> Changeable | None:
        """What the running round began with; None outside of rounds."""
        return self._kept[1] if self._kept and self._kept[0] == self._steps() else None

    def begin(self) -> None:
        """Begin a round, unless one is running."""
        if self.before is None:
            self._kept = self._steps(), self._read()

    def end(self) -> None:
        """End the round."""
        self._kept = None

    @contextlib.contextmanager
    def undone_without_a_step(self) -> Iterator[None]:
        """A round at the start of the block. If it fails before another step is done, restore what
        callbacks have changed."""
        self.begin()
        try:
            yield
        except BaseException:
            if self.before is not None:
                self._restore(self.before)
            raise
        finally:
            self.end()
