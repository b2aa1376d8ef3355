"""Small Transformer encoder that classifies token sequences."""

import torch
from torch import Tensor, nn

from examples.zoo.spec import ZooModel, classes, pick, tokens

_VOCABULARY = (23, 8000)
_LENGTH = (10, 128)


class EncoderClassifier(nn.Module):
    """Token and position embeddings, torch's encoder (pre-norm, GELU), mean over positions.

    Args:
      vocabulary: number of token ids.
      length: positions of a sequence.
      width: of the model; the feed-forward layer is four times that.
      heads: attention heads.
      layers: encoder layers.
      n_classes: logits.
    """

    def __init__(
        self, vocabulary: int, length: int, width: int, heads: int, layers: int, n_classes: int
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(0.02 * torch.randn(length, width))
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, 0.1, "gelu", batch_first=True, norm_first=True
        )
        # The nested-tensor path is only for inference, and warns about norm_first.
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, n_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.encoder(self.tokens(tokens) + self.positions)
        return self.head(self.norm(x).mean(1))


MODELS = (
    ZooModel(
        "transformer_encoder",
        lambda scale: EncoderClassifier(
            *pick(scale, (23, 10, 16, 2, 2, 4), (8000, 128, 128, 4, 4, 4))
        ),
        tokens(_VOCABULARY, _LENGTH),
        classes(4, 4),
    ),
)
