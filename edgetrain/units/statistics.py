"""Names of running statistics."""

import re

_UNTRACKED = re.compile(r"no_(mean|variance)_\d+")


def is_tracked(statistic: str) -> bool:
    """Whether a batch-norm has running statistics; otherwise it always uses batch statistics."""
    return _UNTRACKED.fullmatch(statistic) is None
