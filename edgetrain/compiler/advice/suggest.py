"""Suggests adapters for `advise` and memory options, in the format of `--lora`."""

import glob
from collections.abc import Iterator

from ...errors import UsageError
from ...ops.model import Model
from ..model.lora import Lora, adaptable, layers_of

RANK = 8
_LEAST = 4  # adapters need this many times fewer elements than the model, or they save nothing
_MOST_NAMES = 8  # in a command that people read
# Names of attention weights; only queries and values are adapted, as in Hu et al. 2022.
_ATTENTION = (
    ("q_proj", "v_proj"),
    ("query", "value"),
    ("q_lin", "v_lin"),
    ("to_q", "to_v"),
    ("q", "v"),
    ("c_attn",),
    ("qkv",),
    ("in_proj",),
)


def suggested_lora(model: Model) -> str:
    """For example `r=8,targets=q_proj,v_proj`; "" if adapters would not be small."""
    weights = adaptable(model)
    total = sum(model.initializers[name].size for name in {*weights, *model.parameters})
    for targets in _targets([name.removesuffix(".weight") for name in weights]):
        try:
            layers = layers_of(model, Lora(r=RANK, targets=targets))
        except UsageError:  # a shared weight has such a name too
            continue
        shapes = [model.initializers[layer.weight].shape for layer in layers]
        if 0 < _LEAST * RANK * sum(map(sum, shapes)) <= total:
            return f"r={RANK},targets={','.join(targets)}"
    return ""


def _targets(modules: list[str]) -> Iterator[tuple[str, ...]]:
    """Targets to try: attention projections, common endings, names; also without the last layer."""
    modules = [name for name in modules if not {*",='\"*?"} & {*name} and name.strip() == name]
    endings = _endings(modules)
    for wanted in _ATTENTION:
        if {*wanted} <= {*endings}:
            yield wanted
    for names in (endings, modules, _endings(modules[:-1]), modules[:-1]):
        if 0 < len(names) <= _MOST_NAMES:
            yield tuple(glob.escape(name) for name in names)


def _endings(modules: list[str]) -> list[str]:
    return [*dict.fromkeys(name.rpartition(".")[2] for name in modules)]
