"""Plan -> Program: offsets for everything, encoded tapes, the account of every byte."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from ...errors import UsageError
from ...formats import FORMATS, FP32, Format, holding
from ...ir import Graph, Value
from ...kernels import targets
from ...kernels.tapes.decode import bound, revisions_of, work_of
from ...ops.model import Model
from ...optim.base import PARTIALS
from ...program import TARGET, Account, Program, Slot
from ...program.account import KIND_OF_ROLE
from ..advice.listing import training_facts
from ..arena.problem import aligned
from ..model.lora import lora_recipe
from ..model.stored import stored_model
from ..options import Options
from ..passes.touched_rows import SPREAD
from ..pipeline import Graphs
from ..plan.candidates import Candidate, Plan
from ..plan.frontier import peak_of
from .limits import limits_of
from .lowering import Instruction, encode
from .steps import ALIGN, Placed, TapeProblem

_CHUNK = 1 << 18  # weights checked at a time
_LOST = 3.0  # most error of weights, relative to their format's tolerance


class KernelTable:
    """Indices of kernels in a Program, in order of first use."""

    def __init__(self) -> None:
        self.index: dict[tuple, int] = {}

    def __call__(self, instruction: Instruction) -> int:
        return self.index.setdefault(instruction.key, len(self.index))

    def revisions(self) -> dict[str, int]:
        """Revisions of the kernels, so that a Program never runs with other versions of them."""
        return revisions_of(tuple(self.index))

    def work(
        self, tapes: Mapping[str, np.ndarray], threads: int, lanes: int
    ) -> dict[str, dict[str, int]]:
        """Tape -> kernel -> loop turns, which readers of a Program check its tapes against."""
        words = {name: tape.tolist() for name, tape in tapes.items()}
        return work_of(words, bound(tuple(self.index)), threads, lanes)


def assemble(plan: Plan, facts: Mapping) -> Program:
    """Encode a plan.

    Args:
      facts: entries of the account that the plan does not contain (budget, ...). `plan_seconds` is
        left out of the Program, whose bytes must not depend on when it was compiled.
    """
    candidate, kernels = plan.candidate, KernelTable()
    options, graphs = candidate.options, candidate.graphs
    prepared = candidate.compilation.prepared
    model = prepared.laid_out
    mapped = _mapped(plan)
    offsets, base = persistent_offsets(candidate.update.persistent)
    offsets |= {slot.name: plan.arena_nbytes + slot.offset for slot in mapped}
    placement = plan.simulation, plan.placed, plan.offsets
    micro = TapeCode(candidate.train, plan.schedule, *placement, base)
    evaluate = _evaluate(candidate, base)
    tapes = {
        "micro": micro.encode(offsets, kernels),
        "update": _update(plan, offsets, base, kernels, options.threads),
        "rewire": _rewire(plan, offsets, kernels),
        "eval": evaluate.encode(offsets, kernels),
    }
    limits = limits_of(candidate)
    return Program(
        arena_nbytes=plan.arena_nbytes,
        threads=options.threads,
        minibatch=options.minibatch,
        microbatch=candidate.microbatch,
        kernels=tuple(kernels.index),
        tapes=tapes,
        persistent=tuple(
            Slot(v.name, offsets[v.name], v.shape, v.dtype, v.role)
            for v in candidate.update.persistent
        ),
        **_staged(micro, evaluate, model, graphs, options, base),
        init=_initial(candidate, offsets),
        account=_facts(plan, options, tapes, facts) | _batch_axes(model, plan, options),
        recipe=_recipe(model, options, graphs),
        limits=limits.below,
        ignored=limits.ignored,
        aliases=dict(model.aliases),
        onnx=stored_model(model, prepared.options, candidate.microbatch),
        model_name=model.name,
        target_count=_target_count(options, graphs.shape),
        work=kernels.work(tapes, options.threads, targets.get(options.target).lanes),
        mapped=mapped,
        revisions=kernels.revisions(),
    )


def persistent_offsets(values: Sequence[Value]) -> tuple[dict[str, int], int]:
    """Each value's offset from the arena's start, and the end of the last value."""
    offsets, end = {}, 0
    for value in values:
        offsets[value.name] = end
        end += aligned(value.nbytes, ALIGN)
    return offsets, end


def _evaluate(candidate: Candidate, base: int) -> "TapeCode":
    order = tuple(range(len(candidate.evaluate.problem.steps)))
    placement = candidate.eval_simulation, candidate.eval_placed, candidate.eval_offsets
    return TapeCode(candidate.evaluate, order, *placement, base)


def _initial(candidate: Candidate, offsets: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Initial values of everything with an offset, as stored."""
    graph, arrays = candidate.train.graph, candidate.graphs.arrays
    return {name: stored(a, graph, name) for name, a in arrays.items() if name in offsets}


def _target_count(options: Options, shape: tuple[int, ...]) -> int:
    """Targets of a sample; a sample of joined losses counts as one."""
    return 1 if options.joined else int(np.prod(options.loss.target_shape(shape)[1:]))


