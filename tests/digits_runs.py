"""The demo's model, as used by tests of the command line and the runtime."""

from pathlib import Path

import edgetrain as et
from edgetrain.program import Program

ROOT = Path(__file__).resolve().parents[1]
MODEL = ROOT / "examples" / "digits" / "model.onnx"
# Only one microbatch size: the planner has a single problem, and takes a second.
CHOICES = ("--minibatch", "16", "--microbatch", "8", "--momentum", "0.9", "--lr", "0.05")


def digits_program(budget: int | None = None, **options) -> Program:
    """The demo's model compiled with CHOICES, which `options` override."""
    settings = {"minibatch": 16, "microbatch": 8, **options}
    settings.setdefault("optimizer", et.SGD(lr=0.05, momentum=0.9))
    return et.compile(et.load_onnx(MODEL), budget=budget, **settings)
