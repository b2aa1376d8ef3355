"""The Program: one file with everything a device needs; nothing else is compiled or imported.

A checksummed container in the safetensors format (container.py), no pickle. Tensors: the tapes
(`tape.micro`, `tape.update`, `tape.rewire`, `tape.eval`; int64 words, see kernels/tapes/tape.py),
the initial arrays (`init.NAME`) and the ONNX model without weights (`onnx`). Everything else is
JSON.

These are the default tape set (sets.py). The JSON's list `sets` describes the others: their tapes
are `set.N.tape.NAME`, their constants `set.N.init.NAME`, N from 1. Everything else is shared with
the default set, weights included.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BudgetError, ProgramError, UsageError
from ..formats import from_file
from ..units import budget_nbytes, format_bytes
from ..units.public import as_path, public_api
from ..units.sha import sha256
from .container import read_container
from .container_header import PROGRAM_KIND
from .fields import VERSIONS, check_program
from .mapped_file import check_files
from .schema import Wrong, parse, record, text, verify
from .sets import TARGET, WEIGHT, WEIGHTS, Slot, TapeSet, check_set, check_together, fields_of

KIND = PROGRAM_KIND
TAPES = ("micro", "update", "rewire", "eval")
_TEXT = record({"program": text(2**23)})
MOVE = "Compile the model again."
# Loop turns: a tape with fewer than ALONE, about two milliseconds, ends before the system has given
# each thread a processor; one with fewer than BRIEF, before running threads have synchronized.
ALONE, BRIEF = 50_000_000, 100_000
SAVED_ROLES = ("parameter", "buffer", "index", "state")  # roles of the values in a checkpoint
# Fields of a recipe that change no bit, or may differ because a run may change its processor.
_APART = ("threads", "max_extra_forward", "effort", "target", "lanes")


@public_api
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Program(TapeSet):
    """A compiled training run: the default tape set, and everything shared by all sets.

    Attributes:
      threads: number of workers the workspaces are for; fewer can be used.
      limits: bounds of integer inputs.
      ignored: values exempt from their bound, by input.
      aliases: other names of tied parameters.
      onnx: the model without its weights.
      revisions: kernel revisions above 1; see kernels/registry.py.
      others: other tape sets, with different dims or arenas.
    """

    threads: int
    limits: Mapping[str, int] = field(default_factory=dict)
    ignored: Mapping[str, int] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    onnx: bytes = b""
    model_name: str = "model"
    revisions: Mapping[str, int] = field(default_factory=dict)
    others: tuple[TapeSet, ...] = ()

    def __repr__(self) -> str:
        return (
            f"Program({self.model_name!r}, arena {format_bytes(self.arena_nbytes)}, minibatch "
            f"{self.minibatch}, microbatch {self.microbatch}, {self.threads} threads)"
        )

    def threads_of(self, tape: str, prompt: bool = False) -> int:
        """Threads worth using for a tape: only one if it ends before a second thread wakes up.

        Args:
          prompt: whether the threads are awake.
        """
        turns = sum(self.work.get(tape, {}).values())
        return self.threads if turns >= (min(ALONE, BRIEF) if prompt else ALONE) else 1

    @property
    def mapped_nbytes(self) -> int:
        """Size of the frozen weights outside the arena, in bytes (aligned to 64)."""
        return max((slot.offset + -(-slot.nbytes // 64) * 64 for slot in self.mapped), default=0)

    @property
    def lr(self) -> float:
        """The optimizer's initial learning rate."""
        return float(self.recipe["optimizer"]["lr"])

    @property
    def sliced(self) -> bool:
        """Whether logits are computed in slices; then the output is the best classes of each
        position, best first, float32 [microbatch, ..., 5], -1 if there are fewer."""
        return "output_shape" in self.recipe

    @property
    def unpredicted(self) -> str:
        """Why outputs are not available; "" if they are."""
        shape = self.outputs["eval"][0].shape
        if not shape:
            return "predict: the model's output is one number, a loss. Use evaluate."
        if shape[0]:
            return ""
        return (
            f"predict: outputs of shape {list(shape[1:])} are computed in time segments and not "
            "kept. Compile with segments off, or run the exported ONNX with another runtime."
        )

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of the model's output for a microbatch."""
        return tuple(self.recipe.get("output_shape") or self.outputs["eval"][0].shape)

    @property
    def summed(self) -> bool:
        """Whether losses are weighted and summed; each sample then counts as one target."""
        return any(slot.name == WEIGHTS for slot in self.persistent)

    def shape_of(self, output: str | None) -> tuple[int, ...]:
        """Shape of one of the outputs that losses are computed from, for a microbatch."""
        names = self.output_names
        if output in names[1:]:
            return self.outputs["eval"][names.index(output)].shape
        return self.output_shape

    @property
    def output_names(self) -> tuple[str | None, ...]:
        """Names of the outputs that losses are computed from; None: the model's first."""
        names = dict.fromkeys(name for name, _ in self.recipe.get("losses", []))
        return tuple(names) or (self.recipe.get("output"),)

    def ignored_of(self, name: str) -> int | None:
        """The value of an integer input, or of TARGET, that is exempt from its limit; or None."""
        if name != TARGET and not name.startswith(f"{TARGET}."):
            return self.ignored.get(name)
        if self.summed and self.microbatch != self.minibatch:
            return None  # each microbatch would have to know how many the others ignore
        ignored: int | None = self.loss_of(name).get("ignore_index")
        return ignored

    def loss_of(self, target: str) -> Mapping[str, Any]:
        """The record of the loss that reads these staged targets; the first if several do."""
        pairs = self.recipe.get("losses", [])
        result = (loss for name, loss in pairs if target == f"{TARGET}.{name}")
        own: Mapping[str, Any] = next(result, self.recipe["loss"])
        return own

    def slot(self, name: str) -> Slot:
        """The persistent slot with this name."""
        return next(slot for slot in self.persistent if slot.name == name)

    @property
    def saved(self) -> tuple[Slot, ...]:
        """Slots that a checkpoint contains, in addition to counters."""
        return tuple(slot for slot in self.persistent if slot.role in SAVED_ROLES)

    def staged(self, tape: str) -> dict[str, Slot]:
        """Slots filled with a microbatch for `micro` or `eval`: inputs by name, TARGET last."""
        return {slot.name: slot for slot in self.inputs[tape]} | {TARGET: self.targets[tape]}

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the model's inputs, without sample weights and targets staged among them."""
        own = (WEIGHT, *(f"{TARGET}.{name}" for name, _ in self.recipe.get("losses", [])))
        return tuple(slot.name for slot in self.inputs["micro"] if slot.name not in own)

    @property
    def sets(self) -> tuple[TapeSet, ...]:
        """All tape sets, the default first."""
        return (self, *self.others)

    @property
    def lengths(self) -> dict[int, TapeSet]:
        """The tape sets by length, the shortest first; empty if it was compiled for one length."""
        name = next(iter(self.recipe.get("lengths", ())), None)
        result = {} if name is None else {item.dims[name]: item for item in reversed(self.sets)}
        return dict(sorted(result.items()))

    def chosen(
        self, *, dims: Mapping[str, int] | None = None, budget: str | int | None = None
    ) -> "Program":
        """This Program with another tape set as the default.

        Args:
          dims: the set's sizes of the model's free dimensions; None: those of the default.
          budget: memory limit: the largest set within it is chosen; None: no limit.
        Raises:
          UsageError: no set has these dimensions.
          BudgetError: all sets with these dimensions are larger.
          RunError: the Program file was truncated or overwritten.
        """
        wanted = self.dims if dims is None else dict(dims)
        bound = [item for item in self.sets if item.dims == wanted]
        if not bound:
            raise UsageError(
                f"{self.model_name}: no tape set for {wanted}; the Program has "
                f"{'; '.join(item.label for item in self.sets)}. Choose one of them."
            )
        most = budget_nbytes(budget)
        fitting = [item for item in bound if most is None or item.arena_nbytes <= most]
        if not fitting:
            least = min(item.arena_nbytes for item in bound)
            raise BudgetError(
                f"{self.model_name}: no tape set fits {format_bytes(most or 0)}; the smallest "
                f"arena for these dims is {format_bytes(least)}. Allow that, or compile again.",
                least,
            )
        result = max(fitting, key=lambda item: item.arena_nbytes)
        if result.key == self.key:
            return self
        check_files(result.tapes)
        own = fields_of(result) | {"tapes": {name: np.array(t) for name, t in result.tapes.items()}}
        others = (TapeSet(**fields_of(self)), *(item for item in self.others if item is not result))
        return replace(self, **own, others=others)

    def joined(self, others: Iterable["Program"]) -> "Program":
        """This Program plus the tape sets of other Programs of the same model.

        Raises:
          ProgramError: another Program differs in model or recipe, or a set occurs twice.
        """
        from .writing import SAME, shared_sets

        revisions, added = shared_sets(self, others)
        program = replace(self, revisions=revisions, others=(*self.others, *added))
        try:
            return _consistent(program)
        except ValueError as error:
            raise ProgramError(f"{self.model_name}: {error}. {SAME}") from None

    def digest(self) -> str:
        """Equal for Programs with interchangeable checkpoints: same recipe, same tensors, and the
        same values of tensors that checkpoints don't contain.

        Recomputation, layout and threads don't matter, because they change no bit; neither does the
        processor, because a run may continue on another one. The microbatch does.
        """
        recipe = {k: v for k, v in self.recipe.items() if k not in _APART}
        recipe["microbatch"] = self.microbatch
        for length, item in self.lengths.items():
            recipe[f"length {length}"] = item.minibatch, item.microbatch
        names = sorted((s.name, s.shape, s.dtype, s.role) for s in self.lasting)
        text = json.dumps([recipe, names, self.model_name], sort_keys=True) + self._frozen_digest
        return str(sha256(text.encode()).hexdigest())

    @cached_property
    def _frozen_digest(self) -> str:
        """Digest of mapped values, which checkpoints don't contain; "" without any."""
        if not self.mapped:
            return ""
        check_files(self.init)
        result = sha256(expected=self.mapped_nbytes)
        for slot in sorted(self.mapped, key=lambda slot: slot.name):
            result.update(np.ascontiguousarray(self.init[slot.name]).view(np.uint8).data)
        return str(result.hexdigest())

    def save(self, path: str | PathLike[str], *, links: bool = True) -> Path:
        """Write the Program to a file, atomically; returns the path.

        Args:
          links: follow a link at `path`; otherwise reject it.
        Raises:
          ProgramError: `read_program` would reject a field.
          RunError: the file cannot be written, or the file this was read from has changed.
        """
        from .writing import write_program  # not needed to train a Program

        path = as_path("save", path)
        write_program(self, path, links)
        return path


