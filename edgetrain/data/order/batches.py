"""How many minibatches a pass over the data has; their order is the drive's (kernels/drive)."""

from ...errors import UsageError


def steps_per_epoch(n: int, minibatch: int, keep_last: bool = False) -> int:
    """Minibatches in `n` samples; the last partial one is dropped, or with `keep_last` kept.

    Raises:
      UsageError: there is none.
    """
    if keep_last and n:
        return -(-n // minibatch)
    if n < minibatch:
        raise UsageError(
            f"minibatch {minibatch}: the data has only {n} training samples. "
            f"Choose a minibatch of at most {n}, or keep the last partial one."
        )
    return n // minibatch
