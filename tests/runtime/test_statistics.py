"""Running statistics only change in steps that count (contract 5), as in torch."""

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn

import edgetrain as et
from edgetrain.exporters import export_torch
from edgetrain.kernels import control
from edgetrain.ops.model import Model
from edgetrain.program import TARGET, Program
from edgetrain.runtime.session import Session, StepResult
from tests.planner import hurried
from tests.runtime.conftest import Compile, assert_same_bits
from tests.twins import train_step

N, M = 24, 8  # minibatch and microbatch
HUGE = 3e38  # its convolution overflows
LARGE = 1e25  # no gradient overflows, but the variance does


class _Net(nn.Module):
    """A batch-norm that is applied twice, and another one."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.conv = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3, padding=1)
        self.shared, self.last = nn.BatchNorm2d(4, momentum=0.3), nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 10)

    def forward(self, x):
        x = torch.relu(self.shared(self.stem(x)))
        x = self.last(torch.relu(self.shared(self.conv(x))))
        return self.head(x.mean((2, 3)))


@pytest.fixture(scope="module")
def module() -> nn.Module:
    torch.manual_seed(0)
    return _Net()


@pytest.fixture(scope="module")
def model(module: nn.Module, tmp_path_factory) -> Model:
    path = tmp_path_factory.mktemp("net") / "net.onnx"
    return et.load_onnx(export_torch(module, torch.zeros(2, 1, 8, 8), path))


def _minibatch(seed: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    x = draw.standard_normal((N, 1, 8, 8)).astype(np.float32)
    return x, draw.integers(0, 10, N).astype(np.int32)


def _fills(session: Session, x: np.ndarray, y: np.ndarray, stop: int = N) -> Iterator[bool]:
    """Every microbatch; the minibatch is discarded before sample `stop`."""
    staging, size = session._staging["micro"], session.program.microbatch
    for start in range(0, N, size):
        if start >= stop:
            yield False
            return
        staging[TARGET][...] = y[start : start + size]
        for name in staging.keys() - {TARGET}:
            staging[name][...] = x[start : start + size]
        yield True


def _step(session: Session, number: int, *batch: np.ndarray, **options) -> StepResult | None:
    with np.errstate(over="ignore"):
        return train_step(session, number, 0.05, 1.0, _fills(session, *batch, **options))


def _everything(session: Session) -> dict[str, np.ndarray]:
    """Everything in a checkpoint, and Adam's counters."""
    found = {name: array.copy() for name, array in session.state().items()}
    words = slice(control.BIAS1, control.BIAS2 + 1)
    return found | {"t": session.ints[[control.ADAM_T]], "bias": session.reals[words].copy()}


@pytest.fixture(scope="module")
def compiled(forked: Compile) -> dict[str, Program]:
    with hurried():
        return {p: forked(minibatch=N, microbatch=M, precision=p) for p in ("fp32", "fp16")}


@pytest.mark.parametrize("microbatch", [0, 1, 2])
@pytest.mark.parametrize(
    ("precision", "value"), [("fp32", HUGE), ("fp16", HUGE), ("fp32", LARGE), ("fp32", math.nan)]
)
def test_a_bad_sample_changes_nothing_but_the_step(compiled, precision, value, microbatch) -> None:
    session = Session(compiled[precision])
    try:
        assert not _step(session, 0, *_minibatch(0)).skipped
        before = _everything(session)
        x, y = _minibatch(1)
        x[microbatch * M + 3] = value
        result = _step(session, 1, x, y)
        assert result.skipped and not result.finite
        assert_same_bits(_everything(session), before)
        x, y = _minibatch(2)
        assert np.isfinite(session.predict({"x": x})).all()
        result = _step(session, 2, x, y)
        assert not result.skipped and np.isfinite(result.loss)
        after = _everything(session)
        assert all(np.isfinite(array).all() for array in after.values())
        moved = [n for n in before if before[n].tobytes() != after[n].tobytes()]
        assert {"block0.mean", "block2.var", "stem.w"} <= set(moved)
    finally:
        session.close()


