"""What the benchmarks count, on instructions whose cost is known."""

import ast
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import cold, marks
from benchmarks.kernel_cases import Call, fmas_of
from benchmarks.kernels import AVX2, avx2_process, family, shape, summary
from benchmarks.kernels import Row as KernelRow
from benchmarks.machine import _chains, least
from benchmarks.stock import __main__ as stock
from benchmarks.stock import processes
from benchmarks.stock.listed import listed
from edgetrain.kernels.cache import jit
from edgetrain.kernels.declaration.spec import Spec
from edgetrain.kernels.registry import Kernel

CONV = {"n": 2, "c": 4, "h": 8, "wd": 8, "k": 6, "kh": 3, "kw": 3, "oh": 4, "ow": 4, "sh": 2}
GEMM = {"z1": 1, "z2": 2, "m": 3, "n": 5, "k2": 1, "k": 7}


@pytest.mark.parametrize(
    "name, values, nonzeros, expected",
    [
        ("conv", CONV | {"g": 2}, 0, 2 * 4 * 4 * 6 * 2 * 9),
        ("conv_dw", CONV | {"g": 1}, 0, 2 * 4 * 4 * 6 * 4 * 9),
        ("conv_csr_dx", CONV | {"g": 1}, 50, 2 * 4 * 4 * 50),
        ("winograd_dw", CONV | {"g": 1}, 0, 2 * 4 * 4 * 6 * 4 * 9 // 4),
        ("winograd_csr_dx", CONV | {"g": 1}, 50, 2 * 4 * 4 * 6 * 4 * 9 // 4),
        ("gemm", GEMM, 0, 2 * 3 * 5 * 7),
        ("lstm_bwd", {"d": 1, "t": 3, "b": 2, "n": 8}, 0, 4 * 3 * 2 * 8 * 8),
        ("un_relu", {"n": 100}, 0, 0),
    ],
)
def test_fmas_count_multiply_adds(name, values, nonzeros, expected):
    assert fmas_of(name, values, nonzeros) == expected


def test_torch_is_compared_with_avx2_code_on_avx2(monkeypatch):
    for name in AVX2:
        monkeypatch.setenv(name, "")  # so that they are as before afterwards
    with avx2_process() as limited:
        assert limited.submit(torch.backends.cpu.get_cpu_capability).result() in ("AVX2", "DEFAULT")


@pytest.mark.parametrize(
    "name, expected",
    [
        ("conv_dx", "convolution, input gradient"),
        ("conv_csr", "sparse convolution, forward"),
        ("winograd_dw", "convolution, weight gradient"),
        ("winograd_csr_dx", "sparse convolution, input gradient"),
        ("gemm", "gemm"),
        ("bn_reduce", "norms"),
        ("sgd", "update"),
        ("gru_bwd", "recurrence"),
        ("copy", "elementwise and moves"),
    ],
)
def test_family_lists_every_kernel_once(name, expected):
    assert family(name) == expected


def _call(name, values):
    return Call("net", name, {"A": "f32"}, values, {"a": np.zeros(4, np.uint8)}, 2, 100, 400)


def test_shape_names_the_sizes():
    assert shape(_call("gemm", GEMM)) == "2 x 3 x 5 x 7"
    assert shape(_call("conv", CONV | {"g": 1})) == "2 x 4 x 8 x 8 to 6, 3 x 3 / 2"


def test_summary_weighs_by_time():
    rows = [
        KernelRow(_call("gemm", GEMM), "gemm", "plain", 4.0, 2.0, "FMA", 6.0),
        KernelRow(_call("gemm", GEMM), "gemm", "plain", 1.0, 1.0, "FMA", None),
    ]
    assert summary(rows) == ["| gemm | 2 | 75 % | 50 % | 60 % | - | 1.50 |"]


def test_the_kernel_that_measures_the_peak_compiles():
    spec = Spec.parse("x:r:f32[256] y:w:f32[16] n")
    kernel = Kernel("peak", "plain", spec, _chains(3), None)
    assert kernel.object({}, jit.host())


def test_least_takes_the_shortest_run():
    assert least([lambda: None, lambda: sum(range(1000))], 5, 1.0)[0] < 1e-3


PARAMETERS = {  # as published, or as counted by torchvision
    "AlexNet": 61_100_840,
    "VGG-11": 132_863_336,
    "VGG-19": 143_667_240,
    "ResNet-34": 21_797_672,
    "ResNet-101": 44_549_160,
    "ResNet-152": 60_192_808,
    "DenseNet-161": 28_681_000,
    "DenseNet-169": 14_149_480,
    "DenseNet-201": 20_013_928,
    "AmoebaNet (CIFAR-10)": 3_145_078,
    "DARTS (CIFAR-10)": 3_349_342,
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_reforwarding_builds_the_published_network(name):
    torch = pytest.importorskip("torch")
    from benchmarks import reforwarding

    with torch.device("meta"):
        module = reforwarding.published()[name].build()
    assert sum(p.numel() for p in module.parameters()) == PARAMETERS[name]


def test_reforwarding_least_is_below_what_keeps_everything():
    torch = pytest.importorskip("torch")
    from benchmarks import cell_nets, reforwarding
    from benchmarks.nets import exported
    from edgetrain.api import make_options
    from edgetrain.optim import SGD

    net = cell_nets.CellNet(cell_nets.AMOEBANET, 4, 3)
    model = exported(net, (torch.zeros(2, 3, 8, 8),))
    options = make_options(minibatch=2, microbatch=2, optimizer=SGD(0.01))
    everything, least = reforwarding.plans(model, options, reforwarding.MOST_EXTRA)
    assert everything.extra_forward == 0
    assert least.extra_forward <= reforwarding.MOST_EXTRA
    assert 0 < reforwarding.beside_weights(least) < reforwarding.beside_weights(everything)


_SAYS = {"compile", "compile_program", "Trainer"}
# Separate processes whose output nobody sees; cold.py's output is part of the measurement.
_CHILDREN = {"cold.py", "trained.py"}


@pytest.mark.parametrize("path", sorted(Path("benchmarks").rglob("*.py")), ids=str)
def test_rows_are_printed_at_once_and_nothing_between_them(path):
    """Tables are read while they grow, perhaps through a pipe."""
    text = path.read_text()
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    for call in calls:
        given = {word.arg for word in call.keywords}
        name = ast.unparse(call.func)
        where = f"{path}:{call.lineno}: {name}"
        if (
            name == "print"
            and call.args
            and ast.unparse(call.args[0]).lstrip("f'\"").startswith("|")
        ):
            assert "flush" in given, where
        of_python = any(ast.unparse(one) == "'exec'" for one in call.args)
        if name.rpartition(".")[2] in _SAYS and not (
            name.startswith(("re.", "torch.")) or of_python
        ):
            assert "verbose" in given or path.name in _CHILDREN, where


def test_first_runs_of_models_that_are_not_installed_are_left_out_with_the_reason(monkeypatch):
    monkeypatch.setattr(cold, "first_run", lambda script, *arguments: (9.6, 33))
    for name in ("torchvision", "torchvision.models"):
        monkeypatch.setitem(sys.modules, name, None)
    example, *rows = list(cold.lines())[2:]
    assert example == "| the README's Python example | 33 | 10 |"
    assert [row.split(" | ")[0].split()[-1] for row in rows] == [*cold.MODELS]
    assert all("not measured" in row and "torchvision" in row.split(" | ")[2] for row in rows)


def test_a_stock_model_with_the_same_plans_is_not_measured_again(monkeypatch):
    row, asked = listed()[0], []
    before = {"key": "k", "bits": "b", "digests": {"kernels": marks.digest("kernels")}}
    today = {"key": "k", "bits": "b"}

    def measure(what, row, path, kernels, limit, key=""):
        asked.append((what, key))
        return dict(today)

    def measured(facts):
        asked.clear()
        result = stock.measured(row, 1, facts | {"loss": 1.0})
        return result.get("loss") == 1.0, asked[1:]

    whole = [("step", ""), ("parity", ""), ("torch", "")]
    monkeypatch.setattr(processes, "measure", measure)
    assert measured(before) == (True, [("step", "k")])
    other_kernels = before | {"digests": {"kernels": "others"}}
    assert measured(other_kernels) == (True, [("step", "")])
    assert measured(other_kernels | {"bits": "c"}) == (False, [("step", ""), *whole])
    del other_kernels["bits"]
    assert measured(other_kernels) == (False, whole)
    today["key"] = "l"
    assert measured(before) == (False, [("step", "k"), *whole])
