"""Arguments of all commands; a device's commands are in run_commands.py and device_commands.py."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...data.kinds import forms
from ...kernels import targets
from .data_options import add_meaning, add_target_input
from .device_commands import checking, reading
from .numeric import number_within, whole_from
from .plan_options import add_plan_options
from .run_commands import Unasked, common, learning_rate, trained, training

if TYPE_CHECKING:
    from .full import Parser

# Commands whose parser is only built on demand.
COMMANDS = (
    "plan", "compile", "bundle", "serve", "train", "eval", "export", "parity", "inspect", "ops",
    "doctor", "advise", "migrate", "demo", "find-lr",
)  # fmt: skip


def command_parsers() -> "dict[str, Parser]":
    """The parser of each command, with all its options."""
    return {name: parser_for(name)[1][name] for name in parser_for("")[1]}


def parser_for(asked: str) -> "tuple[Parser, Mapping[str, Parser]]":
    """The parser, and the command parsers by name; only `asked` gets its options."""
    from .full import add_command, root

    parser, commands = root()

    def command(name: str, module: str, text: str, *, json: bool = True) -> Any:
        if asked in COMMANDS and name != asked:
            return Unasked()
        sub = add_command(commands, name, text)
        return common(sub, name, module, json) if name == asked else Unasked()

    _planning(command)
    _showing(command)
    _migrating(command)
    _bundling(command)
    training(command)
    _finding(command)
    trained(command)
    _looking(command)
    return parser, commands.choices


def _planning(command) -> None:
    plan = command("plan", "plan", "Show how much memory training a model takes.")
    plan.add_argument("model", metavar="MODEL.onnx", help="model to train")
    plan.add_argument("--picture", metavar="FILE", help="draw memory over time, as .svg or .png")
    plan.add_argument("--moving", action="store_true", help="animate --picture; .svg only")
    plan.add_argument(
        "--report", metavar="FILE.html", help="write a page with the memory account and all plans"
    )
    plan.add_argument(
        "--explain",
        action="store_true",
        help="list every way to save memory, its effect and its cost",
    )
    plan.add_argument(
        "--prove",
        action="store_true",
        help="prove how far plans are from the optimum; small models only, needs scipy",
    )
    plan.add_argument(
        "--pareto", metavar="FILE", nargs="?", const="",
        help="print bytes and time of every plan; with FILE (.svg, .png) also draw them",
    )  # fmt: skip
    plan.add_argument(
        "--calibrate",
        action="store_true",
        help="measure this machine first; later time estimates use it",
    )
    plan.set_defaults(
        picture=None, moving=False, report=None, explain=False, prove=False, pareto=None,
        calibrate=False,
    )  # fmt: skip
    _dump(plan)
    add_plan_options(plan)
    learning_rate(plan)
    advise = command(
        "advise", "advise", "Show the best ways to train a model within a memory limit."
    )
    advise.set_defaults(function="run", all=False)
    advise.add_argument("model", metavar="MODEL.onnx", help="model to train")
    advise.add_argument("--all", action="store_true", help="show every way that was tried")
    add_plan_options(advise)
    learning_rate(advise)
    compile_ = command("compile", "plan", "Compile a model to a Program, one file that trains it.")
    compile_.add_argument("model", metavar="MODEL.onnx", help="model to train")
    compile_.add_argument(
        "-o", "--out", metavar="model.edge", required=True, help="Program file to write"
    )
    _dump(compile_)
    add_plan_options(compile_)
    learning_rate(compile_)


def _showing(command) -> None:
    demo = command("demo", "demo", "Train a small network on embedded digits; needs no file.")
    demo.add_argument(
        "--budget", metavar="BYTES", default="256KiB", help="memory limit (default: 256KiB)"
    )
    demo.add_argument(
        "--epochs", type=number_within(above=0), metavar="N", default=15,
        help="passes over the data (default: 15)",
    )  # fmt: skip
    said = "run directory (default: none, nothing is written)"
    demo.add_argument("--out", metavar="DIR", default=None, help=said)


def _migrating(command) -> None:
    migrate = command(
        "migrate", "migrate", "Convert a run of another edgetrain version to this one."
    )
    migrate.add_argument("run", metavar="DIR", help="run directory")
    migrate.add_argument(
        "model", metavar="MODEL.onnx", nargs="?", default=None,
        help="model the run was compiled from (default: the one in its Program)",
    )  # fmt: skip
    migrate.add_argument(
        "--out", metavar="DIR", default=None,
        help="directory for the result (default: replace DIR and keep the old one as "
        "DIR.before-migrate)",
    )  # fmt: skip
    migrate.add_argument(
        "--budget", metavar="BYTES", default=None, help="memory limit (default: the run's own)"
    )


def _bundling(command) -> None:
    bundle = command(
        "bundle", "bundle", "Write a C library or WebAssembly module that trains a Program."
    )
    bundle.add_argument("model", metavar="model.edge", help="Program")
    bundle.add_argument("-o", "--out", metavar="DIR", required=True, help="directory to write")
    bundle.add_argument(
        "--target", choices=targets.names(), metavar="NAME", default=None,
        help="processor (default: the Program's)",
    )  # fmt: skip
    bundle.add_argument(
        "--name",
        metavar="NAME",
        default=None,
        help="prefix of C functions (default: from the file name)",
    )
    bundle.add_argument(
        "--data",
        metavar="SPEC",
        default=None,
        help="data for the example program, written to NAME.samples, such as digits",
    )
    add_meaning(bundle)
    _add_length(bundle)
    bundle.add_argument(
        "--cc",
        metavar="CC",
        default=None,
        help="compile the example with this C compiler (zig: from ziglang)",
    )
    size = bundle.add_mutually_exclusive_group()
    size.add_argument("--size", action="store_true", default=False, help="optimise for code size")
    size.add_argument(
        "--speed",
        action="store_false",
        dest="size",
        default=False,
        help="optimise for speed (default)",
    )
    serve = command(
        "serve", "serve", "Serve a page in which a Program trains in the browser.", json=False
    )
    serve.add_argument("model", metavar="model.edge", help="Program for --target wasm32")
    serve.add_argument(
        "--data", metavar="SPEC", default=None,
        help="samples to train on beside those shown in the page, such as digits",
    )  # fmt: skip
    add_meaning(serve)
    _add_length(serve)
    serve.add_argument(
        "--port", type=whole_from(0, 65535), metavar="N", default=8000,
        help="port; the browser keeps the state for each (default: 8000; 0: a free one)",
    )  # fmt: skip
    serve.add_argument(
        "--host", metavar="ADDRESS", default="127.0.0.1",
        help="address to listen on (default: 127.0.0.1, this machine alone)",
    )  # fmt: skip
    serve.add_argument("--open", action="store_true", default=False, help="open the browser")


def _add_length(command) -> None:
    command.add_argument(
        "--length", type=whole_from(1), metavar="N", default=None,
        help="only length to keep of a Program compiled with --lengths (default: all)",
    )  # fmt: skip


def _finding(command) -> None:
    find = command("find-lr", "find_lr", "Find a learning rate: train a little while it grows.")
    find.set_defaults(function="find_lr", augment=None, balance_classes=False, resume=None)
    find.add_argument("model", metavar="MODEL.onnx|model.edge", help="model or Program to train")
    find.add_argument("--data", metavar="SPEC", required=True, help=forms())
    add_meaning(find)
    add_target_input(find, old_name=False)
    for name, usual, which in (("--start-lr", 1e-7, "first"), ("--end-lr", 10.0, "last")):
        find.add_argument(
            name, type=number_within(above=0), metavar="R", default=usual,
            help=f"{which} learning rate (default: {usual:g})",
        )  # fmt: skip
    find.add_argument(
        "--steps", type=whole_from(1), metavar="N", default=100,
        help="minibatches, at most (default: 100)",
    )  # fmt: skip
    said = "draw loss over learning rate, as .svg or .png; needs matplotlib"
    find.add_argument("--picture", metavar="FILE", default=None, help=said)
    add_plan_options(find, inputs=True)


def _looking(command) -> None:
    parity = command(
        "parity", "inspection", "Compare with onnxruntime (forward pass) and torch (training step)."
    )
    parity.add_argument("model", metavar="MODEL.onnx", help="model to compare")
    parity.add_argument(
        "--device", choices=["cpu", "cuda"], default="cpu", help="torch device (default: cpu)"
    )
    parity.add_argument(
        "--reference",
        choices=["fp64", "fp32"],
        default="fp64",
        help="torch precision (default: fp64)",
    )
    parity.add_argument("--steps", type=int, metavar="N", default=5, help="steps (default: 5)")
    parity.add_argument(
        "--minibatch", type=int, metavar="N", default=8, help="samples per update (default: 8)"
    )
    add_plan_options(parity, leave_out=("minibatch", "rewiring"))  # parity rewires nothing
    learning_rate(parity)
    inspect = command("inspect", "inspection", "Show what is in a model, Program or checkpoint.")
    inspect.add_argument("file", metavar="FILE", help=".onnx, .edge or .ckpt")
    inspect.add_argument(
        "--verify",
        action="store_true",
        help="prove that a Program computes what its model says",
    )
    add_plan_options(inspect, leave_out=("budget",))
    learning_rate(inspect)
    reading(command)
    completion = command(
        "completion", "completion", "Print a completion script for your shell.", json=False
    )
    completion.add_argument("shell", choices=("bash", "zsh", "fish"), help="your shell")
    command("ops", "inspection", "List the ONNX op types that can be trained.")
    warm = command("warm", "warm", "Compile the kernels of a model ahead of time.")
    warm.add_argument("model", metavar="MODEL", nargs="?", default=None, help="model or Program")
    warm.add_argument("--all", action="store_true", default=False, help="compile every kernel")
    add_plan_options(warm)
    learning_rate(warm)
    checking(command)


def _dump(parser: Any) -> None:
    parser.add_argument(
        "--dump",
        metavar="DIR",
        help="write the graph after every pass, the tapes and the memory layout",
    )
    parser.add_argument(
        "--dump-diff", action="store_true", help="with --dump: also write what each pass changed"
    )
    parser.set_defaults(dump=None, dump_diff=False)
