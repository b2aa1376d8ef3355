"""ONNX Runtime's `CheckpointState`: parameters and properties, in a file."""

from collections.abc import Iterator, Mapping, MutableMapping
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..errors import CheckpointError, UsageError
from ..program.schema import (
    boolean,
    by_name,
    integer,
    number,
    one_of,
    record,
    several,
    text,
    verify,
)
from ..runtime.run.checkpoint import load_checkpoint, save_checkpoint
from ..runtime.run.fields import COUNTERS
from ..units.public import as_path, public_api

MODEL, EVALUATED, UPDATED = "training_model", "eval_model", "optimizer_model"
OWN = "ort"  # distinguishes its files from a run's checkpoints


def _property(value: Any, name: str) -> None:
    """Check that a value is a number (finite or not) or a string, as `Properties` requires."""
    if type(value) not in (int, float):
        text(2**20)(value, name)


_COUNTED = {"step": integer(0, 2**62), "counters": COUNTERS, "lr": number(0)}
_FIELDS = {
    "kind": one_of(OWN),
    "properties": by_name(_property),
    "outputs": several(text(), most=1),
}
_SHORT = record(_FIELDS, {"optimizer": boolean})
_WHOLE = record({**_FIELDS, "optimizer": boolean, **_COUNTED})


def write_checkpoint(path: Path, tensors: Mapping[str, np.ndarray], meta: dict[str, Any]) -> None:
    """Write a file for `CheckpointState`."""
    save_checkpoint(path, tensors, {"properties": {}, **meta, "kind": OWN})


class Held(Protocol):
    """What a state needs from the Module made from it."""

    @property
    def trainer(self) -> Any: ...
    @property
    def names(self) -> Any: ...
    @property
    def trained(self) -> Any: ...
    def gradients(self) -> dict[str, np.ndarray]: ...
    def kept(self, include_optimizer_state: bool) -> Any: ...


class Properties(MutableMapping[str, Any]):
    """Numbers and strings stored in a checkpoint, such as the epoch."""

    def __init__(self, items: Mapping[str, Any]) -> None:
        self._items = dict(items)

    def __getitem__(self, name: str) -> int | float | str:
        if name not in self._items:
            raise UsageError(f"property {name!r} not found; the checkpoint has {[*self._items]}.")
        return self._items[name]

    def __setitem__(self, name: str, value: int | float | str) -> None:
        if isinstance(value, np.integer | np.floating):
            value = value.item()  # such as a loss
        if not isinstance(name, str) or type(value) not in (int, float, str):
            raise UsageError(
                f"property {name!r} = {repr(value)[:60]}: expected an int, a float or a string."
            )
        self._items[name] = value

    def __delitem__(self, name: str) -> None:
        self[name]  # raises an error that lists the names
        del self._items[name]

    def get(self, name: str, default: Any = None) -> Any:
        """The property, or `default`."""
        return self._items.get(name, default)

    def __contains__(self, name: object) -> bool:
        return name in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"Properties({self._items})"


class Parameter:
    """A parameter of a module; its `data` can be set."""

    def __init__(self, module: Held, name: str) -> None:
        self._module, self._name = module, name

    def __repr__(self) -> str:
        return f"Parameter({self._name!r}, {[*self.data.shape]})"

    @property
    def name(self) -> str:
        """The torch name, as in the ONNX file."""
        return self._name

    @property
    def data(self) -> np.ndarray:
        """A float32 copy."""
        return self._module.trainer.parameters[self._name]

    @data.setter
    def data(self, value: Any) -> None:
        self._module.trainer.parameters[self._name] = value

    @property
    def requires_grad(self) -> bool:
        """Whether it is trained."""
        return self._name in self._module.trained

    @property
    def grad(self) -> np.ndarray | None:
        """The gradient (float32) accumulated since the last reset; None if there is none yet."""
        return self._module.gradients().get(self._name)


class _Parameters(Mapping[str, Parameter]):
    """The parameters of a module by name; setting one writes its data."""

    def __init__(self, module: Held) -> None:
        self._module = module

    def __getitem__(self, name: str) -> Parameter:
        self._module.trainer.parameters[name]  # raises an error that lists the names
        return Parameter(self._module, name)

    def __setitem__(self, name: str, value: Any) -> None:
        self._module.trainer.parameters[name] = value

    def __contains__(self, name: object) -> bool:
        return name in self._module.names

    def get(self, name: str, default: Any = None) -> Any:
        """The parameter, or `default`."""
        return self[name] if name in self._module.names else default

    def __iter__(self) -> Iterator[str]:
        return iter(self._module.names)

    def __len__(self) -> int:
        return len(self._module.names)


@public_api
class CheckpointState:
    """Parameters, properties and, optionally, the optimizer's state.

    Attributes:
      properties: numbers and strings by name.
      parameters: parameters of the Module made from this state; reads and writes go to the Module.
    """

    def __init__(self, tensors: dict[str, np.ndarray], meta: Mapping[str, Any]) -> None:
        self.tensors, self.meta = tensors, dict(meta)
        self.properties = Properties(meta.get("properties", {}))
        self.module: Held | None = None

    @classmethod
    def load_checkpoint(cls, checkpoint_uri: str | PathLike) -> "CheckpointState":
        """Read a file written by `generate_artifacts` or `save_checkpoint`.

        Raises:
          CheckpointError: the file can't be used.
        """
        path = as_path("load_checkpoint", checkpoint_uri)
        result = load_checkpoint(path)
        if result.meta.get("kind") != OWN:
            raise CheckpointError(
                f"{path}: a checkpoint of a run; expected the file written by generate_artifacts. "
                "Use Trainer.resume for runs."
            )
        fields = _WHOLE if result.meta.get("optimizer") else _SHORT
        verify(fields, result.meta, str(result.used), CheckpointError, "Load another file.")
        return cls(result.tensors, result.meta)

    @classmethod
    def save_checkpoint(
        cls,
        state: "CheckpointState",
        checkpoint_uri: str | PathLike,
        include_optimizer_state: bool = False,
    ) -> None:
        """Write a checkpoint; without the optimizer's state, a resumed optimizer starts fresh.

        Raises:
          UsageError: `state` is not a CheckpointState.
          RunError: the file can't be written.
        """
        if not isinstance(state, cls):
            raise UsageError(f"state {repr(state)[:60]}: expected a CheckpointState.")
        tensors, meta = state.tensors, {**state.meta, "properties": dict(state.properties)}
        if state.module is not None:
            tensors, own = state.module.kept(include_optimizer_state)
            meta |= own
        write_checkpoint(as_path("save_checkpoint", checkpoint_uri), tensors, meta)

    @property
    def parameters(self) -> _Parameters:
        """Parameters of the Module made from this state."""
        if self.module is None:
            raise UsageError("parameters: names are unknown. Make a Module with this state first.")
        return _Parameters(self.module)

    def __getitem__(self, name: str) -> int | float | str:
        return self.properties[name]

    def __setitem__(self, name: str, value: int | float | str) -> None:
        self.properties[name] = value

    def __contains__(self, name: object) -> bool:
        return name in self.properties
