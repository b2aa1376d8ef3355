"""Random graphs of every op: the forward pass against onnxruntime, gradients against torch in
float64 (both by parity), and all plans of the frontier bit by bit.

    python -m tests.fuzz.graphs --seed 0 --count 1000 --seconds 600

prints a JSON object: graphs that were run, passed, refused by reason, wrong, crashed. A graph that
is wrong or crashes is made smaller while it still fails, and the command that makes it is printed.
"""

import argparse
import contextlib
import importlib
import json
import math
import re
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import edgetrain as et
from edgetrain.api import gradients, make_options
from edgetrain.compiler.compilation import Compilation
from edgetrain.compiler.plan.frontier import find_frontier
from edgetrain.compiler.remat.search import anneal_levels
from edgetrain.compiler.tapes.assemble import assemble
from edgetrain.errors import EdgetrainError
from edgetrain.exporters.parity import parity
from edgetrain.runtime.microbatch import run_minibatch
from edgetrain.runtime.session import Session

from .graph_builder import BATCH, CLASSES, Growing, Unfit, Value
from .graph_rows import ROWS

OPSETS = (9, 11, 13, 15, 17, 18, 20, 21, 22, 23, 24)
PASSED, REFUSED, WRONG, CRASHED = "passed", "refused", "wrong", "crashed"
SPLITS = tuple(k for k in range(BATCH, 0, -1) if BATCH % k == 0)
_PLANS = 4  # plans tried per frontier: both ends and some between
_KINDS = {"f": TensorProto.FLOAT, "b": TensorProto.BOOL, "i": TensorProto.INT64}


@dataclass(frozen=True)
class Graph:
    """A model and its training options.

    Attributes:
      ops: op of each step, by step number.
    """

    proto: onnx.ModelProto
    options: dict[str, Any]
    ops: dict[int, str]


@dataclass(frozen=True)
class Verdict:
    """The result for one graph; `reason` omits names and numbers."""

    seed: int
    outcome: str
    reason: str = ""
    steps: tuple[int, ...] = ()
    detail: str = ""

    @property
    def command(self) -> str:
        steps = f" --steps {','.join(map(str, self.steps))}" if self.steps else ""
        return f"python -m tests.fuzz.graphs --seed {self.seed} --count 1{steps}"


def make(seed: int, only: Sequence[int] | None = None, op: str = "") -> Graph:
    """Build the graph of a seed.

    Args:
      only: numbers of the steps to keep; each step has its own seed.
      op: op of the first step (default: any).
    """
    draw = np.random.default_rng([seed, 7])
    rows = [ROWS[op]] if op else list(ROWS.values())
    first = rows[int(draw.integers(len(rows)))]
    fit = [v for v in OPSETS if first.since <= v <= first.until]
    g = Growing(draw, int(fit[int(draw.integers(len(fit)))]))
    g.input([g.size() for _ in range(g.one([1, 2, 2, 3]))])
    if g.chance(0.3):
        g.input([g.size() for _ in range(g.one([1, 2]))])
    if g.chance(0.3):
        g.input([], "i")
    known = [r for r in ROWS.values() if r.since <= g.opset <= r.until]
    chosen = [first, *(g.one(known) for _ in range(int(draw.integers(0, 7))))]
    options = _options(g, draw)
    ops = {}
    for number, row in enumerate(chosen):
        if only is not None and number not in only:
            continue
        g.draw = np.random.default_rng([seed, number])
        before = (list(g.nodes), list(g.pool))
        try:
            row.add(g)
            ops[number] = row.op
        except Unfit:
            g.nodes, g.pool = before
    g.draw = np.random.default_rng([seed, 8])
    proto = _finished(g, options)
    if g.is_whole:
        options["microbatch"] = BATCH
    return Graph(proto, options, ops)


def _options(g: Growing, draw: np.random.Generator) -> dict[str, Any]:
    options: dict[str, Any] = {"loss": "mse", "minibatch": BATCH}
    options["microbatch"] = g.one([BATCH, BATCH, 3, 2, 1])
    if g.chance(0.2):
        options["precision"] = "fp16"
    if g.chance(0.5 if g.labels else 0.1):
        options["loss"] = "output"
    elif g.chance(0.15):
        options["loss"] = g.one(["huber", "l1", "bce_with_logits", "cross_entropy"])
    return options


