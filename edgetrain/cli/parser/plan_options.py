"""Options of the compiler, equal in plan, compile and train."""

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
from ...units.options import flag
from ...units.rungs import ALLOWED
from .namespace import Namespace
from .numeric import number_within, refused
from .plugins import options_of


def _rewiring(text: str) -> str:
    from ...sparse import make_rewiring

    refused(make_rewiring, text)
    return text


def _bytes(text: str) -> int:
    return refused(parse_bytes, text)


_PARTS = ("weights", "state", "grads")  # of model memory
# dest -> arguments of add_argument; `plan_table` has those of plug-ins as well.
_PLAN_OPTIONS: dict[str, dict[str, Any]] = {
    "budget": {"metavar": "BYTES", "help": "of the arena, such as 262144, 6.7MB, 6.4MiB"},
    "minibatch": {"type": int, "metavar": "N", "help": "samples of one update (32)"},
    "microbatch": {"type": int, "metavar": "N", "help": "samples of one pass (the planner's)"},
    "precision": {"choices": [*PRECISIONS], "help": "storage of values (fp32)"},
    "model_memory": {"choices": [*MEMORIES], "help": "storage of weights, state and gradients"},
    **dict.fromkeys(_PARTS, {"choices": [*MEMORIES], "help": "the same, of one of these alone"}),
    "saved": {"choices": [*SAVED], "help": "storage of what backward reads, rounded"},
    "density": {"type": float, "metavar": "D", "help": "fraction of nonzero weights (1)"},
    "density_override": {
        "action": "append", "metavar": "PATTERN=D",
        "help": "density of weights by name, such as 'conv1.*=1' (dense); the last that fits wins",
    },
    "distribution": {
        "choices": ["uniform", "erk"],
        "help": "of nonzeros over layers, with a density; erk: Erdos-Renyi-kernel (uniform)",
    },
    "rewiring": {
        "type": _rewiring, "metavar": "METHOD",
        "help": "how nonzeros move, with a density: dsr, set, none, dsr:keep_state=true (dsr)",
    },
    "max_grad_norm": {
        "type": number_within(least=0), "metavar": "G", "help": "clip the gradient's norm (0: no)",
    },
    "fused_update": {
        "action": "store_true",
        "help": "update each weight as soon as its gradient is known: no buffer of gradients",
    },
    "loss_scale": {
        "type": number_within(least=1), "metavar": "S", "help": "constant loss scale (fp16: moves)",
    },
    "convolutions": {
        "choices": [*CONVOLUTIONS],
        "help": "direct: no algorithm with fewer multiplications, whose rounding differs (auto)",
    },
    "max_extra_forward": {
        "type": float, "metavar": "F", "help": "recompute at most this fraction of a forward",
    },
    "effort": {
        "choices": [*EFFORTS],
        "help": "how long plans are searched for, the same on every machine: "
        + ", ".join(f"{name} ({what})" for name, what in EFFORTS.items())
        + "; default: quick for plan and advise, else normal",
    },
    "threads": {"type": int, "metavar": "N", "help": "workers (2)"},
    "seed": {"type": int, "metavar": "N", "help": "of shuffling, dropout, rounding (0)"},
    "dim": {
        "action": "append", "metavar": "NAME=SIZE", "help": "size of a symbolic dimension",
    },
    "train": {
        "action": "append", "metavar": "PATTERN", "help": "parameters to train, such as 'head.*'",
    },
    "freeze": {"action": "append", "metavar": "PATTERN", "help": "parameters to leave alone"},
    "freeze_bn": {
        "action": "boolean",
        "help": "batch-norms run on their running statistics, which stay: all, or none (those "
        "whose parameters are all frozen; one without parameters where what it normalises comes "
        "from frozen parameters alone, or a pattern names its running mean)",
    },
    "lora": {
        "metavar": "FIELDS",
        "help": "train low-rank adapters: 'r=8,alpha=16,targets=*.q_proj,*.v_proj' (init=kaiming, "
        "or normal); all else is frozen, but for --train",
    },
    "frozen": {
        "choices": [*FROZEN],
        "help": "weights that are not trained stay in the Program's file, stored so (with --lora: "
        "as --weights says)",
    },
    "quantized": {
        "choices": ["keep", "float"],
        "help": "a quantised model's weights and activations are rounded while it trains, or not "
        "(keep)",
    },
    "train_constants": {
        "action": "append", "metavar": "PATTERN",
        "help": "constants to train, such as tables of positions: 'val_12'",
    },
    "allow_constants": {
        "action": "store_true", "help": "leave weights that became constants as they are",
    },
    "segments": {
        "metavar": "N", "help": "steps of time in a segment of a recurrence, or off (auto)",
    },
    "bptt": {
        "type": int, "metavar": "N",
        "help": "no gradient goes back beyond N steps of time (approximate; 0: all the way)",
    },
    "output": {"metavar": "NAME", "help": "output that the loss is taken of (the first)"},
    "allow": {
        "action": "append", "choices": [*ALLOWED],
        "help": "a rung of the ladder of plan --explain that changes the order of sums: "
        + ", ".join(f"{name} ({what})" for name, what in ALLOWED.items()),
    },
    "target": {
        "choices": targets.names(), "metavar": "NAME",
        "help": f"processor to plan for: {', '.join(targets.names())} (host)",
    },
}  # fmt: skip


@cache
def plan_table() -> dict[str, dict[str, Any]]:
    """Options of the compiler by dest, those of plug-ins among them."""
    table: dict[str, dict[str, Any]] = {}
    for name, options in _PLAN_OPTIONS.items():
        if name == "max_grad_norm":
            table |= options_of(Optimizer) | options_of(Loss)
        table[name] = options
    return table


def plan_options(arguments: Namespace) -> dict[str, Any]:
    """The compiler's options that were given."""
    known = plan_table() if arguments.has_plugins else _PLAN_OPTIONS
    return {name: value for name, value in vars(arguments).items() if name in known}


def add_plan_options(parser: Any, leave_out: Sequence[str] = (), target: bool = False) -> None:
    """Options of the compiler; target: `--target` may also name an input (`settle_target`)."""
    group = parser.add_argument_group("what is compiled")
    for name, options in (_PLAN_OPTIONS if parser.lean else plan_table()).items():
        if name == "target" and target:
            processors = ", ".join(targets.names())
            group.add_argument(
                "--target", metavar="NAME",
                help=f"processor to plan for: {processors} (host); x: the input is its own target",
            )  # fmt: skip
        elif name not in leave_out:
            given: dict[str, Any] = {"type": _bytes} if name == "budget" else {}
            group.add_argument(flag(name), **given, **options)
