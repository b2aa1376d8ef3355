"""The names of `onnxruntime.training.artifacts`: makes training artifacts from a forward model."""

import os
import tempfile
from collections.abc import Iterable, Sequence
from enum import Enum
from os import PathLike
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..losses import Loss
from ..optim import SGD, AdamW
from ..optim import Optimizer as Method
from ..program import Program
from ..program.trained import outputs_in_file
from ..units.public import as_path, public
from .state import MODEL, write_checkpoint

CHECKPOINT = "checkpoint"


class LossType(Enum):
    """Losses, by ONNX Runtime's names."""

    MSELoss = "mse"
    CrossEntropyLoss = "cross_entropy"
    BCEWithLogitsLoss = "bce_with_logits"
    L1Loss = "l1"


class OptimType(Enum):
    """Optimizers, by ONNX Runtime's names and with its default values."""

    AdamW = AdamW(lr=1e-3, eps=1e-6, weight_decay=0.0)
    SGD = SGD(lr=1e-3)


def _member(kinds: type[Enum], given: Any) -> Any:
    """Look up an enum member by name; other values are returned unchanged."""
    return kinds[given] if isinstance(given, str) and given in kinds.__members__ else given


@public
def generate_artifacts(
    model: Any,
    requires_grad: Sequence[str] | None = None,
    frozen_params: Sequence[str] | None = None,
    loss: Any = None,
    optimizer: Any = None,
    artifact_directory: str | PathLike | None = None,
    prefix: str = "",
    additional_output_names: Sequence[str] = (),
    **options: Any,
) -> None:
    """Write `training_model.edge` and `checkpoint`, for `Module` and `Optimizer`.

    One Program replaces the training, eval and optimizer models of ONNX Runtime, whose file names
    are accepted as paths.

    Args:
      model: an onnx.ModelProto, or the path of one.
      requires_grad: parameters to train, others are frozen; None: all but `frozen_params`.
      loss: a LossType or its name, or an edgetrain loss; None: the model's output is the loss.
      optimizer: an OptimType or its name, or an edgetrain optimizer; None: SGD.
      artifact_directory: output directory (default: the current directory).
      prefix: prefix of both file names.
      additional_output_names: outputs that calls of the module return along with the loss.
      options: of `edgetrain.compile`: minibatch (32), microbatch, budget, precision, threads, ..
    Raises:
      UsageError: a name or option that can't be used.
      BudgetError, ModelError: as `edgetrain.compile`.
    """
    requires_grad = _names("requires_grad", requires_grad)
    frozen_params = _names("frozen_params", frozen_params)
    extra = _names("additional_output_names", additional_output_names) or []
    if not isinstance(prefix, str | None):
        raise UsageError(f"generate_artifacts: prefix {repr(prefix)[:60]}: expected a string.")
    prefix = prefix or ""
    _check_once(requires_grad, frozen_params)
    for name in ("ort_format", "nominal_checkpoint", "loss_input_names", "custom_op_library"):
        if options.pop(name, None):
            raise UsageError(
                f"generate_artifacts: {name}: edgetrain does not support it. Leave it out."
            )
    folder = (
        Path.cwd()
        if artifact_directory is None
        else as_path("artifact_directory", artifact_directory, "a directory")
    )
    if not os.path.isdir(folder):
        raise UsageError(f"generate_artifacts: directory {folder} does not exist. Create it.")
    program = _compiled(model, requires_grad, frozen_params, loss, optimizer, options)
    trained = program.recipe["output"]
    known = [trained] if trained else outputs_in_file(program)[:1]
    if extra and extra != known:
        raise UsageError(
            f"additional_output_names {extra}: expected {known}, the trained output. Leave the "
            "others out."
        )
    program.save(folder / f"{prefix}{MODEL}.edge")
    write_checkpoint(folder / f"{prefix}{CHECKPOINT}", {}, {"outputs": extra})


def _check_once(trained: Sequence[str] | None, frozen: Sequence[str] | None) -> None:
    both = sorted({*(trained or ())} & {*(frozen or ())})
    if both:
        raise UsageError(
            f"generate_artifacts: {both[0]!r} is in requires_grad and frozen_params. Remove one."
        )


def _names(what: str, given: Any) -> list[str] | None:
    """Check a list of names; None is returned unchanged.

    Raises:
      UsageError: `given` is not a list of names, but for example a single name.
    """
    if given is None:
        return None
    if isinstance(given, str) or not isinstance(given, Iterable):
        shown = given if isinstance(given, str) else "name"
        raise UsageError(
            f"generate_artifacts: {what} {repr(given)[:60]}: expected a list of names, such as "
            f"[{shown[:60]!r}]."
        )
    result = [*given]
    strange = [name for name in result if not isinstance(name, str)]
    if strange:
        raise UsageError(
            f"generate_artifacts: {what}: found {repr(strange[0])[:60]}; expected parameter "
            "names. Pass names, not tensors."
        )
    return result


def _compiled(
    model: Any,
    requires_grad: Sequence[str] | None,
    frozen_params: Sequence[str] | None,
    loss: Any,
    optimizer: Any,
    options: dict[str, Any],
) -> Program:
    from ..api import compile

    loss, optimizer = _member(LossType, loss), _member(OptimType, optimizer)
    result: Any = loss.value if isinstance(loss, LossType) else loss
    if not isinstance(result, str | Loss | None):
        raise UsageError(
            f"generate_artifacts: loss {repr(loss)[:80]}: expected a LossType, or a loss such as "
            "et.Loss('cross_entropy'). If your loss is made of blocks, add it to the model and "
            "pass none."
        )
    method: Any = optimizer.value if isinstance(optimizer, OptimType) else optimizer
    if not isinstance(method, str | Method | None):
        raise UsageError(
            f"generate_artifacts: optimizer {repr(optimizer)[:80]}: expected an OptimType, or an "
            "optimizer such as et.AdamW(lr=0.001)."
        )
    chosen: dict[str, Any] = {"loss": result or "output", "optimizer": method or SGD(lr=1e-3)}
    if requires_grad is not None:
        chosen["train"] = [*requires_grad]
    elif frozen_params:
        chosen["freeze"] = [*frozen_params]
    if isinstance(model, str | PathLike):
        return compile(model, **chosen, **options, verbose=False)
    if not hasattr(model, "SerializeToString"):
        raise UsageError(f"model {repr(model)[:80]}: expected an onnx.ModelProto, or a path.")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(model.SerializeToString())
        return compile(path, **chosen, **options, verbose=False)