def _finished(g: Growing, options: dict[str, Any]) -> onnx.ModelProto:
    """Join final values into an output; add a loss to the graph if the options ask for it."""
    truths = [v for v in g.pool if v.kind in "bi"]
    for value in truths[-1:]:  # cast a non-float value, so that it can reach the output
        g.node("Cast", [value.name], to=1)
    floats = [v for v in g.pool if v.kind == "f" and v not in g.inputs] or [g.shaped([3])]
    ends = dict.fromkeys([floats[-1], *(g.one(floats) for _ in range(int(g.draw.integers(3))))])
    flat = [v if len(v.shape) == 2 else g.node("Flatten", [v.name], axis=1) for v in ends]
    y = flat[0] if len(flat) == 1 else g.node("Concat", [v.name for v in flat], axis=1)
    if y.name not in g.fed:
        x = g.node("Flatten", [g.inputs[0].name], axis=1)
        y = g.node("Concat", [y.name, x.name], axis=1)
    if g.chance(0.5) or y.name not in g.learned:
        y = g.node("MatMul", [y.name, g.parameter([y.shape[1], 3])])
    outputs = [y]
    if options["loss"] == "output":
        if g.labels and g.opset >= 13:
            y = g.node("Gemm", [y.name, g.parameter([y.shape[1], CLASSES])])
            reduction, op = g.one(["mean", "sum"]), "SoftmaxCrossEntropyLoss"
            if g.chance(0.3):
                y, op = g.node("LogSoftmax", [y.name], axis=1), "NegativeLogLikelihoodLoss"
            y = g.node(op, [y.name, g.labels.name], reduction=reduction)
        else:
            square = g.node("Mul", [y.name, y.name])
            y = g.node("ReduceMean", [square.name], keepdims=0)
        outputs = [y]
    others = [v for v in floats if v.name != y.name]
    if others and g.chance(0.25):
        outputs.append(g.one(others))
        options["output"] = y.name
    return _proto(g, outputs)


def _proto(g: Growing, outputs: Sequence[Value]) -> onnx.ModelProto:
    read = {name for node in g.nodes for name in node.input}
    read |= {n.name for n in outputs} | _captured(g)
    inputs = [v for k, v in enumerate(g.inputs) if v.name in read or not k]
    graph = helper.make_graph(
        g.nodes, "random",
        [helper.make_tensor_value_info(v.name, _KINDS[v.kind], ["n", *v.shape[1:]])
         for v in inputs],
        [helper.make_tensor_value_info(
            v.name, _KINDS[v.kind], ["n", *v.shape[1:]] if v.shape else []) for v in outputs],
        [numpy_helper.from_array(a, n) for n, a in g.arrays.items() if n in read],
    )  # fmt: skip
    opset = helper.make_opsetid("", g.opset)
    proto = helper.make_model(graph, opset_imports=[opset], ir_version=8 if g.opset < 21 else 10)
    kept = {"edgetrain.parameters": g.weights, "edgetrain.buffers": g.buffers}
    props = {k: json.dumps([n for n in names if n in read]) for k, names in kept.items()}
    helper.set_model_props(proto, props)
    return proto


def _captured(g: Growing) -> set[str]:
    """Return the outer values that branches read."""
    branches = [a.g for node in g.nodes for a in node.attribute if a.HasField("g")]
    return {name for graph in branches for node in graph.node for name in node.input}


def judge(
    seed: int, only: Sequence[int] | None = None, op: str = "", splits: int = len(SPLITS)
) -> Verdict:
    """Build, run and compare a graph.

    Args:
      splits: how many microbatch sizes to try; the graph's own is the first.
    """
    steps = tuple(only or ())
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            graph = make(seed, only, op)
            steps = tuple(graph.ops)
            return _judged(graph, seed, steps, splits)
    except Unfit:
        return Verdict(seed, REFUSED, "the generator found nothing to train", steps)
    except EdgetrainError as error:
        return Verdict(seed, REFUSED, _short(error), steps)
    except Exception as error:
        return Verdict(
            seed, CRASHED, _short(f"{type(error).__name__}: {error}"), steps, f"{error!r}"[:300]
        )


