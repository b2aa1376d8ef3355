"""Estimates the time of a minibatch, for `plan`.

The planner compares schedules of one graph by a counted cost that is the same on every machine
(`cost.COUNTED`). A run also needs time for the update, and for Python, which stages samples and
counts steps: in a small network, that is most of the time. Not included: reading and decoding
files, and the time before the first step of `fit`.
"""

from ...ops.registry import op
from ..cost import Rates, rates
from ..passes.packed import bare
from ..plan.candidates import Plan
from ..tapes.steps import TapeProblem, moved_nbytes

_STEP, _MICROBATCH = 45, 32  # Python turns (cost.py) per step, and per microbatch
_PASSES = 15  # over the bytes of samples, to check and copy them
_IN_TAPE = 0.9  # of `step`: no call from Python, but the code is not in the nearest cache


def seconds_per_minibatch(plan: Plan, minibatch: int, threads: int) -> float:
    """Predicted seconds, computed only from counts and this machine's rates (`cost.rates`).

    Known limit: kernels that neither multiply nor stream (gathers, pools, exp) are up to twice as
    slow or as fast.
    """
    known, candidate = rates(), plan.candidate
    repeats, update = minibatch // candidate.microbatch, candidate.update
    tape = candidate.train
    steps = repeats * sum(_seconds(known, tape, k, threads) for k in plan.schedule)
    moved = 2 * update.persistent_nbytes / known.nbytes / threads
    moving = len(update.instructions) * known.step * _IN_TAPE + moved
    graph = tape.graph
    samples = sum(graph.values[graph.root(name)].nbytes for name in graph.inputs)
    python = known.python * (_STEP + repeats * _MICROBATCH)
    return steps + moving + python + repeats * _PASSES * samples / known.nbytes


def _seconds(known: Rates, tape: TapeProblem, step: int, threads: int) -> float:
    """One step of the tape, with all its instructions."""
    node, graph = tape.nodes[step], tape.graph
    if node is None:
        return 0.0
    kind, own = op(node.op), bare(node)
    calls = len(tape.instructions[step]) * _IN_TAPE * known.step
    work = kind.flops(own, graph) / known.flops + moved_nbytes(node, graph) / known.nbytes
    arranged = kind.arranged(own, graph).items()
    work += sum(count / getattr(known, rate) for rate, count in arranged)
    return calls + work / threads
