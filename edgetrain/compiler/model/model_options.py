"""The options that say which model is trained, apart from those that say how it is stored and
planned."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from ...losses import Loss
from ...losses.terms import Term, joined
from ..options import Options
from .lora import Lora


@dataclass(frozen=True)
class ModelOptions:
    """What a model is prepared with (prepared.py): functions that take it can read nothing else.

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
        """The one that the first loss is of."""
        return self.terms[0].output

    @property
    def loss(self) -> Loss:
        """The first one."""
        return self.terms[0].loss

    @property
    def joined(self) -> bool:
        """Whether losses are added by weights."""
        return joined(self.terms)

    def alone(self, term: Term) -> "ModelOptions":
        """The same for one of the losses."""
        return replace(self, terms=(term,))
