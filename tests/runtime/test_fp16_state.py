"""fp16 training with small gradients: as good as fp32, and resumed to the same bits."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import edgetrain as et
from edgetrain.exporters import export_torch
from edgetrain.kernels import control
from tests.quick import slow_between

SIZE, STEPS = 0.01, 400


class Small(nn.Module):
    """Outputs are of about SIZE, so the gradients' norm is about 1e-6."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(16, 48), nn.Tanh(), nn.Linear(48, 4))

    def forward(self, x):
        return SIZE * self.inner(x)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("small")
    return export_torch(Small(), torch.randn(2, 16), folder / "small.onnx")


def samples(count: int):
    draw = np.random.default_rng(2)
    way = draw.standard_normal((16, 4)) / 4
    for _ in range(count):
        x = draw.standard_normal((32, 16)).astype(np.float32)
        yield x, (SIZE * np.tanh(x @ way)).astype(np.float32)


OPTIMIZERS = {
    "adam": et.Adam(lr=3e-3), "lion": et.Lion(lr=5e-4), "rmsprop": et.RMSprop(lr=1e-3),
    "adagrad": et.Adagrad(lr=0.03), "sgd": et.SGD(lr=500.0, momentum=0.9),
    "adan": et.Adan(lr=3e-3), "lamb": et.Lamb(lr=0.01),
}  # fmt: skip


@pytest.mark.parametrize("name", slow_between(OPTIMIZERS, 3))
def test_small_gradients_train_as_in_fp32(path: Path, name: str) -> None:
    losses = {}
    for precision in ("fp32", "fp16"):
        program = et.compile(
            path, loss="mse", optimizer=OPTIMIZERS[name], minibatch=32, precision=precision,
            threads=1,
        )  # fmt: skip
        with et.Trainer(program) as trainer:
            found = [float(trainer.step(x, y).loss) for x, y in samples(STEPS)]
            exponent = int(trainer.session.ints[control.STATE_EXPONENT])
        losses[precision] = np.mean(found[-20:]) / found[0]
        assert (exponent > 16) == (precision == "fp16")
    assert losses["fp32"] < 0.5 and losses["fp16"] < 1.2 * losses["fp32"]


def test_the_exponent_goes_on_with_a_run(path: Path) -> None:
    program = et.compile(
        path, loss="mse", optimizer=et.Adam(), minibatch=32, precision="fp16", threads=1
    )
    batches, ends = list(samples(40)), []
    with et.Trainer(program) as whole:
        for x, y in batches[:20]:
            whole.step(x, y)
        state = {name: array.copy() for name, array in whole.session.state().items()}
        step, counters = whole.session.step, whole.session.counters()
        for x, y in batches[20:]:
            whole.step(x, y)
        ends.append({name: array.tobytes() for name, array in whole.session.state().items()})
    assert counters["state_exponent"] > 8
    with et.Trainer(program) as again:
        for name, array in again.session.state().items():
            array[...] = state[name]
        again.session.set_counters(step, counters)
        for x, y in batches[20:]:
            again.step(x, y)
        ends.append({name: array.tobytes() for name, array in again.session.state().items()})
    assert ends[0] == ends[1]


@pytest.mark.parametrize("name", [name for name, one in OPTIMIZERS.items() if one.fusable])
def test_fused_updates_have_the_same_bits_on_small_gradients(
    path: Path, name: str, tmp_path: Path
) -> None:
    ends = []
    for fused in (False, True):
        program = et.compile(
            path, loss="mse", optimizer=OPTIMIZERS[name], minibatch=32, microbatch=32,
            precision="fp16", loss_scale=1024.0, threads=1, fused_update=fused,
        )  # fmt: skip
        with et.Trainer(program, out=tmp_path / str(fused)) as trainer:
            for x, y in samples(30):
                trainer.step(x, y)
            ends.append({n: a.tobytes() for n, a in trainer.session.state().items()})
    assert ends[0] == ends[1]
