"""Options for data, evaluation and epochs."""

import sys
from typing import Any

from ...data.kinds import forms
from ...kernels import targets
from .namespace import Namespace
from .numeric import whole_from

HIDDEN = "==SUPPRESS=="  # argparse.SUPPRESS, without importing argparse


def add_data(parser: Any, *, training: bool = False) -> None:
    """`--data` and related options; training: also augmentation and class weights."""
    parser.add_argument("--data", metavar="SPEC", required=True, help=forms())
    add_meaning(parser)
    add_target_input(parser, old_name=not training)
    if not training:
        return
    parser.add_argument(
        "--augment",
        metavar="WHAT",
        default=None,
        help="random changes to samples, such as flip,crop=4,noise=0.05 (default: none; cifar10: "
        "crop and flip)",
    )
    parser.add_argument(
        "--balance-classes",
        action="store_true",
        default=False,
        help="weight classes so that each has the same share of the loss",
    )


def add_target_input(parser: Any, *, old_name: bool) -> None:
    """`--target-input`; old_name: accept the old name `--target` too, with a note."""
    parser.add_argument(
        "--target-input",
        metavar="INPUT",
        default=None,
        help="input that is also the target, such as x (autoencoders)",
    )
    if old_name:
        parser.add_argument("--target", metavar="INPUT", help=HIDDEN)


def add_meaning(parser: Any) -> None:
    """`--label`."""
    parser.add_argument(
        "--label", metavar="COLUMN", default=None, help="label column of a csv file"
    )


def add_epochs(parser: Any) -> None:
    """Options for the end of an epoch."""
    parser.add_argument(
        "--patience",
        type=whole_from(1),
        metavar="N",
        default=None,
        help="stop N epochs after the best one (default: off)",
    )
    parser.add_argument(
        "--keep-best",
        action="store_true",
        default=False,
        help="keep the best epoch, for `export --best`",
    )
    parser.add_argument(
        "--monitor",
        metavar="NAME",
        default=None,
        help="metric that --patience and --keep-best watch: loss, train_loss or one of --metrics "
        "(default: loss)",
    )
    add_metrics(parser)


def add_metrics(parser: Any) -> None:
    """`--metrics`."""
    parser.add_argument(
        "--metrics",
        action="append",
        metavar="NAME,..",
        default=[],
        help="more metrics: accuracy, top5, f1, precision, recall, miou, auc, "
        "confusion, mae, mse, rmse, perplexity; of one output: class=f1",
    )


def add_best(parser: Any) -> None:
    """`--best`."""
    parser.add_argument(
        "--best",
        action="store_true",
        default=False,
        help="use the best epoch that --keep-best kept (default: the last state)",
    )


def settle_target(arguments: Namespace) -> Namespace:
    """Accept an input after `--target`, the old name of `--target-input`, with a note."""
    asked: Any = getattr(arguments, "target", None)
    old = {"train": asked not in targets.names(), "eval": True, "data": True}
    if asked is not None and old.get(arguments.command, False):
        arguments.target_input = asked
        del arguments.target
        print(
            f"edgetrain {arguments.command}: note: --target {asked} is now --target-input {asked}",
            file=sys.stderr,
        )
    return arguments


def processor_or_input(text: str) -> str:
    """`--target` of `train`: a processor, or an input under the option's old name."""
    close = [name for name in targets.names() if name.partition("-")[0] == text.partition("-")[0]]
    if close and text not in close:
        from argparse import ArgumentTypeError

        raise ArgumentTypeError(f"{text!r}: expected one of {', '.join(targets.names())}")
    return text
