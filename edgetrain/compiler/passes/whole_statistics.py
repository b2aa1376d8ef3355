"""The budget needed for batch-norm statistics over whole minibatches."""

from collections.abc import Mapping
from typing import Any

from ...errors import UsageError
from ..compilation import Compilation
from ..compile import make_plan


def whole_statistics(compilation: Compilation, account: Mapping[str, Any]) -> dict[str, int]:
    """For the account of a plan whose batch-norms see only part of each minibatch.

    Args:
      compilation: the planned compilation, as requested.
      account: the plan's account.
    Returns:
      `whole_statistics_nbytes`: the smallest budget in which a microbatch is the whole minibatch.
      Empty if the plan's microbatch already is, if all batch-norms are held, or if the target can't
      address it.
    """
    moves = account["training"]["moves"]["count"]
    if not moves or account["microbatch"] == account["minibatch"]:
        return {}
    try:
        minibatch = compilation.options.minibatch
        _, _, facts = make_plan(compilation.with_options(microbatch=minibatch))
    except UsageError:
        return {}
    return {"whole_statistics_nbytes": facts["min_budget_nbytes"]}