def _batch_axes(model: Model, plan: Plan, options: Options) -> dict[str, Any]:
    """For the account: the axes that count samples in the file, if any of them is not axis 0."""
    graphs = plan.candidate.graphs
    axes: dict[str, Any] = {"inputs": {s.name: s.batch for s in model.inputs if s.batch}}
    if graphs.axis:
        axes["output"] = graphs.axis
        axes["target"] = options.loss.target_batch(graphs.shape, graphs.axis)
    return {"batch_axes": axes} if axes["inputs"] or graphs.axis else {}


def _staged(
    micro: "TapeCode",
    evaluate: "TapeCode",
    model: Model,
    graphs: Graphs,
    options: Options,
    index: int,
) -> dict[str, Any]:
    """Slots of inputs, targets and outputs, each with the axis that counts samples in the file."""
    axes, tapes = {s.name: s.batch for s in model.inputs}, {"micro": micro, "eval": evaluate}
    for term in options.terms:  # targets other than the first are staged among the inputs
        shape, axis = graphs.outputs[term.target]
        axes[term.target] = term.loss.target_batch(shape, axis) if axis else 0
    target, counted = axes[TARGET], [axis for _, axis in graphs.outputs.values()]
    # an output that evaluation does not keep gets a slot with 0 samples
    nowhere = Slot("outputs", index, (0, *graphs.shape[1:]), "f32", "activation")
    outputs = evaluate.outputs() or (nowhere,)
    return {
        "inputs": {
            name: tuple(replace(slot, batch=axes.get(slot.name, 0)) for slot in tape.inputs())
            for name, tape in tapes.items()
        },
        "targets": {name: replace(tape.target(), batch=target) for name, tape in tapes.items()},
        "outputs": {
            "eval": tuple(
                replace(slot, batch=axis) for slot, axis in zip(outputs, counted, strict=True)
            )
        },
    }


def _mapped(plan: Plan) -> tuple[Slot, ...]:
    """Slots of frozen weights behind the arena, in the order of the graph."""
    out, offset = [], 0
    for value in plan.candidate.update.mapped:
        out.append(Slot(value.name, offset, value.shape, value.dtype, value.role))
        offset += aligned(value.nbytes, ALIGN)
    return tuple(out)


def _facts(
    plan: Plan, options: Options, tapes: Mapping[str, np.ndarray], facts: Mapping
) -> dict[str, Any]:
    candidate = plan.candidate
    result = {
        "feasible": True,
        "arena_nbytes": plan.arena_nbytes,
        "by_kind": asdict(account(plan)),
        "peak_live_nbytes": candidate.persistent_nbytes
        + max(plan.simulation.peak_nbytes, candidate.floor_nbytes),
        "tape_nbytes": sum(tape.nbytes for tape in tapes.values()),
        "mapped_nbytes": candidate.mapped_nbytes,
        "minibatch": options.minibatch,
        "microbatch": candidate.microbatch,
        "threads": options.threads,
        "extra_forward_flops": plan.extra_forward,
        "steps": len(plan.schedule) - 1,
        "training": training_facts(candidate.graphs),
        **facts,
    }
    result.pop("plan_seconds", None)
    return result


def stored(array: np.ndarray, graph: Graph, name: str) -> np.ndarray:
    """Initial weights in their storage format, rounded to nearest.

    Raises:
      UsageError: the format's range does not hold them.
    """
    format = FORMATS[graph.values[name].dtype]
    result = format.encode(array)
    weight = graph.values[name].role == "parameter"  # masks contain numbers like -3e38
    if weight and format.floats and format is not FP32 and array.dtype.kind == "f":
        _check_range(array.reshape(-1), format, name)
    return result


def _check_range(values: np.ndarray, format: Format, name: str) -> None:
    """Refuse values of which a format makes infinities, or zeros and little more.

    Raises:
      UsageError: names the parameter.
    """
    lost = size = 0.0
    for start in range(0, values.size, _CHUNK):
        part = values[start : start + _CHUNK].astype(np.float32)
        kept = format.decode(format.encode(part)).astype(np.float32, copy=False)[: part.size]
        wrong = np.isfinite(part) & ~np.isfinite(kept)
        if wrong.any():
            raise UsageError(
                f"parameter {name!r}: {part[wrong][0]:.4g} is out of the range of its storage. "
                f"Store it as {holding(float(np.abs(part[wrong]).max()))} (--frozen, --weights, "
                "--precision)."
            )
        part = np.where(np.isfinite(part), part, 0).astype(np.float64)
        lost += float(np.square(part - np.where(np.isfinite(kept), kept, 0)).sum())
        size += float(np.square(part).sum())
    if lost > (_LOST * format.tolerances[1]) ** 2 * size:
        raise UsageError(
            f"parameter {name!r}: its values are too small for its storage, which keeps them with "
            f"an error of {100 * math.sqrt(lost / size):.0f} %. Store it as "
            f"{holding(0, math.sqrt(size / values.size))} (--frozen, --weights, --precision)."
        )


