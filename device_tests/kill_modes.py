"""Training modes that `device_tests.kills` kills: how each is compiled, and its child process.

All runs that later versions resume (`tests.upgrades.kinds`) are included, so a kind added there is
killed too. The other modes are the digits' model on the command line, sources that raise, skipped
steps, and every way of saving.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

import edgetrain as et
from edgetrain.cli import main as edgetrain
from edgetrain.data.source import Source
from edgetrain.errors import Interrupted
from edgetrain.runtime.training.monitors import EarlyStopping, KeepBest
from tests.digits_runs import digits_program
from tests.upgrades.kinds import KINDS, SGD, Kind, compiled, data

SAVE_STEPS = 3  # minibatches between checkpoints, unless a mode sets its own
RAISED = 3  # exit status of a child whose data raised


@dataclass(frozen=True)
class Attempt:
    """One process of a run.

    Attributes:
      steps: minibatches in the whole run.
      raises: batches or samples before the data raises; None: never.
    """

    edge: Path
    out: Path
    steps: int
    raises: int | None = None


@dataclass(frozen=True)
class Digits:
    """The digits' model, trained from the command line.

    Attributes:
      options: of `compile`.
      flags: of `train`.
    """

    options: dict[str, Any] = field(default_factory=dict)
    flags: tuple[str, ...] = ("--no-eval", "--save-steps", str(SAVE_STEPS))
    raising = False

    def compile(self, edge: Path) -> None:
        """Write the Program."""
        digits_program(**self.options).save(edge)

    def train(self, attempt: Attempt) -> int:
        """Train; return the command's exit status."""
        out = str(attempt.out)
        return edgetrain([
            "train", str(attempt.edge), "--data", "digits", "--steps", str(attempt.steps),
            "--lr-schedule", "cosine", "--out", out, "--resume", out, "--json", *self.flags,
        ])  # fmt: skip


@dataclass(frozen=True)
class Small:
    """A tiny net, trained by a Trainer.

    Attributes:
      settings: of the Trainer, besides the kind's.
      given: (the kind's data, batches until it raises) -> data for the Trainer.
      raising: half of its processes end because their data raises.
    """

    kind: Kind
    settings: dict[str, Any] = field(default_factory=dict)
    given: Callable[[Any, int | None], Any] = lambda found, raises: found
    raising: bool = False

    def compile(self, edge: Path) -> None:
        """Write the model and the Program."""
        from tests.upgrades.nets import write_net  # torch, which starts threads

        compiled(self.kind, write_net(self.kind.net, edge.with_suffix(".onnx"))).save(edge)

    def train(self, attempt: Attempt) -> int:
        """Train; return the command's exit status, or RAISED if the data raised."""

        def tell(event: dict[str, Any]) -> None:
            print(json.dumps(event), flush=True)

        kind = self.kind
        settings = {"save_seconds": 0.0, "save_steps": SAVE_STEPS, **kind.settings, **self.settings}
        given, callbacks = self.given(data(kind), attempt.raises), kind.callbacks()
        try:
            with et.Trainer(
                attempt.edge, given, attempt.out, callbacks=callbacks, on_event=tell, **settings
            ) as found:
                found.resume()
                found.fit(steps=attempt.steps, evaluate=bool(callbacks))
        except Gone:
            return RAISED
        except Interrupted as stopped:
            return 128 + stopped.signum
        except KeyboardInterrupt:
            return 128 + signal.SIGINT
        return 0


class Gone(Exception):
    """Raised by the data."""


class _Raising(Source):
    """Arrays that raise after a number of samples."""

    def __init__(self, given: tuple[np.ndarray, np.ndarray], raises: int | None) -> None:
        self._inner = et.open_data(given, allow_nonfinite=True)
        super().__init__("arrays", self._inner.n, self._inner.fields, classes=self._inner.classes)
        self._left, self.allow_nonfinite = raises, True

    def read(
        self, names: tuple[str, ...], indices: np.ndarray, key: tuple[int, int], train: bool
    ) -> dict[str, np.ndarray]:
        if self._left is not None:
            self._left -= len(indices)
            if self._left < 0:
                raise Gone(f"sample {indices[0]}")
        return self._inner.read(names, indices, key, train)


def _raising_batches(make: Callable[[], Iterator[Any]], raises: int | None) -> Any:
    left = [raises]

    def batches() -> Iterator[Any]:
        for batch in make():
            if left[0] is not None:
                left[0] -= 1
                if left[0] < 0:
                    raise Gone("a batch")
            yield batch

    return batches


