"""The options of `compile`. To add one, add a field here, and read it from `Options` in the code.

`compiler.options.Options` has these fields, `compiler/keywords.py` has the types of the keywords
(python -m tools.keywords writes it), commands have the flags, recipes of Programs the values, and
docs/options.md the table. A recipe stores them in this order.
"""

from __future__ import annotations  # types stay strings, so nothing is imported for them

from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..formats import FROZEN, MEMORIES, PRECISIONS, SAVED
from ..kernels import targets
from ..optim.loss_scale import MAX_SCALE
from ..sparse import DISTRIBUTIONS
from ..units import parse_bytes
from ..units.convolutions import AUTO, CONVOLUTIONS, DIRECT
from ..units.efforts import EFFORTS, NORMAL
from ..units.memory_options import ALLOWED
from .option import declared, option

_SCALED = ", ".join(name for name, format in PRECISIONS.items() if format.loss_scale != 1)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from dataclasses import dataclass as declaration

    from ..losses import Loss
    from ..optim import Optimizer
    from ..optim.groups import Group
    from ..sparse import Rewiring
else:

    def declaration(frozen):
        """Does nothing here: the compiler makes it a dataclass, and a device needs none."""
        return lambda cls: cls


def sizes(text: str) -> list[int] | dict[str, list[int]]:
    """The sizes in [NAME=]SIZE,SIZE,.., as a list, or by name if there is a name."""
    name, equals, rest = text.rpartition("=")
    words = [word.strip() for word in rest.split(",")]
    if (equals and not name) or not all(word.isdecimal() for word in words):
        raise UsageError(f"{text!r}: expected sizes, such as 32,64,128, or NAME=32,64,128.")
    result = [int(word) for word in words]
    return {name: result} if name else result


MODEL, MEMORY, OPTIMIZER = "model", "memory and speed", "optimizer"
SPARSITY, ADAPTERS, RUN = "sparsity", "adapters", "run"
QUANTIZED = {"keep": "as its nodes round", "float": "without rounding"}


