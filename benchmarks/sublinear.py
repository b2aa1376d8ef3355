"""Long sequences in few bytes: the LSTM of Sublinear Memory and a language model, planned and run.

    python -m benchmarks.sublinear [ROW ...] [--run ROW ...]
    python -m benchmarks.sublinear --digests ROW

`--digests` executes every plan of a row on the same samples and compares the bits of loss and
gradients. Over 250 time steps only two plans run: one with at most 1.1 extra forward passes, and
the largest.

Source: Chen et al. 2016, Training Deep Nets with Sublinear Memory Cost, 5.3: four layers of 1,024
units, 50 numbers a step, a softmax over 5,000 classes at every step.
"""

import argparse
import hashlib
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from edgetrain.api import gradients, make_options
from edgetrain.compiler.compilation import Compilation
from edgetrain.compiler.options import Options
from edgetrain.compiler.plan.candidates import Plan
from edgetrain.compiler.plan.frontier import find_frontier
from edgetrain.compiler.tapes.assemble import assemble
from edgetrain.ops.model import Model
from edgetrain.optim import SGD
from edgetrain.runtime.microbatch import run_microbatch
from edgetrain.runtime.session import Session

from .sequences import lstm_net

MOST_EXTRA = 1.1  # of a forward pass
SHORT = 250  # time steps up to which every plan is executed


class Row(NamedTuple):
    """A net over `steps` time steps, `batch` sequences at once, of numbers or of words."""

    steps: int
    batch: int
    inputs: int
    width: int
    layers: int
    classes: int
    words: bool = False

    def model(self) -> Model:
        return lstm_net(self.steps, *self[2:6], self.words)


ROWS = {
    "LSTM 64 x 64": Row(64, 64, 50, 1024, 4, 5000),
    "LSTM 250 x 8": Row(250, 8, 50, 1024, 4, 5000),
    "LSTM 1000 x 8": Row(1000, 8, 50, 1024, 4, 5000),
    "LSTM 4000 x 8": Row(4000, 8, 50, 1024, 4, 5000),
    "language model 250 x 8": Row(250, 8, 10_000, 650, 2, 10_000, True),
    "language model 1000 x 8": Row(1000, 8, 10_000, 650, 2, 10_000, True),
    "language model 4000 x 8": Row(4000, 8, 10_000, 650, 2, 10_000, True),
    # a quarter of the width, for executed steps
    "LSTM 250 x 8, 256 wide": Row(250, 8, 50, 256, 4, 1250),
    "LSTM 4000 x 8, 256 wide": Row(4000, 8, 50, 256, 4, 1250),
}
HEAD = (
    "| net, steps x sequences | all kept MB | activations MB | extra forward | least MB | "
    "plan CPU s |",
    "|---|---|---|---|---|---|",
)


def _planned(row: Row) -> tuple[Model, Options, list[Plan]]:
    model = row.model()
    options = make_options(minibatch=row.batch, microbatch=row.batch, optimizer=SGD(0.01))
    return model, options, find_frontier(Compilation(model, options))


def _chosen(front: list[Plan]) -> Plan:
    return next(plan for plan in front if plan.extra_forward <= MOST_EXTRA)


def measure(row: Row, run: bool) -> dict[str, Any]:
    """Transient megabytes: without recomputation, with at most MOST_EXTRA, and the minimum."""
    begun = time.process_time()
    model, options, front = _planned(row)
    found: dict[str, Any] = {"plan_seconds": time.process_time() - begun}
    chosen = _chosen(front)
    for name, plan in (("all", front[-1]), ("chosen", chosen), ("least", front[0])):
        found[name] = (plan.arena_nbytes - plan.candidate.persistent_nbytes) / 1e6
    found["extra"] = chosen.extra_forward
    if run:
        found |= _step(assemble(chosen, {}), row)
    return found


def _step(program, row: Row) -> dict[str, float]:
    """Run one training step; return loss and seconds."""
    session, (inputs, target) = Session(program), _samples(program, row)

    def fill(indices: np.ndarray) -> None:
        for slot in program.inputs["micro"]:
            session.arena.view(slot)[...] = inputs[slot.name]
        session.arena.view(program.targets["micro"])[...] = target

    begun = time.perf_counter()
    try:
        result = session.minibatch(program.minibatch, fill)
    finally:
        session.close()
    assert result is not None and np.isfinite(result.loss)
    return {"loss": result.loss, "seconds": time.perf_counter() - begun}


def _samples(program, row: Row) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return inputs by name and targets, the same for every plan."""
    rng, inputs = np.random.default_rng(0), {}
    for slot in program.inputs["micro"]:
        words = rng.integers(0, row.inputs, slot.shape)
        drawn = words if row.words else rng.standard_normal(slot.shape)
        inputs[slot.name] = drawn.astype(np.int32 if row.words else np.float32)
    shape = program.targets["micro"].shape
    return inputs, rng.integers(0, row.classes, shape).astype(np.int32)


def compared(row: Row) -> Iterator[str]:
    """Yield a line per executed plan, and whether all results have the same bits."""
    model, options, front = _planned(row)
    plans = front if row.steps <= SHORT else [_chosen(front), front[-1]]
    yield "| arena, bytes | extra forward | seconds | loss | loss and gradients |"
    yield "|---|---|---|---|---|"
    seen = set()
    for plan in plans:
        program = assemble(plan, {})
        session, begun = Session(program), time.perf_counter()
        try:
            loss = run_microbatch(session, *_samples(program, row))
            seconds = time.perf_counter() - begun
            whole = hashlib.sha256(np.float64(loss).tobytes())
            for name, gradient in gradients(session).items():
                whole.update(name.encode() + gradient.tobytes())
        finally:
            session.close()
        seen.add(digest := whole.hexdigest()[:12])
        sizes = f"| {plan.arena_nbytes:,} | {plan.extra_forward:.2f} | {seconds:.0f} "
        yield f"{sizes}| {loss:.6f} | {digest} |"
    said = "the same bits" if len(seen) == 1 else f"{len(seen)} DIFFERENT results"
    yield f"{len(plans)} of {len(front)} plans: {said}"


def line(name: str, found: dict[str, Any]) -> str:
    """Return a row of the table."""
    ran = ""
    if "loss" in found:
        ran = f" (ran: loss {found['loss']:.4f}, {found['seconds']:.0f} s a step)"
    return (
        f"| {name}{ran} | {found['all']:,.1f} | {found['chosen']:.1f} | {found['extra']:.2f} | "
        f"{found['least']:.1f} | {found['plan_seconds']:.0f} |"
    )


def main() -> None:
    """Print the table of the named rows, or of all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--run", action="append", default=[], metavar="ROW", help="execute a step")
    parser.add_argument("--digests", choices=ROWS, metavar="ROW", help="compare its plans' bits")
    args = parser.parse_args()
    if args.digests:
        for words in compared(ROWS[args.digests]):
            print(words, flush=True)
        return
    print("\n".join(HEAD), flush=True)
    for name in args.rows or ROWS:
        print(line(name, measure(ROWS[name], name in args.run)), flush=True)


if __name__ == "__main__":
    main()
