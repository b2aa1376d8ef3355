"""Vision Transformer, tiny.

Source: Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words"; sizes of DeiT-tiny.
"""

import torch
from torch import Tensor, nn

from examples.zoo.spec import ZooModel, classes, floats, pick


class Attention(nn.Module):
    """Multi-head self-attention with one projection for queries, keys and values."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        length, width = x.shape[1:]
        qkv = self.qkv(x).reshape(-1, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        scores = query @ key.transpose(-2, -1) * (width // self.heads) ** -0.5
        mixed = self.dropout(scores.softmax(-1)) @ value
        return self.out(mixed.transpose(1, 2).reshape(-1, length, width))


class EncoderBlock(nn.Module):
    """Pre-norm attention and feed-forward, each with a residual."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout)
        self.norm2 = nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(4 * width, width),
            nn.Dropout(dropout),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.feed_forward(self.norm2(x))


class ViT(nn.Module):
    """Patches, a class token, positions, encoder blocks: [batch, 3, s, s] -> [batch, classes]."""

    def __init__(
        self, size: int, patch: int, width: int, heads: int, layers: int, n_classes: int
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, (size // patch) ** 2 + 1, width))
        self.dropout = nn.Dropout(0.1)
        self.blocks = nn.Sequential(*(EncoderBlock(width, heads, 0.1) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], 1)
        x = self.blocks(self.dropout(x + self.positions))
        return self.head(self.norm(x)[:, 0])


MODELS = (
    ZooModel(
        "vit_tiny",
        lambda scale: ViT(*pick(scale, (16, 4, 12, 3, 2, 5), (224, 16, 192, 3, 12, 1000))),
        floats((3, 16, 16), (3, 224, 224)),
        classes(5, 1000),
    ),
)
