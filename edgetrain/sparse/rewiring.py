"""The base class of rewiring methods: when they run, and their kernel calls.

A rewiring drops small weights, compacts the pool, decides how many nonzeros each layer grows, and
rewrites the layers in place, from the last to the first. It runs between minibatches, when
gradients are zero. The pool's optimizer state moves with the surviving weights, and may be reset.
"""

import dataclasses
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from ..errors import UsageError
from ..formats import csr
from ..formats.csr import COLUMNS, POOL, TABLE, Layer
from ..ir import Call, Value
from ..ir.keys import key_of

# (end as a fraction of the run's steps, updates between rewirings). The report's Table 5 for both
# of its models: 12,500, 40,000, 70,000 and 95,000 of 100,000 updates, and half of each of 50,000.
PERIODS = ((0.125, 100), (0.4, 200), (0.7, 400), (0.95, 800))
# In runs shorter than SHORT_RUN, intervals shrink in proportion, down to LEAST, and rewiring ends
# after the fraction LAST of the run: weights grown later would not catch up.
SHORT_RUN, LEAST, LAST = 4000, 20, 0.75
WHOLE = 10**9  # the kernel counts ends of periods in billionths of the run


@dataclass(frozen=True)
class Rewiring:
    """Base class of rewiring methods; a subclass is a frozen dataclass of its hyperparameters.

    Attributes:
      frequency: factor on how often `periods` rewires; None: 1 in runs of under SHORT_RUN steps,
        otherwise `long_frequency`.
      long_frequency: None: the best value found for the density.
      periods: (end, interval) pairs: until the fraction `end` of the run, rewire every `interval`
        updates; afterwards never. In runs of under SHORT_RUN steps, which would otherwise never
        rewire, the default intervals are shorter and end earlier.
      keep_state: True: surviving weights keep their optimizer state, new ones start at zero.
        False: the state of the whole pool is reset, as in the report. None: reset in runs of at
        least SHORT_RUN steps, because shorter ones lose more by the reset than they gain by
        rewiring. Adam always keeps its state: after a reset its steps would be several times too
        large.
    """

    name: ClassVar[str] = ""

    frequency: float | None = None
    periods: tuple[tuple[float, int], ...] = PERIODS
    keep_state: bool | None = None
    long_frequency: float | None = None

    def __post_init__(self) -> None:
        try:
            periods = tuple((float(e), int(n)) for e, n in self.periods)
        except (TypeError, ValueError, OverflowError):
            periods = ((math.nan, 0),)  # rejected below
        object.__setattr__(self, "periods", periods)
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name != "periods" and not isinstance(value, int | float | None):
                raise UsageError(
                    f"rewiring {self.name}: {field.name} {value!r}; expected a number."
                )
        often = [f for f in (self.frequency, self.long_frequency) if f is not None]
        wrong = any(n < 1 or not e >= 0 for e, n in self.periods)
        if wrong or not all(1e-6 < f < 1e6 for f in often):
            raise UsageError(
                f"rewiring {self.name}: frequency {self.frequency}, periods {self.periods}; "
                "expected a frequency above 0, ends of at least 0 and intervals of at least 1."
            )
        if not isinstance(self.keep_state, bool | None):
            raise UsageError(
                f"rewiring {self.name}: keep_state {self.keep_state}; expected true or false."
            )

    def due_calls(self) -> list[Call]:
        """Kernel calls that check after each step whether a rewiring is due, one per period."""
        least = LEAST if self.periods == PERIODS else 0
        usual = 1.0 if self.long_frequency is None else self.long_frequency
        often = [usual, 1.0] if self.frequency is None else [self.frequency] * 2  # long, short runs
        out, after = [], 0
        for number, (end, interval) in enumerate(self.periods):
            until = min(WHOLE, round(end * WHOLE))
            args: dict = {"ctl": "ctl", "first": int(number == 0), "after": after, "until": until}
            args |= {"interval": max(1, round(interval / often[0]))}
            args |= {"short": SHORT_RUN, "last": round(LAST * WHOLE), "least": least}
            args |= {"base": interval if least else max(1, round(interval / often[1]))}
            out.append(Call("rewire_due", args | {"often": often[1]}))
            after = max(after, until)
        return out

    def fitted(self, layers: Sequence[Layer], adaptive: bool) -> Self:
        """The method with settings chosen for the model and the optimizer.

        Args:
          layers: layers of the pool.
          adaptive: whether the optimizer divides by second moments.
        """
        keep = True if adaptive and self.keep_state is None else self.keep_state
        return dataclasses.replace(self, keep_state=keep)

    def first_threshold(self, weights: np.ndarray, layers: Sequence[Layer]) -> float:
        """Global threshold of the first rewiring, from the initial nonzeros; 0 if not used."""
        return 0.0

    def calls(
        self, layers: Sequence[Layer], states: Sequence[Value], roots: Collection[str] = ()
    ) -> list[Call]:
        """Kernel calls of one rewiring.

        Args:
          states: the pool's optimizer state, moved together with the weights.
          roots: names of states that are second moments.
        """
        pool = {"w": POOL, "table": TABLE, "slots": csr.slots_of(layers), "layers": len(layers)}
        drop, close, grow = [], [], []
        for number, layer in enumerate(layers):
            own = pool | {"pointers": csr.pointers_name(layer.name), "layer": number}
            groups = {"groups": layer.groups}
            drop.append(Call("csr_drop", own | groups | {"fraction": self._fraction()}))
            own |= {"columns": COLUMNS}
            key = {"ctl": "ctl", "key": key_of(f"close {layer.name}")}
            close.append(Call("csr_close", own | groups | key))
            shape = {"rows": layer.rows, "channels": layer.channels, "taps": layer.taps}
            key = {"ctl": "ctl", "key": key_of(f"rewire {layer.name}"), "chunk": layer.chunk}
            grow.append(Call("csr_grow", own | shape | key))
        share = {"table": TABLE, "layers": len(layers), **self._share(layers)}
        moved = [
            {"y": s.name, "w": POOL, "slots": pool["slots"], "ctl": "ctl", "key": key_of(s.name)}
            | {"root": int(s.name in roots)}
            for s in states
        ]
        before = [Call("csr_compress", args) for args in moved]
        after = [Call("csr_expand", args) for args in moved]
        least = SHORT_RUN if self.keep_state is None else 0
        reset = {"ctl": "ctl", "slots": pool["slots"], "least": least}
        if not self.keep_state:
            after += [Call("csr_reset", {"y": s.name} | reset) for s in states]
        return [*drop, *before, *close, Call("csr_share", share), *reversed(grow), *after]

    def _fraction(self) -> float:
        """Fraction of each layer's nonzeros to drop; 0: drop by the global threshold."""
        raise NotImplementedError

    def _share(self, layers: Sequence[Layer]) -> dict[str, float]:
        """Operands of `csr_share`: target, tolerance, factor, own."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """`{"name": .., hyperparameters}`."""
        return {"name": self.name, **dataclasses.asdict(self)}
