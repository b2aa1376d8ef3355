"""The fields of a Program file, with their types, ranges and whether they are required.

Losses, optimizers and rewirings are stored as a name and numbers; whether this build supports them
is checked when the Program is loaded to run. Unknown fields of the recipe and of slots are
rejected, because they belong to another version. The account may have more figures, which are only
displayed.
"""

from collections.abc import Collection, Mapping
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
# Versions this build reads. Fields added by a version are optional; if absent, the meaning is that
# of earlier versions. This holds for the recipe and slots too, because `digest` tells which
# checkpoints belong to a Program. 4: revisions; 5: sets of tapes.
VERSIONS = range(3, VERSION + 1)

_LARGE = 2**60  # bytes; beyond them offsets and extents would not stay within 64 bits
_SAMPLES = 2**31
_ROLES = (*PERSISTENT, "input", "target", "activation", "statistic", "gradient")
_NBYTES = integer(0, _LARGE)


def check_program(value: Any, name: str) -> None:
    """Check the fields of a Program. The checks are built each time and not kept, because on a
    device they would take as much memory as a small network.
    """
    _program()(value, name)


def check_recipe(value: Any, name: str) -> None:
    """Check a recipe on its own."""
    _recipe()(value, name)


def _recipe() -> Check:
    # The runtime checks whether it supports these: see runtime/loading/program.py.
    plugin = record({"name": text()}, others=plain())
    layer = row(
        text(), several(integer(1, 2**31), 2, 8), integer(1, 2**48), integer(1, 2**48), boolean
    )
    patterns = several(text())

    # Weight, its matrices A and B, whether its layout is [in, out].
    adapted = row(text(), text(), text(), boolean)
    lora = record(
        {
            "r": integer(1, 2**20),
            "alpha": number(above=0),
            "targets": patterns,
            "init": text(),
            "layers": several(adapted, most=2**16),
        }
    )
    group = record({"pattern": text()}, {"lr": number(0), "weight_decay": number(0)})
    # Options that are neither numbers, names nor mappings to these.
    objects: dict[str, Check] = {
        "loss": plugin,
        "optimizer": plugin,
        "rewiring": optional(plugin),
        "lora": lora,
        "groups": several(group),
        "losses": several(row(text(), plugin), 2, 5),
        "lengths": by_name(several(integer(1, _SAMPLES), 2, 64)),
    }
    return record(
        {
            **{option.name: _stored(option, objects) for option in OPTIONS.values() if option.old},
            "lanes": integer(1, 16),
            "sparse_layers": several(layer, most=2**16),
        },
        {
            **{
                option.name: _stored(option, objects)
                for option in OPTIONS.values()
                if not option.old
            },
            "output_shape": several(integer(1, 2**48), most=16),
        },
    )


def _stored(option: Option, objects: Mapping[str, Check]) -> Check:
    """The check of an option's value in a recipe."""
    if option.name in objects:
        return objects[option.name]
    if option.item:
        return by_name(_simple(option, {option.item}))
    if option.several:
        return several(_simple(option, {"str"}))
    result = _simple(option, option.kinds)
    return optional(result) if "None" in option.kinds and not option.new else result


def _simple(option: Option, kinds: Collection[str]) -> Check:
    if option.choices:
        return one_of(*option.choices)
    if "str" in kinds:
        return text()
    if "bool" in kinds:
        return boolean
    bounds: dict[str, Any] = {"most": 2**63 - 1} | dict(option.bounds)
    return integer(**bounds) if "int" in kinds else number(**option.bounds)


def _account() -> Check:
    counted = record(
        {
            "count": integer(0, _SAMPLES),
            "numbers": _NBYTES,
            "nbytes": _NBYTES,
            "names": several(text()),
        }
    )
    # compiler/advice/listing.py
    training = record(
        {"trained": counted, "frozen": counted, "moves": counted, "stays": counted},
        {"sparse": several(text()), "dense": by_name(text())},
    )
    return record(
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
            "training": training,
        },
        others=plain(),
    )


def _program() -> Check:
    slot = record(
        {
            "name": text(),
            "offset": integer(0, _LARGE, 64),
            "shape": several(integer(0, 2**48), most=16),
            "dtype": one_of(*FORMATS),
            "role": one_of(*_ROLES),
        },
        {"batch": integer(1, 15)},
    )
    slots = several(slot, most=2**20)
    each = {
        "arena_nbytes": integer(64, _LARGE - 1, 64),
        "minibatch": integer(1, _SAMPLES),
        "microbatch": integer(1, _SAMPLES),
        "target_count": integer(1, 2**48),
        "kernels": several(row(text(80), text(80), several(one_of(*FORMATS), most=16)), most=2**16),
        "persistent": slots,
        "inputs": record({"micro": slots, "eval": slots}),
        "targets": record({"micro": slot, "eval": slot}),
        "outputs": record({"eval": several(slot, 1, 5)}),
        "account": _account(),
        "recipe": _recipe(),
        "work": by_name(by_name(integer(0, 2**62))),
    }
    return record(
        {
            **each,
            "threads": integer(1, 64),
            "limits": by_name(integer(1, 2**62)),
            "aliases": by_name(text()),
            "model_name": text(),
        },
        {
            "mapped": slots,
            "ignored": by_name(integer(-(2**63), 2**63 - 1)),
            "revisions": by_name(integer(1, 2**31)),
            "sets": several(record(each, {"mapped": slots}), 1, 255),
        },
    )
