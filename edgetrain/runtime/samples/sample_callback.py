"""The callback that stages samples for the step loop, and the mapping from fields to inputs."""

import ctypes
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...data.checks.values import check_floats
from ...data.source import Source
from ...errors import DataError
from ...formats import coded, of_dtype
from ...kernels import control
from ...losses.terms import Term, terms_of_recipe
from ...program import TARGET, WEIGHT, Program

if TYPE_CHECKING:
    from ..executor import Executor

DISCARD = 1  # return value of the callback that discards a minibatch
_FAILED = 2
_FILL = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p
)
# Stages the samples of one microbatch; False discards the minibatch.
Filler = Callable[[np.ndarray], bool | None]


class SampleCallback:
    """The callback that stages samples for the step loop; `run` re-raises its exceptions.

    Attributes:
      indices: int64 [microbatch]: the samples that the step loop requests.
      address: address of the C function.
      watch: called after staging a microbatch, or None.
      uncounted: a control block in which all samples are marked invalid, so the minibatch has no
        effect.
    Args:
      executor: defers signals while the step loop runs, and checks mapped files.
    """

    def __init__(self, microbatch: int, executor: "Executor") -> None:
        self.indices, self._executor = np.zeros(microbatch, np.int64), executor
        self._filler: Filler | None = None
        self._raised: BaseException | None = None
        self.uncounted: np.ndarray | None = None
        self.watch: Callable[[], None] | None = None
        self._callback = _FILL(self._called)  # must not raise
        self.address = ctypes.cast(self._callback, ctypes.c_void_p).value or 0

    def _called(self, user, split, count, indices, none) -> int:
        try:
            with self._executor.signals.open():
                assert self._filler is not None
                self._executor.check_files()
                result = self._filler(self.indices)
                if self.uncounted is not None:
                    self.uncounted[control.COUNT] = 0
                if self.watch is not None:
                    self.watch()
                return DISCARD if result is False else 0
        except BaseException as error:
            self._raised = error
            return _FAILED

    def run(self, step_loop: Callable[[], None], filler: Filler) -> None:
        """Call `step_loop` with this filler.

        Raises:
          BaseException: the filler's exception.
        """
        self._filler, self._raised = filler, None
        try:
            step_loop()
        finally:
            self._filler = None
        raised, self._raised = self._raised, None
        if raised is not None:
            raise raised


def fields(
    source: Source, program: Program, tape: str = "eval", terms: Sequence[Term] = ()
) -> dict[str, str]:
    """Map the fields of a source to staged values (see `Program.staged`).

    A single input takes the only remaining field, whatever its name; several inputs are matched by
    name. The target is "y"; if the model computes its loss itself, an input with this name. With
    several losses, targets are the fields named after their outputs. Sample weights are "w".

    Args:
      tape: without weights in the source, evaluation counts all samples equally.
      terms: the Program's losses, if available.
    Raises:
      DataError: fields are missing or unknown.
    """
    terms = terms or terms_of_recipe(program.recipe, TARGET)
    inputs = program.input_names
    if terms[0].label:
        source.name_targets(target_fields(terms, ()))
    elif terms[0].loss.of_model:  # targets are inputs
        source.name_targets([name for name in inputs if name != "x"])
    targets = target_fields(terms, source.fields)
    weighed = any(term.loss.sample_weights for term in terms)
    taken = {*targets}
    # A field named after an output whose loss takes no target is not an input.
    unread = {term.output for term in terms if term.label} - {*inputs}
    own = {"y"} | taken | unread | ({"w"} if weighed else set())
    given = [name for name in source.fields if name not in own]
    named = {*inputs} == {*given} if targets else {*inputs} <= {*source.fields}
    if named:
        result = {name: name for name in inputs}
    elif len(inputs) == len(given) == 1:
        result = {given[0]: inputs[0]}
    elif {*given} - {*inputs} == {"w"}:
        raise DataError(
            f"{source.name}: it has sample weights (field 'w'), but the loss takes none. "
            "Compile with --sample-weights, or remove them."
        )
    else:
        raise DataError(
            f"{source.name}: found fields {', '.join(given) or 'none'}; the model's inputs are "
            f"{', '.join(inputs)}. Rename the fields."
        )
    if weighed and "w" in source.fields:
        result["w"] = WEIGHT
    elif weighed and tape == "micro":
        raise DataError(
            f"{source.name}: sample weights (field 'w', or w_train in an npz file) are missing. "
            "Add them, or compile without --sample-weights."
        )
    missing = [name for name in targets if name not in source.fields]
    if missing:
        raise DataError(
            f"{source.name}: it has no target field {missing[0]!r}; found "
            f"{', '.join(source.fields)}; expected both, such as (x, y). Name it so, or say which "
            "input is the target (--target-input x)."
        )
    return result | targets


