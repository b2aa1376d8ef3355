"""Assigns samples of different lengths to the tape sets of a Program with a set per length.

A sample uses the smallest length that fits it. The rest is padded: targets with the value that
their loss ignores, masks and lengths with their proper values, other inputs with 0.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...data.checks.layout import check_layout
from ...data.checks.values import check_integers
from ...data.rows import ArrayRows
from ...data.source import Source
from ...data.sources.padded import LENGTHS, Fit, Padded, laid_out, too_short
from ...data.sources.ragged import opened_ragged
from ...data.sources.row_source import RowsSource
from ...errors import DataError
from ...losses.terms import terms_of_recipe
from ...program import TARGET, WEIGHT, Program
from ...program.sets import MADE
from .sample_callback import target_fields

if TYPE_CHECKING:
    from ...data.sources.items import Batches

_TOLD = (*MADE, "padding_mask", "key_padding_mask")  # inputs that tell the model where samples end
_READ = 2**16  # lengths read at once
_KEPT = 3  # number of sources whose parts are cached


# Field of a part -> (staged value, field of the source; "" if it is generated).
_Named = Mapping[str, tuple[str, str]]


class Part(NamedTuple):
    """The samples of one length.

    Attributes:
      program: the Program with the tape set of this length.
      source: the samples, padded to this length; indices are those of the whole source.
      indices: the part's samples, int64, ascending.
      padded: some samples are shorter than the length.
    """

    length: int
    program: Program
    source: Padded
    indices: np.ndarray
    padded: bool


class Placed(NamedTuple):
    """Samples padded to one length.

    Attributes:
      fields: arrays by field, samples first.
      width: length of the arrays before padding.
    """

    fields: dict[str, np.ndarray]
    program: Program
    width: int


class Lengths:
    """The lengths of a Program, and the parts of data by length.

    Attributes:
      name: name of the dimension.
      programs: {length: Program with this length's set as the default}, shortest first.
      axes: axes of a sample that depend on the length, by staged value.
      exact: staged values for which the size of these axes equals the length.
      outputs: for each output (samples first), the axes whose size equals the length.
      needed: inputs that the data must have.
      inputs: layout of the inputs.
    """

    def __init__(self, program: Program) -> None:
        self.name = next(iter(program.recipe["lengths"]))
        self.programs = {
            length: program.chosen(dims=item.dims) for length, item in program.lengths.items()
        }
        self._program, self._terms = program, terms_of_recipe(program.recipe, TARGET)
        staged = {length: item.staged("micro") for length, item in self.programs.items()}
        first, *others = staged.values()
        self.axes: dict[str, tuple[int, ...]] = {}
        for name, slot in first.items():
            result = [
                k
                for k in range(1, len(slot.shape))
                if any(other[name].shape[k] != slot.shape[k] for other in others)
            ]
            self.axes[name] = tuple(k - 1 for k in result)
        self.exact = {
            name
            for name, axes in self.axes.items()
            if all(s[name].shape[k + 1] == n for n, s in staged.items() for k in axes)
        }
        lead = [item.outputs["eval"] for item in self.programs.values()]
        self.outputs = [
            tuple(
                k
                for k in range(1, len(own[0].shape))
                if all(s.shape[k] == n for s, n in zip(own, self.programs, strict=True))
            )
            for own in zip(*lead, strict=True)
        ]
        self.needed = tuple(name for name in program.input_names if name not in MADE)
        shortest = next(iter(self.programs.values()))
        self.inputs = {name: self._fit(shortest, name, name) for name in program.input_names}
        self._known: list[tuple[Source, list[Part]]] = []  # the latest

    def parts(self, source: Source) -> list[Part]:
        """The samples of a source by length; lengths without samples are left out.

        Raises:
          DataError: a sample is longer than every length, or padding would count.
        """
        for known, parts in self._known:
            if known is source:
                return parts
        parts = self._divided(source)
        self._known = [(source, parts), *self._known[: _KEPT - 1]]
        return parts

    def note(self, source: Source) -> str:
        """How many samples have each length, and whether layers read padding."""
        parts = self.parts(source)
        counts = ", ".join(f"{self.name}={part.length}: {len(part.indices)}" for part in parts)
        said = f"samples by length: {counts}"
        told = any(name in _TOLD for name in self._program.input_names)
        if told or not any(part.padded for part in parts):
            return said
        return (
            f"{said}; shorter ones are padded with 0. The model has no input named "
            f"{', '.join(MADE[:3])} or {MADE[3]}, so layers that look ahead, or take means over "
            f"{self.name}, read the padding; give it one that says where a sample ends"
        )

    def _divided(self, source: Source) -> list[Part]:
        if self._terms[0].label:
            source.name_targets(target_fields(self._terms, ()))
        named = self._named(source)
        lengths = self._lengths_of(source, named)
        which = self._which(source, lengths)
        self._check_each(source, named, lengths)
        result = []
        for number, (length, program) in enumerate(self.programs.items()):
            own = np.flatnonzero(which == number).astype(np.int64)
            if len(own):
                whole = self._padded(program, source, named, lengths, own)
                padded = bool((lengths[own] != length).any())
                result.append(Part(length, program, whole, own, padded))
        if any(part.padded for part in result):
            self._check_targets(source, named)
        return result

    def placed(self, rows: Mapping[str, np.ndarray]) -> Placed:
        """The samples of one call, padded to the smallest length that fits all of them.

        Args:
          rows: fields, samples along axis 0.
        Raises:
          DataError: as in `parts`, or the fields have different numbers of samples.
        """
        counts = {name: len(array) for name, array in rows.items()}
        if len({*counts.values()}) != 1 or 0 in counts.values():
            result = ", ".join(f"{name} {count}" for name, count in counts.items())
            raise DataError(f"samples per field: {result}; expected the same number, at least 1.")
        source = RowsSource(
            "samples", {k: ArrayRows(array) for k, array in rows.items()}, split="train"
        )
        named = self._named(source)
        lengths, every = self._lengths_of(source, named), np.arange(source.n)
        number = int(self._which(source, lengths).max())
        self._check_each(source, named, lengths)
        length = [*self.programs][number]
        program = self.programs[length]
        if (lengths != length).any():
            self._check_targets(source, named)
        whole = self._padded(program, source, named, lengths, every)
        width = self._width(source, named)
        return Placed(whole.read(tuple(named), every, (0, 0), False), program, width)

    def opened(self, data: Any) -> "Source | Batches | None":
        """Open data; as `opened_ragged`."""
        shortest = next(iter(self.programs.values()))
        targets = {
            field: self._fit(shortest, staged, field)
            for field, staged in target_fields(self._terms, ("y",)).items()
        }
        return opened_ragged(data, self.needed, self.inputs, targets)

    def _which(self, source: Source, lengths: np.ndarray) -> np.ndarray:
        """For each sample, the index of its length."""
        sizes = np.array([*self.programs])
        which = np.searchsorted(sizes, lengths)
        long = np.flatnonzero(which == len(sizes))
        if len(long):
            row = int(long[0])
            raise DataError(
                f"{source.name}: {source.where(row)}: length {lengths[row]}; the longest that the "
                f"Program was compiled for is {self.name}={sizes[-1]}. Compile with a longer one, "
                "or cut the sample."
            )
        return which

    def _padded(
        self, program: Program, source: Source, named: _Named, lengths: np.ndarray, own: np.ndarray
    ) -> Padded:
        fits = {
            field: self._fit(program, staged, inner) for field, (staged, inner) in named.items()
        }
        return Padded(source, lengths, own, fits, max(self._widths(source, named)))

    def _named(self, source: Source) -> _Named:
        """Field -> (staged value, field of the source)."""
        targets, inputs = target_fields(self._terms, source.fields), self._program.input_names
        result = {name: (name, name) for name in inputs if name in source.fields}
        result |= {field: (to, field) for field, to in targets.items() if field in source.fields}
        if "w" in source.fields:
            result.setdefault("w", (WEIGHT, "w"))
        left = [name for name in inputs if name not in result and name not in MADE]
        given = [name for name in source.fields if name not in result and name != LENGTHS]
        if len(left) == len(given) == 1:
            result[left[0]] = left[0], given[0]
        else:  # whatever is wrong with them is said by `sample_callback.fields`
            result |= {name: (name, name) for name in given}
        made = [name for name in inputs if name not in result and name in MADE]
        return result | {name: (name, "") for name in made}

    def _fit(self, program: Program, staged: str, inner: str) -> Fit:
        """How to convert a field of a source to a staged value of this set."""
        slot = program.staged("micro").get(staged)
        if slot is None:  # whatever is wrong with it is said by `sample_callback.fields`
            return Fit(inner, (), ())
        ignored, exact = program.ignored_of(staged), staged in self.exact
        axes = self.axes[staged]
        cleared = exact and ignored is not None
        fit = Fit(inner, slot.shape[1:], axes, ignored or 0, exact, cleared)
        if not staged.startswith(TARGET):
            return fit
        term = next(term for term in self._terms if term.target == staged)
        pads = term.pads(program.loss_of(staged).get("ignore_index", None if exact else 0))
        return fit._replace(pads=pads, target=True, each=not term.loss.fillers)

    def _check_each(self, source: Source, named: _Named, lengths: np.ndarray) -> None:
        """Refuse arrays of targets that are shorter than a sample."""
        program, row = next(iter(self.programs.values())), int(lengths.argmax())
        for field, (staged, inner) in named.items():
            fit = self._fit(program, staged, inner)
            shape = laid_out(source.fields[inner].shape, fit) if fit.each and fit.exact else None
            if shape is None:
                continue
            for axis in fit.axes:
                if shape[axis] < lengths[row]:
                    label = f"{source.name}: {source.where(row)}: field {field!r}"
                    raise too_short(label, shape[axis], int(lengths[row]), fit)

    def _lengths_of(self, source: Source, named: _Named) -> np.ndarray:
        """The length of each sample, int64 [n]."""
        width = self._width(source, named)
        if LENGTHS not in source.fields:
            return np.full(source.n, width, np.int64)
        result = np.empty(source.n, np.int64)
        for start in range(0, source.n, _READ):
            part = np.arange(start, min(start + _READ, source.n))
            rows = source.read((LENGTHS,), part, (0, 0), False)[LENGTHS].reshape(len(part), -1)

            def label(row: int, start: int = start) -> str:
                return f"{source.name}: {source.where(start + row)}: field {LENGTHS!r}"

            if rows.shape[1] != 1:
                raise DataError(f"{label(0)}: {rows.shape[1]} numbers; expected one. Correct it.")
            check_integers(rows, np.dtype(np.int64), width + 1, None, label)
            if rows.min() < 1:
                raise DataError(f"{label(int(rows.argmin()))}: 0; expected at least 1. Correct it.")
            result[part] = rows[:, 0]
        return result

    def _width(self, source: Source, named: _Named) -> int:
        """Length of the source's arrays."""
        return min(self._widths(source, named))

    def _widths(self, source: Source, named: _Named) -> list[int]:
        """Length of each input's array, once for each axis that depends on it."""
        program = next(iter(self.programs.values()))
        widths = []
        for field, (staged, inner) in named.items():
            axes = self.axes.get(staged, ())
            if not (axes and inner and staged in self._program.input_names):
                continue
            fit = self._fit(program, staged, inner)
            shape = laid_out(source.fields[inner].shape, fit)
            if shape is None:
                label = f"{source.name}: field {field!r}"
                check_layout(label, source.fields[inner].shape, fit.shape)
                raise DataError(f"{label}: shape {list(source.fields[inner].shape)}.")
            widths += [shape[axis] for axis in axes]
        if not widths:
            raise DataError(
                f"{source.name}: found fields {', '.join(source.fields)}; the model's inputs are "
                f"{', '.join(self._program.input_names)}. Rename the fields."
            )
        return widths

    def _check_targets(self, source: Source, named: _Named) -> None:
        """Refuse padding of targets that a loss would count."""
        program = self._program
        losses = {term.target: term.loss for term in self._terms if term.loss.takes_target}
        for field, (staged, _) in named.items():
            if not staged.startswith(TARGET):
                continue
            loss = losses[staged]
            if not loss.ignores_padding and loss.each_sample:
                raise DataError(
                    f"{source.name}: samples are shorter than their length, and loss {loss.name} "
                    "would count the padding as time steps. Compile for the lengths that occur, or "
                    "with input_lengths."
                )
            if not self.axes.get(staged) or program.ignored_of(staged) is not None:
                continue
            name = loss.name
            move = "use a loss with ignore_index (cross_entropy, dice)"
            if "ignore_index" in program.loss_of(staged):
                move = f"compile with microbatch {program.minibatch}, as several losses need"
            raise DataError(
                f"{source.name}: field {field!r}: padding would count, because samples are shorter "
                f"than their length and loss {name} ignores no target. Compile for the lengths "
                f"that occur, or {move}."
            )
