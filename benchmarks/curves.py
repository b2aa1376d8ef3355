"""Loss curves of `benchmarks.accuracy` runs, as a table and a picture: mean and spread over seeds.

python -m benchmarks.curves curves.svg torch=torch_0.json,torch_1.json ours=ours_0.json,ours_1.json
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np

SPAN, EVERY = 50, 10  # steps averaged per point of the picture, and steps between points


@dataclass(frozen=True)
class Runs:
    """Runs of one setting with different seeds.

    Attributes:
      losses: [seeds, steps].
      accuracies: on the test split, one per seed.
    """

    side: str
    losses: np.ndarray
    accuracies: np.ndarray

    @property
    def label(self) -> str:
        return spread(100 * self.accuracies, 2) + " %"


def spread(values: np.ndarray, digits: int) -> str:
    """Mean and, for more than one value, the sample standard deviation."""
    mean = f"{values.mean():.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {values.std(ddof=1):.{digits}f}"


def read(paths: str) -> Runs:
    """Read comma-separated files; all runs must have the same number of steps."""
    stored = [json.loads(Path(path).read_text()) for path in paths.split(",")]
    side = "edgetrain" if "edgetrain" in stored[0] else "torch"
    losses = np.array([run[side]["losses"] for run in stored])
    return Runs(side, losses, np.array([run[side]["accuracy"] for run in stored]))


def table(runs: dict[str, Runs], span: int) -> str:
    """Markdown table: mean loss of every `span` steps, then accuracies."""
    steps = max(r.losses.shape[1] for r in runs.values())
    lines = ["| steps | " + " | ".join(runs) + " |", "|---" * (len(runs) + 1) + "|"]
    for first in range(0, steps - span + 1, span):
        parts = [r.losses[:, first : first + span] for r in runs.values()]
        cells = [spread(p.mean(1), 3) if p.shape[1] == span else "" for p in parts]
        lines.append(f"| {first + 1}-{first + span} | " + " | ".join(cells) + " |")
    for number in range(max(len(r.accuracies) for r in runs.values())):
        each = [r.accuracies[number : number + 1] for r in runs.values()]
        cells = [f"{a[0]:.2%}" if len(a) else "" for a in each]
        lines.append(f"| test accuracy, seed {number} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "| mean | " + " | ".join(r.label for r in runs.values()) + " |"])


def picture(runs: dict[str, Runs], path: str) -> None:
    """Draw each setting's running mean, with its range over seeds shaded; torch is dashed."""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    for name, setting in runs.items():
        kernel = np.ones(SPAN) / SPAN
        smooth = np.array([np.convolve(losses, kernel, "valid") for losses in setting.losses])
        steps = np.arange(SPAN, setting.losses.shape[1] + 1)[::EVERY]
        smooth = smooth[:, ::EVERY]
        style = "--" if setting.side == "torch" else "-"
        label = f"{name}: {setting.label}"
        (line,) = axes.plot(steps, smooth.mean(0), style, label=label, linewidth=1.6)
        axes.fill_between(steps, smooth.min(0), smooth.max(0), color=line.get_color(), alpha=0.15)
    axes.set_xlabel("minibatches")
    axes.set_ylabel(f"training loss, mean of {SPAN}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, title="test accuracy")
    figure.savefig(path)


def main() -> None:
    """Print the table and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("picture")
    parser.add_argument("runs", nargs="+", metavar="NAME=FILE[,FILE..]")
    parser.add_argument("--span", type=int, default=150, help="steps of a row of the table (150)")
    args = parser.parse_args()
    runs = {name: read(paths) for name, _, paths in (run.partition("=") for run in args.runs)}
    print(table(runs, args.span))
    picture(runs, args.picture)


if __name__ == "__main__":
    main()