def target_fields(terms: Sequence[Term], given: Container[str]) -> dict[str, str]:
    """Field -> staged value of the targets that it fills.

    Args:
      given: names of the available fields: "y" stands for the only target among several losses.
    """
    result = {
        term.output if term.label else "y": term.target for term in terms if term.loss.takes_target
    }
    if len(result) == 1 and "y" in given and next(iter(result)) not in given:
        result = {"y": next(iter(result.values()))}
    return {str(name): target for name, target in result.items()}


def check_weights(weights: np.ndarray, where: Callable[[int], str]) -> None:
    """Raise DataError for the first weight below 0 or not finite."""
    good = np.isfinite(weights) & (weights >= 0)
    if not good.all():
        row = int(np.argmin(good))
        raise DataError(
            f"{where(row)}: weight {weights[row]:g}; expected a finite number of at least 0. "
            "Correct the weights, or leave the sample out."
        )


class Staging:
    """Copies a source's samples into the arena.

    Args:
      buffers: by field of the source, each [microbatch, ...].
      weights: buffer of sample weights, if the loss has any; filled with 1 unless in `buffers`.
    """

    def __init__(
        self, source: Source, buffers: Mapping[str, np.ndarray], weights: np.ndarray | None
    ) -> None:
        self._source, self._buffers, self._weights = source, buffers, weights
        self._coded = {name: buffer for name, buffer in buffers.items() if coded(buffer)}

    @property
    def fields(self) -> Collection[str]:
        """Fields of the source that are copied."""
        return self._buffers.keys()

    def take(self, indices: np.ndarray, **how: Any) -> None:
        """Stage a microbatch: `Source.fill`, with its weights checked.

        Args:
          indices: its samples, int64 [microbatch].
          how: arguments for `Source.fill`.
        Raises:
          DataError: as in `Source.fill`, or a weight is below 0.
        """
        source, weights = self._source, self._weights
        if self._coded:
            self._take_coded(indices, how)
        else:
            source.fill(indices, self._buffers, **how)
        if weights is None:
            return
        if all(buffer is not weights for buffer in self._buffers.values()):
            weights[...] = 1
        name = f"{source.name}: %s: field 'w'"
        check_weights(weights, lambda row: name % source.where(int(indices[row])))

    def _take_coded(self, indices: np.ndarray, how: Mapping[str, Any]) -> None:
        """For storage formats without a numpy type: sample by sample, through float32."""
        others = {n: buffer for n, buffer in self._buffers.items() if n not in self._coded}
        for row in range(len(indices)):
            part = slice(row, row + 1)
            wide = {n: np.empty(b[part].shape, np.float32) for n, b in self._coded.items()}
            plain = {name: buffer[part] for name, buffer in others.items()}
            self._source.fill(indices[part], plain | wide, **how)
            for name, values in wide.items():
                into = self._coded[name]
                format = of_dtype(into.dtype)
                into[part] = format.encode(values)
                if not self._source.allow_nonfinite:
                    label = self._source.sample_label(name, indices[part])
                    stored = format.decode(into[part])
                    check_floats(values, stored, label, (format.precision, format.largest))
