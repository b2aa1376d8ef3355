"""A convolution's algorithm follows from its shapes alone; a budget never changes it silently."""

from dataclasses import replace

import numpy as np
import pytest

import edgetrain as et
from edgetrain.api import make_options
from edgetrain.compiler import Options, compile_model
from edgetrain.errors import BudgetError
from edgetrain.kernels.registry import variants
from edgetrain.ops.model import Model
from edgetrain.ops.registry import op
from edgetrain.screen.tables import departures

from .nets import Net, graphs

GEOMETRY = {"sh": 1, "sw": 1, "ph": 1, "pw": 1, "dh": 1, "dw": 1, "g": 1}


def _model() -> Model:
    net = Net(3, 12, 12)
    x = net.add("Relu", [net.conv("x", "stem", 32, 3)], "act")
    return net.model(net.head(net.conv(x, "wide", 32, 32), 32))


def _options(**given) -> Options:
    return make_options(minibatch=16, microbatch=8, loss="cross_entropy", **given)


def _kernels(program) -> set[str]:
    return {row[0] for row in program.kernels if "winograd" in row[0]}


def test_all_three_products_of_a_convolution_take_fewer_multiplications() -> None:
    assert _kernels(compile_model(_model(), _options())) == {
        "winograd",
        "winograd_dx",
        "winograd_dw",
    }
    assert _kernels(compile_model(_model(), _options(convolutions="direct"))) == set()


def test_sparse_weights_take_fewer_multiplications_from_some_density_on() -> None:
    """The weight gradient is computed only for the nonzeros."""
    for density, names in ((0.5, {"winograd_csr", "winograd_csr_dx"}), (0.1, set())):
        program = compile_model(_model(), _options(density=density))
        assert _kernels(program) == names
        assert "conv_csr_dw" in {row[0] for row in program.kernels}
    assert _kernels(compile_model(_model(), _options(density=0.5, convolutions="direct"))) == set()


def _rows_pay(kernel: str, density: float, **change: int) -> bool:
    from edgetrain.ops.conv import pays_winograd

    sizes = {"n": 10, "c": 64, "h": 16, "wd": 16, "k": 64, "kh": 3, "kw": 3, "oh": 16, "ow": 16}
    sizes |= {"slots": 10**6, "room": 0, "held": 0} | change
    count = round(density * 9 * sizes["c"] * sizes["k"])
    rows = {"nonzeros": count, "chunk": 22}
    return pays_winograd(sizes, {**GEOMETRY, **rows, **change}, kernel)


@pytest.mark.parametrize(
    ("change", "least"),
    [
        ({}, (0.27, 0.24)),
        ({"c": 32, "k": 32, "h": 32, "wd": 32, "oh": 32, "ow": 32}, (0.27, 0.24)),
        ({"c": 128, "k": 128, "h": 8, "wd": 8, "oh": 8, "ow": 8}, (0.29, 0.26)),
        # few tiles per transformed weight
        ({"n": 4, "c": 128, "k": 128, "h": 8, "wd": 8, "oh": 8, "ow": 8}, (0.33, 0.29)),
    ],
)
def test_the_rule_of_rows_looks_at_shapes_and_density(change, least) -> None:
    for name, density in zip(("winograd_csr", "winograd_csr_dx"), least, strict=True):
        taken = [_rows_pay(name, density + step, **change) for step in (-0.02, 0.02, 0.5)]
        assert taken == [False, True, True]


@pytest.mark.parametrize("change", [{"c": 24}, {"n": 1, "oh": 4, "ow": 4}, {"sh": 2}, {"ph": 3}])
def test_the_rule_of_rows_asks_for_the_shapes_of_dense_weights(change) -> None:
    assert not _rows_pay("winograd_csr", 0.9, **change)
    assert not _rows_pay("winograd_csr_dx", 0.9, **change)


def test_rows_count_what_they_store_beside_the_scratch() -> None:
    """A layer with few nonzeros may need less memory than a dense layer's scratch."""
    small = {"n": 1, "c": 64, "k": 64, "h": 16, "wd": 16, "oh": 16, "ow": 16}
    assert [_rows_pay("winograd_csr", density, **small) for density in (0.6, 0.9)] == [False, True]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, True),
        ({"c": 64, "k": 48}, True),
        ({"ph": 2, "pw": 0}, True),
        ({"c": 24}, False),
        ({"k": 33}, False),  # 33 of 48 lanes are used
        ({"n": 1}, False),  # scratch outweighs small maps
        ({"n": 1, "c": 64, "k": 64, "oh": 16, "ow": 16}, True),  # but not larger weights
        ({"n": 3, "c": 256, "k": 256, "oh": 4, "ow": 4}, False),  # too few tiles
        ({"n": 4, "c": 256, "k": 256, "oh": 4, "ow": 4}, True),
        ({"h": 2, "wd": 2, "oh": 2, "ow": 2, "n": 1000}, False),  # quarter tiles
        ({"kh": 5}, False),
        ({"sh": 2}, False),
        ({"dw": 2}, False),
        ({"ph": 3}, False),
    ],
)
def test_the_rule_looks_at_shapes(change, expected) -> None:
    from edgetrain.ops.conv import pays_winograd

    sizes = {"n": 8, "c": 32, "h": 12, "wd": 12, "k": 32, "kh": 3, "kw": 3, "oh": 12, "ow": 12}
    for name in ("winograd", "winograd_dx", "winograd_dw"):
        assert pays_winograd({**sizes, **change}, {**GEOMETRY, **change}, name) is expected


