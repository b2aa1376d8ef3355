"""Which weights become sparse, and the resulting graph, memory account and gradients."""

import dataclasses

import numpy as np
import pytest
import torch
from onnx import TensorProto

import edgetrain as et
from edgetrain.compiler.compilation import Compilation
from edgetrain.compiler.pipeline import build_graphs
from edgetrain.errors import UsageError
from edgetrain.exporters.reference import reference
from edgetrain.formats import csr
from edgetrain.formats.csr import POOL
from edgetrain.ops.model import Model
from edgetrain.sparse import DSR
from tests.quick import slow_except

from .nets import Net

BATCH = 4


def make_model() -> Model:
    """Stem; strided, grouped and tied convolutions with norms; depthwise; 1x1; a head."""
    net = Net(3, 9, 9)
    x = net.conv("x", "stem", 8, 3)
    x = net.add("Relu", [net.norm(x, "n0", 8)], "r0")
    x = net.add("Conv", [x, net.weight("a.w", 16, 8, 3, 3)], "a", pads=[1] * 4, strides=[2, 2])
    x = net.add("Relu", [net.norm(x, "n1", 16)], "r1")
    x = net.add("Conv", [x, net.weight("g.w", 16, 8, 3, 3)], "g", pads=[1] * 4, group=2)
    x = net.add("Conv", [x, net.weight("d.w", 16, 1, 3, 3)], "d", pads=[1] * 4, group=16)
    skip = x
    for k in range(2):
        weight, bias = net.weight("t.w", 16, 16, 3, 3), net.weight("t.b", 16)
        x = net.add("Conv", [x, weight, bias], f"t{k}", pads=[1] * 4)
        x = net.add("Relu", [net.norm(x, f"m{k}", 16)], f"q{k}")
    x = net.add("Add", [x, skip], "sum")
    net.head(net.conv(x, "one", 6, 16, 1), 6)
    return net.model("logits")


@pytest.fixture(scope="module")
def model() -> Model:
    return make_model()


def make_transformer_like() -> Model:
    """Linear layers over [batch, tokens, features], one of them used twice, and a head."""
    net = Net(5, 12)
    x = "x"
    for k, weight in enumerate(("up.w", "same.w", "same.w")):
        width = 12 if weight == "up.w" else 20
        name = net.weight(weight, 20, width)
        turned = net.add("Transpose", [name], f"turn{k}", perm=[1, 0])
        x = net.add("MatMul", [x, turned], f"product{k}")
        x = net.add("Tanh", [net.add("Add", [x, net.weight(f"b{k}", 20)], f"sum{k}")], f"act{k}")
    x = net.add("ReduceMean", [x], "mean", axes=[1], keepdims=0)
    x = net.add("Gemm", [x, net.weight("mid.w", 8, 20), net.weight("mid.b", 8)], "mid", transB=1)
    net.add("Gemm", [x, net.weight("fc.w", 3, 8), net.weight("fc.b", 3)], "logits", transB=1)
    return net.model("logits")


@pytest.fixture(scope="module")
def linear() -> Model:
    return make_transformer_like()


def make_language_model() -> Model:
    """Two embeddings, one tied to the classifier, and a linear layer between them."""
    net = Net(6, dtype=TensorProto.INT32)
    net.add("Gather", [net.weight("table.w", 30, 40), "x"], "rows")
    net.add("Gather", [net.weight("tied.w", 30, 20), "x"], "own")
    x = net.add("MatMul", ["rows", net.weight("mid.w", 40, 20)], "mid")
    x = net.add("Tanh", [net.add("Add", [x, "own"], "sum")], "act")
    x = net.add("ReduceMean", [x], "mean", axes=[1], keepdims=0)
    net.add("Gemm", [x, "tied.w"], "logits", transB=1)
    return net.model("logits")


@pytest.fixture(scope="module")
def language() -> Model:
    return make_language_model()


def _options(**options):
    from edgetrain.api import make_options

    return make_options(minibatch=BATCH, microbatch=BATCH, **{"density": 0.3, **options})


def _layers(model: Model, **options) -> dict[str, int]:
    graphs = build_graphs(Compilation(model, _options(**options)), BATCH)
    return {layer.name: layer.share for layer in graphs.layers}


def _data(model: Model):
    rng, shape = np.random.default_rng(3), model.inputs[0].dims[1:]
    if model.inputs[0].dtype != "float":
        return {"x": rng.integers(0, 30, (BATCH, *shape)).astype(np.int32)}, np.arange(BATCH) % 3
    return {"x": rng.standard_normal((BATCH, *shape)).astype(np.float32)}, np.arange(BATCH) % 3


