"""`data` with a model: it says that a source fits if and only if a run accepts it."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import edgetrain as et
from edgetrain.cli import main
from edgetrain.exporters import export_torch

N, TIME, TOKENS, CLASSES = 24, 6, 8, 4
PLAN = ("--minibatch", "8", "--threads", "1")


class Tagger(nn.Module):
    """Token ids [N, TIME] -> logits [N, TIME, CLASSES]."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(TOKENS, 5), nn.Linear(5, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.embedding(ids))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tagger")
    torch.manual_seed(0)
    onnx, edge = folder / "tagger.onnx", folder / "tagger.edge"
    export_torch(Tagger(), (torch.zeros(2, TIME, dtype=torch.int64),), onnx)
    et.compile(onnx, minibatch=8, threads=1).save(edge)
    return {"onnx": onnx, "edge": edge}


# name -> (array, its last element or type, whether that fits)
ARRAYS = {
    "as the model takes them": ("y_train", CLASSES - 1, True),
    "an ignored target": ("y_train", -100, True),
    "a void of 255": ("y_train", 255, False),
    "the first class too many": ("y_train", CLASSES, False),
    "a negative class": ("y_train", -1, False),
    "a token too many": ("x_train", TOKENS, False),
    "a negative token": ("x_train", -1, False),
    "a class of the test split": ("y_test", 255, False),
    "a token of the test split": ("x_test", TOKENS, False),
}


@pytest.mark.parametrize("kind", ["onnx", "edge"])
@pytest.mark.parametrize("case", ARRAYS)
def test_data_fits_if_and_only_if_a_run_takes_it(
    models: dict[str, Path], tmp_path: Path, capsys, case: str, kind: str
) -> None:
    draw = np.random.default_rng(0)
    arrays = {
        f"{field}_{split}": draw.integers(0, limit, (N, TIME))
        for field, limit in (("x", TOKENS), ("y", CLASSES))
        for split in ("train", "test")
    }
    name, value, fits = ARRAYS[case]
    arrays[name][-1, -1] = value
    np.savez(tmp_path / "own.npz", **arrays)
    data, model = f"npz:{tmp_path / 'own.npz'}", str(models[kind])
    plan = PLAN if kind == "onnx" else ()
    assert main(["data", data, model]) == (0 if fits else 4)
    shown = capsys.readouterr()
    assert ("data fits" in shown.out, "not fit" in shown.out) == (fits, not fits)
    run = ("--epochs", "1", "--out", str(tmp_path / "run"))
    found = main(["train", model, "--data", data, *run, *plan])
    assert found == (0 if fits else 4)
    refused = capsys.readouterr().err
    said = shown.err.removeprefix("edgetrain data: ").strip()
    assert said in refused and bool(said) == (not fits)


def test_classes_are_not_said_of_targets_that_may_be_numbers(tmp_path: Path, capsys) -> None:
    """346 is the largest of a few prices; only if all classes occur are targets called classes."""
    known = {
        "prices": ((3, 346, 50, 7), "numbers from 3 to 346:"),
        "classes": ((0, 1, 2, 1), "3 classes: 0 1, 1 2, 2 1"),
        "from 1": ((1, 2, 1, 2), "numbers from 1 to 2:"),
        "one class": ((0, 0), "1 class: 0 2"),
        "one sample": ((0,), "train 1 sample\n"),
    }
    for name, (targets, words) in known.items():
        rows = [f"0.{k},{target}" for k, target in enumerate(targets, 1)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["x,y", *rows, ""]))
        assert main(["data", f"csv:{tmp_path / name}.csv"]) == 0
        said = capsys.readouterr().out
        assert words in said and "347" not in said


@pytest.fixture(scope="module")
def weighed(models: dict[str, Path]) -> Path:
    """A Program whose loss takes sample weights."""
    program = et.compile(
        models["onnx"], minibatch=8, threads=1, loss=et.Loss("cross_entropy", sample_weights=True)
    )
    return program.save(models["onnx"].with_name("weighed.edge"))


@pytest.mark.parametrize(
    ("kind", "weights", "options", "n", "said"),
    [
        ("weighed", False, (), N, "sample weights .* missing"),
        ("weighed", True, (), N, ""),
        ("edge", True, (), N, "the loss takes none"),
        ("onnx", True, PLAN, N, "the loss takes none"),
        ("onnx", False, (*PLAN, "--sample-weights"), N, "sample weights .* missing"),
        ("edge", False, (), 5, "5 training samples, .* minibatch of 8"),
        ("onnx", False, PLAN, 5, ""),
    ],
)
def test_sample_weights_and_the_number_of_samples_have_to_suit_the_model(
    models, weighed: Path, tmp_path: Path, capsys, kind: str, weights: bool, options, n: int,
    said: str,
) -> None:  # fmt: skip
    draw = np.random.default_rng(0)
    arrays = {"ids": draw.integers(0, TOKENS, (n, TIME)), "y": draw.integers(0, CLASSES, (n, TIME))}
    own = {"w": np.ones(n, np.float32)} if weights else {}
    np.savez(tmp_path / "own.npz", **{f"{k}_train": v for k, v in (arrays | own).items()})
    model = {**models, "weighed": weighed}[kind]
    argv = [f"npz:{tmp_path / 'own.npz'}", str(model), *options]
    assert main(["data", *argv]) == (4 if said else 0)
    assert re.search(said, capsys.readouterr().err)


def test_a_single_input_has_any_name_beside_sample_weights(weighed: Path, tmp_path: Path) -> None:
    x, y = np.zeros((N, TIME), np.int64), np.zeros((N, TIME), np.int64)
    np.savez(tmp_path / "own.npz", x_train=x, y_train=y, w_train=np.ones(N, np.float32))
    data = f"npz:{tmp_path / 'own.npz'}"
    assert main(["data", data, str(weighed)]) == 0
    run = ("--steps", "1", "--no-eval", "--out", str(tmp_path / "run"))
    assert main(["train", str(weighed), "--data", data, *run]) == 0
