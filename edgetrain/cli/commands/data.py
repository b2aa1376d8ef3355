"""`data`: what a dataset contains, and what a model expects."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ...data.checks.expected import Expected
from ...data.checks.layout import check_layout
from ...data.registry import open_data
from ...data.source import Source
from ...data.sources.labels import class_counts
from ...errors import DataError
from ...losses.terms import terms_of_recipe
from ...program import TARGET, WEIGHT, Program
from ...screen.tables import table, to_json
from ...units.wording import counted
from ..parser.namespace import Namespace
from ..parser.plan_options import PASS_MODEL, check_compiled

_LOOKED_AT, _CHUNK = 1024, 64
# Most values of a field: at once, in total; larger samples are not examined.
_MOST_VALUES, _MOST_LOOKED_AT, _MOST_OF_ONE = 2**22, 2**26, 2**24
_MOST_COUNTED, _SHOWN = 2**20, 12
Item = TypeVar("Item")


def data(arguments: Namespace) -> int:
    """Print splits, fields, ranges and classes; with a model, also whether they fit it."""
    source = open_data(arguments.spec, label=arguments.label, target=arguments.target_input)
    wanted = _wanted(arguments)
    shapes = {} if wanted is None else _by_field(wanted.shapes, source, wanted)
    source.adapt(shapes)
    result = _found(source)
    faults = [] if wanted is None else _faults(source, wanted, shapes)
    result["model"] = {}
    if wanted is not None:
        result["model"] = {
            name: {"shape": shape, "limit": wanted.limits.get(name)}
            for name, shape in wanted.shapes.items()
        }
    result["fits"] = None if wanted is None else not faults
    if arguments.json:
        print(to_json(result | {"faults": faults}))
    else:
        print("\n".join(_lines(result, arguments.model)))
    if faults:
        raise DataError(faults[0])
    return 0


def _found(source: Source) -> dict[str, Any]:
    splits = {}
    for split in source.splits:
        splits[split] = source.n if split == source.split else source.for_split(split).n
    fields = {name: _field(source, name) for name in source.fields}
    counts = None
    if source.classes is not None and source.n <= _MOST_COUNTED and "y" in source.fields:
        counts = class_counts(source).tolist()
    return {
        "name": source.name,
        "splits": splits,
        "fields": fields,
        "classes": source.classes,
        "labels": None if source.labels is None else list(source.labels),
        "counts": counts,
    }


def _field(source: Source, name: str) -> dict[str, Any]:
    """Statistics of a field from evenly spread samples; fewer if samples are large."""
    field = source.fields[name]
    size = max(1, field.size)
    looked = min(_LOOKED_AT, source.n, max(1, _MOST_LOOKED_AT // size))
    indices = np.unique(np.linspace(0, source.n - 1, looked).astype(np.int64))
    indices = indices if size <= _MOST_OF_ONE else indices[:0]
    low, high, total, count = math.inf, -math.inf, 0.0, 0
    step = max(1, min(_CHUNK, _MOST_VALUES // size))
    for start in range(0, len(indices), step):
        part = indices[start : start + step]
        values = np.empty((len(part), *field.shape), field.dtype)
        source.fill(part, {name: values})
        if values.size:
            low, high = min(low, float(values.min())), max(high, float(values.max()))
            total, count = total + float(values.sum(dtype=np.float64)), count + values.size
    return {
        "dtype": field.dtype.name,
        "shape": list(field.shape),
        "min": low if count else None,
        "max": high if count else None,
        "mean": total / count if count else None,
        "looked_at": len(indices),
    }


def _wanted(arguments: Namespace) -> Expected | None:
    """What the model expects, if one is given."""
    if arguments.model is None:
        return None
    if Path(arguments.model).suffix != ".onnx":
        from ...runtime.loading.program import opened_program

        check_compiled(arguments, arguments.model, PASS_MODEL)
        return _of_program(opened_program(arguments.model))
    from ...api import expected
    from ...importer import load_onnx
    from ..parser.choices import compile_arguments

    given = compile_arguments(arguments)
    given.pop("budget", None)
    return expected(load_onnx(arguments.model), **given)


def _of_program(program: Program) -> Expected:
    terms = terms_of_recipe(program.recipe, TARGET)
    fields = {t.target: str(t.output) if t.label else "y" for t in terms if t.loss.takes_target}
    staged = program.staged("micro")
    names = [*program.input_names, *fields]
    shapes = {fields.get(name, name): staged[name].shape[1:] for name in names}
    limits = {fields.get(name, name): n for name, n in program.limits.items()}
    ignored = program.ignored_of(TARGET)
    return Expected(shapes, limits, ignored, program.ignored, WEIGHT in staged, program.minibatch)


def _by_field(items: Mapping[str, Item], source: Source, wanted: Expected) -> dict[str, Item]:
    """The same mapping by the source's field names; a single input may have any name."""
    own = {"y", "w"} if wanted.weighed else {"y"}
    fields = [name for name in source.fields if name not in own]
    inputs = [name for name in items if name != "y"]
    if len(fields) == len(inputs) == 1:
        return {fields[0] if name != "y" else "y": item for name, item in items.items()}
    return dict(items)


