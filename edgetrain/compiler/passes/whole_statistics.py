"""The budget needed for batch-norm statistics over whole minibatches."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...errors import UsageError
from ...ops.model import Model
from ..compile import plan_model
from ..options import Options


def whole_statistics(model: Model, options: Options, account: Mapping[str, Any]) -> dict[str, int]:
    """For the account of a plan whose batch-norms see only part of each minibatch.

    Args:
      options: options the plan was requested with.
      account: the plan's account.
    Returns:
      `whole_statistics_nbytes`: the smallest budget in which a microbatch is the whole minibatch;
      nothing if the plan's is, all batch-norms are held, or the target can't address it.
    """
    moves = account["training"]["moves"]["count"]
    if not moves or account["microbatch"] == account["minibatch"]:
        return {}
    try:
        _, _, facts = plan_model(model, replace(options, microbatch=options.minibatch))
    except UsageError:
        return {}
    return {"whole_statistics_nbytes": facts["min_budget_nbytes"]}
