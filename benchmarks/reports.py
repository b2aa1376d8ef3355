"""Makes the pages in docs/reports/ anew, and docs/arena.svg: plans and runs of real models.

    python -m benchmarks.reports

Plans are made with the default speeds, so that the pages are the same on every machine but for the
run's times.
"""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from edgetrain.cli import main as edgetrain
from edgetrain.compiler import steps
from edgetrain.compiler.cost import Rates

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs" / "reports"
MOST_NBYTES = 2_000_000
# Page -> (model of the zoo to export, arguments).
PAGES: dict[str, tuple[str, str]] = {
    "wrn28_2.html": (
        "wrn28_2",
        "plan wrn28_2.onnx --budget 12.2MB --minibatch 100 --microbatch 10 --precision fp16 "
        "--momentum 0.9 --nesterov",
    ),
    "lstm.html": ("lstm", "plan lstm.onnx --budget 12MB --minibatch 32 --optimizer adam"),
    "mobilenet_v2.html": (
        "mobilenet_v2",
        "plan mobilenet_v2.onnx --budget 34MB --minibatch 16 --momentum 0.9 --train head.* "
        "--train features.17.* --train features.18.* --freeze-bn",
    ),
    "digits.html": (
        "",
        "train examples/digits/model.onnx --data digits --epochs 15 --budget 256KiB "
        "--minibatch 32 --lr 0.1 --momentum 0.9 --nesterov --weight-decay 5e-4 --lr-schedule "
        "cosine --precision fp16 --density 0.3 --metrics f1,confusion --out runs/digits",
    ),
}


def main() -> None:
    """Make all of them."""
    OUT.mkdir(exist_ok=True)
    with working_folder() as folder:
        for page, (model, words) in PAGES.items():
            if model:
                export(model, folder / f"{model}.onnx")
            run([*words.split(), "--report", page])
            shutil.copy(page, OUT)
            assert (OUT / page).stat().st_size <= MOST_NBYTES, page
        digits = "plan examples/digits/model.onnx --budget 256KiB --minibatch 32 --momentum 0.9"
        run([*digits.split(), "--nesterov", "--picture", str(ROOT / "docs" / "arena.svg")])


def run(argv: list[str]) -> None:
    """A command that must succeed."""
    status = edgetrain(argv)
    assert status == 0, argv


def export(name: str, path: Path) -> None:
    """A model of the zoo as ONNX: `lstm` is a smaller language model than the zoo's."""
    import torch

    from edgetrain.exporters import export_torch
    from examples.zoo import ZOO
    from examples.zoo.recurrent import LanguageModel

    torch.manual_seed(0)
    if name == "lstm":
        export_torch(LanguageModel(1000, 128, 0.5), (torch.zeros(2, 35, dtype=torch.long),), path)
        return
    side = {"wrn28_2": 32, "mobilenet_v2": 96}[name]
    export_torch(ZOO[name].build("full"), (torch.zeros(2, 3, side, side),), path)


@contextlib.contextmanager
def working_folder() -> Iterator[Path]:
    """A folder with the examples in it; plans are made with the default speeds."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as name:
        Path(name, "examples").symlink_to(ROOT / "examples")
        os.chdir(name)
        try:
            with mock.patch.object(steps, "rates", Rates):
                yield Path(name)
        finally:
            os.chdir(before)


if __name__ == "__main__":
    main()