def _faults(source: Source, wanted: Expected, shapes: Mapping[str, tuple[int, ...]]) -> list[str]:
    """Reasons why a run would refuse the data.

    Args:
      shapes: shapes of the model's samples, by field of the source.
    """
    missing = sorted({*shapes} - {*source.fields})
    if missing:
        result = ", ".join(source.fields)
        return [
            f"{source.name}: found fields {result}; the model expects {', '.join(shapes)}. Name "
            "the arrays after the model's inputs, and the target y."
        ]
    faults = []
    if wanted.weighed and "w" not in source.fields:
        faults.append(
            f"{source.name}: sample weights (field 'w', or w_train in an npz file) are missing. "
            "Add them, or compile without --sample-weights."
        )
    elif "w" in source.fields and not wanted.weighed and "w" not in shapes:
        faults.append(
            f"{source.name}: it has sample weights (field 'w'), but the loss takes none. Compile "
            "with --sample-weights, or remove them."
        )
    if 0 < source.n < wanted.minibatch and source.split == "train":
        faults.append(
            f"{source.name}: {source.n} training samples, but a minibatch of {wanted.minibatch}. "
            f"Use a minibatch of at most {source.n} (--minibatch {source.n}), or train on a "
            "partial one (--keep-last)."
        )
    for name, shape in shapes.items():
        field = source.fields[name]
        try:
            check_layout(f"{source.name}: field {name!r}", field.shape, shape, flat=field.flat)
        except DataError as error:
            faults.append(str(error))
    return faults or _value_faults(source, wanted)


def _value_faults(source: Source, wanted: Expected) -> list[str]:
    """The first invalid value of each split."""
    limits = _by_field(wanted.limits, source, wanted)
    ignored = _by_field(wanted.ignored, source, wanted)
    faults = []
    for split in source.splits:
        part = source.for_split(split)
        try:
            part.check_limits(limits, wanted.ignore_index, ignored)
            part.check_values(_by_field(wanted.shapes, source, wanted))
        except DataError as error:
            faults.append(str(error))
    return faults


def _lines(found: Mapping[str, Any], model: str | None) -> list[str]:
    splits = ", ".join(
        f"{name} {count:,} sample{'s' * (count != 1)}" for name, count in found["splits"].items()
    )
    lines = [f"{found['name']}: {splits}"]
    rows = [
        (
            name,
            field["dtype"],
            str(field["shape"]),
            "" if field["min"] is None else f"{field['min']:.5g} to {field['max']:.5g}",
            "" if field["mean"] is None else f"{field['mean']:.5g}",
        )
        for name, field in found["fields"].items()
    ]
    lines += table(rows, "lllrr", ("field", "type", "shape", "range", "mean"))
    looked = min((field["looked_at"] for field in found["fields"].values()), default=0)
    if looked < max(found["splits"].values()):
        lines.append(f"ranges cover {looked:,} samples")
    if found["classes"] is not None:
        lines += _class_lines(found)
    if found["model"]:
        lines.append(f"{model} takes")
        takes = [
            (
                name,
                str(list(item["shape"])),
                "" if item["limit"] is None else f"whole numbers below {item['limit']}",
            )
            for name, item in found["model"].items()
        ]
        lines += table(takes, "lll", ("input", "shape", ""))
        lines.append(f"the data {'fits' if found['fits'] else 'does not fit'} the model")
    return lines


def _class_lines(found: Mapping[str, Any]) -> list[str]:
    """Classes and their counts; only the range if targets may be numbers."""
    model, counts = found["model"], found["counts"]
    if model and "y" in model and model["y"]["limit"] is None:
        return []  # the model takes numbers
    if found["labels"] is None and not (counts and all(counts)):
        first = next((k for k, count in enumerate(counts or ()) if count), 0)
        reach = f"{first:,} to {found['classes'] - 1:,}"
        return [f"targets are whole numbers from {reach}: classes, or numbers to predict"]
    return [_class_line(found)]


def _class_line(found: Mapping[str, Any]) -> str:
    labels = found["labels"] or [str(k) for k in range(found["classes"])]
    counts = found["counts"] or [None] * len(labels)
    shown = [
        label if count is None else f"{label} {count:,}"
        for label, count in zip(labels, counts, strict=True)
    ]
    more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return f"{counted(found['classes'], 'class')}: {', '.join(shown[:_SHOWN])}{more}"
