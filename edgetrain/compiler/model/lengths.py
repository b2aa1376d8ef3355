"""Lengths: several sizes of one dimension, each with its own tapes in one Program."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from ...errors import UsageError
from ...ops.model import Model, batch_inputs, free_dims
from ..compilation import Compilation
from ..options import Options

_EVEN = 8  # a minibatch by tokens is a multiple of this, so it can be split into microbatches


def of_each_length(compilation: Compilation) -> list[Compilation]:
    """The compilation of each length, the longest first; only the given one if it has no lengths.

    Raises:
      UsageError: the model has no such dimension, or several to choose from; the dimension is the
        batch or has a size already; too few tokens for a sample.
    """
    options = compilation.options
    if not options.lengths:
        return [compilation]
    name, sizes = next(iter(options.lengths.items()))
    sized = compilation.with_options(lengths=(), tokens=None, microbatch=None)
    model = sized.prepared.laid_out
    free = free_dims(model)
    name = name or _only(model, free - options.dims.keys(), sizes)
    said = f"lengths {name}={_listed(sizes)}"
    if name in options.dims:
        raise UsageError(f"{said}: dim {name}={options.dims[name]} is its size. Leave one out.")
    batch = batch_inputs(model)
    if name in batch:
        raise UsageError(
            f"{said}: this is the batch (axis {batch[name].batch} of input "
            f"{batch[name].name!r}). Use --minibatch, or --tokens."
        )
    if name not in free:
        raise UsageError(
            f"{said}: no such free dimension; the model has {', '.join(sorted(free)) or 'none'}."
        )
    each, split = sorted(sizes, reverse=True), options.microbatch
    dims = [{**options.dims, name: size} for size in each]
    minibatches = [_minibatch(options, name, size) for size in each]
    return [
        sized.with_options(dims=with_size, minibatch=count, microbatch=split)
        for with_size, count in zip(dims, minibatches, strict=True)
    ]


def dimension(options: Options, sized: Options) -> str:
    """The name of the dimension that has lengths; `sized`: options of one length."""
    return next(iter(sized.dims.keys() - options.dims.keys()), "")


def _only(model: Model, left: AbstractSet[str], sizes: Sequence[int]) -> str:
    """The only dimension left without a size."""
    if len(left) == 1:
        return next(iter(left))
    if not left:
        inputs = "; ".join(f"{s.name} [{_listed(s.dims)}]" for s in model.inputs if s.dims)
        raise UsageError(
            f"lengths {_listed(sizes)}: the model has no dimension but the batch that may vary: "
            f"{inputs}. Export it with a named one (torch: dynamic_shapes)."
        )
    raise UsageError(
        f"lengths {_listed(sizes)}: the model has free dimensions {_listed(sorted(left))}. "
        f"Name one (--lengths {min(left)}={_listed(sizes)}, in Python "
        f"lengths={{{min(left)!r}: [{_listed(sizes)}]}}), and size the others with --dim (dims)."
    )


def _minibatch(options: Options, name: str, size: int) -> int:
    """Samples of a minibatch of this length: fixed, or as many as have about `tokens` tokens."""
    if options.tokens is None:
        return options.minibatch
    count = options.tokens // size
    unit = options.microbatch or (_EVEN if count >= _EVEN else 1)
    if not count // unit:
        raise UsageError(
            f"tokens {options.tokens}: length {name}={size} needs {unit * size} for {unit} "
            f"sample{'s' * (unit > 1)}. Pass at least that."
        )
    return count - count % unit


def _listed(numbers: Sequence[Any]) -> str:
    return ",".join("?" if number is None else str(number) for number in numbers)
