"""`data`: what a source holds, beside what a model expects."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..data.labels import class_counts
from ..data.layout import check_layout
from ..data.registry import open_data
from ..data.source import Source
from ..errors import DataError
from ..program import WEIGHT
from .choices import compile_arguments
from .namespace import Namespace
from .tables import table, to_json

_LOOKED_AT, _CHUNK = 1024, 64
# Values of a field: at once, in all; of larger samples none are looked at.
_MOST_VALUES, _MOST_LOOKED_AT, _MOST_OF_ONE = 2**22, 2**26, 2**24
_MOST_COUNTED, _SHOWN = 2**20, 12


def data(arguments: Namespace) -> int:
    """Print splits, fields, ranges and classes; with a model, whether they are what it takes."""
    source = open_data(arguments.spec, label=arguments.label, target=arguments.data_target)
    wanted = _wanted(arguments)
    if wanted:
        source.adapt({name: shape for name, (shape, _) in _by_field(wanted, source).items()})
    found = _found(source)
    faults = _faults(source, wanted) if wanted else []
    found["model"] = {
        name: {"shape": shape, "limit": limit} for name, (shape, limit) in wanted.items()
    }
    found["fits"] = None if not wanted else not faults
    if arguments.json:
        print(to_json(found | {"faults": faults}))
    else:
        print("\n".join(_lines(found, arguments.model)))
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
    """What some samples, evenly spread, have of a field: fewer, where one is large."""
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


Wanted = dict[str, tuple[tuple[int, ...], int | None]]


def _wanted(arguments: Namespace) -> Wanted:
    """Input, or "y" -> (shape of a sample, limit of its integers) that the model takes."""
    if arguments.model is None:
        return {}
    if Path(arguments.model).suffix != ".onnx":
        from ..runtime.loading import opened_program

        program = opened_program(arguments.model)
        found: Wanted = {
            slot.name: (slot.shape[1:], program.limits.get(slot.name))
            for slot in program.inputs["micro"]
            if slot.name != WEIGHT
        }
        target = program.targets["micro"]
        found["y"] = (target.shape[1:], program.limits.get(target.name))
        return found
    from ..api import expected
    from ..importer import load_onnx

    given = compile_arguments(arguments)
    given.pop("budget", None)
    return expected(load_onnx(arguments.model), **given)


def _by_field(wanted: Wanted, source: Source) -> Wanted:
    """The same by the source's fields: a single input has any name."""
    fields = [name for name in source.fields if name != "y"]
    inputs = [name for name in wanted if name != "y"]
    if len(fields) == len(inputs) == 1:
        return {fields[0] if name != "y" else "y": item for name, item in wanted.items()}
    return dict(wanted)


def _faults(source: Source, wanted: Wanted) -> list[str]:
    """What a run would refuse."""
    faults = []
    by_field = _by_field(wanted, source)
    missing = sorted({*by_field} - {*source.fields})
    if missing:
        found = ", ".join(source.fields)
        faults.append(
            f"{source.name}: its fields are {found}; the model takes {', '.join(by_field)}. Name "
            "the arrays after the model's inputs, the target y."
        )
    for name, (shape, limit) in by_field.items():
        field = source.fields.get(name)
        if field is None:
            continue
        try:
            check_layout(f"{source.name}: field {name!r}", field.shape, shape, flat=field.flat)
        except DataError as error:
            faults.append(str(error))
        if name == "y" and limit is not None and (source.classes or 0) > limit:
            named = "" if source.labels is None else f" ({', '.join(source.labels)[:120]})"
            faults.append(
                f"{source.name}: {source.classes} classes{named}; the model's output has {limit}. "
                "Export the model with as many, or leave samples out."
            )
    return faults


def _lines(found: Mapping[str, Any], model: str | None) -> list[str]:
    splits = ", ".join(f"{name} {count:,} samples" for name, count in found["splits"].items())
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
        lines.append(f"ranges are of {looked:,} samples")
    if found["classes"] is not None:
        lines.append(_class_line(found))
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
        lines.append("it fits" if found["fits"] else "it does not fit")
    return lines


def _class_line(found: Mapping[str, Any]) -> str:
    labels = found["labels"] or [str(k) for k in range(found["classes"])]
    counts = found["counts"] or [None] * len(labels)
    shown = [
        label if count is None else f"{label} {count:,}"
        for label, count in zip(labels, counts, strict=True)
    ]
    more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return f"{found['classes']} classes: {', '.join(shown[:_SHOWN])}{more}"
