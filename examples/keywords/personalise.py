"""A net that knows five speakers' digits learns a sixth's, in 150 KB.

    python -m examples.keywords.personalise [OUT]

The net learns from five recordings of each digit and is tested on fifteen others. The batch-norms
keep the statistics of the five speakers, so single samples can be trained on.
"""

import sys
from pathlib import Path

import edgetrain as et
from edgetrain.program import Program
from examples.keywords.features import speaker
from examples.showing import account_line, draw

HERE = Path(__file__).resolve().parent
MODEL, SPEAKER = HERE / "model.onnx", HERE / "speaker.npz"
BUDGET = "150KB"
LEARNED, EPOCHS, LR = 5, 20, 0.005


def compiled() -> Program:
    """Train all weights, one sample at a time."""
    optimizer = et.SGD(lr=LR, momentum=0.9)
    options = {"minibatch": 10, "precision": "fp16", "freeze_bn": True, "max_grad_norm": 1.0}
    return et.compile(MODEL, budget=BUDGET, optimizer=optimizer, **options)


def personalised(program: Program, onnx: Path | None = None) -> tuple[float, float]:
    """Accuracy on the speaker's other recordings before and after.

    Args:
      onnx: output path of the trained model, if any.
    """
    x, y, x_test, y_test = speaker(SPEAKER, LEARNED)
    with et.Trainer(program, data=(x, y)) as trainer:
        before = trainer.evaluate((x_test, y_test))["accuracy"]
        trainer.fit(epochs=EPOCHS)
        if onnx is not None:
            trainer.export_onnx(onnx)
        return before, trainer.evaluate((x_test, y_test))["accuracy"]


def main(out: str = "runs/keywords") -> int:
    """Print both accuracies and the memory account; draw the arena and write the speaker's net."""
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    program = compiled()
    before, after = personalised(program, folder / "personal.onnx")
    print(f"before: {100 * before:.1f} % of the speaker's digits, after: {100 * after:.1f} %")
    print(account_line(program))
    draw(program, "keywords", folder / "arena.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
