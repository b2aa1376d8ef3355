"""Programs of the forked net that several tests run."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import edgetrain as et
from edgetrain.program import Program
from tests.runtime.models import write_forked

Compile = Callable[..., Program]


@pytest.fixture(scope="session")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """Returns a function that compiles the forked net: minibatch 16, microbatches of 8, Adam."""
    model = et.load_onnx(write_forked(tmp_path_factory.mktemp("forked") / "forked.onnx"))

    def build(budget: int | None = None, **options) -> Program:
        settings = {"minibatch": 16, "microbatch": 8, "optimizer": et.Adam(lr=0.01), **options}
        return et.compile(model, budget=budget, **settings)

    return build


@pytest.fixture(scope="session")
def forked_program(forked: Compile) -> Program:
    """Its fastest plan."""
    return forked()


def trained_state(
    program: Program, steps: int, *, out: Path | None = None, threads: int | None = None
) -> dict[str, np.ndarray]:
    """Weights, statistics and optimizer state after `steps` minibatches of the digits."""
    trainer = et.Trainer(program, "digits", out, threads=threads)
    try:
        if out is not None:
            trainer.resume()
        trainer.fit(steps=steps)
        return {name: array.copy() for name, array in trainer.session.state().items()}
    finally:
        trainer.close()


def assert_same_bits(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    """Compare every tensor byte for byte."""
    assert found.keys() == expected.keys()
    differing = [n for n in expected if found[n].tobytes() != expected[n].tobytes()]
    assert differing == []
