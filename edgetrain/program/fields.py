"""The fields of a Program file, with their types, ranges and whether they are required.

Losses, optimizers and rewirings are stored as a name and numbers; whether this build supports them
is checked when the Program is loaded to run. Unknown fields of the recipe and of slots are refused,
because they belong to another version. The account may have further figures, which are only shown.
"""

from collections.abc import Collection
from typing import Any

from ..formats import FORMATS
from ..ir.values import PERSISTENT
from ..options.declared import OPTIONS
from ..options.option import Option
from ..units.efforts import EFFORTS
from .schema import (
    Check,
    boolean,
    by_name,
    integer,
    number,
    one_of,
    optional,
    plain,
    record,
    row,
    several,
    text,
)

VERSION = 5
# This build reads these. What a version adds is optional and absent means what it meant before, in
# the recipe and slots too: `digest` says which checkpoints belong to a Program. 4: revisions; 5:
# sets of tapes.
VERSIONS = range(3, VERSION + 1)

_LARGE = 2**60  # bytes; beyond them offsets and extents would not stay within 64 bits
_SAMPLES = 2**31
_ROLES = (*PERSISTENT, "input", "target", "activation", "statistic", "gradient")
_NBYTES = integer(0, _LARGE)

SLOT = record(
    {
        "name": text(),
        "offset": integer(0, _LARGE, 64),
        "shape": several(integer(0, 2**48), most=16),
        "dtype": one_of(*FORMATS),
        "role": one_of(*_ROLES),
    },
    {"batch": integer(1, 15)},
)
_SLOTS = several(SLOT, most=2**20)

# What can be trained with is the runtime's to know: see runtime/loading/program.py.
_PLUGIN = record({"name": text()}, others=plain())
_LAYER = row(
    text(), several(integer(1, 2**31), 2, 8), integer(1, 2**48), integer(1, 2**48), boolean
)
_PATTERNS = several(text())

# Weight, its matrices A and B, whether it lies [in, out].
_ADAPTED = row(text(), text(), text(), boolean)
_LORA = record(
    {
        "r": integer(1, 2**20),
        "alpha": number(above=0),
        "targets": _PATTERNS,
        "init": text(),
        "layers": several(_ADAPTED, most=2**16),
    }
)
_GROUP = record({"pattern": text()}, {"lr": number(0), "weight_decay": number(0)})
# Options that are neither numbers, words nor mappings to these.
_OBJECTS: dict[str, Check] = {
    "loss": _PLUGIN,
    "optimizer": _PLUGIN,
    "rewiring": optional(_PLUGIN),
    "lora": _LORA,
    "groups": several(_GROUP),
    "losses": several(row(text(), _PLUGIN), 2, 5),
    "lengths": by_name(several(integer(1, _SAMPLES), 2, 64)),
}


def _stored(option: Option) -> Check:
    """What a recipe may say of an option."""
    if option.name in _OBJECTS:
        return _OBJECTS[option.name]
    if option.item:
        return by_name(_simple(option, {option.item}))
    if option.several:
        return several(_simple(option, {"str"}))
    found = _simple(option, option.kinds)
    return optional(found) if "None" in option.kinds and not option.new else found


def _simple(option: Option, kinds: Collection[str]) -> Check:
    if option.choices:
        return one_of(*option.choices)
    if "str" in kinds:
        return text()
    if "bool" in kinds:
        return boolean
    bounds: dict[str, Any] = {"most": 2**63 - 1} | dict(option.bounds)
    return integer(**bounds) if "int" in kinds else number(**option.bounds)


RECIPE = record(
    {
        **{one.name: _stored(one) for one in OPTIONS.values() if one.old},
        "lanes": integer(1, 16),
        "sparse_layers": several(_LAYER, most=2**16),
    },
    {
        **{one.name: _stored(one) for one in OPTIONS.values() if not one.old},
        "output_shape": several(integer(1, 2**48), most=16),
    },
)

_COUNTED = record(
    {"count": integer(0, _SAMPLES), "numbers": _NBYTES, "nbytes": _NBYTES, "names": several(text())}
)
# compiler/advice/listing.py
_TRAINING = record(
    {"trained": _COUNTED, "frozen": _COUNTED, "moves": _COUNTED, "stays": _COUNTED},
    {"sparse": several(text()), "dense": by_name(text())},
)
ACCOUNT = record(
    {
        "feasible": boolean,
        "arena_nbytes": _NBYTES,
        "min_budget_nbytes": _NBYTES,
        "peak_live_nbytes": _NBYTES,
        "tape_nbytes": _NBYTES,
        "by_kind": by_name(_NBYTES),
        "minibatch": integer(1, _SAMPLES),
        "microbatch": integer(1, _SAMPLES),
        "threads": integer(1, 64),
        "extra_forward_flops": number(0),
        "steps": integer(0, 2**40),
    },
    {
        "budget_nbytes": optional(_NBYTES),
        "mapped_nbytes": _NBYTES,
        "relative_time": number(0),
        "effort": one_of(*EFFORTS),
        "bound_nbytes": _NBYTES,
        "training": _TRAINING,
    },
    others=plain(),
)

_SET = {
    "arena_nbytes": integer(64, _LARGE - 1, 64),
    "minibatch": integer(1, _SAMPLES),
    "microbatch": integer(1, _SAMPLES),
    "target_count": integer(1, 2**48),
    "kernels": several(row(text(80), text(80), several(one_of(*FORMATS), most=16)), most=2**16),
    "persistent": _SLOTS,
    "inputs": record({"micro": _SLOTS, "eval": _SLOTS}),
    "targets": record({"micro": SLOT, "eval": SLOT}),
    "outputs": record({"eval": several(SLOT, 1, 5)}),
    "account": ACCOUNT,
    "recipe": RECIPE,
    "work": by_name(by_name(integer(0, 2**62))),
}
PROGRAM = record(
    {
        **_SET,
        "threads": integer(1, 64),
        "limits": by_name(integer(1, 2**62)),
        "aliases": by_name(text()),
        "model_name": text(),
    },
    {
        "mapped": _SLOTS,
        "ignored": by_name(integer(-(2**63), 2**63 - 1)),
        "revisions": by_name(integer(1, 2**31)),
        "sets": several(record(_SET, {"mapped": _SLOTS}), 1, 255),
    },
)
