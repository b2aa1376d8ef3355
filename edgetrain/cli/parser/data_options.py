"""Options about data, evaluations and epochs, and those of `data`."""

from typing import Any

from ...kernels import targets
from .namespace import Namespace
from .numeric import whole_from

KINDS = (
    "digits, mnist:DIR, cifar10:DIR, npz:FILE, npy:DIR, csv:FILE, dir:DIR (a folder per class of "
    ".npy, pictures or wav), images:DIR, sounds:DIR"
)


def add_data(parser: Any, *, training: bool = False) -> None:
    """`--data` and what belongs to it; training: also what changes samples."""
    parser.add_argument("--data", metavar="SPEC", required=True, help=KINDS)
    add_meaning(parser)
    if not training:
        parser.add_argument(
            "--target",
            dest="data_target",
            metavar="INPUT",
            default=None,
            help="the input that is the target, of an autoencoder: x",
        )
        return
    parser.set_defaults(data_target=None)
    parser.add_argument(
        "--augment",
        metavar="WHAT",
        default=None,
        help="change samples at random: flip, crop=PLACES, noise=DEVIATION, with commas between "
        "them (cifar10: crop and flip)",
    )
    parser.add_argument(
        "--balance-classes",
        action="store_true",
        default=False,
        help="weigh classes so that each has the same share of the loss",
    )


def add_meaning(parser: Any) -> None:
    """What columns mean."""
    parser.add_argument("--label", metavar="COLUMN", default=None, help="csv: the target's column")


def add_epochs(parser: Any) -> None:
    """What happens at the end of a pass."""
    parser.add_argument(
        "--keep-last",
        action="store_true",
        default=False,
        help="train on the last samples of a pass too, fewer than a minibatch",
    )
    parser.add_argument(
        "--patience",
        type=whole_from(1),
        metavar="N",
        default=None,
        help="stop after N epochs in a row that did not get better (never)",
    )
    parser.add_argument(
        "--keep-best",
        action="store_true",
        default=False,
        help="keep the best epoch's weights too: edgetrain export DIR --best",
    )
    parser.add_argument(
        "--monitor",
        metavar="NAME",
        default=None,
        help="what --patience and --keep-best look at: loss, train_loss or a metric (loss)",
    )
    add_metrics(parser)


def add_metrics(parser: Any) -> None:
    """What evaluations count."""
    parser.add_argument(
        "--metrics",
        metavar="NAME,..",
        default="",
        help="also accuracy, top5, f1, precision, recall, confusion, mae, rmse, perplexity",
    )


def add_best(parser: Any) -> None:
    """Which state of a run."""
    parser.add_argument(
        "--best",
        action="store_true",
        default=False,
        help="of the best epoch, which --keep-best kept (the newest)",
    )


def settle_target(arguments: Namespace) -> Namespace:
    """`--target` of `train`: a processor, or the input that is the target."""
    asked: Any = getattr(arguments, "target", None)
    if arguments.command == "train" and asked is not None and asked not in targets.names():
        arguments.data_target = asked
        del arguments.target
    return arguments