@pytest.mark.parametrize("stop", [0, M, 2 * M])
def test_a_discarded_minibatch_leaves_statistics_as_they_were(compiled, stop: int) -> None:
    def trained(discarding: bool) -> dict[str, np.ndarray]:
        session = Session(compiled["fp32"])
        try:
            _step(session, 0, *_minibatch(0))
            before = _everything(session)
            if discarding:
                assert _step(session, 1, *_minibatch(5), stop=stop) is None
                assert_same_bits(_everything(session), before)
            _step(session, 1, *_minibatch(1))
            return _everything(session)
        finally:
            session.close()

    assert_same_bits(trained(True), trained(False))


def test_a_minibatch_whose_targets_do_not_count_moves_no_statistic(forked: Compile) -> None:
    with hurried():
        session = Session(forked(minibatch=N, microbatch=M))
    try:
        before = _everything(session)
        x, y = _minibatch(0)
        assert _step(session, 0, x, np.full_like(y, -100)).skipped
        assert_same_bits(_everything(session), before)
    finally:
        session.close()


def test_staged_statistics_are_in_the_account_and_in_no_checkpoint(compiled) -> None:
    program = compiled["fp32"]
    staged = {s.name.removesuffix(".staged"): s for s in program.persistent if s.role == "staged"}
    moving = {s.name: s for s in program.persistent if s.role == "buffer"}
    assert staged.keys() == moving.keys() and len(moving) == 6
    assert all(s.dtype == "f32" and s.shape == moving[n].shape for n, s in staged.items())
    assert sum(program.account["by_kind"].values()) == program.arena_nbytes
    session = Session(program)
    assert not {s.name for s in staged.values()} & session.state().keys()
    session.close()


@pytest.mark.parametrize("freeze", [(), ("shared.*",), ("stem.*", "shared.*", "last.*")])
@pytest.mark.parametrize("microbatch", [N, M])
def test_training_equals_torch_in_the_same_loop(module, model, microbatch: int, freeze) -> None:
    module.load_state_dict(dict(_initial(model)))
    module.train()
    for name, parameter in module.named_parameters():
        stem = f"{name.partition('.')[0]}.*"
        parameter.requires_grad_(stem not in freeze)
    for name, part in module.named_children():
        if isinstance(part, nn.BatchNorm2d):
            part.train(f"{name}.*" not in freeze)
    trained = [p for p in module.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.05, momentum=0.9)
    with hurried():
        program = et.compile(
            model, minibatch=N, microbatch=microbatch, freeze=freeze,
            optimizer=et.SGD(lr=0.05, momentum=0.9),
        )  # fmt: skip
    session = Session(program)
    try:
        for step in range(3):
            x, y = _minibatch(step)
            _step(session, step, x, y)
            optimizer.zero_grad()
            for k in range(0, N, microbatch):
                part = torch.tensor(x[k : k + microbatch]), torch.tensor(y[k : k + microbatch])
                loss = nn.functional.cross_entropy(module(part[0]), part[1].long())
                (loss * microbatch / N).backward()
            optimizer.step()
        found = session.state()
        for name, tensor in module.state_dict().items():
            if name in found:  # torch's float32 uses another summation order, over three steps
                np.testing.assert_allclose(found[name], tensor, rtol=2e-4, atol=2e-5, err_msg=name)
        for pattern in freeze:
            for name in (n for n in found if n.startswith(pattern.rstrip("*"))):
                assert found[name].tobytes() == program.init[name].tobytes(), name
    finally:
        session.close()


def _initial(model: Model) -> Iterator[tuple[str, torch.Tensor]]:
    for name, array in model.initializers.items():
        if name in (*model.parameters, *model.buffers):
            yield name, torch.tensor(array)
    for name in ("shared", "last"):
        yield f"{name}.num_batches_tracked", torch.tensor(0)
