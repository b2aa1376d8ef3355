"""What planning reports about every net of the zoo is true."""

import re
from types import SimpleNamespace
from typing import cast

import pytest

import edgetrain as et
from edgetrain.api import make_options
from edgetrain.compiler.advice.memory_options import memory_options
from edgetrain.compiler.compilation import Compilation
from edgetrain.compiler.model.samples import INDEPENDENT
from edgetrain.compiler.pipeline import build_graphs
from edgetrain.compiler.plan import frontier
from edgetrain.compiler.plan.candidates import Plan
from edgetrain.errors import EdgetrainError
from edgetrain.ops.model import Model
from examples.zoo import ZOO
from tests.quick import slow_between
from tests.zoo_files import zoo_file

MINIBATCH = 8


@pytest.fixture(scope="module", params=slow_between(ZOO, 2))
def zoo_model(request: pytest.FixtureRequest):
    """Return (zoo entry, its model)."""
    return ZOO[request.param], et.load_onnx(zoo_file(request.param))


def options_of(entry, **more):
    return make_options(loss=entry.loss, minibatch=MINIBATCH, **more)


def advised(words: str) -> list[dict]:
    """Parse the options named in advice such as `Try --allow attention or --precision fp16.`"""
    known = {"allow": lambda text: (text,), "density": float}
    found = re.findall(r"--(allow|precision|model-memory|density) ([a-z0-9.]+[a-z0-9])", words)
    return [{n.replace("-", "_"): known.get(n, str)(text)} for n, text in found]


def test_what_a_small_budget_proposes_can_be_built(zoo_model: tuple) -> None:
    entry, model = zoo_model
    taken: dict = {}
    for _ in range(4):  # take the first advice, then ask again
        options = options_of(entry, **taken)
        # Large enough that every possible option helps.
        about = SimpleNamespace(microbatch=MINIBATCH)
        smallest = SimpleNamespace(candidate=about, arena_nbytes=2**40)
        words = frontier._advice(Compilation(model, options), cast(Plan, smallest))
        for one in advised(words):
            build_graphs(Compilation(model, options_of(entry, **{**taken, **one})), MINIBATCH)
            taken |= one
    assert taken["precision"] == "fp16" and taken["model_memory"] == "int8"


def test_samples_of_the_zoo_are_independent(zoo_model: tuple) -> None:
    entry, model = zoo_model
    assert Compilation(model, options_of(entry)).prepared.samples.kind == INDEPENDENT


def test_every_rung_of_the_ladder_can_be_built_or_says_why_not(zoo_model: tuple) -> None:
    entry, model = zoo_model
    options, built = options_of(entry), 0
    for option in memory_options(Compilation(cast(Model, model), options)):
        try:
            build_graphs(Compilation(model, options_of(entry, **option.on(options))), MINIBATCH)
            built += 1
        except EdgetrainError as error:
            assert "\n" not in str(error)
    assert built >= 4
