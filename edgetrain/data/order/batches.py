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
            f"minibatch {minibatch}: the data has only {n} training samples, and a partial "
            f"minibatch is dropped. Compile with a minibatch of at most {n} (--minibatch {n}), or "
            "keep the partial one (--keep-last, in Python keep_last=True)."
        )
    return n // minibatch


def partial_note(n: int, minibatch: int, keep_last: bool) -> str:
    """What becomes of the samples behind the last whole minibatch; "" if there are none."""
    rest = n % minibatch
    if not rest:
        return ""
    if keep_last:
        return f"the last minibatch of each epoch has {rest} of {minibatch} samples"
    return (
        f"{rest} of {n} samples are dropped in each epoch, as they do not fill a minibatch of "
        f"{minibatch}; they differ from epoch to epoch (--keep-last, keep_last=True trains on them)"
    )
