"""A board game net like AlphaZero's: the next move and the game's outcome from one body."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

OUTPUTS = ["policy", "value"]
LOSS = {"losses": {"policy": "cross_entropy", "value": "mse"}}


class Az(nn.Module):
    """Boards [n, 2, 6, 6] -> logits of 36 moves, and the outcome from -1 to 1."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(2, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.block = nn.Conv2d(8, 8, 3, padding=1)
        self.policy, self.value = nn.Linear(288, 36), nn.Linear(288, 1)

    def forward(self, board: Tensor) -> tuple[Tensor, Tensor]:
        x = self.body(board)
        x = torch.relu(x + self.block(x)).flatten(1)
        return self.policy(x), torch.tanh(self.value(x))


def data(n: int) -> dict[str, Tensor]:
    """Random stones, moves and outcomes."""
    value = torch.randint(-1, 2, (n, 1)).float()
    return {"board": torch.randn(n, 2, 6, 6), "policy": torch.randint(36, (n,)), "value": value}


def torch_loss(outputs: tuple[Tensor, Tensor], batch: dict[str, Tensor]) -> Tensor:
    """The same loss in torch."""
    policy, value = outputs
    return F.cross_entropy(policy, batch["policy"]) + F.mse_loss(value, batch["value"])
