"""What it takes to keep the statistics of batch-norms over whole minibatches."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...errors import UsageError
from ...ops.model import Model
from ..compile import plan_model
from ..options import Options


def whole_statistics(model: Model, options: Options, account: Mapping[str, Any]) -> dict[str, int]:
    """For the account of a plan whose batch-norms see a part of each minibatch.

    Args:
      options: that the plan was asked for with.
      account: of the plan.
    Returns:
      `whole_statistics_nbytes`: the smallest budget for a microbatch of the whole minibatch;
      nothing where the plan has one, no batch-norm moves, or the target cannot address it.
    """
    moves = account["training"]["moves"]["count"]
    if not moves or account["microbatch"] == account["minibatch"]:
        return {}
    try:
        _, _, facts = plan_model(model, replace(options, microbatch=options.minibatch))
    except UsageError:
        return {}
    return {"whole_statistics_nbytes": facts["min_budget_nbytes"]}
