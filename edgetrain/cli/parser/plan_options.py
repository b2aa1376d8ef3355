"""Compiler options, the same for plan, compile and train."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from ...formats import FROZEN, MEMORIES, PRECISIONS, SAVED
from ...kernels import targets
from ...losses import Loss
from ...optim import Optimizer
from ...units import parse_bytes
from ...units.convolutions import CONVOLUTIONS
from ...units.efforts import EFFORTS
from ...units.memory_options import ALLOWED
from ...units.options import flag
from .data_options import processor_or_input
from .namespace import Namespace
from .numeric import number_within, refused
from .plugins import options_of


def _rewiring(text: str) -> str:
    from ...sparse import make_rewiring

    refused(make_rewiring, text)
    return text


def _bytes(text: str) -> int:
    return refused(parse_bytes, text)


# Parts of --model-memory: option -> its name in the help.
_PARTS = {"weights": "weights", "state": "optimizer state", "grads": "gradients"}
# dest -> arguments of add_argument; `plan_table` adds the plug-ins' options.
_PLAN_OPTIONS: dict[str, dict[str, Any]] = {
    "budget": {"metavar": "BYTES", "help": "memory limit: 262144, 6.7MB or 6.4MiB"},
    "minibatch": {"type": int, "metavar": "N", "help": "samples per update (default: 32)"},
    "microbatch": {"type": int, "metavar": "N", "help": "samples per pass (default: planned)"},
    "precision": {
        "choices": [*PRECISIONS], "metavar": "FORMAT",
        "help": f"storage of values: {', '.join(PRECISIONS)} (default: fp32)",
    },
    "model_memory": {
        "choices": [*MEMORIES], "metavar": "FORMAT",
        "help": "storage of weights, optimizer state and gradients: "
        f"{', '.join(MEMORIES)} (default: as --precision)",
    },
    **{
        name: {
            "choices": [*MEMORIES], "metavar": "FORMAT",
            "help": f"like --model-memory, for {what} only",
        }
        for name, what in _PARTS.items()
    },
    "saved": {
        "choices": [*SAVED], "metavar": "FORMAT",
        "help": f"storage of activations saved for backward: {', '.join(SAVED)} (default: exact)",
    },
    "density": {
        "type": float, "metavar": "D", "help": "fraction of weights that are nonzero (default: 1)",
    },
    "density_override": {
        "action": "append", "metavar": "PATTERN=D",
        "help": "density of matching weights, such as 'conv1.*=1'; repeatable, the last match wins",
    },
    "distribution": {
        "choices": ["uniform", "erk"], "metavar": "NAME",
        "help": "how --density is spread over layers: uniform, erk (Erdos-Renyi kernel) "
        "(default: uniform)",
    },
    "rewiring": {
        "type": _rewiring, "metavar": "METHOD",
        "help": "how sparse weights move while training: dsr, set, none, "
        "dsr:keep_state=true (default: dsr)",
    },
    "no_decay_1d": {
        "action": "store_true",
        "help": "no weight decay on parameters with fewer than two axes (biases, norms)",
    },
    "max_grad_norm": {
        "type": number_within(least=0), "metavar": "G",
        "help": "clip the gradient norm to G (default: 0, off)",
    },
    "fused_update": {
        "action": "store_true",
        "help": "update each weight as soon as its gradient is ready; needs no gradient buffer",
    },
    "loss_scale": {
        "type": number_within(least=1), "metavar": "S",
        "help": "fixed loss scale (default: 1; fp16: adjusted automatically)",
    },
    "convolutions": {
        "choices": [*CONVOLUTIONS],
        "help": "direct: exclude faster algorithms, which round differently (default: auto)",
    },
    "max_extra_forward": {
        "type": float, "metavar": "F",
        "help": "limit on recomputation, in forward passes per step (default: none)",
    },
    "effort": {
        "choices": [*EFFORTS],
        "metavar": "NAME",
        "help": "how long to search for plans: "
        + ", ".join(f"{name} ({what})" for name, what in EFFORTS.items())
        + " (default: quick for plan and advise, else normal)",
    },
    "threads": {"type": int, "metavar": "N", "help": "worker threads (default: 2)"},
    "seed": {
        "type": int, "metavar": "N", "help": "seed of shuffling, dropout, rounding (default: 0)",
    },
    "dim": {
        "action": "append", "metavar": "NAME=SIZE",
        "help": "size of a named dimension, such as T=64; repeatable",
    },
    "lengths": {
        "metavar": "[NAME=]N,..",
        "help": "sizes of one named dimension, such as 32,64,128; each sample trains at the "
        "smallest that holds it",
    },
    "tokens": {
        "type": int, "metavar": "N",
        "help": "with --lengths: about N tokens per update (default: --minibatch samples)",
    },
    "batch_axis": {
        "action": "append", "metavar": "INPUT=AXIS",
        "help": "axis of an input that counts the samples, if the file does not say (default: 0)",
    },
    "input": {
        "action": "append", "metavar": "NAME=VALUE",
        "help": "value of an input without dimensions, such as sr=16000",
    },
    "train": {
        "action": "append", "metavar": "PATTERN",
        "help": "train only these, such as 'head.*'; repeatable",
    },
    "freeze": {
        "action": "append", "metavar": "PATTERN",
        "help": "do not train these parameters; repeatable",
    },
    "new_head": {
        "action": "append", "metavar": "[LAYER=]N",
        "help": "give the last layer N fresh outputs: 4, or fc=4",
    },
    "freeze_bn": {
        "action": "boolean",
        "help": "freeze the running statistics of all batch-norms, or of none (default: of those "
        "whose parameters are frozen, or that have none and frozen layers before them)",
    },
    "lora": {
        "metavar": "FIELDS",
        "help": "train adapters alone: all-linear, or 'r=8,targets=*.q_proj,*.v_proj'; also "
        "alpha=16, init=kaiming or normal",
    },
    "frozen": {
        "choices": [*FROZEN],
        "metavar": "FORMAT",
        "help": "storage format of frozen weights, which stay in the Program file: "
        f"{', '.join(FROZEN)} (default: in the arena; with --lora: as --weights)",
    },
    "quantized": {
        "choices": ["keep", "float"],
        "metavar": "NAME",
        "help": "train a quantised model with rounding (keep) or without (float) (default: keep)",
    },
    "train_constants": {
        "action": "append", "metavar": "PATTERN",
        "help": "also train constants, such as position tables: 'val_12'; repeatable",
    },
    "allow_constants": {
        "action": "store_true", "help": "leave weights exported as constants untrained",
    },
    "segments": {
        "metavar": "N", "help": "time steps per segment of a recurrence, or off (default: auto)",
    },
    "bptt": {
        "type": int, "metavar": "N",
        "help": "stop gradients after N time steps; approximate (default: 0, never)",
    },
    "output": {"metavar": "NAME", "help": "output the loss is computed from (default: the first)"},
    "allow": {
        "action": "append", "choices": [*ALLOWED], "metavar": "NAME",
        "help": "allow a memory saving that adds in another order, so results round differently: "
        + ", ".join(f"{name} ({what})" for name, what in ALLOWED.items()),
    },
    "target": {
        "choices": targets.names(), "metavar": "NAME",
        "help": f"processor to plan for: {', '.join(targets.names())} (default: host)",
    },
    "arithmetic": {
        "choices": [*targets.ARITHMETICS],
        "help": "fused: round a * b + c once; separate: round the product first, faster on "
        "processors without fused multiply-add (default: fused if the target has it)",
    },
}  # fmt: skip


@cache
def plan_table() -> dict[str, dict[str, Any]]:
    """Compiler options by dest, plug-in options included."""
    table: dict[str, dict[str, Any]] = {}
    for name, options in _PLAN_OPTIONS.items():
        if name == "max_grad_norm":
            table |= options_of(Optimizer) | options_of(Loss)
            table["loss"] = {
                "action": "append",
                "metavar": "NAME",
                "help": f"{table['loss']['help']}; or for each output, box=huber*0.5",
            }
        table[name] = options
    return table


def plan_options(arguments: Namespace) -> dict[str, Any]:
    """The given compiler options."""
    known = plan_table() if arguments.has_plugins else _PLAN_OPTIONS
    return {name: value for name, value in vars(arguments).items() if name in known}


def add_plan_options(parser: Any, leave_out: Sequence[str] = (), inputs: bool = False) -> None:
    """Add the compiler options; inputs: `--target` takes an input too (`settle_target`)."""
    for name, options in (_PLAN_OPTIONS if parser.lean else plan_table()).items():
        if name == "target" and inputs:
            said = options["help"]
            parser.add_argument("--target", type=processor_or_input, metavar="NAME", help=said)
        elif name not in leave_out:
            given: dict[str, Any] = {"type": _bytes} if name == "budget" else {}
            parser.add_argument(flag(name), **given, **options)