def read_program(path: str | Path, *, links: bool = True) -> Program:
    """Read and check a Program file; runtime/loading/program.py checks whether this build can
    run it.

    Args:
      links: follow a link at `path`; otherwise reject it.
    Raises:
      ProgramError: the file is damaged, of another version, or not a Program.
    """
    path = Path(path)
    tensors, meta = read_container(
        path,
        kind=KIND,
        versions=VERSIONS,
        mmap=True,
        links=links,
        error=ProgramError,
    )
    verify(_TEXT, meta, str(path), ProgramError, MOVE)
    try:
        fields = parse(meta["program"])
        check_program(fields, "")
        _check_tensors(tensors, len(fields.get("sets", ())))
        return _consistent(_parsed(fields, tensors))
    except (Wrong, ValueError) as error:
        raise ProgramError(f"{path}: {error}. {MOVE}") from None


def _consistent(program: Program) -> Program:
    """Check every set, and that all belong to one Program.

    Raises:
      ValueError: names the contradiction.
    """
    for item in program.sets:
        try:
            check_set(item, program.threads)
        except ValueError as error:
            raise ValueError(f"set {item.label}: {error}" if program.others else error) from None
    check_together(program, program.others)
    limited = {slot.name for slots_of in program.inputs.values() for slot in slots_of}
    unknown = sorted(program.limits.keys() - limited - {TARGET})
    if unknown:
        raise ValueError(f"limits: {unknown[0]!r} is not an input")
    if unlimited := sorted(program.ignored.keys() - program.limits.keys()):
        raise ValueError(f"ignored: {unlimited[0]!r} has no limit")
    return program


