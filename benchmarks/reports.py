"""Makes the pages in docs/reports/ anew, and pictures of docs/: plans and runs of real models.

    python -m benchmarks.reports [NAME ...]

Plans use the default speeds, so only the run's times differ between machines.
"""

import shutil
import sys
from pathlib import Path

from edgetrain.cli import main as edgetrain

from . import docs

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

# Picture in docs/ -> arguments; its name is appended.
PICTURES = {
    "arena-moving.svg": "--budget 256KiB --momentum 0.9 --nesterov --moving --picture",
    "arena.svg": "--budget 256KiB --momentum 0.9 --nesterov --picture",
    "arena-fast.svg": "--momentum 0.9 --nesterov --picture",
    "frontier.svg": "--budget 256KiB --momentum 0.9 --nesterov --pareto",
}


def main() -> None:
    """Make the named pages, or all pages and pictures."""
    names = sys.argv[1:] or [*PAGES, *PICTURES]
    if unknown := set(names) - PAGES.keys() - PICTURES.keys():
        sys.exit(f"{', '.join(sorted(unknown))}: expected some of {', '.join([*PAGES, *PICTURES])}")
    OUT.mkdir(exist_ok=True)
    with docs.folder():
        for page, (model, words) in PAGES.items():
            if page not in names:
                continue
            if model:
                export(model, Path(f"{model}.onnx"))
            run([*words.split(), "--report", page])
            shutil.copy(page, OUT)
            assert (OUT / page).stat().st_size <= MOST_NBYTES, page
        for name, words in PICTURES.items():
            if name not in names:
                continue
            run([*f"plan examples/digits/model.onnx --minibatch 32 {words}".split(), name])
            shutil.copy(name, ROOT / "docs")


def run(argv: list[str]) -> None:
    """Run a command that must succeed."""
    status = edgetrain(argv)
    assert status == 0, argv


def export(name: str, path: Path) -> None:
    """Export a zoo model to ONNX; `lstm` is a smaller language model than the zoo's."""
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


if __name__ == "__main__":
    main()
