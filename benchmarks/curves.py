"""Loss curves of `benchmarks.accuracy` runs, as a table and a picture.

python -m benchmarks.curves curves.svg ours=ours.json torch=torch.json
"""

import argparse
import json
from pathlib import Path

import matplotlib
import numpy as np

SPAN = 50  # steps that a mean is taken over


def read(path: str) -> tuple[np.ndarray, float, str]:
    """(loss of every step, test accuracy, name of the side) of a run's file."""
    stored = json.loads(Path(path).read_text())
    side = "edgetrain" if "edgetrain" in stored else "torch"
    return np.array(stored[side]["losses"]), stored[side]["accuracy"], side


def means(losses: np.ndarray) -> np.ndarray:
    """Mean of each SPAN steps."""
    whole = len(losses) // SPAN
    return losses[: whole * SPAN].reshape(whole, SPAN).mean(1)


def table(runs: dict[str, tuple[np.ndarray, float, str]]) -> str:
    """Means by span, then accuracies, as Markdown."""
    columns = {name: means(losses) for name, (losses, _, _) in runs.items()}
    lines = ["| steps | " + " | ".join(runs) + " |", "|---" * (len(runs) + 1) + "|"]
    for k in range(max(map(len, columns.values()))):
        cells = [f"{c[k]:.3f}" if k < len(c) else "" for c in columns.values()]
        lines.append(f"| {k * SPAN + 1}-{(k + 1) * SPAN} | " + " | ".join(cells) + " |")
    found = [f"{accuracy:.2%}" for _, accuracy, _ in runs.values()]
    return "\n".join([*lines, "| test accuracy | " + " | ".join(found) + " |"])


def picture(runs: dict[str, tuple[np.ndarray, float, str]], path: str) -> None:
    """Running mean of each run; torch dashed."""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    for name, (losses, accuracy, side) in runs.items():
        smooth = np.convolve(losses, np.ones(SPAN) / SPAN, "valid")
        axes.plot(
            np.arange(SPAN, len(losses) + 1), smooth, "--" if side == "torch" else "-",
            label=f"{name}: {accuracy:.2%}", linewidth=1.6,
        )  # fmt: skip
    axes.set_xlabel("minibatches")
    axes.set_ylabel(f"training loss, mean of {SPAN}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, title="test accuracy")
    figure.savefig(path)


def main() -> None:
    """Print the table, write the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("picture")
    parser.add_argument("runs", nargs="+", metavar="NAME=FILE")
    args = parser.parse_args()
    runs = {}
    for run in args.runs:
        name, _, path = run.partition("=")
        runs[name] = read(path)
    print(table(runs))
    picture(runs, args.picture)


if __name__ == "__main__":
    main()
