"""A residual network of 1,000 convolutions at 224 x 224: planned, and trained for one step.

    python -m benchmarks.resnet1000 [--no-steps] [--batch N]

Bottlenecks have a quarter of the usual width; the whole batch is one fp32 microbatch. Published for
the full width: 48 to 7 GB. Source: Chen et al. 2016, Training Deep Nets with Sublinear Memory Cost.
"""

import argparse
from collections.abc import Iterator, Sequence

from edgetrain.api import make_options
from edgetrain.optim import SGD

from .nets import TARGET, Writer, loaded
from .reforwarding import MOST_EXTRA, beside_weights, plans, ran

BLOCKS = (
    20,
    53,
    240,
    20,
)  # in the proportions of ResNet-152; 333 bottlenecks of three convolutions
WIDTH = 16
MOST = (0.25, 0.5, MOST_EXTRA)  # of a forward pass, recomputed
HEAD = (
    "| plan | arena, bytes | without weights, MiB | extra forward | seconds a step | loss |",
    "|---|---|---|---|---|---|",
)


def bottlenecks(blocks: Sequence[int] = BLOCKS, width: int = WIDTH, size: int = 224):
    """Pre-activation bottlenecks of 1x1, 3x3, 1x1 convolutions in four stages, as ONNX."""
    net = Writer(0)
    x, inputs = net.conv("stem", "x", 3, width, 7, 2), width
    for stage, count in enumerate(blocks):
        narrow, wide = width * 2**stage, 4 * width * 2**stage
        for k in range(count):
            name, stride = f"stage{stage}.{k}", 2 if k == 0 else 1
            y = net.norm_relu(f"{name}.norm1", x, inputs)
            shortcut = net.conv(f"{name}.shortcut", y, inputs, wide, 1, stride) if k == 0 else x
            y = net.conv(f"{name}.conv1", y, inputs, narrow, 1)
            y = net.norm_relu(f"{name}.norm2", y, narrow)
            y = net.conv(f"{name}.conv2", y, narrow, narrow, 3, stride)
            y = net.norm_relu(f"{name}.norm3", y, narrow)
            y = net.conv(f"{name}.conv3", y, narrow, wide, 1)
            x, inputs = net.add(f"{name}.add", shortcut, y), wide
    x = net.norm_relu("norm", x, inputs)
    return net.finish("resnet1000", x, inputs, size, 1000)


def lines(batch: int = 32, steps: bool = True) -> Iterator[str]:
    """Yield the table; only the smallest plan is executed."""
    model = loaded(bottlenecks())
    sizes = {"minibatch": batch, "microbatch": batch}
    options = make_options(**sizes, optimizer=SGD(0.01), target=TARGET)
    yield from HEAD
    for most, plan in zip((0.0, *MOST), plans(model, options, *MOST), strict=True):
        name = f"at most {most:g} extra forward passes" if most else "all kept"
        yield (
            f"| {name} | {plan.arena_nbytes:,} | {beside_weights(plan):,.1f} | "
            f"{plan.extra_forward:.2f} | {ran(model, options, plan, steps and most == MOST[-1])} |"
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