def _densified(model: Model, **options) -> tuple[Model, dict[str, np.ndarray]]:
    """Return the model with its dropped weights set to zero, and the masks."""
    graphs = build_graphs(Compilation(model, _options(**options)), BATCH)
    ones = dict(graphs.arrays) | {POOL: np.ones_like(graphs.arrays[POOL])}
    weights = {layer.name: csr.dense(layer, graphs.arrays) for layer in graphs.layers}
    masks = {layer.name: csr.dense(layer, ones) != 0 for layer in graphs.layers}
    initializers = {**model.initializers, **weights}
    return dataclasses.replace(model, initializers=initializers), masks


def test_first_convolution_classifier_and_depthwise_stay_dense_by_default(model):
    assert _layers(model) == {"a.w": 346, "g.w": 346, "t.w": 691, "one.w": 29}


def test_linear_layers_become_sparse_but_for_the_classifier(linear):
    assert _layers(linear) == {"up.w": 72, "same.w": 120, "mid.w": 48}
    nodes = build_graphs(Compilation(linear, _options()), BATCH).train.nodes
    assert sum(node.op == "linear_csr" for node in nodes) == 4


def test_embeddings_become_sparse_but_for_one_that_is_the_classifier(language):
    assert _layers(language) == {"table.w": 360, "mid.w": 240}
    tied = {"density_overrides": {"tied.w": 0.5}}
    assert _layers(language, **tied) == {"table.w": 360, "tied.w": 300, "mid.w": 240}
    graph = build_graphs(Compilation(language, _options(**tied)), BATCH).train
    ops = [node.op for node in graph.nodes if "csr" in node.op]
    assert sorted(ops) == [
        "conv_csr_dw", "conv_csr_dw", "conv_csr_dx", "conv_csr_dx", "gather_csr", "gather_csr",
        "gather_csr_bwd", "gather_csr_bwd", "linear_csr", "linear_csr",
    ]  # fmt: skip


def test_ids_of_a_sparse_embedding_have_its_rows_as_limit(language):
    program = et.compile(language, minibatch=BATCH, density=0.3)
    assert program.limits["x"] == 30


def test_overrides_choose_by_pattern_and_win_over_the_exceptions(model):
    found = _layers(model, density_overrides={"stem.*": 0.5, "t.w": 1.0, "d.?": 0.25})
    assert found == {"stem.w": 108, "a.w": 346, "g.w": 346, "d.w": 36, "one.w": 29}
    assert _layers(model, density=1.0, density_overrides={"g.w": 0.5}) == {"g.w": 576}


def test_weights_that_are_not_trained_stay_dense(model):
    assert list(_layers(model, freeze=("g.*", "one.*"))) == ["a.w", "t.w"]


def test_wrong_densities_are_refused(model):
    for wrong in ({"density": 0.0}, {"density": 1.5}, {"density_overrides": {"a.w": -1.0}}):
        with pytest.raises(UsageError, match="density"):
            _options(**wrong)
    for wrong in (["a"], {1: 2}, 0.5):
        with pytest.raises(UsageError, match="density"):
            _options(density_overrides=wrong)
    for wrong in ("half", None, {"a": 1}):
        with pytest.raises(UsageError, match="density"):
            _options(density=wrong)
    for wrong in (DSR, 5, {"name": "dsr"}):
        with pytest.raises(UsageError, match="rewiring"):
            _options(rewiring=wrong)
    for wrong in (2**63, -(2**63) - 1):
        with pytest.raises(UsageError, match="seed .*: expected a 64-bit"):
            _options(seed=wrong)
    with pytest.raises(UsageError, match="distribution 'other'"):
        _options(distribution="other")
    with pytest.raises(UsageError, match=r"'fc\.b': no match among"):
        _layers(model, density_overrides={"fc.b": 0.5})
    with pytest.raises(UsageError, match="density .*: no trained weight would be sparse"):
        _layers(model, freeze=("*.w",))


def test_weights_of_products_are_rows_of_outputs_whichever_way_the_model_has_them(language):
    graphs = build_graphs(Compilation(language, _options()), BATCH)
    (layer,) = (layer for layer in graphs.layers if layer.name == "mid.w")
    assert layer.shape == (20, 40) and layer.turned
    found, whole = csr.dense(layer, graphs.arrays), language.initializers["mid.w"]
    assert found.shape == whole.shape == (40, 20) and np.count_nonzero(found) == 240
    assert np.array_equal(found[found != 0], whole[found != 0])
    assert csr.Layer.from_json(layer.to_json()) == layer


def test_nonzeros_of_a_model_that_is_sparse_already_come_first(linear):
    sparse, masks = _densified(linear)
    for seed in (0, 5):
        graphs = build_graphs(Compilation(sparse, _options(seed=seed)), BATCH)
        for layer in graphs.layers:
            assert np.array_equal(csr.dense(layer, graphs.arrays) != 0, masks[layer.name])


