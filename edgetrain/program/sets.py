"""Tape sets: the parts of a Program that depend on sequence length and arena size.

A Program can have several. Weights, state, frozen weights, the model and the recipe are stored
once; tapes, kernels and offsets belong to a set. A set is identified by its dimensions and its
arena size. Values that persist between steps have the same offset in all sets, so a run can switch
between two steps; only constants belong to a set, because their shapes can depend on its length.
Sets of the same length compute the same bits: results never depend on the arena size.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from ..formats import FORMATS, Format
from ..units.public import public_api

# Fields of a recipe that may differ between sets. The others define what is trained, and how.
OWN_RECIPE = ("dims", "minibatch", "microbatch", "output_shape", "max_extra_forward", "effort")
# Buffers filled in addition to the model's inputs: targets, and sample weights if used.
TARGET, WEIGHT = "loss.target", "loss.weight"
WEIGHTS = "loss.weights"  # one weight for each of several losses: a constant that a run may change
# Inputs that a Program with several lengths generates if the data has none: the samples' lengths,
# and masks of ones up to the end.
MADE = ("lengths", "length", "mask", "attention_mask")
_COUNTS = ("arena_nbytes", "minibatch", "microbatch")  # also in the account


@dataclass(frozen=True, slots=True)
class Slot:
    """A tensor at a fixed place in the arena: `offset` in bytes, `shape` in elements.

    Attributes:
      batch: for inputs and outputs, the batch axis in the layout of the model file. In the arena it
        is axis 0, so samples are contiguous.
    """

    name: str
    offset: int
    shape: tuple[int, ...]
    dtype: str
    role: str = ""
    batch: int = 0

    def declared(self, count: int | str) -> tuple[int | str, ...]:
        """The shape of `count` samples in the file's layout."""
        sample = self.shape[1:]
        return (*sample[: self.batch], count, *sample[self.batch :])

    def samples_first(self, array: Any) -> Any:
        """An array in the file's layout, with the batch moved to axis 0."""
        return np.moveaxis(array, self.batch, 0) if self.batch < array.ndim else array

    @property
    def size(self) -> int:
        count = 1
        for dim in self.shape:
            count *= dim
        return count

    @property
    def nbytes(self) -> int:
        return self.format.nbytes(self.size)

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Shape of the array in memory: `shape`, or the blocks of its format."""
        return self.format.stored_shape(self.shape)

    @property
    def format(self) -> Format:
        """The storage format of its elements."""
        return FORMATS[self.dtype]


@public_api
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TapeSet:
    """Tapes for one length and one arena size, with the slots they use.

    Attributes:
      arena_nbytes: size of its single allocation.
      kernels: (name, variant, storages) by index in tapes.
      tapes: int64 words by tape name.
      persistent: parameters, buffers, constants, accumulators, state, control block.
      inputs, targets, outputs: slots per tape (`micro`, `eval`).
      init: initial arrays by slot name; all other persistent slots start at zero.
      account: the JSON object of `plan --json`.
      recipe: options it was compiled with; sets differ only in OWN_RECIPE.
      work: {tape: {kernel: loop iterations counted by the compiler}}; see runtime/loading/tapes.py.
      mapped: frozen weights and constants outside the arena: `init` contains them, mapped from the
        file if there is one. Tapes refer to them by arena_nbytes + `offset`.
    """

    arena_nbytes: int
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
    target_count: int = 0
    work: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    mapped: tuple[Slot, ...] = ()

    @property
    def dims(self) -> dict[str, int]:
        """The sizes of the model's free dimensions."""
        return dict(sorted(self.recipe["dims"].items()))

    @property
    def key(self) -> tuple[tuple[tuple[str, int], ...], int]:
        """The identity of the set: dimensions and arena size."""
        return tuple(self.dims.items()), self.arena_nbytes

    @property
    def label(self) -> str:
        """Its key as text: "T=64, 1,024 bytes"."""
        bound = [f"{name}={size}" for name, size in self.dims.items()]
        return ", ".join([*bound, f"{self.arena_nbytes:,} bytes"])

    @property
    def tape_nbytes(self) -> int:
        """Size of its tapes, which are read-only and outside the arena."""
        return sum(tape.nbytes for tape in self.tapes.values())

    @property
    def lasting(self) -> tuple[Slot, ...]:
        """Slots that persist throughout the run; those outside the arena come last."""
        return (*self.persistent, *self.mapped)


def fields_of(tape_set: TapeSet) -> dict[str, Any]:
    """The fields of a set by name, without the additional ones of a Program."""
    return {item.name: getattr(tape_set, item.name) for item in fields(TapeSet)}


