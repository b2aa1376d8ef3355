"""The Program: one file with everything the device needs, and nothing to compile or import.

A safetensors-format container (storage/container.py), checksummed, no pickle. Tensors: the tapes
(`tape.micro`, `tape.update`, `tape.rewire`, `tape.eval`; int64 words, see kernels/tape.py), the
initial arrays (`init.NAME`) and the weightless ONNX model (`onnx`). Everything else is JSON.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ProgramError
from ..ir import NBYTES
from ..storage.container import read_container, write_container

KIND = "edgetrain-program"
VERSION = 2
_COUNTS = ("arena_nbytes", "threads", "minibatch", "microbatch")  # told in the account too
TAPES = ("micro", "update", "rewire", "eval")


@dataclass(frozen=True, slots=True)
class Slot:
    """A tensor at a fixed place of the arena: `offset` in bytes, `shape` in elements."""

    name: str
    offset: int
    shape: tuple[int, ...]
    dtype: str
    role: str = ""

    @property
    def size(self) -> int:
        count = 1
        for dim in self.shape:
            count *= dim
        return count

    @property
    def nbytes(self) -> int:
        return self.size * NBYTES[self.dtype]


@dataclass(frozen=True)
class Program:
    """A compiled training run.

    Attributes:
      arena_nbytes: size of the one allocation.
      threads: workers that the workspaces are for; fewer may run.
      kernels: (name, variant, storages) by the index that tapes use.
      tapes: int64 words by tape name.
      persistent: parameters, buffers, constants, accumulators, state, control block.
      inputs, targets, outputs: per tape (`micro`, `eval`), what is filled in and read out.
      init: initial arrays by slot name; every other persistent slot starts at zero.
      account: the JSON object of `plan --json`.
      recipe: options it was compiled with; `aliases`: further names of tied parameters.
      work: tape -> kernel -> turns of loops that the compiler counted; see runtime/tapes.py.
    """

    arena_nbytes: int
    threads: int
    minibatch: int
    microbatch: int
    kernels: tuple[tuple[str, str, tuple[str, ...]], ...]
    tapes: Mapping[str, np.ndarray]
    persistent: tuple[Slot, ...]
    inputs: Mapping[str, tuple[Slot, ...]]
    targets: Mapping[str, Slot]
    outputs: Mapping[str, tuple[Slot, ...]]
    init: Mapping[str, np.ndarray]
    account: Mapping[str, Any]
    recipe: Mapping[str, Any]
    limits: Mapping[str, int] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    onnx: bytes = b""
    model_name: str = "model"
    target_count: int = 0
    work: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def tape_nbytes(self) -> int:
        """Bytes of all tapes: read-only, outside the arena."""
        return sum(tape.nbytes for tape in self.tapes.values())

    def slot(self, name: str) -> Slot:
        """The persistent slot of this name."""
        return next(slot for slot in self.persistent if slot.name == name)

    def save(self, path: str | Path) -> Path:
        """Write the Program atomically; returns the path."""
        path = Path(path)
        tensors = {f"tape.{name}": tape for name, tape in self.tapes.items()}
        tensors |= {f"init.{name}": array for name, array in self.init.items()}
        tensors["onnx"] = np.frombuffer(self.onnx, np.uint8)
        meta = {"program": json.dumps(self._json())}
        write_container(path, tensors, meta, kind=KIND, version=VERSION)
        return path

    def _json(self) -> dict[str, Any]:
        plain = (
            "arena_nbytes", "threads", "minibatch", "microbatch", "kernels", "account", "recipe",
            "limits", "aliases", "model_name", "target_count", "work",
        )  # fmt: skip
        out: dict[str, Any] = {name: getattr(self, name) for name in plain}
        out["persistent"] = [asdict(slot) for slot in self.persistent]
        for name in ("inputs", "outputs"):
            out[name] = {k: [asdict(s) for s in slots] for k, slots in getattr(self, name).items()}
        out["targets"] = {k: asdict(slot) for k, slot in self.targets.items()}
        return out


def load_program(path: str | Path) -> Program:
    """Read a Program; what its tapes touch is checked when it is loaded into an arena.

    Raises:
      ProgramError: the file is damaged, of another version, or not a Program.
    """
    path = Path(path)
    tensors, meta = read_container(
        path, kind=KIND, versions=range(VERSION, VERSION + 1), mmap=True, error=ProgramError
    )
    try:
        fields = json.loads(meta["program"])
        return _consistent(_parsed(fields, tensors))
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ProgramError(
            f"{path}: its description is damaged ({error!r}); expected what 'edgetrain compile' "
            "wrote. Compile the model again."
        ) from error


def _consistent(program: Program) -> Program:
    """What the runtime takes for granted; offsets are checked against the arena it makes.

    Raises:
      ValueError: names what contradicts.
    """
    slots = {slot.name: slot for slot in program.persistent}
    control = slots.get("ctl")
    if control is None or (control.shape, control.dtype) != ((64,), "i64"):
        raise ValueError("no control block of 64 words")
    unknown = {s for _, _, storages in program.kernels for s in storages} - NBYTES.keys()
    if unknown or program.arena_nbytes >= 2**60:
        raise ValueError(f"storages {sorted(unknown)}, arena of {program.arena_nbytes} bytes")
    for name, array in program.init.items():
        if name not in slots or slots[name].shape != array.shape or array.dtype.kind not in "fiu":
            raise ValueError(f"initial array {name!r} without a slot of its shape")
    if not 1 <= program.threads <= 64 or not 1 <= program.microbatch <= program.minibatch:
        raise ValueError(f"threads {program.threads}, microbatch {program.microbatch}")
    if program.minibatch % program.microbatch or program.target_count < 1:
        raise ValueError(f"microbatch {program.microbatch} of a minibatch {program.minibatch}")
    told = {name: program.account.get(name, getattr(program, name)) for name in _COUNTS}
    if any(told[name] != getattr(program, name) for name in _COUNTS):
        raise ValueError(f"an account of {told}")
    staged = [program.targets[tape] for tape in ("micro", "eval")]
    staged += [slot for tape in ("micro", "eval") for slot in program.inputs[tape]]
    if any(slot.shape[:1] != (program.microbatch,) for slot in (*staged, *program.outputs["eval"])):
        raise ValueError("an input, target or output that does not begin with the microbatch")
    seed = program.recipe["seed"]
    whole = isinstance(seed, int) and -(2**63) <= seed < 2**63
    if not whole or "kind" not in program.recipe["loss"]:
        raise ValueError("a recipe without seed or loss")
    return program


def _slot(fields: Mapping[str, Any]) -> Slot:
    slot = Slot(
        str(fields["name"]), int(fields["offset"]), tuple(int(d) for d in fields["shape"]),
        str(fields["dtype"]), str(fields["role"]),
    )  # fmt: skip
    shaped = all(0 <= d < 2**60 for d in slot.shape) and len(slot.shape) <= 16
    if slot.offset < 0 or not shaped or slot.dtype not in NBYTES:
        raise ValueError(f"slot {slot.name!r} at {slot.offset}, shape {slot.shape}")
    return slot


def _parsed(fields: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> Program:
    # Initial arrays stay in the mapped file: the system may take their pages back. What runs is
    # copied, for the file may be written over.
    tapes = {name: np.array(tensors[f"tape.{name}"]) for name in TAPES}
    if any(tape.dtype != np.int64 or tape.ndim != 1 for tape in tapes.values()):
        raise ValueError("a tape that is not int64 words")
    for name in ("arena_nbytes", "threads", "minibatch", "microbatch", "target_count"):
        if not isinstance(fields[name], int) or fields[name] < 0:
            raise ValueError(f"{name} {fields[name]!r}")
    init = {k.removeprefix("init."): v for k, v in tensors.items() if k.startswith("init.")}
    return Program(
        arena_nbytes=fields["arena_nbytes"],
        threads=fields["threads"],
        minibatch=fields["minibatch"],
        microbatch=fields["microbatch"],
        kernels=tuple((str(n), str(v), tuple(map(str, s))) for n, v, s in fields["kernels"]),
        tapes=tapes,
        persistent=tuple(_slot(s) for s in fields["persistent"]),
        inputs={k: tuple(_slot(s) for s in v) for k, v in fields["inputs"].items()},
        targets={k: _slot(s) for k, s in fields["targets"].items()},
        outputs={k: tuple(_slot(s) for s in v) for k, v in fields["outputs"].items()},
        init=init,
        account=dict(fields["account"]),
        recipe=dict(fields["recipe"]),
        limits={str(k): int(v) for k, v in fields["limits"].items()},
        aliases={str(k): str(v) for k, v in fields["aliases"].items()},
        onnx=tensors["onnx"].astype(np.uint8).tobytes(),
        model_name=str(fields["model_name"]),
        target_count=fields["target_count"],
        work={str(t): {str(k): int(v) for k, v in w.items()} for t, w in fields["work"].items()},
    )
