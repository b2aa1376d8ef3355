"""Which constants of a model are trained, and a check that few of its weights are left out."""

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from ...errors import ModelError, UsageError
from ...ops.model import Model
from ...units.wording import counted
from .inputs import with_inputs
from .lora import Lora, adapted
from .model_options import ModelOptions
from .outputs import with_output
from .quantised import without_rounding

# At most one in TENTH weight elements may stay constant.
TENTH = 10
_NAMED = 3  # constants listed in messages


def chosen_weights(model: Model, options: ModelOptions) -> Model:
    """The model with the constants that match `options.train_constants` as parameters.

    A quantised model is rounded according to `options.quantized`.

    Raises:
      UsageError: a pattern matches no float constant, or `quantized` was given for a model that
        isn't quantised.
      ModelError: more than a tenth of the weights would not be trained although no option requests
        that.
    """
    lora = options.lora if isinstance(options.lora, Lora) else None
    part = with_output(with_inputs(model, options.inputs), options.output)
    base = part if lora is None else replace(part, untrained=())
    chosen = _chosen(base, options)
    chosen = chosen if lora is None else adapted(chosen, lora, options.seed)
    return without_rounding(chosen, options)


def _chosen(model: Model, options: ModelOptions) -> Model:
    arrays = model.initializers
    known = {*model.parameters, *model.buffers}
    constants = [n for n, a in arrays.items() if n not in known and a.dtype.kind == "f" and a.size]
    for pattern in options.train_constants:
        if not _matching([*constants, *model.parameters], [pattern]):
            raise UsageError(
                f"--train-constants (in Python train_constants) {pattern!r}: no match among "
                f"float constants ({', '.join(constants[:_NAMED]) or 'none'} ..)."
            )
    chosen = _matching(constants, options.train_constants)
    chosen += [n for n in _named(model, options.train, constants) if n not in chosen]
    untrained = tuple(n for n in model.untrained if n not in chosen)
    model = replace(model, parameters=(*model.parameters, *chosen), untrained=untrained)
    lost = sum(arrays[name].size for name in _unasked(model, options))
    total = lost + sum(arrays[name].size for name in model.parameters)
    if lost * TENTH > total and not options.allow_constants:
        raise ModelError(
            f"{lost:,} of {total:,} weights are constants in this file and would not be trained; "
            f"largest: {_largest(model, options)}. Train them with --train-constants PATTERN "
            "(in Python train_constants=[PATTERN]), leave them with --allow-constants "
            "(allow_constants=True), or export the model again with "
            "edgetrain.exporters.export_torch, which keeps all parameters."
        )
    return model


def _named(model: Model, patterns: Sequence[str], constants: Sequence[str]) -> list[str]:
    """Constants that patterns of `train` turn into parameters.

    A constant's name, or a pattern that matches no parameter, selects constants; other patterns
    that begin with a literal character select constants used as operands.
    """
    every = (*model.parameters, *model.aliases, *model.buffers)
    result: list[str] = []
    for pattern in patterns:
        if pattern in constants:
            result.append(pattern)
        elif not _matching(every, [pattern]):
            result += _matching(constants, [pattern])
        elif pattern[:1] not in "*?[":
            result += _matching(list(model.operands), [pattern])
    return list(dict.fromkeys(n for n in result if n in constants))


def constant_notes(model: Model, options: ModelOptions) -> list[str]:
    """Notes for the user about constants that may be weights.

    Args:
      model: as it was loaded.
    """
    model = replace(
        model,
        untrained=tuple(n for n in model.untrained if not _matching([n], options.train_constants)),
    )
    notes, lost = _operand_notes(model, options), _unasked(model, options)
    if not lost:
        return notes
    count = sum(model.initializers[name].size for name in lost)
    return [
        f"not trained: {count:,} numbers of {counted(len(lost), 'constant')} "
        f"({_largest(model, options)}). If they are weights, pass --train-constants PATTERN (in "
        "Python train_constants=[PATTERN]).",
        *notes,
    ]


def _operand_notes(model: Model, options: ModelOptions) -> list[str]:
    """Notes on named constants in formulas that no option mentions."""
    asked = (*options.train, *options.train_constants, *options.freeze)
    left = [n for n in model.operands if not _matching([n], asked)]
    if not left or options.lora is not None:
        return []
    listed = ", ".join(f"{n} (operand of {model.operands[n]})" for n in left[:_NAMED])
    more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
    return [
        f"not trained: {listed}{more}; pass --train {left[0]} to train only it, --train-constants "
        f"{left[0]} to train it too (in Python train, train_constants)."
    ]


def _unasked(model: Model, options: ModelOptions) -> list[str]:
    """Possible weights that are not trained although no pattern requests that."""
    if options.train:
        return []
    frozen = _matching(model.untrained, options.freeze)
    return [name for name in model.untrained if name not in frozen]


def _largest(model: Model, options: ModelOptions) -> str:
    arrays = model.initializers
    names = sorted(_unasked(model, options), key=lambda name: -arrays[name].size)
    listed = ", ".join(f"{n!r} {list(arrays[n].shape)}" for n in names[:_NAMED])
    return f"{listed}, .." if len(names) > _NAMED else listed


def _matching(names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    return [n for n in names if any(fnmatchcase(n, pattern) for pattern in patterns)]
