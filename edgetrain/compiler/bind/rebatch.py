"""Makes a file exported with a fixed batch, such as 2, work for any batch, or rejects it.

The nodes are processed twice side by side: with the file's batch and with a prime that differs from
all dimensions, so a value's two shapes differ in its batch axis. If a node would fail or lose the
batch, its constants are rewritten: sizes in a Reshape, states and masks with equal rows, ends of a
Slice. A reshape moves no bytes, so the batch's stride tells its new axis; with a batch of 1 there
may be several candidates, which are tried in turn. The result is checked with a second prime.
"""

from collections.abc import Mapping
from dataclasses import replace

from ...errors import ModelError
from ...ops.model import Model
from ...ops.onnx_ops import OnnxNode
from .context import bound_context
from .rebatch_steps import Fix, Lockstep, Probe, Stuck, Trial

_MAX_TRIES = 400
_MAX_RUNS = 200_000  # nodes run, over all tries
_NEAR = 12  # nodes before a failing one that are searched for a baked-in batch


def rebatched(model: Model, dims: Mapping[str, int]) -> Model:
    """The model without a fixed batch, for `bind` with any batch.

    Raises:
      ModelError: the batch can't be freed; names it, the node and a remedy.
    """
    return _Search(model, dims).run()


class _Search(Lockstep):
    """Finds by trial which nodes of a model must change."""

    def run(self) -> Model:
        """Change one node after the other until the whole model runs."""
        fixes: dict[tuple[int, str, int], Fix] = {}
        first: Stuck | None = None
        for _ in range(_MAX_TRIES):
            try:
                return self._confirmed(self._trial(fixes))
            except Stuck as stuck:
                first = first or stuck
                better = self._better(fixes, stuck)
                if better is None:
                    raise self._refusal(self._own_rows or str(first)) from stuck
                fixes = better
        raise self._refusal(str(first))

    def _better(self, fixes: dict, stuck: Stuck) -> dict | None:
        """The fixes plus one that lets the model run further; None if none helps."""
        for index, fix in self._candidates(fixes, stuck.at):
            key = (index, fix[0], fix[1] if fix[0] == "rows" else 0)
            if fixes.get(key) == fix:
                continue
            tried = {**fixes, key: fix}
            try:
                self._trial(tried)
                return tried
            except Stuck as further:
                if further.at > stuck.at:
                    return tried
            if self._runs > _MAX_RUNS:
                return None
        return None

    # Candidates for a batch baked into a node, or into nodes before it.

    def _candidates(self, fixes: Mapping, index: int):
        """Candidate fixes (node, fix), nearest first."""
        trial = self._last
        if index >= len(self._needed):
            return
        node = self._needed[index]
        axes = {f.axis - self._rank(n) for n in node.inputs if (f := trial.factors.get(n))}
        yield from self._inputs_with_rows(trial, index, node, axes)
        for before in self._ancestors(index):
            maker = self._needed[before]
            if before in trial.places:
                have = fixes.get((before, "place", 0), ("place", 0))[1]
                for k in range(trial.places[before]):
                    if k != have:
                        yield before, ("place", k)
                continue
            if maker.op_type == "Expand":
                shape = self._truth.shape(maker.outputs[0]) or ()
                for axis, dim in enumerate(shape):
                    if dim == self._baked:
                        yield before, ("grow", axis)
            elif not any(trial.factors.get(name) for name in maker.inputs):
                yield from self._inputs_with_rows(trial, before, maker, set())

    def _inputs_with_rows(self, trial: Trial, position: int, node: OnnxNode, axes: set[int]):
        """Inputs without a batch that may have one row per sample; `axes` count from the end."""
        for index, name in enumerate(node.inputs):
            shape = self._truth.shape(name) if name else None
            if shape is None or trial.factors.get(name):
                continue
            fixed = self._truth.array(name) is None
            if fixed and self._baked > 1:
                continue
            fitting = [
                k
                for k, d in enumerate(shape)
                if d == self._baked or (self._baked > 1 and d % self._baked == 0 and d)
            ]
            fitting.sort(key=lambda k: (k - len(shape) not in axes, shape[k] != self._baked, k))
            for axis in fitting:
                yield position, ("rows", index, axis)

    def _ancestors(self, index: int) -> list[int]:
        """Nodes that the failing one depends on, nearest first."""
        nearest: dict[int, None] = {}
        pending = [self._makers[n] for n in self._needed[index].inputs if n in self._makers]
        while pending and len(nearest) < _NEAR:
            pending.sort()
            position = pending.pop()
            if position not in nearest:
                nearest[position] = None
                inputs = self._needed[position].inputs
                pending += [self._makers[n] for n in inputs if n in self._makers]
        return list(nearest)

    def _rank(self, name: str) -> int:
        return len(self._truth.shape(name) or ())

    # The result.

    def _confirmed(self, trial: Trial) -> Model:
        """The rewritten model, checked with a second prime and with its own batch."""
        inputs = tuple(
            replace(s, dims=(*s.dims[: s.batch], None, *s.dims[s.batch + 1 :]))
            for s in self._model.inputs
        )
        made = replace(
            self._model,
            nodes=tuple(trial.nodes),
            inputs=inputs,
            initializers={**self._model.initializers, **trial.arrays},
        )
        for batch in (self._primes[1], self._baked):
            try:
                context, _ = bound_context(made, batch, self._dims, Probe, self._allowance)
            except ModelError as error:
                raise self._refusal(str(error).rstrip(".")) from error
            for name in self._model.outputs:
                wanted = list(self._truth.shape(name) or ())
                factor = trial.factors.get(name)
                if factor:
                    wanted[factor.axis] = factor.count * batch
                if list(context.shape(name) or ()) != wanted:
                    raise self._refusal(f"output {name!r} does not follow the batch")
        return made
