"""The model's file inside a Program: without weights, with a description of its losses."""

from dataclasses import replace

from ...errors import EdgetrainError
from ...ops.model import Model
from ...ops.onnx_ops import Subgraph
from ...program.onnx_fields import GRAPH
from ...program.predictions import Shape, with_losses
from ...program.protobuf import Message
from ...program.trained import loss_of, with_tensors
from ..bind import Bindable
from .model_options import ModelOptions
from .outputs import with_output

BATCH = "batch"  # dimension that counts samples


def stored_model(model: Model, options: ModelOptions, microbatch: int) -> bytes:
    """The ONNX file of a Program, which names the outputs that are losses computed by the model.

    Args:
      model: as it was laid out.
    """
    stored = _with_untaken(with_output(model, options.output), options, microbatch)
    losses = [t.output or stored.outputs[0] for t in options.terms if t.loss.of_model]
    if not losses:
        return with_losses(stored.weightless, (), {})
    file = Message(stored.weightless)
    gone = loss_of(file, file.messages(GRAPH)[-1], losses, {*stored.parameters, *stored.buffers})
    shapes = _shapes(stored, options, gone.instead, microbatch) if gone.instead else {}
    return with_losses(stored.weightless, losses, shapes)


def _with_untaken(model: Model, options: ModelOptions, microbatch: int) -> Model:
    """Keep weights that only branches which are not taken read in the Program's file."""
    if not any(isinstance(a, Subgraph) for node in model.nodes for a in node.attrs.values()):
        return model
    read = Bindable(model, options.dims).bind(microbatch).arrays
    unread = [n for n in (*model.parameters, *model.buffers) if n not in read]
    arrays = {name: model.initializers[name] for name in unread}
    return replace(model, weightless=with_tensors(model.weightless, arrays))


def _shapes(
    model: Model, options: ModelOptions, names: tuple[str, ...], microbatch: int
) -> dict[str, Shape]:
    """Shapes of values; empty if the importer gave them other names."""
    asked = Bindable(replace(model, outputs=names), options.dims)
    try:
        smaller, larger = (asked.bind(n) for n in (microbatch, 2 * microbatch))
        shapes = [
            tuple(bound.graph.values[bound.outputs[name]].shape for name in names)
            for bound in (smaller, larger)
        ]
    except (EdgetrainError, KeyError):
        return {}
    return {
        name: tuple(a if a == b else BATCH for a, b in zip(*pair, strict=True))
        for name, *pair in zip(names, *shapes, strict=True)
    }
