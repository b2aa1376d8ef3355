"""GPT: a decoder-only Transformer whose head shares the token embedding.

Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners" (GPT-2, small).
"""

import torch
from torch import Tensor, nn

from examples.zoo.spec import Scale, ZooModel, pick, tokens

_VOCABULARY = (17, 50257)
_LENGTH = (6, 1024)


class CausalAttention(nn.Module):
    """Multi-head self-attention in which a position only sees itself and earlier positions."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        length, width = x.shape[1:]
        parts = (
            part.reshape(-1, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(x).split(width, 2)
        )
        mixed = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        return self.dropout(self.out(mixed.transpose(1, 2).reshape(-1, length, width)))


class Block(nn.Module):
    """Pre-norm attention and feed-forward, each with a residual."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = CausalAttention(width, heads, dropout)
        self.norm2 = nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, 4 * width),
            nn.GELU(approximate="tanh"),
            nn.Linear(4 * width, width),
            nn.Dropout(dropout),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.feed_forward(self.norm2(x))


class GPT(nn.Module):
    """Token ids [batch, length] -> logits [batch, length, vocabulary]."""

    def __init__(self, vocabulary: int, length: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.dropout = nn.Dropout(0.1)
        self.blocks = nn.Sequential(*(Block(width, heads, 0.1) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.positions.weight, std=0.02)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.dropout(self.tokens(tokens) + self.positions(positions))
        return self.head(self.norm(self.blocks(x)))


def _next_tokens(batch: int, scale: Scale) -> Tensor:
    return torch.randint(pick(scale, *_VOCABULARY), (batch, pick(scale, *_LENGTH)))


MODELS = (
    ZooModel(
        "gpt",
        lambda scale: GPT(*pick(scale, (17, 6, 12, 3, 2), (50257, 1024, 768, 12, 12))),
        tokens(_VOCABULARY, _LENGTH),
        _next_tokens,
    ),
)