def _check_tensors(tensors: Mapping[str, np.ndarray], others: int) -> None:
    """Check that tapes, model and initial arrays are present, and no other tensors."""
    prefixes = ["", *(f"set.{number}." for number in range(1, others + 1))]
    wanted = {f"{start}tape.{name}": np.int64 for start in prefixes for name in TAPES}
    for name, dtype in (wanted | {"onnx": np.uint8}).items():
        result = tensors.get(name)
        if result is None or result.dtype != dtype or result.ndim != 1:
            shown = "none" if result is None else f"{result.dtype} {list(result.shape)}"
            raise Wrong(f"tensor {name}", f"a row of {np.dtype(dtype).name}", shown)
    initial = tuple(f"{start}init." for start in prefixes)
    for name in tensors.keys() - wanted.keys() - {"onnx"}:
        if not name.startswith(initial):
            raise Wrong(f"tensor {name[:80]!r}", "no tensor of this name", "one")


def _parsed(fields: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> Program:
    default = _set_of(fields, tensors, "", {})
    # Tapes to run are copied, because the file may be overwritten; `chosen` copies other sets.
    default["tapes"] = {name: np.array(tape) for name, tape in default["tapes"].items()}
    others = []
    for number, item in enumerate(fields.get("sets", ()), 1):
        others.append(TapeSet(**_set_of(item, tensors, f"set.{number}.", default["init"])))
    return Program(
        **default,
        threads=fields["threads"],
        limits=fields["limits"],
        ignored=fields.get("ignored", {}),
        aliases=fields["aliases"],
        onnx=tensors["onnx"].tobytes(),
        model_name=fields["model_name"],
        revisions=fields.get("revisions", {}),
        others=tuple(others),
    )


def _set_of(
    fields: Mapping[str, Any],
    tensors: Mapping[str, np.ndarray],
    prefix: str,
    shared: Mapping[str, np.ndarray],
) -> dict[str, Any]:
    """A set's fields by name.

    Args:
      prefix: prefix of its tensors' names.
      shared: the default set's initial arrays.
    Raises:
      Wrong: it has an array of its own that is not a constant.
    """
    # Initial arrays stay in the mapped file: the system may take their pages back.
    persistent = tuple(_slot(s) for s in fields["persistent"])
    mapped = tuple(_slot(s) for s in fields.get("mapped", ()))
    slots = {slot.name: slot for slot in (*persistent, *mapped)}
    start = f"{prefix}init."
    own = {k.removeprefix(start): v for k, v in tensors.items() if k.startswith(start)}
    for name in own if prefix else ():
        if name not in slots or slots[name].role != "constant":
            raise Wrong(f"tensor {start + name[:80]!r}", "a constant of the set", "one of all sets")
    own = {k: from_file(v, slots[k].format) if k in slots else v for k, v in own.items()}
    return {
        "arena_nbytes": fields["arena_nbytes"],
        "minibatch": fields["minibatch"],
        "microbatch": fields["microbatch"],
        "kernels": tuple((n, v, tuple(s)) for n, v, s in fields["kernels"]),
        "tapes": {name: tensors[f"{prefix}tape.{name}"] for name in TAPES},
        "persistent": persistent,
        "inputs": {k: tuple(_slot(s) for s in v) for k, v in fields["inputs"].items()},
        "targets": {k: _slot(s) for k, s in fields["targets"].items()},
        "outputs": {k: tuple(_slot(s) for s in v) for k, v in fields["outputs"].items()},
        "init": {k: v for k, v in shared.items() if k in slots} | own,
        "account": fields["account"],
        "recipe": fields["recipe"],
        "target_count": fields["target_count"],
        "work": fields["work"],
        "mapped": mapped,
    }


def _slot(fields: Mapping[str, Any]) -> Slot:
    return Slot(**{**fields, "shape": tuple(fields["shape"])})
