"""A residual network of 1,000 convolutions at 224 x 224: planned, and trained for one step.

    python -m benchmarks.resnet1000 [--no-steps] [--batch N]

Bottlenecks at a quarter of the usual width, whole batch as one microbatch, fp32. Published for the
full width: 48 to 7 GB. Source: Chen et al. 2016, Training Deep Nets with Sublinear Memory Cost.
"""

import argparse
from collections.abc import Iterator

from edgetrain.api import make_options
from edgetrain.optim import SGD

from .depth import step
from .nets import exported
from .reforwarding import beside_weights, plans

BLOCKS = (20, 53, 240, 20)  # as ResNet-152's stages, 333 bottlenecks of three convolutions
WIDTH = 16
HEAD = (
    "| plan | arena, bytes | beside weights, MiB | extra forward | seconds a step | loss |",
    "|---|---|---|---|---|---|",
)


def lines(batch: int = 32, steps: bool = True) -> Iterator[str]:
    """The table; only the smaller plan is executed."""
    import torch

    from examples.zoo.resnet import ResNet

    torch.manual_seed(0)
    model = exported(ResNet(BLOCKS, True, WIDTH), (torch.zeros(2, 3, 224, 224),))
    options = make_options(minibatch=batch, microbatch=batch, optimizer=SGD(0.01))
    everything, least = plans(model, options)
    yield from HEAD
    for name, plan, runs in ("all kept", everything, False), ("least", least, steps):
        ran = "- | -"
        if runs:
            loss, seconds = step(model, options, plan)
            ran = f"{seconds:.1f} | {loss:.4f}"
        yield (
            f"| {name} | {plan.arena_nbytes:,} | {beside_weights(plan):,.1f} | "
            f"{plan.extra_forward:.2f} | {ran} |"
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--no-steps", action="store_true", help="plan only")
    args = parser.parse_args()
    for line in lines(args.batch, not args.no_steps):
        print(line, flush=True)


if __name__ == "__main__":
    main()
