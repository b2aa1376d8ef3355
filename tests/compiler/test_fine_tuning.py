"""Fine-tuning saves nothing for frozen layers; memory savings on MobileNetV2."""

import pytest
import torch

import edgetrain as et
from edgetrain.api import make_options
from edgetrain.compiler import remat
from edgetrain.compiler.compilation import Compilation
from edgetrain.compiler.passes.autodiff import accumulator_name
from edgetrain.compiler.plan.candidates import make_candidate
from edgetrain.exporters import export_torch
from examples.zoo import ZOO

LAST = {"small": ("features.6.*", "head.*"), "full": ("features.17.*", "features.18.*", "head.*")}
MINIBATCH = 32


@pytest.fixture(scope="module", params=["small", pytest.param("full", marks=pytest.mark.slow)])
def scale(request):
    return request.param


@pytest.fixture(scope="module")
def model(scale, tmp_path_factory):
    torch.manual_seed(0)
    entry = ZOO["mobilenet_v2"]
    path = tmp_path_factory.mktemp("mobilenet") / "model.onnx"
    export_torch(entry.build(scale), entry.example_inputs(2, scale), path)
    return et.load_onnx(path)


def _candidate(model, microbatch, train=()):
    options = make_options(
        minibatch=MINIBATCH, microbatch=microbatch, train=train,
        optimizer=et.SGD(lr=0.1, momentum=0.9),
    )  # fmt: skip
    return make_candidate(Compilation(model, options), microbatch)


def _nbytes(candidate) -> int:
    """Return the arena size of the plan without recomputation, before placement."""
    problem = candidate.train.problem
    peak = remat.simulate(problem, remat.store_all(problem, 0)[0]).peak_nbytes
    return candidate.persistent_nbytes + max(peak, candidate.floor_nbytes)


def test_frozen_parameters_have_no_gradient_and_no_state(model, scale):
    candidate = _candidate(model, 8, LAST[scale])
    names = {value.name for value in candidate.update.persistent}
    stems = tuple(pattern.rstrip("*") for pattern in LAST[scale])
    trained = {name for name in model.parameters if name.startswith(stems)}
    assert 0 < len(trained) < len(model.parameters)
    for name in model.parameters:
        assert (accumulator_name(name) in names) == (name in trained)
        assert (f"{name}.momentum" in names) == (name in trained)


def test_frozen_layers_save_nothing_for_backward(model, scale):
    graph = _candidate(model, 8, LAST[scale]).train.graph
    trained = {n for n in graph.values if accumulator_name(n) in graph.values}
    first = next(k for k, node in enumerate(graph.nodes) if trained.intersection(node.reads))
    before = {graph.root(name) for node in graph.nodes[:first] for name in node.writes}
    backward = [node for node in graph.nodes if node.phase == "backward"]
    read = {graph.root(name) for node in backward for name in node.reads}
    # The input of the first trained layer, and the preceding batch-norm's statistics if the layer
    # reads through it.
    boundary = {graph.root(name) for name in graph.nodes[first].reads}
    assert before & read <= boundary


@pytest.mark.parametrize("microbatch", [8, 16, 32])
def test_last_block_fits_a_fifth_of_the_whole(model, scale, microbatch):
    if scale == "small":
        pytest.skip("six blocks: the forward of one is no small part of the whole")
    whole, last = (_nbytes(_candidate(model, microbatch, t)) for t in ((), LAST[scale]))
    # Measured: 0.19 at a microbatch of 8, where weights and the state of the trained 60 % of them
    # (mostly the classifier) are two thirds of the plan; 0.15 at 16, 0.12 at 32.
    assert last <= whole / 5