def test_topology_depends_on_the_seed_alone(model):
    first, again, other = (
        build_graphs(Compilation(model, _options(seed=s)), m).arrays
        for s, m in ((0, 4), (0, 2), (1, 4))
    )
    assert first[csr.COLUMNS].tobytes() == again[csr.COLUMNS].tobytes()
    assert first[csr.COLUMNS].tobytes() != other[csr.COLUMNS].tobytes()


def test_batch_norms_are_applied_inside_sparse_convolutions(model):
    graphs = build_graphs(Compilation(model, _options()), BATCH)
    for graph in (graphs.train, graphs.evaluate):
        sparse = [n for n in graph.nodes if n.op == "conv_csr"]
        assert [bool(n.inputs[3]) for n in sparse] == [True, True, False, True, False]
        assert all(n.inputs[6] == csr.COLUMNS for n in sparse)
    assert not any(n.op == "bn_apply" and n.inputs[0] in ("stem", "a") for n in graphs.train.nodes)


def _close(found: np.ndarray, expected: np.ndarray, scale: float, tolerance: float) -> None:
    """Compare relative L2; a bias before a batch-norm has no gradient, only rounding errors."""
    distance = float(np.linalg.norm(found - expected))
    assert distance < tolerance * max(float(np.linalg.norm(expected)), 1e-2 * scale)


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 2e-5), ("fp16", 2e-2)])
@pytest.mark.parametrize("distribution", slow_except(["uniform", "erk"], "erk"))
@pytest.mark.parametrize("net", ["model", "linear", "language"])
def test_gradients_at_the_nonzeros_are_those_of_the_dense_model(
    net, precision, tolerance, distribution, request
):
    model = request.getfixturevalue(net)
    inputs, target = _data(model)
    options = {"density": 0.3, "distribution": distribution}
    if net == "language":
        options["density_overrides"] = {"tied.w": 0.5}
    loss, found = et.loss_and_gradients(model, inputs, target, precision=precision, **options)
    densified, masks = _densified(model, **options)
    expected = reference(densified, inputs, target, dtype=torch.float64)
    assert loss == pytest.approx(expected.loss, rel=tolerance)
    assert found.keys() == expected.gradients.keys()
    scale = max(float(np.linalg.norm(g)) for g in expected.gradients.values())
    for name, gradient in expected.gradients.items():
        mask = masks.get(name, np.ones(gradient.shape, bool))
        assert not found[name][~mask].any()
        _close(found[name][mask], gradient[mask], scale, tolerance)


def test_account_counts_indices_and_one_slot_for_each_nonzero(model):
    options = {"minibatch": BATCH, "optimizer": et.SGD(lr=0.1, momentum=0.9), "density": 0.3}
    kinds = et.plan(model, precision="fp16", **options)["by_kind"]
    dense = et.plan(model, precision="fp16", **options | {"density": 1.0})["by_kind"]
    graphs = build_graphs(Compilation(model, _options()), BATCH)
    saved = sum(layer.size - layer.share for layer in graphs.layers)
    # Two bytes for each dropped weight, up to rounding to 64 bytes and to lines of slots.
    assert dense["optimizer"] - kinds["optimizer"] == pytest.approx(2 * saved, abs=64 * 5)
    pointers = sum(4 * (layer.groups + 1) for layer in graphs.layers)
    nonzeros = sum(layer.share for layer in graphs.layers)
    assert kinds["indices"] == pytest.approx(nonzeros + pointers, abs=64 * 8 + 8 * 32)
    assert dense["indices"] == 0


def test_dense_programs_have_no_sparse_tape(model):
    program = et.compile(model, minibatch=BATCH)
    assert program.tapes["rewire"].size == 0 and program.recipe["rewiring"] is None
    fixed = et.compile(model, minibatch=BATCH, density=0.3, rewiring="none")
    assert fixed.tapes["rewire"].size == 0 and fixed.recipe["sparse_layers"]
    moving = et.compile(model, minibatch=BATCH, density=0.3, rewiring=DSR(frequency=3))
    assert moving.tapes["rewire"].size > 0


def test_a_weight_that_a_product_reads_in_another_shape_stays_dense():
    net = Net(8)
    net.constants["shape"] = np.array([8, 12])
    turned = net.add("Reshape", [net.weight("flat", 96), "shape"], "turned")
    x = net.add("MatMul", ["x", turned], "first")
    x = net.add("MatMul", [x, net.weight("inner", 12, 12)], "second")
    net.add("MatMul", [x, net.weight("head", 12, 3)], "logits")
    program = et.compile(net.model("logits"), density=0.5, minibatch=4)
    assert program.account["training"]["sparse"] == ["inner"]
