"""Arguments of the run commands, which devices also have: train, eval, export."""

from collections.abc import Callable
from typing import Any

from ...optim import Schedule
from ...options.trainer import SETTINGS
from ...units.options import flag
from .data_options import (
    add_best,
    add_data,
    add_epochs,
    add_metrics,
)
from .numeric import grouped, number_within, whole_from
from .plan_options import add_plan_options, arguments_of


def common(parser: Any, name: str, module: str, json: bool) -> Any:
    """The parser of a command, with the options that all commands share."""
    parser.set_defaults(module=module, function=name, debug=False, json=False)
    parser.add_argument("--debug", action="store_true", help="show tracebacks and warnings")
    if json:
        parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


class Unasked:
    """Stands in for the parsers of other commands, whose options are not built."""

    def __getattr__(self, name: str) -> Callable[..., "Unasked"]:
        return lambda *given, **named: self


def training(command) -> None:
    """Add `train`."""
    train = command("train", "train", "Train a model.")
    train.add_argument(
        "model",
        metavar="MODEL.onnx|model.edge",
        nargs="?",
        default=None,
        help="model or Program to train",
    )
    add_data(train, training=True)
    length = train.add_mutually_exclusive_group(required=True)
    length.add_argument(
        "--epochs",
        type=number_within(above=0),
        metavar="N",
        default=None,
        help="passes over the data",
    )
    length.add_argument(
        "--steps",
        type=whole_from(1),
        metavar="N",
        default=None,
        help="minibatches, instead of --epochs",
    )
    learning_rate(train)
    if not train.lean:
        from .plugins import options_of

        for name, options in options_of(Schedule).items():
            train.add_argument(flag(name), **options)
    for option in SETTINGS.values():
        how = arguments_of(option, lean=train.lean)
        train.add_argument(flag(option.name), default=option.default, **how)
    train.add_argument(
        "--out", metavar="DIR", default=None, help="run directory (default: runs/MODEL-1, -2, ..)"
    )
    train.add_argument("--resume", metavar="DIR", default=None, help="continue the run in DIR")
    train.add_argument(
        "--validation",
        metavar="F|SPEC",
        default=None,
        help="hold out fraction F, or evaluate on other data (default: the data's test split)",
    )
    page = "write a page with curves, metrics and memory"
    train.add_argument("--report", metavar="FILE.html", default=None, help=page)
    add_epochs(train)
    train.add_argument("--no-eval", action="store_true", default=False, help="do not evaluate")
    add_plan_options(train, inputs=True)


def trained(command) -> None:
    """Add `eval` and `export`."""
    evaluate = command("eval", "train", "Evaluate a Program or a run: loss and accuracy.")
    evaluate.set_defaults(function="evaluate")
    evaluate.add_argument("model", metavar="model.edge|DIR", help="Program or run directory")
    add_data(evaluate)
    evaluate.add_argument(
        "--split",
        choices=["test", "train"],
        default="test",
        help="part of the data (default: test; all of it if it has no test split)",
    )
    add_metrics(evaluate)
    add_best(evaluate)
    said = "worker threads (default: the Program's)"
    evaluate.add_argument("--threads", type=whole_from(1), metavar="N", default=None, help=said)
    export = command("export", "train", "Write the trained model as ONNX.")
    export.add_argument("run", metavar="DIR", help="run directory")
    said = "ONNX file to write"
    export.add_argument("-o", "--out", metavar="trained.onnx", required=True, help=said)
    said = "write only the adapters of --lora, in peft format, to the directory -o (default: merge)"
    export.add_argument("--adapter", action="store_true", default=False, help=said)
    add_best(export)


def learning_rate(parser: Any) -> None:
    """Add `--lr`."""
    text = ""
    if not parser.lean:
        from .plugins import learning_rate_help

        text = learning_rate_help()
    parser.add_argument("--lr", **grouped(number_within(least=0)), metavar="R", help=text)
