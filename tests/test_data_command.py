"""`data` with a model: it says that a source fits if and only if a run accepts it."""

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