def _judged(graph: Graph, seed: int, steps: tuple[int, ...], splits: int) -> Verdict:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        onnx.save(graph.proto, str(path))
        report = parity(path, steps=1, seed=seed, **graph.options)
        if not report.ok:
            return _departed(graph, report, seed, steps)
        found: dict[int, dict[str, np.ndarray]] = {}
        for part in _drawn_splits(graph.options["microbatch"], seed, splits):
            options = {**graph.options, "microbatch": part}
            try:
                counted, found[part] = _plans(et.load_onnx(path), options, seed)
            except EdgetrainError:  # not splittable; parity reports the size asked for
                continue
            if counted > 1:
                detail = f"{counted} sets of bits, microbatch {part}"
                return Verdict(seed, WRONG, "plans differ in their bits", steps, detail)
            if part != graph.options["microbatch"] and not _close(found[part], found, options):
                report = parity(path, steps=1, seed=seed, **options)  # tolerates jumps and draws
                if not report.ok:
                    return _departed(graph, report, seed, steps)
        if report.facts["forward_reference"] is None:
            detail = "; ".join(report.facts["forward_notes"])
            return Verdict(seed, PASSED, "without a forward reference", steps, detail)
    return Verdict(seed, PASSED, "", steps)


def _drawn_splits(first: int, seed: int, count: int) -> list[int]:
    """Return microbatch sizes, largest first: `first` and others drawn from the seed."""
    others = np.random.default_rng([seed, 9]).permutation([k for k in SPLITS if k != first])
    return sorted([first, *map(int, others[: count - 1])], reverse=True)


def _departed(graph: Graph, report: Any, seed: int, steps: tuple[int, ...]) -> Verdict:
    row = report.first
    if row.torch_error is not None and not math.isfinite(row.torch_error):
        return Verdict(seed, REFUSED, "float32 overflows, in torch too", steps)
    ops = sorted({n.op_type for n in graph.proto.graph.node})
    split = report.facts["microbatch"]
    detail = f"{report.summary()} ops {ops}, {graph.options}, microbatch {split}"
    return Verdict(seed, WRONG, f"{row.kind} departs", steps, detail)


def _plans(model: Any, given: dict[str, Any], seed: int) -> tuple[int, dict[str, np.ndarray]]:
    """Return how many different results the plans of one microbatch size have, and the gradients of
    the first plan, with its loss under the name ""."""
    options = make_options(**given, seed=seed, fused_update=False)
    plans = find_frontier(Compilation(model, options))
    places = {round(k * (len(plans) - 1) / (_PLANS - 1)) for k in range(_PLANS)}
    chosen = [plans[k] for k in sorted(places)]
    found: set[bytes] = set()
    first: dict[str, np.ndarray] = {}
    draw = np.random.default_rng(seed)
    batch: dict[str, np.ndarray] = {}
    target = None
    for plan in chosen:
        program = assemble(plan, {})
        if not batch:
            whole = {spec.name for spec in model.inputs if spec.dtype != "float"}
            batch = {s.name: _numbers(draw, s, s.name in whole) for s in program.inputs["micro"]}
            slot = program.targets.get("micro")
            target = None if slot is None else _numbers(draw, slot)
        session = Session(program)
        try:
            loss = np.float64(run_minibatch(session, batch, target))
            made = {"": np.array(loss), **gradients(session)}
        finally:
            session.close()
        first = first or made
        found.add(b"".join(array.tobytes() for array in made.values()))
    return len(found), first


def _close(
    made: dict[str, np.ndarray], others: dict[int, dict[str, np.ndarray]], options: dict[str, Any]
) -> bool:
    """Whether the gradients equal those of the first split, up to rounding."""
    first, tolerance = next(iter(others.values())), 0.02 if "precision" in options else 1e-4
    whole = math.sqrt(sum(float(np.sum(a.astype(np.float64) ** 2)) for a in first.values()))
    errors = (np.linalg.norm((made[n] - a).astype(np.float64)) for n, a in first.items())
    return bool(max(errors) <= tolerance * whole)


