"""The number of minibatches per epoch; kernels/step_loop defines their order."""

from ...errors import UsageError
from ...units.wording import counted


def steps_per_epoch(n: int, minibatch: int, keep_last: bool = False) -> int:
    """Minibatches in `n` samples; a partial one counts only with `keep_last`.

    Raises:
      UsageError: there are no minibatches.
    """
    if keep_last and n:
        return -(-n // minibatch)
    if n < minibatch:
        raise UsageError(
            f"minibatch {minibatch}: the data has only {counted(n, 'training sample')}. Use a "
            f"minibatch of at most {n} (--minibatch {n}), or train on a partial one (--keep-last, "
            "in Python keep_last=True)."
        )
    return n // minibatch


def partial_note(n: int, minibatch: int, keep_last: bool) -> str:
    """A note about samples that don't fill a minibatch, or ""."""
    rest = n % minibatch
    if not rest:
        return ""
    if keep_last:
        return f"the last minibatch of each epoch has {rest} of {minibatch} samples"
    return (
        f"{rest} of {n} samples are dropped in each epoch, different ones each time: they don't "
        f"fill a minibatch of {minibatch} (--keep-last, keep_last=True trains on them)"
    )