# fmt: off
@declaration(frozen=True)
class Declared:
    """The fields of `Options`."""

    loss: Loss = option(
        "cross_entropy", "loss to minimise: {}", "NAME", group=MODEL, keyword="str | Loss",
        cli="a name, or one for each output, such as box=huber*0.5",
        python="a name, or an object such as et.Loss('cross_entropy', label_smoothing=0.1)",
    )
    optimizer: Optimizer = option(
        "sgd", "how weights are updated: {}", "NAME", group=OPTIMIZER, keyword="str | Optimizer",
        cli="a name", python="a name, or an object such as et.SGD(lr=0.1, momentum=0.9)",
    )
    minibatch: int = option(
        32, "samples per update", "N", least=1, most=2**31, group=MEMORY, usual=True,
    )
    microbatch: int | None = option(
        None, "samples per pass", "N", least=1, most=2**31, group=MEMORY, usual=True,
        otherwise="planned",
    )
    precision: str = option(
        "fp32", "storage of values", "FORMAT", choices=[*PRECISIONS], group=MEMORY, usual=True,
    )
    model_memory: str | None = option(
        None, "storage of weights, optimizer state and gradients", "FORMAT", choices=[*MEMORIES],
        group=MEMORY, otherwise="as --precision",
    )
    weights: str | None = option(
        None, "like --model-memory, for weights only", "FORMAT", choices=[*MEMORIES], group=MEMORY,
    )
    state: str | None = option(
        None, "like --model-memory, for optimizer state only", "FORMAT", choices=[*MEMORIES],
        group=MEMORY,
    )
    grads: str | None = option(
        None, "like --model-memory, for gradients only", "FORMAT", choices=[*MEMORIES],
        group=MEMORY,
    )
    saved: str | None = option(
        None, "storage of activations saved for backward", "FORMAT", choices=[*SAVED], group=MEMORY,
        otherwise="exact", new=True,
    )
    density: float = option(
        1.0, "fraction of weights that are nonzero", "D", above=0, most=1, group=SPARSITY,
    )
    density_overrides: Mapping[str, float] = option(
        {}, "density of matching weights, such as {}; the last match wins", "PATTERN=DENSITY",
        above=0, most=1, group=SPARSITY, flag="density_override",
        cli="'conv1.*=1'", python="{'conv1.*': 1}",
    )
    distribution: str = option(
        "uniform", "how --density is spread over layers", "NAME", choices=DISTRIBUTIONS,
        group=SPARSITY,
    )
    rewiring: str | Rewiring | None = option(
        "dsr", "how sparse weights move while training: {}", "METHOD", group=SPARSITY,
        cli="dsr, set, none, dsr:keep_state=true",
    )
    max_extra_forward: float | None = option(
        None, "limit on recomputation, in forward passes per step", "F", least=0, group=MEMORY,
        otherwise="none",
    )
    effort: str = option(
        NORMAL, "how long to search for plans", "NAME", choices=EFFORTS, group=MEMORY,
        otherwise="quick for plan and advise, else normal", new=True,
    )
    threads: int = option(2, "worker threads", "N", least=1, most=64, group=MEMORY)
    seed: int = option(0, "seed of shuffling, dropout, rounding", "N", least=-(2**63), group=RUN)
    dims: Mapping[str, int] = option(
        {}, "size of a named dimension, such as {}", "NAME=SIZE", least=1, most=2**31, group=MODEL,
        flag="dim", cli="T=64", python="{'T': 64}",
    )
    batch_axis: Mapping[str, int] = option(
        {}, "axis of an input that counts the samples, if the file does not say, such as {}",
        "INPUT=AXIS", least=0, most=15, group=MODEL, otherwise="0", cli="h=1", python="{'h': 1}",
        new=True,
    )
    inputs: Mapping[str, float] = option(
        {}, "value of an input without dimensions, such as {}", "NAME=VALUE", group=MODEL,
        flag="input", cli="sr=16000", python="{'sr': 16000}", new=True,
    )
    train: tuple[str, ...] = option(
        (), "parameters to train, such as {}", "PATTERN", group=MODEL, usual=True,
        cli="'head.*'", python="['head.*']", keyword="Sequence[str]",
    )
    freeze: tuple[str, ...] = option(
        (), "parameters to leave untrained, such as {}", "PATTERN", group=MODEL, cli="'body.*'",
        python="['body.*']", keyword="Sequence[str]",
    )
    freeze_bn: bool | None = option(
        None, "freeze the running statistics of all batch-norms ({}: of none)", group=MODEL,
        cli="--no-freeze-bn", python="False",
        otherwise="of those whose parameters are frozen, or that have none and frozen layers "
        "before them",
    )
    train_constants: tuple[str, ...] = option(
        (), "also train constants, such as position tables: {}", "PATTERN", group=MODEL,
        cli="'val_12'", python="['val_12']", keyword="Sequence[str]",
    )
    allow_constants: bool = option(
        False, "leave weights exported as constants untrained", group=MODEL,
    )
    groups: tuple[Group, ...] = option(
        (), "parameters with their own learning rate or weight decay, such as {}; the last match "
        "wins", flag=None, group=OPTIMIZER, python="[et.Group('fc.*', lr=0.1)]",
        keyword="Sequence[Group]", new=True,
    )
    no_decay_1d: bool = option(
        False, "no weight decay on parameters with fewer than two axes (biases, norms)",
        group=OPTIMIZER, new=True,
    )
    max_grad_norm: float = option(
        0.0, "clip the gradient norm to G", "G", least=0, group=OPTIMIZER, otherwise="off",
    )
    fused_update: bool = option(
        False, "update each weight as soon as its gradient is ready; needs no gradient buffer",
        group=MEMORY, new=True,
    )
    loss_scale: float | None = option(
        None, "fixed loss scale", "S", least=1, most=MAX_SCALE, group=OPTIMIZER,
        otherwise=f"1; {_SCALED}: adjusted automatically", new=True,
    )
    output: str | None = option(
        None, "output the loss is computed from", "NAME", group=MODEL, otherwise="the first",
    )
    allow: tuple[str, ...] = option(
        (), "allow a memory saving that may add in another order, so results may round differently",
        "NAME", choices=ALLOWED, group=MEMORY, python="['slices']", keyword="Sequence[str]",
        new=True,
    )
    segments: str | int = option(
        AUTO, "time steps per segment of a recurrence, or off", "N", group=MODEL, new=True,
    )
    bptt: int = option(
        0, "stop gradients after N time steps; approximate", "N", least=0, most=2**31 - 1,
        group=MODEL, otherwise="never", new=True,
    )
    target: str = option(
        targets.HOST, "processor to plan for", "NAME", choices=targets.names(), group=MEMORY,
        usual=True,
    )
    frozen: str | None = option(
        None, "storage format of frozen weights, which stay in the Program file", "FORMAT",
        choices=[*FROZEN], group=MEMORY, otherwise="in the arena; with --lora: as --weights",
        new=True,
    )
    lora: Any = option(
        None, "train adapters alone: {}", "FIELDS", group=ADAPTERS, usual=True,
        cli="all-linear, or 'r=8,targets=*.q_proj,*.v_proj'; also alpha=16, init=kaiming or normal",
        keyword="str | Lora | None", new=True,
    )
    quantized: str | None = option(
        None, "how to train a quantised model", "NAME", choices=QUANTIZED, group=MODEL,
        otherwise="keep", new=True,
    )
    new_head: Mapping[str, int] | int | None = option(
        None, "give the last layer N fresh outputs: {}", "[LAYER=]N", least=1, most=2**20,
        group=MODEL, usual=True, cli="4, or fc=4", python="4, or {'fc': 4}", new=True,
    )
    convolutions: str = option(
        AUTO, "algorithms of convolutions", "NAME", choices=CONVOLUTIONS, group=MEMORY,
        absent=DIRECT,
    )
    arithmetic: str | None = option(
        None, "rounding of a * b + c", "NAME", choices=targets.ARITHMETICS, group=MEMORY,
        otherwise="fused if the target has it", new=True, absent=targets.FUSED,
    )
    losses: Any = option(
        (), "losses by output, whose weighted sum is minimised, such as {}", flag=None, group=MODEL,
        python="{'class': 'cross_entropy', 'box': 'huber'}", keyword="Mapping[str, Any]", new=True,
    )
    lengths: Any = option(
        (),
        "sizes of one named dimension, such as {}; each sample trains at the smallest that holds "
        "it", "[NAME=]N,..", group=MODEL, cli="32,64,128",
        python="[32, 64, 128] or {'T': [32, 64, 128]}", parse=sizes,
        keyword="Sequence[int] | Mapping[str, Sequence[int]]", new=True,
    )
    tokens: int | None = option(
        None, "with --lengths: about N tokens per update", "N", least=1, most=2**60, group=MODEL,
        otherwise="--minibatch samples", new=True,
    )


OPTIONS = declared(Declared)
# An argument of `compile`, not of `Options`: the frontier of plans does not depend on it.
BUDGET = option(
    None, "memory limit: {}", "BYTES", group=MEMORY, usual=True,
    cli="262144, 6.7MB or 6.4MiB", python="262144, '6.7MB' or '6.4MiB'", parse=parse_bytes,
    name="budget", type="str | int | None",
)
# fmt: on