def test_the_scratch_does_not_grow_with_the_channels() -> None:
    from edgetrain.ops.conv import pays_winograd

    sizes = {"n": 8, "c": 64, "h": 8, "wd": 8, "k": 64, "kh": 3, "kw": 3, "oh": 8, "ow": 8}
    for name in ("winograd", "winograd_dx", "winograd_dw"):
        spec = variants(name)[0].spec
        zeros = dict.fromkeys((o.name for o in spec.operands), 0)
        scratch = [
            spec.scratch_nbytes(zeros | GEOMETRY | sizes | {"c": count, "k": count}, 1, 1)
            for count in (128, 512, 4096)
        ]
        assert scratch[0] == scratch[1] == scratch[2] < 512_000
        assert pays_winograd(sizes | {"c": 4096, "k": 4096}, GEOMETRY, name)


def test_evaluation_computes_with_the_sums_of_training() -> None:
    built = graphs(_model(), 8)
    for graph in (built.train, built.evaluate):
        marked = [n.outputs[0] for n in graph.nodes if n.op == "conv" and op("conv").shortcut(n)]
        assert marked == ["wide"]


@pytest.mark.parametrize(
    ("density", "names", "ratios"),
    [(1.0, ("conv", "conv_dx", "conv_dw"), (2, 4)), (0.5, ("conv_csr", "conv_csr_dx"), (1, 2))],
)
def test_fewer_multiplications_are_fewer_flops(density, names, ratios) -> None:
    fast = graphs(_model(), 8, density=density).train
    slow = graphs(_model(), 8, density=density, convolutions="direct").train
    for name in names:
        counts = [
            max(op(n.op).flops(n, graph) for n in graph.nodes if n.op == name)
            for graph in (fast, slow)
        ]
        assert ratios[0] < counts[1] / counts[0] < ratios[1]


@pytest.mark.parametrize("density", [1.0, 0.5])
def test_a_budget_below_the_scratch_takes_direct_convolutions_and_says_so(density) -> None:
    model, options = _model(), _options(density=density)
    fastest = compile_model(model, options)
    least = fastest.account["min_budget_nbytes"]
    small = compile_model(model, options, least)
    assert small.account["min_budget_nbytes"] == small.arena_nbytes == least
    assert _kernels(small) == set()
    assert small.recipe["convolutions"] == "direct"
    assert any("direct" in line for line in departures(small.account))
    assert departures(fastest.account) == []
    plain = compile_model(model, replace(options, convolutions="direct"))
    assert departures(plain.account) == []
    assert plain.account["min_budget_nbytes"] == least
    with pytest.raises(BudgetError):
        compile_model(model, options, least - 1)


def test_an_older_recipe_means_direct_convolutions() -> None:
    recipe = dict(_options().recipe())
    assert Options.of_recipe(recipe).convolutions == "auto"
    del recipe["convolutions"]
    assert Options.of_recipe(recipe).convolutions == "direct"


@pytest.mark.parametrize(
    ("precision", "more"),
    [
        ("fp32", {}),
        ("fp16", {}),
        ("fp32", {"density": 0.5}),
        ("fp16", {"density": 0.5, "saved": "int8"}),
        ("fp32", {"density": 0.5, "model_memory": "int8"}),
    ],
)
def test_steps_are_equal_for_any_threads_and_near_those_of_direct_ones(precision, more) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((16, 3, 12, 12)).astype(np.float32)
    y = rng.integers(0, 3, 16)

    def weights(**given) -> np.ndarray:
        program = compile_model(_model(), _options(precision=precision, **more, **given))
        assert _kernels(program) or given.get("convolutions")
        trainer = et.Trainer(program)
        for _ in range(3):
            trainer.step(x, y)
        return np.asarray(trainer.parameters["wide.w"], np.float32)

    one, three = weights(threads=1), weights(threads=3)
    assert one.tobytes() == three.tobytes()
    # one fp16 rounding, or several of float32
    tolerance = 2e-3 if precision == "fp16" else 1e-5
    np.testing.assert_allclose(one, weights(convolutions="direct"), rtol=0, atol=tolerance)
