"""A board's replies to its server: train, evaluate, report facts. Independent of Flower.

A round depends only on the arrays, its number and the board's own data: the optimizer starts fresh,
and the sample order continues as if all previous rounds had run here. So a board that is killed and
restarted gets the same result, and boards with the same data, microbatch and kernel table get the
same bits, whatever their budgets.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

import numpy as np

from ..errors import DataError, UsageError
from ..program import Program
from ..program.metadata import labels_of
from ..runtime.loading.program import opened_program
from ..runtime.training.callbacks import Callback
from ..runtime.training.trainer import Trainer
from ..units import finite_number
from ..units.hints import did_you_mean
from ..units.options import typed
from ..units.public import public_api
from ..units.wording import listed
from .arrays import Exchange, initial_state

# Keys allowed in a round's config. `proximal-mu` is FedProx's.
KNOWN = ("server-round", "lr", "epochs", "steps", "proximal-mu")
MOST_STEPS = 10**9  # most steps of a round: more would block a board for too long
_OLD = {"server_round": "server-round", "local_epochs": "epochs", "local-epochs": "epochs"}

Node = Mapping[str, Any]


@public_api
@dataclass(frozen=True)
class Client:
    """A board in a federation.

    Args:
      program: a Program, the path of a .edge file, or a function of the node's config that returns
        either.
      data: data as for `Trainer`, or a function of the node's config that returns it.
      epochs, steps: epochs or minibatches per round; the server's config takes precedence.
      wire: format of the exchanged arrays, see `Exchange`.
      settings: of `Trainer`: threads, validation, keep_last, metrics, lr.
    """

    program: Any
    data: Any
    epochs: float = 1
    steps: int | None = None
    wire: str = "stored"
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.settings, Mapping):
            raise UsageError(f"client: settings {repr(self.settings)[:80]}: expected a mapping.")
        for name, kind in (("epochs", float), ("steps", int)):
            value = getattr(self, name)
            if value is not None or name == "epochs":
                number = typed(f"client: {name}", value, (kind,))
                if not (math.isfinite(number) and number > 0):
                    raise UsageError(f"client: {name} {number}: expected more than 0.")
        known = ("threads", "validation", "keep_last", "metrics", "lr")
        for name in self.settings:
            if name not in known:
                raise UsageError(
                    f"client: {name}: no such setting; expected epochs, "
                    f"steps, wire, {', '.join(known)}.{did_you_mean(name, known)}"
                )

    def train(
        self, arrays: Mapping[str, Any], config: Node, node: Node
    ) -> tuple[dict[str, np.ndarray], dict[str, int | float]]:
        """Train for one round.

        Args:
          arrays: the server's arrays, as returned by `Exchange.read`.
          config: server-round, from 1; optionally lr, epochs or steps.
          node: the node's config.
        Returns:
          The trained arrays, and num-examples, loss (mean over the round's steps), steps, skipped,
          arrays-nbytes.
        Raises:
          DataError, UsageError: input from the server or the node can't be used.
          RunError: no step changed the weights.
        """
        config = _checked(config)
        seen = _Seen()
        with self._trainer(node, lr=config.get("lr"), callbacks=[seen]) as trainer:
            exchange = self._exchange(trainer)
            exchange.write(arrays)
            steps, epochs = self._length(trainer, config)
            if steps is not None:
                begun = (config["server-round"] - 1) * steps
                trainer.begin_at(begun)
                trainer.fit(steps=begun + steps, evaluate=False)
            else:
                trainer.fit(epochs=epochs, evaluate=False)
            samples = trainer.source.n if trainer.source is not None else seen.samples(trainer)
            sent = exchange.read()  # views, which keep the arena's memory alive
        nbytes = sum(array.nbytes for array in sent.values())
        return sent, {
            "num-examples": samples,
            "loss": seen.loss,
            "steps": seen.steps,
            "skipped": seen.skipped,
            "arrays-nbytes": nbytes,
        }

    def evaluate(
        self, arrays: Mapping[str, Any], config: Node, node: Node
    ) -> dict[str, int | float]:
        """Loss, accuracy and other metrics of the server's arrays on the board's held-out data.

        Returns:
          num-examples, loss, and accuracy if the loss has classes.
        Raises:
          UsageError: the data has no test split, and `validation` is not set.
        """
        _checked(config)
        with self._trainer(node) as trainer:
            self._exchange(trainer).write(arrays)
            result = trainer.evaluate()
        numbers = {k: v for k, v in result.items() if isinstance(v, int | float) and k != "samples"}
        return {"num-examples": result["samples"], **numbers}

    def facts(self, node: Node) -> tuple[dict[str, int], dict[str, str]]:
        """The board's planned bytes, and what it would train.

        Returns:
          Numbers: bytes of arena, tape and exchanged arrays; arena bytes by kind; minibatch,
          microbatch, threads. Texts: model, digest (Programs with one digest and one target give
          the same bits), pattern of the sparse weights, precision, target.
        """
        program = self.opened(node)
        account, recipe = program.account, program.recipe
        exchange = Exchange(program, initial_state(program), self.wire)
        numbers = {
            "arena-nbytes": program.arena_nbytes,
            "tape-nbytes": program.tape_nbytes,
            "arrays-nbytes": exchange.nbytes,
            **{f"{kind}-nbytes": int(n) for kind, n in account.get("by_kind", {}).items()},
            "minibatch": program.minibatch,
            "microbatch": program.microbatch,
            "threads": program.threads,
        }
        texts = {
            "model": program.model_name,
            "digest": program.digest(),
            "pattern": exchange.pattern,
            "precision": recipe["precision"],
            "target": f"{recipe['target']}/{recipe['lanes']}",
        }
        return numbers, texts

    def opened(self, node: Node) -> Program:
        """The board's Program."""
        given = self.program
        if callable(given) and not isinstance(given, Program | str | PathLike):
            given = _of_node("program", given, node)
        return opened_program(given)

    def _trainer(self, node: Node, lr: float | None = None, callbacks: Any = ()) -> Trainer:
        settings = {"verbose": False, **self.settings, "callbacks": callbacks}
        if lr is not None:
            settings["lr"] = lr
        data = _of_node("data", self.data, node) if _takes_node(self.data) else self.data
        trainer = Trainer(self.opened(node), data, **settings)
        if trainer.labels and not labels_of(trainer.program.onnx):
            trainer.close()
            raise DataError(
                f"labels are words ({listed(trainer.labels[:3])}, ..), which each board would "
                "number by its own data. Use numbers, or a model whose file names its classes, "
                "such as one exported after training on all of them."
            )
        return trainer

    def _exchange(self, trainer: Trainer) -> Exchange:
        return Exchange(trainer.program, trainer.session.values, self.wire)

    def _length(self, trainer: Trainer, config: Node) -> tuple[int | None, float]:
        """(steps of a round, epochs); steps is None if only epochs are known.

        Raises:
          UsageError: more than a round may have.
        """
        epochs = config.get("epochs", self.epochs)
        steps = config.get("steps", None if "epochs" in config else self.steps)
        if steps is None and trainer.source is not None and trainer.steps_per_epoch:
            steps = max(1, round(epochs * trainer.steps_per_epoch))
            if steps > MOST_STEPS:
                raise UsageError(
                    f"epochs {epochs}: {steps} steps with this board's data; expected at most "
                    f"{MOST_STEPS} per round. Use fewer."
                )
        return steps, epochs


class _Seen(Callback):
    """Sums up the steps of a round."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = self.skipped = self._targets = 0
        self._sum = 0.0

    @property
    def loss(self) -> float:
        """Mean loss over the counted targets."""
        return self._sum / self._targets if self._targets else math.nan

    def on_step(self, trainer: Any, result: Any) -> None:
        self.steps, self.skipped = self.steps + 1, self.skipped + result.skipped
        if result.counted and math.isfinite(result.loss):
            self._sum += result.loss * result.counted
            self._targets += result.counted

    def samples(self, trainer: Trainer) -> int:
        """Approximate number of samples, for batches of any size."""
        program = trainer.program
        return max(1, self._targets * program.microbatch // max(1, program.targets["micro"].size))


def _of_node(what: str, function: Callable[[Node], Any], node: Node) -> Any:
    """Call a function with the node's config.

    Raises:
      UsageError: it needs a key that is missing in the config.
    """
    try:
        return function(node)
    except KeyError as error:
        name = error.args[0] if error.args else None
        if not isinstance(name, str) or name in (node or {}):
            raise
        raise UsageError(
            f"{what}: the node's config has no {name!r}; found {', '.join(node) or 'nothing'}. "
            f"Start flower-supernode with --node-config '{name}=..'."
        ) from error


def _takes_node(data: Any) -> bool:
    """Whether `data` is a function of the node's config; one without arguments makes a
    generator."""
    if not inspect.isroutine(data):
        return False
    needed = [
        p
        for p in inspect.signature(data).parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    return len(needed) == 1


def _checked(config: Node) -> dict[str, Any]:
    """The server's config, after checks.

    Raises:
      UsageError: a key is not supported, or a number is out of range.
    """
    if not isinstance(config, Mapping | None):
        raise UsageError(f"config {repr(config)[:80]}: expected a mapping of names to numbers.")
    result: dict[str, Any] = {_OLD.get(key, key): value for key, value in (config or {}).items()}
    for key in result:
        if key not in KNOWN:
            raise UsageError(
                f"config {key!r}: not supported by boards; expected "
                f"{', '.join(KNOWN)}.{did_you_mean(key, KNOWN)}"
            )
    if result.get("proximal-mu"):
        raise UsageError(
            f"config proximal-mu {result['proximal-mu']}: not supported by boards. Use FedAvg, or "
            "another strategy that runs on the server."
        )
    if "lr" in result:
        result["lr"] = finite_number("config: lr", result["lr"], least=0)
    for key, least in (("server-round", 0), ("steps", 1)):
        if key in result:
            number = typed(f"config: {key}", result[key], (int,))
            if not least <= number <= MOST_STEPS:
                raise UsageError(
                    f"config: {key} {number}: expected a number from {least} to {MOST_STEPS}."
                )
    if "epochs" in result:
        result["epochs"] = finite_number(
            "config: epochs", result["epochs"], above=0, most=MOST_STEPS
        )
    result["server-round"] = max(1, result.get("server-round", 1))
    return result
