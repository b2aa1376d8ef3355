"""What a new user tries, and the results: own models, data in every form, own loops.

Mistakes are in test_new_user_slips.
"""

import io
import itertools
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import edgetrain as et
from edgetrain.cli import main
from edgetrain.exporters import export_torch
from edgetrain.program import Program
from tests.runtime.online_net import CLASSES, compiled, drawn, exported

X, Y = drawn(48)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(tmp_path_factory.mktemp("user"))[1]


@pytest.fixture(scope="module")
def program(path: Path) -> Program:
    return compiled(path)


class Depthwise(nn.Module):
    """Convolutions, one of them depthwise, batch-norm and a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.each = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 8, 3, 1, 1, groups=8)
        self.norm, self.head = nn.BatchNorm2d(8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        x = x + torch.relu(self.norm(self.each(x)))
        return self.head(x.mean((2, 3)))


class Reader(nn.Module):
    """Tokens, an LSTM and its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.cell = nn.Embedding(20, 8), nn.LSTM(8, 12, batch_first=True)
        self.head = nn.Linear(12, 3)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.cell(self.table(tokens))[0][:, -1])


class Attentive(nn.Module):
    """One encoder layer over a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(x).mean(1))


class Tied(nn.Module):
    """The decoder's weights are the encoder's."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.inner(x)) @ self.inner.weight


class Alike(nn.Module):
    """One encoder for two inputs, and the distance between them."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return ((self.encode(left) - self.encode(right)) ** 2).sum(1, keepdim=True)


class Bytes(nn.Module):
    """Pictures of bytes, scaled inside the model."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x.float().flatten(1) / 255)


class Averaged(nn.Module):
    """Mean of the embeddings of nonzero tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(20, 8), nn.Linear(8, 3)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        counted = (tokens != 0).float().unsqueeze(-1)
        return self.head((self.table(tokens) * counted).sum(1) / counted.sum(1).clamp(min=1))


class BothWays(nn.Module):
    """Two layers of bidirectional GRUs."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.GRU(8, 6, 2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.cells(x)[0].mean(1))


def _over_time() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(5, 6, 3, dilation=2, padding=2), nn.GELU(),
        nn.Conv1d(6, 6, 3, dilation=4, padding=4), nn.SiLU(),
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(6, 3),
    )  # fmt: skip


def _segments() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.ConvTranspose2d(8, 3, 2, stride=2)
    )


def _normed() -> nn.Module:
    inner = nn.utils.parametrizations.weight_norm(nn.Linear(6, 12))
    return nn.Sequential(inner, nn.PReLU(), nn.LayerNorm(12), nn.Hardswish(), nn.Linear(12, 3))


