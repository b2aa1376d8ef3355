"""The torch reference: a rule for every op, the same numbers as the original module."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import edgetrain as et
from edgetrain.errors import UnsupportedOpError, UsageError
from edgetrain.exporters import export_torch, reference_ops
from edgetrain.exporters.reference import Reference, Storage, reference
from edgetrain.exporters.reference_ops import INTRINSICS, RULES, _with_builtins
from edgetrain.formats import FP16
from edgetrain.ir import Node, Value
from edgetrain.kernels.elementwise.formulas import ROWS
from edgetrain.kernels.elementwise.intrinsics import bound
from edgetrain.kernels.elementwise.pair_formulas import PAIRS
from edgetrain.ops import registry
from edgetrain.ops.registry import Op

from ..kernels import naive_binary
from ..kernels import naive_elementwise as naive
from ..kernels.test_elementwise import PARAMETERS, SLOPED

# Made by compiler passes, never by the importer.
_LOWERED = {
    "attention", "conv_csr", "dropout_part", "gather_csr", "linear_csr", "loss", "losses_total",
}  # fmt: skip


def _forward_ops() -> list[str]:
    """Ops with a gradient rule, except those that only compiler passes create."""
    ops = {name: registry.op(name) for name in registry.op_names() if name not in _LOWERED}
    return [name for name, op in ops.items() if type(op).vjp is not Op.vjp or op.gradient]


@pytest.mark.parametrize("name", _forward_ops())
def test_reference_has_a_rule_for_every_forward_op(name):
    assert name in RULES


def test_reference_has_no_rule_without_an_op():
    assert set(RULES) <= set(registry.op_names())


_CLOSE = {"rtol": 1e-5, "atol": 1e-5}  # of a difference quotient


def _torch_and_naive(name, of):
    """Values and slopes of a function of one number, at zero too if zero is in its domain."""
    a, b = PARAMETERS.get(name, (0.1, 0.0))
    x = np.array([-2.3, -0.6, -0.2, -0.0, 0.0, 0.3, 0.8, 1.9, 14.0])
    least, most = ROWS[name].domain
    x = x[(x > least) & (x < most)]
    given = torch.tensor(x, requires_grad=True)
    y = of(given, a, b)
    y.sum().backward()
    with np.errstate(divide="ignore"):
        known = naive.value(name)(x, a, b)
        slope = naive.slope(name)(x, known, a, b)
    return (y.detach(), given.grad), (known, slope)


@pytest.mark.parametrize("name", SLOPED)
def test_rule_of_one_number_equals_its_naive_twin(name):
    def rule(x, a, b):
        return RULES[name](Node("n", name, ("x",), ("y",), {"a": a, "b": b}), [x], [])

    for found, expected in zip(*_torch_and_naive(name, rule), strict=True):
        np.testing.assert_allclose(found.numpy(), expected, **_CLOSE)


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.vjp is None])
def test_rule_without_a_slope_follows_from_the_formula(name, monkeypatch):
    """A function that someone adds has no rule of its own."""
    monkeypatch.setattr(reference_ops, "UNARY", {})

    def rule(x, a, b):
        return RULES[name](Node("n", name, ("x",), ("y",), {"a": a, "b": b}), [x], [])

    x = torch.tensor([-2.5, -0.6, 0.0, 0.3, 1.5, np.inf], requires_grad=True)
    y = rule(x, 0.1, 0.0)
    y.sum().backward()
    np.testing.assert_array_equal(y.detach(), naive.value(name)(x.detach().numpy(), 0.1, 0.0))
    assert not x.grad.any()


# No formula says that a rounding passes gradients straight through, or which slope a kink has.
# torch's `where` passes on 0 * inf from the branch not taken, log(0).
_OWN = {"abs", "asinh", "fake_quantize", "round_through"}


@pytest.mark.parametrize("name", sorted({*SLOPED} - _OWN))
def test_formula_in_words_of_torch_has_the_slope_of_the_function(name):
    of = bound(ROWS[name].value, INTRINSICS, made=_with_builtins)
    for found, expected in zip(*_torch_and_naive(name, of), strict=True):
        np.testing.assert_allclose(found.numpy(), expected, **_CLOSE)


@pytest.mark.parametrize("name", PAIRS)
def test_rule_of_two_numbers_has_the_gradients_of_its_row(name):
    """At ties and zeros too, where torch takes gradients of the formula apart."""
    numbers = [-1.5, -0.5, -0.0, 0.0, 0.5, 1.5]
    a, b = (
        torch.tensor(np.ravel(part), requires_grad=True) for part in np.meshgrid(*2 * [numbers])
    )
    y = RULES[name](Node("n", name, ("a", "b"), ("y",), {}), [a, b], [])
    dy = torch.linspace(1, 2, len(a), dtype=torch.float64)
    y.backward(dy)
    given = (a.detach().numpy(), b.detach().numpy())
    np.testing.assert_allclose(y.detach(), naive_binary.VALUE[name](*given), **_CLOSE)
    for found, rule in zip((a.grad, b.grad), PAIRS[name].rules, strict=True):
        np.testing.assert_allclose(found, naive_binary.GRADIENT[rule](*given, dy.numpy()), **_CLOSE)


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 6, 3, stride=2, padding=1, groups=2)
        self.norm = nn.BatchNorm2d(6, momentum=0.3)
        self.head = nn.Linear(6, 4)
        self.spare = nn.Linear(6, 3)

    def forward(self, x):
        x = nn.functional.avg_pool2d(torch.relu(self.norm(self.conv(x))), 3, 2, padding=1)
        x = x.amax((2, 3))
        return self.head(x), self.spare(x)


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    torch.manual_seed(0)
    module = _Net()
    path = tmp_path_factory.mktemp("net") / "net.onnx"
    export_torch(module, torch.randn(2, 2, 7, 6), path, input_names=["x"])
    return module, et.load_onnx(path)


@pytest.fixture
def batch():
    draw = np.random.default_rng(0)
    return draw.standard_normal((5, 2, 7, 6), np.float32), draw.integers(0, 4, 5)


def test_reference_equals_the_original_module_in_float64(net, batch):
    module, model = net
    x, target = batch
    original = _Net().double()
    original.load_state_dict(module.state_dict())
    loss = nn.functional.cross_entropy(
        original(torch.tensor(x).double())[0], torch.tensor(target), label_smoothing=0.1
    )
    loss.backward()
    found = reference(model, {"x": x}, target, et.Loss(label_smoothing=0.1))
    assert found.loss == pytest.approx(loss.item(), rel=1e-12)
    for name, parameter in original.named_parameters():
        expected = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        np.testing.assert_allclose(
            found.gradients[name], expected.numpy(), rtol=1e-6, atol=1e-9, err_msg=name
        )
    for name, array in found.buffers.items():
        # The file's epsilon and momentum are float32.
        np.testing.assert_allclose(array, original.get_buffer(name).numpy(), rtol=1e-6)


def test_reference_takes_the_loss_of_the_named_output(net, batch):
    x, target = batch
    names = net[1].outputs
    found = reference(net[1], {"x": x}, target % 3, output=names[1])
    assert not found.gradients["head.weight"].any() and found.gradients["spare.weight"].any()


def test_reference_runs_in_float32(net, batch):
    x, target = batch
    single = reference(net[1], {"x": x}, target, dtype=torch.float32)
    exact = reference(net[1], {"x": x}, target)
    assert single.gradients["head.weight"].dtype == np.float32
    assert single.loss == pytest.approx(exact.loss, rel=1e-5)


def test_reference_buffers_move_at_each_step(net, batch):
    x, target = batch
    run = Reference(net[1], 5)
    first = run.step({"x": x}, target, "cross_entropy").buffers["norm.running_mean"]
    second = run.step({"x": x}, target, "cross_entropy").buffers["norm.running_mean"]
    np.testing.assert_allclose(second, 1.7 * first, rtol=1e-6)  # m + (1 - 0.3) m


@pytest.mark.parametrize("storage", [Storage(), Storage(FP16, FP16)], ids=["fp32", "fp16"])
def test_moved_parameters_change_a_step_in_any_storage(net, batch, storage):
    def loss(moves):
        run = Reference(net[1], 5, dtype=torch.float32, storage=storage, moves=moves)
        return run.step({"x": batch[0]}, batch[1], "cross_entropy").loss

    weights = {name: array for name, array in net[1].initializers.items() if array.ndim > 1}
    factors = [{n: np.full(a.shape, f) for n, a in weights.items()} for f in (1.0, 1 + 2**-11)]
    assert loss(factors[0]) == loss({})
    assert loss(factors[1]) != pytest.approx(loss({}), abs=1e-7)


def test_reference_names_an_op_without_a_rule(net, monkeypatch):
    monkeypatch.delitem(RULES, "reduce_max")
    with pytest.raises(UnsupportedOpError, match="reduce_max.*torch reference"):
        Reference(net[1], 5)


def test_reference_refuses_a_target_that_fits_no_axis(net, batch):
    with pytest.raises(UsageError, match=r"target .*\[3\]"):
        reference(net[1], {"x": batch[0]}, np.zeros(3, np.int64))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_reference_refuses_cuda_when_there_is_none(net):
    with pytest.raises(UsageError, match="device cuda: torch finds no CUDA"):
        Reference(net[1], 5, device="cuda")


@pytest.mark.parametrize("include_pad", [0, 1])
def test_average_pool_rule_equals_torch_with_ceil_mode(include_pad):
    x = torch.randn(2, 3, 7, 8, dtype=torch.float64, generator=torch.manual_seed(0))
    expected = nn.functional.avg_pool2d(
        x, 3, 2, 1, ceil_mode=True, count_include_pad=bool(include_pad)
    )
    keys = ("kh", "kw", "sh", "sw", "ph", "pw", "pb", "pr", "include_pad")
    attrs = dict(zip(keys, (3, 3, 2, 2, 1, 1, 1, 1, include_pad), strict=True))
    node = Node("pool", "avgpool", ("x",), ("y",), attrs)
    found = RULES["avgpool"](node, [x], [Value("y", tuple(expected.shape))])
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_a_large_graph_is_run_in_parts_with_the_same_bits(net, batch, monkeypatch):
    x, target = batch
    whole = Reference(net[1], 2).step({"x": x[:4]}, target[:4], "cross_entropy")
    monkeypatch.setattr("edgetrain.exporters.reference.MOST_KEPT", 0)
    kept: list[int] = []

    def counted(run, *operands, **how):
        kept.append(len(operands))
        return checkpoint(run, *operands, **how)

    monkeypatch.setattr("edgetrain.exporters.reference.checkpoint", counted)
    parts = Reference(net[1], 2).step({"x": x[:4]}, target[:4], "cross_entropy")
    assert len(kept) >= 6 and parts.loss == whole.loss
    for one, other in ((parts.gradients, whole.gradients), (parts.buffers, whole.buffers)):
        for name in one.keys() | other.keys():
            np.testing.assert_array_equal(one[name], other[name], name)