def check_set(tape_set: TapeSet, threads: int) -> None:
    """Check everything the runtime relies on; offsets are checked later, against the real arena.

    Raises:
      ValueError: names the contradiction.
    """
    staged = {tape: (*tape_set.inputs[tape], tape_set.targets[tape]) for tape in ("micro", "eval")}
    for place, group in {"persistent": tape_set.lasting, **staged}.items():
        for name, count in Counter(slot.name for slot in group).items():
            if count > 1:
                raise ValueError(f"{place}: slot {name!r} occurs {count} times")
    _check_arrays(tape_set)
    if tape_set.minibatch % tape_set.microbatch:
        raise ValueError(
            f"microbatch: {tape_set.microbatch} does not divide the minibatch {tape_set.minibatch}"
        )
    # Other outputs are not kept: see `Program.unpredicted`.
    whole = [slot for slot in tape_set.outputs["eval"] if slot.shape and slot.shape[0]]
    for slot in (*staged["micro"], *staged["eval"], *whole):
        if slot.shape[:1] != (tape_set.microbatch,):
            raise ValueError(f"slot {slot.name!r}: its shape does not start with the microbatch")
    for slot in (*staged["micro"], *staged["eval"], *whole):
        if slot.batch >= max(1, len(slot.shape)):
            raise ValueError(f"slot {slot.name!r}: batch axis {slot.batch} does not exist")
    for name, sizes in tape_set.recipe.get("lengths", {}).items():
        if tape_set.dims.get(name) not in sizes:
            raise ValueError(
                f"recipe.lengths: {name} is {tape_set.dims.get(name)}; not one of them"
            )
    _check_losses(tape_set)
    count = tape_set.microbatch * tape_set.target_count
    summed = any(slot.name == WEIGHTS for slot in tape_set.persistent)  # each sample is one target
    if any(t.size % count if summed else t.size != count for t in tape_set.targets.values()):
        raise ValueError(f"target_count: {tape_set.target_count} does not match the targets")
    known = {name: getattr(tape_set, name) for name in _COUNTS} | {"threads": threads}
    for name, number in known.items():
        told = tape_set.account.get(name, number)
        if told != number:
            raise ValueError(f"account.{name}: found {told}; expected {number}")


def _check_losses(tape_set: TapeSet) -> None:
    """Check that each output with a loss is kept and has staged targets.

    Raises:
      ValueError: an output is not kept, or has no staged targets.
    """
    names = list(dict.fromkeys(name for name, _ in tape_set.recipe.get("losses", [])))
    if len(tape_set.outputs["eval"]) != max(1, len(names)):
        raise ValueError(
            f"outputs: {len(tape_set.outputs['eval'])}; the recipe has losses of "
            f"{max(1, len(names))}"
        )
    for tape, slots in tape_set.inputs.items():
        missing = {f"{TARGET}.{name}" for name in names[1:]} - {slot.name for slot in slots}
        if missing:
            raise ValueError(f"inputs.{tape}: no slot {min(missing)!r}")


def _check_arrays(tape_set: TapeSet) -> None:
    slots = {slot.name: slot for slot in tape_set.lasting}
    absent = [slot.name for slot in tape_set.mapped if slot.name not in tape_set.init]
    if absent:
        raise ValueError(f"mapped: tensor 'init.{absent[0]}' is missing")
    control = slots.get("ctl")
    if control is None or (control.shape, control.dtype) != ((64,), "i64"):
        raise ValueError("persistent: the control block of 64 words is missing")
    for name, array in tape_set.init.items():
        slot = slots.get(name)
        # A conversion could make anything of numbers that the slot's format does not hold.
        if slot is None or (array.dtype, array.shape) != (slot.format.dtype, slot.stored_shape):
            raise ValueError(f"tensor 'init.{name}': no slot has its shape and type")
    weights = tape_set.init.get(WEIGHTS, np.ones(1, np.float32))
    if not (weights.dtype == np.float32 and np.isfinite(weights).all() and (weights >= 0).all()):
        raise ValueError(f"tensor 'init.{WEIGHTS}': expected float32 numbers of at least 0")


def check_together(first: TapeSet, others: Iterable[TapeSet]) -> None:
    """Check that the sets train the same weights in the same way, and have different keys.

    Raises:
      ValueError: names the set and the difference.
    """
    keys, same_length = {first.key}, {first.key[0]: first}
    for other in others:
        where = f"set {other.label}"
        for name in first.recipe.keys() | other.recipe.keys():
            if name not in OWN_RECIPE and first.recipe.get(name) != other.recipe.get(name):
                raise ValueError(f"{where}: recipe.{name} differs from the default set")
        like = same_length.setdefault(other.key[0], other)
        if (like.minibatch, like.microbatch) != (other.minibatch, other.microbatch):
            raise ValueError(
                f"{where}: minibatch {other.minibatch}, microbatch {other.microbatch}; another set "
                f"with the same dims has {like.minibatch} and {like.microbatch}"
            )
        ours, theirs = _shared_slots(first), _shared_slots(other)
        for name in sorted(ours.keys() | theirs.keys()):
            if ours.get(name) != theirs.get(name):
                raise ValueError(f"{where}: slot {name!r} differs from the default set")
        if _layouts(first) != _layouts(other):
            raise ValueError(f"{where}: its inputs differ from the default set")
        if other.key in keys:
            raise ValueError(f"{where}: two sets have the same dims and arena")
        keys.add(other.key)


def _shared_slots(tape_set: TapeSet) -> dict[str, tuple]:
    """The slots that must be equal in all sets, by name.

    That excludes constants, which belong to a set, and offsets of mapped values, which come after
    its arena.
    """
    kept: dict[str, tuple] = {
        s.name: (s.offset, s.shape, s.dtype, s.role) for s in tape_set.persistent
    }
    kept |= {s.name: (None, s.shape, s.dtype, s.role) for s in tape_set.mapped}
    return {name: about for name, about in kept.items() if about[-1] != "constant"}


def _layouts(tape_set: TapeSet) -> dict[str, list[tuple[str, int, str, int]]]:
    """Layouts of staged values and outputs, without sizes."""
    slots = dict(tape_set.inputs) | {f"{tape} target": (s,) for tape, s in tape_set.targets.items()}
    told = {
        name: [(slot.name, len(slot.shape), slot.dtype, slot.batch) for slot in own]
        for name, own in slots.items()
    }
    return told | {  # one set may keep outputs that another does not
        f"{tape} outputs": [("", len(slot.shape), "", slot.batch) for slot in own]
        for tape, own in tape_set.outputs.items()
    }