class Two(nn.Module):
    """Two inputs with different shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(6, 8), nn.Linear(3, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, sound: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.left(sound) + self.right(place)))


def _probabilities() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3), nn.Softmax(dim=1))


def _frozen() -> nn.Module:
    module = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    module[0].requires_grad_(False)
    return module.eval()


DRAW = np.random.default_rng(0)
PICTURES = DRAW.standard_normal((24, 1, 6, 6)).astype(np.float32)
SERIES = DRAW.standard_normal((24, 5, 8)).astype(np.float32)
TOKENS = DRAW.integers(0, 20, (24, 7))
CLASS = np.arange(24) % 3
SEGMENTS = np.repeat(np.repeat((PICTURES[:, 0] > 0).astype(np.int64), 2, 1), 2, 2)
# name -> (module, its inputs, targets, options of compile)
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[np.ndarray, ...], np.ndarray, dict]] = {
    "depthwise": (Depthwise, (PICTURES,), CLASS, {"optimizer": et.Adam(lr=0.01)}),
    "lstm": (Reader, (TOKENS,), CLASS, {"optimizer": et.Adam(lr=0.01)}),
    "attention": (Attentive, (SERIES,), CLASS, {"optimizer": et.AdamW(lr=0.01)}),
    "two inputs": (Two, (X[:24], X[:24, 3:]), Y[:24], {}),
    "probabilities": (_probabilities, (X[:24],), Y[:24], {}),
    "a frozen layer, eval mode": (_frozen, (X[:24],), Y[:24], {"freeze": ["0.*"]}),
    "autoencoder, tied": (Tied, (X[:24],), X[:24], {"loss": "mse"}),
    "one number": (lambda: nn.Linear(6, 1), (X[:24],), X[:24, :1] * 2 + 1, {"loss": "huber"}),
    "yes or no": (
        lambda: nn.Linear(6, 1),
        (X[:24],),
        (X[:24, :1] > 0).astype(np.float32),
        {"loss": "bce_with_logits"},
    ),
}
MODELS |= {
    "one encoder, two inputs": (
        Alike, (X[:24], X[24:48]), (Y[:24, None] == Y[24:48, None]).astype(np.float32),
        {"loss": "mse", "optimizer": et.Adam(lr=0.01)},
    ),
    "bytes": (
        Bytes, (DRAW.integers(0, 256, (24, 3, 2, 2), np.uint8),), CLASS,
        {"optimizer": et.Adam(lr=0.02)},
    ),
    "embeddings averaged": (Averaged, (TOKENS,), CLASS, {"optimizer": et.Adam(lr=0.02)}),
    "GRUs both ways": (BothWays, (SERIES,), CLASS, {"optimizer": et.Adam(lr=0.02)}),
    "dilated, over time": (_over_time, (SERIES,), CLASS, {"optimizer": et.Adam(lr=0.02)}),
    "a class for each pixel": (
        _segments, (PICTURES,), np.where(np.indices((24, 12, 12))[2] < 2, 255, SEGMENTS),
        {"loss": et.Loss("cross_entropy", ignore_index=255), "optimizer": et.Adam(lr=0.02)},
    ),
    "normed weights, PReLU": (_normed, (X[:24],), Y[:24], {"optimizer": et.Adam(lr=0.02)}),
    "doubles": (lambda: nn.Linear(6, 3).double(), (X[:24].astype(np.float64),), Y[:24], {}),
    "targets in a row": (lambda: nn.Linear(6, 1), (X[:24],), X[:24, 0] * 2, {"loss": "mse"}),
}  # fmt: skip
_FAST = ("two inputs", "bytes", "targets in a row", "autoencoder, tied", "yes or no")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in _FAST else [pytest.mark.slow]) for n in MODELS]
)
def test_own_models_learn_and_are_written_as_they_predict(tmp_path: Path, name: str) -> None:
    make, inputs, y, options = MODELS[name]
    torch.manual_seed(0)
    export_torch(make(), tuple(map(torch.tensor, inputs)), tmp_path / "own.onnx")
    made = et.compile(tmp_path / "own.onnx", minibatch=24, microbatch=8, **options)
    names = list(made.input_names)
    given: Any = dict(zip(names, inputs, strict=True)) if len(names) > 1 else inputs[0]
    with et.Trainer(made) as trainer:
        losses = [trainer.step(given, y).loss for _ in range(25)]
        assert losses[-1] < 0.9 * losses[0]
        found = trainer.predict(given)
        trainer.export_onnx(tmp_path / "trained.onnx")
    run = onnxruntime.InferenceSession(tmp_path / "trained.onnx")
    fed = {i.name: v for i, v in zip(run.get_inputs(), inputs, strict=True)}
    wanted = run.run(None, fed)[0]
    if name == "probabilities":  # predict returns the values before the softmax
        found = np.exp(found) / np.exp(found).sum(1, keepdims=True)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def _batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    return ((X[k : k + 16], Y[k : k + 16]) for k in (0, 16, 32))


TENSORS = TensorDataset(torch.tensor(X), torch.tensor(Y))
# Data for a Trainer: 48 samples in minibatches of 16, so all of it is three steps.
DATA: dict[str, Callable[[], Any]] = {
    "a pair of arrays": lambda: (X, Y),
    "doubles and small integers": lambda: (X.astype(np.float64), Y.astype(np.uint8)),
    "lists of numbers": lambda: (X.tolist(), Y.tolist()),
    "tensors": lambda: (torch.tensor(X), torch.tensor(Y)),
    "labels as floats": lambda: (X, Y.astype(np.float32)),
    "labels in a column": lambda: (X, Y[:, None]),
    "words in a list": lambda: (X, [["bee", "ant", "cat"][y] for y in Y]),
    "a zip": lambda: zip(X, Y, strict=True),
    "nothing masked": lambda: (np.ma.masked_array(X), Y),
    "labels that are words": lambda: (X, np.array(["bee", "ant", "cat"])[Y]),
    "a dict": lambda: {"x": X, "y": Y},
    "a list of samples": lambda: list(zip(X, Y, strict=True)),
    "a list of batches": lambda: list(_batches()),
    "a generator": _batches,
    "a function that makes one": lambda: _batches,
    "a torch Dataset": lambda: TENSORS,
    "a DataLoader": lambda: DataLoader(TENSORS, batch_size=16, shuffle=False),
    "a DataLoader of dicts": lambda: [{"x": x, "y": y} for x, y in _batches()],
    "not contiguous": lambda: (np.asfortranarray(X), Y[::-1][::-1]),
    "of the other byte order": lambda: (X.astype(">f4"), Y.astype(">i8")),
    "read only": lambda: (np.broadcast_to(X, X.shape), Y),
}


@pytest.mark.parametrize("kind", DATA)
def test_data_in_any_form_is_one_epoch_of_three_steps(program: Program, kind: str) -> None:
    with et.Trainer(program, DATA[kind]()) as trainer:
        history = trainer.fit(epochs=1)
    assert history["step"] == [3] and 0.5 < history["loss"][0] < 1.5


def test_predict_and_evaluate_work_before_anything_is_trained(program: Program) -> None:
    with et.Trainer(program) as trainer:
        assert trainer.predict(X).shape == (48, CLASSES) and trainer.predict(X[0]).shape == (3,)
        found = trainer.evaluate((X, Y), metrics=["accuracy", "f1"])
    assert found["samples"] == 48 and {"loss", "accuracy", "f1"} <= {*found}


def test_predict_leaves_what_is_trained_alone(program: Program) -> None:
    with et.Trainer(program) as plain, et.Trainer(program) as asked:
        for k in range(4):
            plain.step(X[k : k + 4], Y[k : k + 4])
            asked.predict(X)
            asked.step(X[k : k + 4], Y[k : k + 4])
            asked.evaluate((X, Y))
        for name, value in plain.state_dict().items():
            assert value.tobytes() == asked.state_dict()[name].tobytes()


def test_a_loop_of_ones_own_saves_in_the_middle_and_goes_on(program: Program, tmp_path) -> None:
    def stepped(trainer: et.Trainer, ks: range) -> None:
        for k in ks:
            trainer.lr = 0.1 / (1 + k)
            trainer.step(X[k : k + 4], Y[k : k + 4])

    with et.Trainer(program) as through:
        stepped(through, range(8))
        wanted = through.state_dict()
    with et.Trainer(program, out=tmp_path / "run") as first:
        stepped(first, range(3))
        assert first.save() is not None
        stepped(first, range(3, 5))  # is lost
    with et.Trainer(program, out=tmp_path / "run") as second:
        assert second.resume() and second.steps == 3
        stepped(second, range(3, 8))
        for name, value in second.state_dict().items():
            assert value.tobytes() == wanted[name].tobytes()


def test_fit_again_trains_further_epochs(program: Program) -> None:
    with et.Trainer(program, (X, Y)) as trainer, et.Trainer(program, (X, Y)) as whole:
        assert trainer.fit(epochs=1)["step"] == [3]
        assert trainer.fit(epochs=2)["step"] == [6, 9]
        assert trainer.fit(steps=2)["epoch"] == [4] and trainer.steps == 11
        assert trainer.history["step"] == [3, 6, 9, 11]
        whole.fit(steps=11)
        for name, value in whole.state_dict().items():
            assert value.tobytes() == trainer.state_dict()[name].tobytes()


def test_fit_again_needs_the_whole_length_for_a_schedule(program: Program) -> None:
    with et.Trainer(program, (X, Y), schedule=et.Schedule("cosine")) as trainer:
        trainer.fit(epochs=1)
        with pytest.raises(et.UsageError, match="found 6 steps; .* for 3, .*total_steps"):
            trainer.fit(epochs=1)
    cosine = et.Schedule("cosine")
    with et.Trainer(program, (X, Y), schedule=cosine, total_steps=6) as trainer:
        trainer.fit(epochs=1)
        trainer.fit(epochs=1)
        assert trainer.steps == 6


def test_one_sample_is_enough_where_the_minibatch_says_so(path: Path) -> None:
    with et.Trainer(compiled(path, minibatch=1, microbatch=1), (X[:1], Y[:1])) as trainer:
        assert trainer.fit(epochs=3)["step"] == [1, 2, 3]


def test_the_last_samples_are_trained_on_where_that_is_asked(program: Program) -> None:
    with et.Trainer(program, (X[:20], Y[:20]), keep_last=True) as trainer:
        assert trainer.fit(epochs=2)["step"] == [2, 4]
    with et.Trainer(program, (X[:20], Y[:20])) as trainer:
        assert trainer.fit(epochs=2)["step"] == [1, 2]


def test_two_trainers_of_one_program_do_not_meet(program: Program) -> None:
    with et.Trainer(program) as one, et.Trainer(program) as other:
        before = other.state_dict()
        one.step(X[:4], Y[:4])
        for name, value in other.state_dict().items():
            assert value.tobytes() == before[name].tobytes()
        other.load_state_dict(one.state_dict())
        np.testing.assert_array_equal(other.predict(X), one.predict(X))


def test_two_threads_train_each_its_own(program: Program) -> None:
    found: list[bytes] = []

    def train() -> None:
        with et.Trainer(program, (X, Y), threads=1) as trainer:
            trainer.fit(steps=6)
            found.append(b"".join(v.tobytes() for v in trainer.state_dict().values()))

    threads = [threading.Thread(target=train) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2 and found[0] == found[1]


def test_weights_go_to_torch_and_come_back(program: Program, tmp_path: Path) -> None:
    module, _ = exported(tmp_path)
    with et.Trainer(program) as trainer:
        trainer.step(X[:4], Y[:4])
        state = {k: torch.tensor(v) for k, v in trainer.state_dict().items()}
        module.load_state_dict(state)
        wanted = module.eval()(torch.tensor(X)).detach()
        np.testing.assert_allclose(trainer.predict(X), wanted, rtol=1e-4, atol=1e-5)
        file = io.BytesIO()
        torch.save(module.state_dict(), file)
        file.seek(0)
        trainer.load_state_dict(torch.load(file))


def test_parameters_are_a_mapping_of_which_all_or_none_is_written(program: Program) -> None:
    with et.Trainer(program) as trainer:
        own, before = trainer.parameters, dict(trainer.parameters)
        assert own == before and own != {"fc1.weight": before["fc1.weight"]}
        assert own.get("nothing") is None and "nothing" not in own
        wrong = {"fc1.weight": np.zeros((16, 6)), "fc2.bias": np.zeros(9)}
        with pytest.raises(et.DataError, match=r"'fc2.bias': shape \[9\]"):
            own.update(wrong)
        assert own == before
        own.update({"fc2.bias": np.ones(CLASSES)}, **{"fc1.bias": np.zeros(16)})
        assert own["fc2.bias"].all() and not own["fc1.bias"].any()


def test_a_state_is_stored_for_the_program_of_a_file(program: Program, tmp_path: Path) -> None:
    path = program.save(tmp_path / "own.edge")
    with et.Trainer(program) as trainer:
        trainer.step(X[:4], Y[:4])
        trainer.save_stored(tmp_path / "one", path)
        trainer.save_stored(tmp_path / "other")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


def test_callbacks_stop_a_run_and_see_each_step(program: Program) -> None:
    seen: list[float] = []

    def watch(trainer: et.Trainer, result: et.StepResult) -> None:
        seen.append(result.loss)
        if len(seen) == 4:
            trainer.stop("enough")

    with et.Trainer(program, (X, Y), callbacks=[et.Callback(on_step=watch)]) as trainer:
        assert trainer.fit(epochs=9)["step"][-1] == len(seen) == 4


def test_what_a_callback_raises_comes_out_and_the_run_goes_on(program: Program) -> None:
    calls = itertools.count()

    def fails(trainer: et.Trainer, result: et.StepResult) -> None:
        if next(calls) == 1:
            raise KeyError("mine")

    with et.Trainer(program, (X, Y), callbacks=[et.Callback(on_step=fails)]) as trainer:
        with pytest.raises(KeyError, match="mine"):
            trainer.fit(steps=6)
        assert trainer.steps == 2 and trainer.fit(steps=6)["step"][-1] == 6


def test_ctrl_c_saves_and_the_run_goes_on(program: Program, tmp_path: Path) -> None:
    def press(trainer: et.Trainer, result: et.StepResult) -> None:
        if trainer.steps == 2:
            os.kill(os.getpid(), signal.SIGINT)

    once = et.Callback(on_step=press)
    with et.Trainer(program, (X, Y), tmp_path / "run", callbacks=[once]) as trainer:
        with pytest.raises(BaseException, match="after step 2") as found:
            trainer.fit(steps=6)
        assert getattr(found.value, "exit_status", None) == 130
    with et.Trainer(program, (X, Y), tmp_path / "run", callbacks=[et.Callback()]) as trainer:
        assert trainer.resume() and trainer.steps == 2 and trainer.fit(steps=6)["step"][-1] == 6


def test_paths_are_texts_or_paths(path: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for form in (str, Path):
        made = compiled(form(path))
        made.save(form("a.edge"))
        run = form(f"run-{form.__name__}")
        with et.Trainer(form("a.edge"), out=run) as trainer:
            trainer.step(X[:4], Y[:4])
            trainer.save()
            assert trainer.resume(run)
            assert trainer.export_onnx(form("a.onnx")) == Path("a.onnx")
        assert et.load_program(form("a.edge")).digest() == made.digest()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_sensor_that_fails_is_skipped_and_learning_goes_on(program: Program, value) -> None:
    x = X[:4].copy()
    x[1, 2] = value
    with et.Trainer(program) as trainer:
        before = trainer.state_dict()
        result = trainer.step(x, Y[:4])
        assert result.skipped and result.reason == "gradients not finite"
        for name, array in trainer.state_dict().items():
            assert array.tobytes() == before[name].tobytes()
        assert not trainer.step(X[:4], Y[:4]).skipped


def test_close_may_come_twice_and_weights_stay_readable(program: Program, tmp_path: Path) -> None:
    trainer = et.Trainer(program)
    trainer.step(X[:4], Y[:4])
    trainer.close()
    trainer.close()
    assert trainer.parameters["fc2.bias"].shape == (CLASSES,)
    assert trainer.export_onnx(tmp_path / "late.onnx").exists()


def test_npz_with_a_test_split_by_commands(path: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("own.npz", x_train=X, y_train=Y, x_test=X[:9], y_test=Y[:9])
    plan = ["--minibatch", "16", "--microbatch", "4", "--threads", "1"]
    assert main(["data", "npz:own.npz", str(path)]) == 0
    assert "data fits" in capsys.readouterr().out
    train = ["train", str(path), "--data", "npz:own.npz", "--epochs", "2", "--out", "run"]
    assert main([*train, *plan]) == 0
    assert main(["eval", "run", "--data", "npz:own.npz", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["samples"] == 9
    assert main(["export", "run", "-o", "trained.onnx"]) == 0
    assert onnxruntime.InferenceSession("trained.onnx").run(None, {"x": X})[0].shape == (48, 3)