def _recipe(model: Model, options: Options, graphs: Graphs) -> dict:
    method = graphs.rewiring
    sliced = {"output_shape": list(graphs.shape)} if graphs.sliced else {}
    recipe = options.recipe() | sliced | lora_recipe(model, options.lora)
    return recipe | {
        "sparse_layers": [layer.to_json() for layer in graphs.layers],
        "rewiring": method.to_json() if method is not None else None,
    }


class TapeCode:
    """The offsets of a schedule's values at each position."""

    def __init__(self, tape: TapeProblem, schedule, simulation, placed: Placed, offsets, base: int):
        self._tape, self._schedule, self._placed = tape, schedule, placed
        self._offsets, self._base = offsets, base
        self._starts: dict[int, list[tuple[int, int]]] = {}
        for k, instance in enumerate(simulation.instances):
            where = base + offsets[placed.of_instance[k]]
            self._starts.setdefault(instance.start, []).append((instance.value, where))

    def encode(self, persistent: Mapping[str, int], kernels: KernelTable) -> np.ndarray:
        words: list[int] = []
        graph, current = self._tape.graph, dict(persistent)
        self._first: dict[str, int] = {}
        for position, step in enumerate(self._schedule):
            for value, where in self._starts.get(position, ()):
                current[self._tape.roots[value]] = where
            if position == 0:
                self._first = dict(current)
            node = self._tape.nodes[step]
            if node is None:
                continue
            of = {name: graph.root(name) for name in (*node.reads, *node.writes)}
            # The call that unpacks a weight names its root; the node may name a view of it.
            names = {
                name: current[root] for name, root in (of | {r: r for r in of.values()}).items()
            }
            names["ctl"] = persistent["ctl"]
            buffer = self._placed.scratch_of.get(position)
            scratch = 0 if buffer is None else self._base + self._offsets[buffer]
            for instruction in self._tape.instructions[step]:
                words += encode(
                    instruction, kernels(instruction), names, scratch, instruction.scratch
                )
        self._last = current
        return np.array(words, np.int64)

    def _slots(self, names, where: Mapping[str, int]) -> tuple[Slot, ...]:
        graph = self._tape.graph
        values = [graph.values[name] for name in names]
        return tuple(
            Slot(v.name, where[graph.root(v.name)], v.shape, v.dtype, v.role) for v in values
        )

    def first(self, names) -> tuple[Slot, ...]:
        """Slots of values before the first step."""
        return self._slots(names, self._first)

    def last(self, names) -> tuple[Slot, ...]:
        """Slots of values after the last step."""
        return self._slots(names, self._last)

    def inputs(self) -> tuple[Slot, ...]:
        return self.first(self._tape.graph.inputs[:-1])

    def target(self) -> Slot:
        return self.first(self._tape.graph.inputs[-1:])[0]

    def outputs(self) -> tuple[Slot, ...]:
        return self.last(self._tape.graph.outputs)


def _update(plan: Plan, persistent, base: int, kernels: KernelTable, threads: int) -> np.ndarray:
    update = plan.candidate.update
    scratch = base + update.sums_nbytes
    names = {**persistent, PARTIALS: base, SPREAD: scratch - update.rows_nbytes}
    words: list[int] = []
    for instruction in plan.candidate.update.instructions:
        words += encode(instruction, kernels(instruction), names, scratch, instruction.scratch)
    return np.array(words, np.int64)


def _rewire(plan: Plan, persistent, kernels: KernelTable) -> np.ndarray:
    words: list[int] = []
    for instruction in plan.candidate.update.rewire:
        words += encode(instruction, kernels(instruction), persistent, 0, 0)
    return np.array(words, np.int64)


def account(plan: Plan) -> Account:
    """Bytes by kind at the peak; they add up to the arena."""
    by_kind = asdict(Account())
    for value in plan.candidate.update.persistent:
        by_kind[KIND_OF_ROLE[value.role]] += aligned(value.nbytes, ALIGN)
    train = plan.candidate.train
    (position, _), _ = peak_of(plan)
    step = train.problem.steps[plan.schedule[position]]
    by_kind["workspace"] = step.workspace
    backward = read_by_backward(train)
    seen = set()
    for k, instance in enumerate(plan.simulation.instances):
        buffer = plan.placed.of_instance[k]
        if instance.start <= position < instance.stop and buffer not in seen:
            seen.add(buffer)
            value = train.graph.values[train.roots[instance.value]]
            by_kind[kind_of(value, backward)] += train.problem.nbytes[instance.value]
    by_kind["padding"] = plan.arena_nbytes - sum(by_kind.values())
    return Account(**by_kind)


def kind_of(value: Value, backward: set[str]) -> str:
    """The kind of a value in the account; `backward`: names that the backward pass reads."""
    if value.role in KIND_OF_ROLE:
        return KIND_OF_ROLE[value.role]
    return "saved" if value.role != "gradient" and value.name in backward else "transient"


def read_by_backward(tape: TapeProblem) -> set[str]:
    """Roots that some step of the backward pass reads."""
    graph = tape.graph
    return {
        graph.root(name) for node in graph.nodes if node.phase == "backward" for name in node.reads
    }