def _numbers(draw: np.random.Generator, slot: Any, is_whole: bool = False) -> np.ndarray:
    """Draw a minibatch for a slot that holds a microbatch."""
    shape = (BATCH, *slot.shape[1:])
    if slot.dtype in ("f32", "f16") and not is_whole:
        return draw.random(shape, np.float32)
    return draw.integers(0, 2, shape).astype(np.int32)


def _short(error: object) -> str:
    """Remove names and numbers, so that equal reasons are counted together."""
    text = re.sub(r"^/\S*: ", "", str(error).splitlines()[0] if str(error) else "")
    text = re.sub(r"'[^']*'", "'..'", text)
    return re.sub(r"-?\d[\d.e+-]*", "#", text)[:120]


def shrunk(verdict: Verdict, op: str = "", rounds: int = 3) -> Verdict:
    """Reduce a failing graph to the fewest steps that fail in the same way."""
    best = verdict
    for _ in range(rounds):
        before = best
        for number in before.steps:
            fewer = [k for k in best.steps if k != number]
            found = judge(verdict.seed, fewer, op)
            if (found.outcome, found.reason) == (verdict.outcome, verdict.reason):
                best = found
        if best is before:
            break
    return best


@dataclass
class Tally:
    """Verdicts of many graphs."""

    outcomes: Counter = field(default_factory=Counter)
    reasons: Counter = field(default_factory=Counter)
    failures: list[Verdict] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, found: Verdict) -> None:
        """Count a verdict."""
        self.outcomes[found.outcome] += 1
        if found.reason and found.outcome in (PASSED, REFUSED):
            self.reasons[found.reason] += 1

    def to_json(self) -> dict[str, Any]:
        return {
            "run": sum(self.outcomes.values()),
            **{outcome: self.outcomes[outcome] for outcome in (PASSED, REFUSED, WRONG, CRASHED)},
            "reasons": dict(self.reasons.most_common()),
            "failures": [
                {"outcome": v.outcome, "reason": v.reason, "detail": v.detail, "rerun": v.command}
                for v in self.failures
            ],
            "cpu_seconds": round(self.seconds, 1),
        }


def run(
    seeds: Iterable[int],
    seconds: float = 1e9,
    only: Sequence[int] | None = None,
    splits: int = len(SPLITS),
) -> Tally:
    """Judge graphs until there are no more, `seconds` of CPU time are over or Ctrl-C is pressed;
    shrink failures."""
    tally, begun = Tally(), time.process_time()
    with contextlib.suppress(KeyboardInterrupt):
        for seed in seeds:
            if time.process_time() - begun > seconds:
                break
            found = judge(seed, only, splits=splits)
            tally.add(found)
            if found.outcome in (WRONG, CRASHED):
                told = f"{found.outcome}: {found.command}: {found.detail}"
                print(told, file=sys.stderr, flush=True)
                tally.failures.append(shrunk(found) if only is None else found)
    tally.seconds = time.process_time() - begun
    return tally


def main() -> None:
    """Print the tally; exit with status 1 if a graph is wrong or crashes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="of the first graph (default: 0)")
    parser.add_argument("--count", type=int, default=1000, help="graphs (default: 1000)")
    parser.add_argument("--seconds", type=float, default=1e9, help="CPU seconds (default: no end)")
    parser.add_argument("--steps", help="of the one graph: its steps that are kept, such as 0,3")
    parser.add_argument(
        "--brief", action="store_true",
        help="a third of the time: a short search for schedules, two microbatch sizes",
    )  # fmt: skip
    arguments = parser.parse_args()
    if arguments.brief:
        search_module = importlib.import_module(anneal_levels.__module__)
        search_module.LEAST = 0.0
    only = [int(k) for k in arguments.steps.split(",")] if arguments.steps else None
    seeds = range(arguments.seed, arguments.seed + arguments.count)
    tally = run(seeds, arguments.seconds, only, 2 if arguments.brief else len(SPLITS))
    print(json.dumps(tally.to_json(), indent=1))
    raise SystemExit(bool(tally.failures))


if __name__ == "__main__":
    main()
