"""`--help` and `--help-all`: options by topic, common ones first.

`-h` shows the options in USUAL and one example; `--help-all` shows everything. Options in no group
are shown under "other", only with --help-all.
"""

import argparse
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from ...losses import Loss
from ...optim import Optimizer, Schedule
from ...options import declared
from ...options.declared import BUDGET, OPTIONS
from ...options.trainer import SETTINGS
from .examples import epilog
from .lean import width
from .plugins import options_of

_INDENT = 30  # columns before the text of an option
ALL = "show all"  # start of the help of --help-all


_OPTIONS = [one for one in (BUDGET, *OPTIONS.values(), *SETTINGS.values()) if one.flag is not None]


def _declared(group: str) -> tuple[str, ...]:
    """The declared options of a group."""
    return tuple(option.dest for option in _OPTIONS if option.group == group)


# Title -> options in display order.
GROUPS: dict[str, tuple[str, ...]] = {
    declared.MODEL: (
        "model", "run", "file", "spec", "shell", "loss", *options_of(Loss),
        *_declared(declared.MODEL),
    ),
    "data": (
        "data", "label", "length", "target_input", "validation", "split", "augment",
        "balance_classes", *_declared("data"),
    ),
    declared.MEMORY: (*_declared(declared.MEMORY), "size", "calibrate"),
    declared.OPTIMIZER: (
        "optimizer", "lr", "momentum", "weight_decay", *options_of(Optimizer),
        *_declared(declared.OPTIMIZER),
    ),
    "learning-rate schedule": (*options_of(Schedule),),
    declared.SPARSITY: _declared(declared.SPARSITY),
    declared.ADAPTERS: (*_declared(declared.ADAPTERS), "adapter"),
    declared.RUN: (
        "epochs", "steps", "start_lr", "end_lr", "resume", "device", "reference", "patience",
        "keep_best", "best", "monitor", "metrics", "no_eval", *_declared(declared.RUN),
    ),
    "output": (
        "out", "explain", "report", "picture", "moving", "pareto", "prove", "verify", "dump",
        "dump_diff", "name", "cc", "port", "host", "open", "all", "json", "debug",
        "help", "help_all",
    ),
}  # fmt: skip
OTHER = "other"

# Shown by -h.
USUAL = frozenset({
    *(option.dest for option in _OPTIONS if option.usual),
    "model", "run", "file", "spec", "shell", "out", "loss", "data", "label", "validation", "split",
    "optimizer", "lr", "momentum", "weight_decay", "lr_schedule", "epochs", "steps", "resume",
    "start_lr", "end_lr", "keep_best", "best", "metrics", "device", "reference", "patience",
    "explain", "report", "picture", "verify", "name", "cc", "size", "port", "host", "open", "all",
    "json", "adapter", "target_input", "help", "help_all",
})  # fmt: skip
# Left out of one command's -h: few use them there.
_SELDOM = {
    "find-lr": frozenset({"target", "target_input", "microbatch", "lora", "new_head"}),
    "train": frozenset(
        {
            "target",
            "target_input",
            "metrics",
            "microbatch",
            "lora",
            "json",
            "patience",
            "new_head",
            "keep_best",
            "report",
        }
    ),
}
_FEW = 8  # a command with at most so many hidden options shows them all


class HelpAll(argparse.Action):
    """`--help-all`."""

    def __init__(self, option_strings: Sequence[str], **named: Any) -> None:
        named |= {"dest": "help_all", "default": argparse.SUPPRESS}
        super().__init__(option_strings, nargs=0, **named)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(text(parser, parser.prog.split()[-1], everything=True), end="")
        parser.exit()


def text(parser: argparse.ArgumentParser, command: str, *, everything: bool = False) -> str:
    """The help of a command.

    Args:
      everything: show all options and examples, not only the usual ones and one example.
    """
    shown = [action for action in parser._actions if action.help != argparse.SUPPRESS]
    hidden = [action for action in shown if not _usual(command, action)]
    if everything or len(hidden) <= _FEW:
        hidden = []
    formatter = argparse.RawDescriptionHelpFormatter(
        parser.prog, max_help_position=_INDENT, width=width()
    )
    for title, actions in _grouped(shown):
        kept = [action for action in actions if action not in hidden]
        if kept:
            formatter.start_section(title)
            formatter.add_arguments(kept)
            formatter.end_section()
    lines = formatter.format_help().rstrip("\n")
    if hidden:  # shorter: the whole page fits a screen
        lines = lines.replace("\n\n", "\n").replace(ALL, f"{ALL} {len(shown)}")
    examples = epilog(command, every=not hidden)
    return f"usage: {usage(parser)}\n\n{parser.description}\n\n{lines}\n\n{examples}\n"


def usage(parser: argparse.ArgumentParser) -> str:
    """The usage line: required arguments, then `[options]`."""
    groups = [group for group in parser._mutually_exclusive_groups if group.required]
    words = [parser.prog, *(_word(a) for a in parser._actions if not a.option_strings)]
    words += [_word(a) for a in parser._actions if a.option_strings and a.required]
    words += [f"({' | '.join(map(_word, group._group_actions))})" for group in groups]
    return textwrap.fill(
        " ".join([*words, "[options]"]),
        width(),
        subsequent_indent=" " * 9,
        initial_indent=" " * 7,
        break_long_words=False,
        break_on_hyphens=False,
    ).lstrip()


def _word(action: argparse.Action) -> str:
    value = action.metavar or ("{" + ",".join(map(str, action.choices or ())) + "}")
    if not action.option_strings:
        return f"[{value}]" if action.nargs == "?" else str(value)
    return f"{action.option_strings[0]} {value}"


def _usual(command: str, action: argparse.Action) -> bool:
    usual = action.dest in USUAL and action.dest not in _SELDOM.get(command, ())
    return usual or action.required


def _grouped(
    actions: Sequence[argparse.Action],
) -> Iterator[tuple[str, list[argparse.Action]]]:
    left: dict[str, list[argparse.Action]] = {}
    for action in actions:
        left.setdefault(action.dest, []).append(action)
    for title, names in GROUPS.items():
        yield title, [action for name in names for action in left.pop(name, ())]
    yield OTHER, [action for same in left.values() for action in same]
