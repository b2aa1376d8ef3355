"""How many minibatches a pass over the data has; their order is the drive's (kernels/drive)."""

from ..errors import UsageError


def steps_per_epoch(n: int, minibatch: int) -> int:
    """Whole minibatches in `n` samples; the last partial one is dropped.

    Raises:
      UsageError: there is none.
    """
    if n < minibatch:
        raise UsageError(
            f"minibatch {minibatch}: the data has only {n} training samples. "
            f"Choose a minibatch of at most {n}."
        )
    return n // minibatch