def _spoilt(given: tuple[np.ndarray, np.ndarray], raises: int | None) -> Source:
    """Put a NaN and an infinity among the samples, so one or two steps per epoch are skipped."""
    x, y = given[0].copy(), given[1]
    x[5, 0, 1, 1], x[21, 0, 3, 3] = np.nan, np.inf
    return et.open_data((x, y), allow_nonfinite=True)


class _SpoiltAtFirst(_Raising):
    """A NaN among the samples of the first epochs.

    A run with fused updates goes back at each one; 25 in a row would end it.
    """

    def read(
        self, names: tuple[str, ...], indices: np.ndarray, key: tuple[int, int], train: bool
    ) -> dict[str, np.ndarray]:
        found = super().read(names, indices, key, train)
        if key[1] < SPOILT_EPOCHS:
            for array in found.values():
                if array.dtype.kind == "f":
                    array[indices == 5] = np.nan
        return found


def _spoilt_batches(make: Callable[[], Iterator[Any]], raises: int | None) -> Any:
    def batches() -> Iterator[Any]:
        for number, (x, y) in enumerate(make()):
            yield (x * np.float32(np.nan) if number == 2 else x), y

    return batches


CONVS = Kind("convs", {"optimizer": SGD})
STREAM = replace(CONVS, streamed=True)
WATCHED = replace(
    CONVS,
    settings={"validation": 0.2},
    callbacks=lambda: [KeepBest("loss", restore=False), EarlyStopping("loss", patience=4)],
)
ADAM16 = Kind("convs", {"optimizer": et.Adam(lr=1e-2), "precision": "fp16"})
SPOILT_EPOCHS = 10
BY_TIME = {"save_steps": 0, "save_seconds": 0.01}
STEPS_ONLY = ("--no-eval", "--save-steps", str(SAVE_STEPS))
EVALUATED = ("--save-steps", str(SAVE_STEPS), "--validation", "0.2")
MODES: dict[str, Digits | Small] = {
    "digits: fp32": Digits(),
    "digits: fp16, loss scaling": Digits({"precision": "fp16"}),
    "digits: density 0.4, rewiring": Digits({"density": 0.4}),
    "digits: Adam": Digits({"optimizer": et.Adam(lr=0.005)}),
    "digits: int8 state, 2 threads": Digits({"precision": "fp16", "model_memory": "int8"}),
    "digits: augmented": Digits({}, (*STEPS_ONLY, "--augment", "crop=1,noise=0.1")),
    "digits: --save-seconds": Digits({}, ("--no-eval", "--save-seconds", "0.02")),
    "digits: --verify-saves": Digits({}, (*STEPS_ONLY, "--verify-saves")),
    "digits: --keep-last": Digits({}, (*STEPS_ONLY, "--keep-last")),
    "digits: evaluated, best kept": Digits({}, (*EVALUATED, "--patience", "9", "--keep-best")),
    **{name: Small(kind) for name, kind in KINDS.items()},
    "source raises": Small(CONVS, given=_Raising, raising=True),
    "source raises, Adam fp16": Small(ADAM16, given=_Raising, raising=True),
    "source raises, by time": Small(CONVS, BY_TIME, given=_Raising, raising=True),
    "stream raises": Small(STREAM, given=_raising_batches, raising=True),
    "stream raises, by time": Small(STREAM, BY_TIME, given=_raising_batches, raising=True),
    "skipped steps": Small(CONVS, given=_spoilt),
    "skipped steps, fp16": Small(ADAM16, given=_spoilt),
    "skipped steps, fused": Small(KINDS["fused"], given=_SpoiltAtFirst),
    "skipped steps, stream": Small(STREAM, given=_spoilt_batches),
    "stopped early": Small(WATCHED),
    "2 threads, fp16": Small(Kind("convs", {**ADAM16.options, "threads": 2})),
    "verified saves, LoRA": Small(KINDS["lora int4"], {"verify_saves": True}),
}


def become(mode: Digits | Small, attempt: Attempt, writer: int, held: set[int]) -> NoReturn:
    """Train in a forked child that starts with signals `held` blocked; write events to `writer`."""
    status = 1
    try:
        os.dup2(writer, 1)
        sys.stdout = os.fdopen(1, "w", buffering=1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, held)
        status = mode.train(attempt)
        sys.stdout.flush()
    except KeyboardInterrupt:  # before anything listened
        status = 128 + signal.SIGINT
    finally:
        os._exit(status)
