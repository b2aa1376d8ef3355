"""The model to be trained, and the properties of its graph: everything that does not depend on
options for storage and planning.
"""

from functools import cached_property

from ...ops.model import Model
from ...ops.onnx_ops import onnx_op
from ...ops.registry import op
from ...ops.samples import statistics
from ..bind import Bindable, Bound
from .batch import laid_out
from .model_options import ModelOptions
from .objective import choice_of, forward_of
from .proof import Samples, proof_of
from .samples import of_all_losses
from .trained import Choice
from .weights import chosen_weights


class PreparedModel:
    """A model prepared for training; each attribute is computed when it is first read.

    Attributes:
      model: as it was loaded.
      options: everything that the attributes depend on besides the model.
    """

    def __init__(self, model: Model, options: ModelOptions) -> None:
        self.model, self.options = model, options

    @cached_property
    def laid_out(self) -> Model:
        """The model with known batch axes and new heads; raises the errors of `batch.laid_out`."""
        return laid_out(self.model, self.options)

    @cached_property
    def chosen(self) -> Model:
        """The model with trained constants, adapters and roundings; raises the errors of
        `chosen_weights`.
        """
        return chosen_weights(self.laid_out, self.options)

    @cached_property
    def choice(self) -> Choice:
        """Which parameters are trained."""
        return choice_of(self.chosen, self.options)

    @cached_property
    def only_batch(self) -> int:
        """The only batch size that the file accepts; 0 if it accepts any."""
        return self._file.only_batch

    def check_free(self) -> None:
        """Raise a ModelError if the file accepts only one batch size."""
        self._file.freed()

    def bind(self, batch: int) -> Bound:
        """The chosen model bound for a batch of this size; raises the errors of `bind`."""
        return self._chosen.bind(batch)

    @cached_property
    def samples(self) -> Samples:
        """Whether the samples of a minibatch are independent up to the losses."""
        return of_all_losses(self._proofs, self.options.terms)

    @cached_property
    def axes(self) -> tuple[int, ...]:
        """The axis of each loss's output that counts its samples."""
        return tuple(proof.axis for proof in self._proofs)

    @cached_property
    def mixes_samples(self) -> bool:
        """Whether a batch-norm uses microbatch statistics, so that the microbatch matters."""
        norms = [node for node in self.laid_out.nodes if onnx_op(node.op_type).buffers]
        if not norms:
            return False
        tracked = any(name in self.chosen.buffers for node in norms for name in node.inputs)
        if self.options.freeze_bn is None and self.choice.everything and tracked:
            return True
        forward, _ = forward_of(self.bind(self.options.minibatch), self.options, self.choice)
        fed = set(forward.inputs)
        for node in forward.nodes:  # statistics over a weight involve no samples
            if any(forward.root(name) in fed for name in node.reads):
                if op(node.op).samples is statistics:
                    return True
                fed.update(forward.root(name) for name in node.writes)
        return False

    @cached_property
    def _file(self) -> Bindable:
        return Bindable(self.laid_out, self.options.dims)

    @cached_property
    def _chosen(self) -> Bindable:
        return Bindable(self.chosen, self.options.dims)

    @cached_property
    def _proofs(self) -> tuple[Samples, ...]:
        """One proof for each loss alone."""
        return tuple(self._proof(self.options.alone(term)) for term in self.options.terms)

    def _proof(self, options: ModelOptions) -> Samples:
        batch, chosen = self.only_batch, self._chosen
        if options != self.options:
            chosen = Bindable(chosen_weights(self.laid_out, options), options.dims)
        return proof_of(batch, chosen, options)
