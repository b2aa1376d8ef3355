"""Which outputs of a model can be computed and trained, and the part of the model they need.

Nodes that only other outputs need are not trained: class labels, boxes after NonMaxSuppression,
maps. They stay in the file that a Program contains, with their weights.
"""

from collections.abc import Iterable
from dataclasses import replace

from ...errors import ModelError
from ...ops.model import Model
from ...ops.onnx_ops import onnx_op
from ...program.trained import with_tensors


def computable(model: Model) -> Model:
    """The model with only the outputs this build can compute; unchanged if it can compute none."""
    outputs = _computable(model)
    return replace(model, outputs=outputs) if outputs and outputs != model.outputs else model


def with_output(model: Model, wanted: str | None) -> Model:
    """The model with its computable outputs, the trained one first.

    Args:
      wanted: its name; None: the first output if it consists of floats and can be computed,
        otherwise the only such output.
    Raises:
      ModelError: `wanted` is None, and there are several to choose from.
    """
    outputs = _computable(model)
    floats = [name for name in outputs if name in (model.floats or model.outputs)]
    if wanted is None and floats and model.outputs[0] not in floats:
        if len(floats) > 1:
            raise ModelError(
                f"output {model.outputs[0]!r}: it can't be trained, but {', '.join(floats)} can. "
                "Choose one with --output NAME (in Python output)."
            )
        outputs = (floats[0], *(name for name in outputs if name != floats[0]))
    lost = wanted in model.outputs and wanted not in outputs
    if not outputs or lost or outputs == model.outputs:
        return model
    return replace(_carrying(model, outputs), outputs=outputs)


def _computable(model: Model) -> tuple[str, ...]:
    """Outputs that need no unsupported op and no scalar input, which has no value; folded ops are
    supported only on constants."""
    lost = {spec.name for spec in model.inputs if not spec.dims}
    data = {spec.name for spec in model.inputs}
    for node in model.nodes:
        given = data.intersection(node.inputs)
        op = onnx_op(node.op_type)
        known = op.known if not given else op.rule or op.measure
        if not known or lost.intersection(node.inputs):
            lost.update(node.outputs)
        if given and not op.measure:
            data.update(node.outputs)
    return tuple(name for name in model.outputs if name not in lost)


def _read(model: Model, outputs: Iterable[str]) -> set[str]:
    wanted = set(outputs)
    for node in reversed(model.nodes):
        if wanted.intersection(node.outputs):
            wanted.update(node.inputs)
    return wanted


def _carrying(model: Model, outputs: tuple[str, ...]) -> Model:
    """Keep weights that only other outputs need in the Program's file."""
    read, others = _read(model, outputs), _read(model, set(model.outputs) - set(outputs))
    carried = {n for n in (*model.parameters, *model.buffers) if n in others and n not in read}
    if not carried:
        return model
    arrays = {name: model.initializers[name] for name in carried}
    return replace(
        model,
        parameters=tuple(n for n in model.parameters if n not in carried),
        buffers=tuple(n for n in model.buffers if n not in carried),
        weightless=with_tensors(model.weightless, arrays),
    )
