"""Targets and losses of a bundle by index, as listed in the header and MANIFEST.json."""

from typing import Any, NamedTuple

from ..program import TARGET, Program, Slot


class Target(NamedTuple):
    """The target of all losses of one output.

    Attributes:
      output: name of the output; None: the model's first.
      place: index of the target's pointer in x; None: the target is at y.
    """

    output: str | None
    slot: Slot
    place: int | None


def targets_of(program: Program) -> tuple[Target, ...]:
    """Targets in the order of the losses; the first is at y, the others in x."""
    result: list[Target] = []
    slots = {slot.name: (k, slot) for k, slot in enumerate(program.inputs["micro"])}
    for output in program.output_names:
        if not result:
            result.append(Target(output, program.targets["micro"], None))
        elif f"{TARGET}.{output}" in slots:
            place, slot = slots[f"{TARGET}.{output}"]
            result.append(Target(output, slot, place))
    return tuple(result)


def losses_of(program: Program) -> list[dict[str, Any]]:
    """Output, name, weight and options of each loss."""
    recipe = program.recipe
    pairs = recipe.get("losses") or [(recipe.get("output"), recipe["loss"])]
    result = [{"output": output, "weight": 1.0, **own} for output, own in pairs]
    return [{k: list(v) if isinstance(v, tuple) else v for k, v in item.items()} for item in result]
