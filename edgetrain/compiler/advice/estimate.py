"""Estimates the time of a minibatch, for `plan`.

The planner compares schedules of one graph, for which FLOPs and bytes are enough. A run also needs
time for the update, and for Python, which stages samples and counts steps: in a small network, that
is most of the time. Constants are for an average core, scaled to this machine by the time of an
instruction, and for data in memory; reading and decoding files is not included.
"""

from ..cost import Rates, rates
from ..plan.candidates import Plan

# Seconds of Python on an ordinary core: a step; a microbatch; a byte of its samples.
_STEP, _MICROBATCH, _BYTE = 1.5e-4, 1.0e-4, 1.0e-9
_IN_TAPE = 0.35  # of what an instruction costs when it is called by itself


def seconds_per_minibatch(plan: Plan, minibatch: int, threads: int) -> float:
    """Seconds, computed only from counts and this machine's rates (`cost.rates`).

    Known limit: kernels that neither multiply nor stream (gathers, small convolutions) are up to
    twice as slow or as fast.
    """
    known, candidate = rates(), plan.candidate
    repeats, update = minibatch // candidate.microbatch, candidate.update
    tape = candidate.train
    count = repeats * sum(len(tape.instructions[k]) for k in plan.schedule)
    called = repeats * sum(tape.nodes[k] is not None for k in plan.schedule)
    steps = plan.cost + known.step * (_IN_TAPE * count - called)
    moved = 2 * update.persistent_nbytes / known.nbytes / threads
    moving = len(update.instructions) * known.step * _IN_TAPE + moved
    graph = tape.graph
    samples = sum(graph.values[graph.root(name)].nbytes for name in graph.inputs)
    feeding = _STEP + repeats * (_MICROBATCH + _BYTE * samples)
    return steps + moving + feeding * known.step / Rates().step
