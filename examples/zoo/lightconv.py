"""Sequence-to-sequence nets with lightweight and dynamic convolutions.

Source: Wu et al. 2019, "Pay Less Attention with Lightweight and Dynamic Convolutions"; encoder and
decoder blocks of figure 2, cross-attention in the decoder.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from examples.zoo.spec import Scale, ZooModel, pick

PADDING = 0
_VOCABULARY = (13, 8000)
_LENGTHS = ((7, 5), (32, 32))


class LightConv(nn.Module):
    """Depthwise convolution over time; each head's softmax-normalized kernel serves its channels.

    Args:
      width: channels; a multiple of `heads`.
      heads: kernels.
      kernel: taps.
      causal: look back only; otherwise look to both sides.
    """

    def __init__(self, width: int, heads: int, kernel: int, causal: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(heads, 1, kernel) * 0.1)
        self.share = width // heads
        self.sides = (kernel - 1, 0) if causal else (kernel // 2, (kernel - 1) // 2)

    def forward(self, x: Tensor) -> Tensor:
        taps = self.weight.softmax(-1).repeat_interleave(self.share, 0)
        padded = nn.functional.pad(x.transpose(1, 2), self.sides)
        return nn.functional.conv1d(padded, taps, groups=taps.shape[0]).transpose(1, 2)


def banded(taps: Tensor, before: int) -> Tensor:
    """Turn kernels [..., time, taps] into matrices [..., time, time] that convolve by a product.

    Row t holds its kernel from column t - before; taps outside the matrix are cut off.
    """
    length, kernel = taps.shape[-2:]
    lead = taps.shape[1:-2]
    # reading rows of T + K numbers as rows of T + K - 1 shifts each row by one more column
    flat = nn.functional.pad(taps, (0, length)).reshape(-1, *lead, length * (length + kernel))
    moved = flat[..., : length * (length + kernel - 1)]
    return moved.reshape(-1, *lead, length, length + kernel - 1)[..., before : before + length]


class DynamicConv(nn.Module):
    """Like LightConv, with kernels computed only from the current time step.

    The convolution is a product with a banded matrix: stacked windows would take as many times
    the input's bytes as there are taps.
    """

    def __init__(self, width: int, heads: int, kernel: int, causal: bool) -> None:
        super().__init__()
        self.taps = nn.Linear(width, heads * kernel, bias=False)
        self.heads, self.kernel = heads, kernel
        self.sides = (kernel - 1, 0) if causal else (kernel // 2, (kernel - 1) // 2)

    def forward(self, x: Tensor) -> Tensor:
        length, width = x.shape[1:]
        taps = self.taps(x).reshape(-1, length, self.heads, self.kernel).softmax(-1)
        parts = x.reshape(-1, length, self.heads, width // self.heads).transpose(1, 2)
        mixed = banded(taps.transpose(1, 2), self.sides[0]) @ parts
        return mixed.transpose(1, 2).reshape(-1, length, width)


class Mixer(nn.Module):
    """Linear layer, optional gate, convolution, output projection."""

    def __init__(self, conv: nn.Module, width: int, gated: bool = True) -> None:
        super().__init__()
        self.inward = nn.Linear(width, (1 + gated) * width)
        self.conv, self.gated = conv, gated
        self.outward = nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.inward(x)
        x = nn.functional.glu(x, -1) if self.gated else x
        if mask is not None:  # zeros after the end of a sentence, as after the last step
            x = x * mask.unsqueeze(-1)
        return self.outward(self.conv(x))


class CrossAttention(nn.Module):
    """Queries from the decoder, keys and values from the encoder."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | None = None) -> Tensor:
        width = x.shape[2]
        seen = None if mask is None else (mask > 0)[:, None, None, :]
        query, key, value = (
            part.reshape(-1, part.shape[1], self.heads, width // self.heads).transpose(1, 2)
            for part in (self.query(x), self.key(memory), self.value(memory))
        )
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, seen)
        return self.out(mixed.transpose(1, 2).reshape(-1, x.shape[1], width))


class Block(nn.Module):
    """Mixer, cross-attention if there is a memory, feed-forward; post-norm residuals."""

    def __init__(
        self,
        conv: nn.Module,
        width: int,
        heads: int,
        decoder: bool,
        gated: bool = True,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.mixer = Mixer(conv, width, gated)
        self.norm1 = nn.LayerNorm(width)
        if decoder:
            self.cross = CrossAttention(width, heads)
            self.norm2 = nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)
        )
        self.norm3 = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Tensor, memory: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        x = self.norm1(x + self.dropout(self.mixer(x, mask if memory is None else None)))
        if memory is not None:
            x = self.norm2(x + self.dropout(self.cross(x, memory, mask)))
        return self.norm3(x + self.dropout(self.feed_forward(x)))


class ConvSeq2Seq(nn.Module):
    """Token ids of source and shifted target -> logits [batch, target length, words].

    `mask` [batch, source length] is 0 at the source's padding, which is then never read.

    Args:
      source, target: embeddings of both languages; they may share their weight, the head too.
      encoder, decoder: their blocks.
      head: from the decoder's channels to the target's words.
    """

    def __init__(
        self,
        source: nn.Embedding,
        target: nn.Embedding,
        encoder: Iterable[Block],
        decoder: Iterable[Block],
        head: nn.Linear,
    ) -> None:
        super().__init__()
        self.source, self.target = source, target
        self.encoder, self.decoder = nn.ModuleList(encoder), nn.ModuleList(decoder)
        self.head = head

    def forward(self, source: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        memory, x = self.source(source), self.target(target)
        for block in self.encoder:
            memory = block(memory, mask=mask)
        for block in self.decoder:
            x = block(x, memory, mask)
        return self.head(x)


def _sentences(batch: int, scale: Scale) -> tuple[Tensor, ...]:
    vocabulary = pick(scale, *_VOCABULARY)
    return tuple(torch.randint(1, vocabulary, (batch, n)) for n in pick(scale, *_LENGTHS))


def _expected(batch: int, scale: Scale) -> Tensor:
    """Return the next target tokens; the last position is padding in every other sentence."""
    ids = torch.randint(1, pick(scale, *_VOCABULARY), (batch, pick(scale, *_LENGTHS)[1]))
    ids[::2, -1] = PADDING
    return ids


def _seq2seq(name: str, conv: type[LightConv] | type[DynamicConv]) -> ZooModel:
    def build(scale: Scale) -> ConvSeq2Seq:
        words, width, heads, kernels = pick(
            scale, (13, 8, 2, (3, 5)), (8000, 512, 8, (3, 7, 15, 31))
        )

        def blocks(decoder: bool) -> list[Block]:
            convs = (conv(width, heads, kernel, decoder) for kernel in kernels)
            return [Block(made, width, heads, decoder) for made in convs]

        source, target = nn.Embedding(words, width), nn.Embedding(words, width)
        return ConvSeq2Seq(source, target, blocks(False), blocks(True), nn.Linear(width, words))

    return ZooModel(name, build, _sentences, _expected, ignore_index=PADDING)


MODELS = (_seq2seq("light_conv", LightConv), _seq2seq("dynamic_conv", DynamicConv))
