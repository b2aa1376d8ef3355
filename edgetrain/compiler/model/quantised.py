"""Which values of a quantised model are rounded during training: --quantized keep or float."""

from dataclasses import replace

from ...errors import UsageError
from ...ops.model import Model
from ...ops.onnx_ops import OnnxNode
from ...ops.quantised import is_rounded
from .model_options import ModelOptions
from .trained import Choice

_ROUNDING = "QuantizeLinear"


def without_rounding(model: Model, options: ModelOptions) -> Model:
    """The model with unnecessary rounding replaced by Identity.

    Rounding of untrained weights is unnecessary if they are already on their grid, as those that
    the file stores as integers are. With `float`, all rounding is.

    Raises:
      UsageError: `quantized` was given for a model that isn't quantised.
    """
    rounded = {node.inputs[0] for node in model.nodes if node.op_type == _ROUNDING}
    if not rounded:
        if options.quantized is not None:
            raise UsageError(
                f"quantized {options.quantized!r}: {model.source or model.name} is not quantised "
                "(no QuantizeLinear). Leave the option out."
            )
        return model
    choice = Choice(model, options.train, options.freeze, options.train_constants)
    untrained = {name for name in model.parameters if not choice(name)}

    def needless(node: OnnxNode) -> bool:
        source = node.inputs[0]
        kept = source in untrained and is_rounded(node, model.initializers[source])
        return options.quantized == "float" or kept

    nodes = tuple(
        OnnxNode(n.name, "Identity", n.inputs[:1], n.outputs[:1])
        if n.op_type == _ROUNDING and needless(n)
        else n
        for n in model.nodes
    )
    return replace(model, nodes=nodes)
