"""The options that define the trained model, without those for storage and planning."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from ...losses import Loss
from ...losses.terms import Term, joined
from ..options import Options
from .lora import Lora


@dataclass(frozen=True)
class ModelOptions:
    """Options for preparing a model (prepared.py): functions that take them can read nothing else.

    Options that differ only in other fields prepare the same model, so compilations share it. The
    fields are those of `Options` with the same names.
    """

    terms: tuple[Term, ...]
    minibatch: int
    dims: Mapping[str, int]
    batch_axis: Mapping[str, int]
    inputs: Mapping[str, float]
    new_head: Mapping[str, int] | int | None
    lora: str | Lora | None
    seed: int
    quantized: str | None
    train: tuple[str, ...]
    freeze: tuple[str, ...]
    freeze_bn: bool | None
    train_constants: tuple[str, ...]
    allow_constants: bool

    @classmethod
    def of(cls, options: Options) -> "ModelOptions":
        return cls(**{field.name: getattr(options, field.name) for field in fields(cls)})

    @property
    def output(self) -> str | None:
        """The output of the first loss."""
        return self.terms[0].output

    @property
    def loss(self) -> Loss:
        """The first loss."""
        return self.terms[0].loss

    @property
    def joined(self) -> bool:
        """Whether the losses are added up with weights."""
        return joined(self.terms)

    def alone(self, term: Term) -> "ModelOptions":
        """These options with only one of the losses."""
        return replace(self, terms=(term,))
