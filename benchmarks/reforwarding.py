"""The 18 networks of Re-forwarding at the published batches: planned, and trained for one step.

    python -m benchmarks.reforwarding [--no-steps] [NET ...]

Each row gives the published megabytes of regular and of checkpointed training, which exclude
weights. Ours exclude weights, their gradients and the control block: they count activations,
gradients of activations and workspace, with the whole batch as one fp32 microbatch.

Source of the published figures: Feng and Huang 2021, Optimal Gradient Checkpoint Search for
Arbitrary Computation Graphs, and its code's table (MB there are 2^20 bytes).
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from edgetrain.api import make_options
from edgetrain.compiler import Options
from edgetrain.compiler.compilation import Compilation
from edgetrain.compiler.plan.candidates import Plan, make_candidate, make_draft, search_schedules
from edgetrain.compiler.remat import store_all
from edgetrain.ops.model import Model
from edgetrain.optim import SGD

from .depth import step
from .nets import TARGET, exported

MOST_EXTRA = 1.0  # recomputed forward passes allowed: like theirs, each value once more
HEAD = (
    "| net | batch | theirs: regular, MiB | checkpointed | ours: all kept, MiB | least "
    "| least / theirs | extra forward | seconds a step | loss |",
    "|---|---|---|---|---|---|---|---|---|---|",
)


@dataclass(frozen=True)
class Row:
    """A published row.

    Attributes:
      size: height and width of the images.
      regular, checkpointed: published MiB beside the weights.
      build: creates the torch module.
    """

    batch: int
    size: int
    regular: int
    checkpointed: int
    build: Callable


def published() -> dict[str, Row]:
    """Published rows by name of the net."""
    from examples.zoo.alexnet import _FULL, AlexNet
    from examples.zoo.densenet import DenseNet
    from examples.zoo.inception import InceptionV3
    from examples.zoo.resnet import ResNet
    from examples.zoo.vgg import VGG

    from .cell_nets import AMOEBANET, DARTS, NASNET, CellNet

    def vgg(*convolutions: int):
        return lambda: VGG(convolutions, norm=False)

    def resnet(bottleneck: bool, *blocks: int):
        return lambda: ResNet(blocks, bottleneck)

    def densenet(growth: int, stem: int, *blocks: int):
        return lambda: DenseNet(growth, blocks, stem, 1000)

    def cells(genotype):
        return lambda: CellNet(genotype)

    return {
        "AlexNet": Row(1024, 224, 4955, 3287, lambda: AlexNet(*_FULL, normalize=False)),
        "VGG-11": Row(64, 224, 3577, 2781, vgg(1, 1, 2, 2, 2)),
        "VGG-13": Row(64, 224, 5136, 3565, vgg(2, 2, 2, 2, 2)),
        "VGG-16": Row(64, 224, 5136, 3565, vgg(2, 2, 3, 3, 3)),
        "VGG-19": Row(64, 224, 5189, 3565, vgg(2, 2, 4, 4, 4)),
        "ResNet-18": Row(256, 224, 5635, 3677, resnet(False, 2, 2, 2, 2)),
        "ResNet-34": Row(128, 224, 4079, 1838, resnet(False, 3, 4, 6, 3)),
        "ResNet-50": Row(64, 224, 5323, 1973, resnet(True, 3, 4, 6, 3)),
        "ResNet-101": Row(32, 224, 3934, 1024, resnet(True, 3, 4, 23, 3)),
        "ResNet-152": Row(16, 224, 2767, 526, resnet(True, 3, 8, 36, 3)),
        "DenseNet-121": Row(32, 224, 4027, 898, densenet(32, 64, 6, 12, 24, 16)),
        "DenseNet-161": Row(16, 224, 3751, 666, densenet(48, 96, 6, 12, 36, 24)),
        "DenseNet-169": Row(32, 224, 4862, 897, densenet(32, 64, 6, 12, 32, 32)),
        "DenseNet-201": Row(16, 224, 3146, 474, densenet(32, 64, 6, 12, 48, 32)),
        "Inception-v3": Row(32, 300, 3074, 881, lambda: InceptionV3(1, 1000)),
        "NASNet (CIFAR-10)": Row(64, 32, 5832, 1129, cells(NASNET)),
        "AmoebaNet (CIFAR-10)": Row(64, 32, 4944, 1058, cells(AMOEBANET)),
        "DARTS (CIFAR-10)": Row(64, 32, 5627, 1115, cells(DARTS)),
    }


def plans(model: Model, options: Options, *most: float) -> list[Plan]:
    """Place the plan that keeps everything, and the smallest at each limit of extra forwards."""
    candidate = make_candidate(Compilation(model, options), options.minibatch)
    (search,) = search_schedules([candidate], options)[-1]
    everything = make_draft(candidate, store_all(candidate.train.problem, 0)[0])
    least = [
        min((d for d in search.drafts if d.extra_forward <= limit), key=lambda d: d.arena_nbytes)
        for limit in most
    ]
    return [draft.placed() for draft in (everything, *least)]


def ran(model: Model, options: Options, plan: Plan, steps: bool) -> str:
    """The last two cells of a row: seconds and loss of a step, "-" if no step is run."""
    if not steps:
        return "- | -"
    loss, seconds = step(model, options, plan)
    return f"{seconds:.1f} | {loss:.4f}"


def beside_weights(plan: Plan) -> float:
    """MiB of the arena without weights, their gradients and the control block."""
    return (plan.arena_nbytes - plan.candidate.persistent_nbytes) / 2**20


def line(name: str, row: Row, steps: bool = True) -> str:
    """Return a row of the table."""
    import torch

    torch.manual_seed(0)
    image = torch.zeros(2, 3, row.size, row.size)
    model = exported(row.build(), (image,))
    sizes = {"minibatch": row.batch, "microbatch": row.batch}
    options = make_options(**sizes, optimizer=SGD(0.01), target=TARGET)
    everything, least = plans(model, options, MOST_EXTRA)
    return (
        f"| {name} | {row.batch} | {row.regular:,} | {row.checkpointed:,} | "
        f"{beside_weights(everything):,.0f} | {beside_weights(least):,.0f} | "
        f"{beside_weights(least) / row.checkpointed:.2f} | {least.extra_forward:.2f} | "
        f"{ran(model, options, least, steps)} |"
    )


def lines(names: Sequence[str] = (), steps: bool = True) -> Iterator[str]:
    """Yield the table of these nets, or of all."""
    yield from HEAD
    rows = published()
    for name in names or rows:
        yield line(name, rows[name], steps)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("nets", nargs="*", metavar="NET")
    parser.add_argument("--no-steps", action="store_true", help="plan only")
    args = parser.parse_args()
    known = published()
    if unknown := set(args.nets) - known.keys():
        parser.error(f"{', '.join(sorted(unknown))}: expected some of {', '.join(known)}")
    for text in lines(args.nets, not args.no_steps):
        print(text, flush=True)


if __name__ == "__main__":
    main()
