"""Recurrent nets: an LSTM language model and a bidirectional GRU classifier.

Source of the language model: Zaremba et al. 2014, "Recurrent Neural Network Regularization" (its
dropout is between the layers; ONNX recurrences have none, so each layer is its own module).
"""

import torch
from torch import Tensor, nn

from examples.zoo.spec import Scale, ZooModel, classes, pick, tokens

_VOCABULARY = (19, 10000)
_LENGTH = (6, 35)


class LanguageModel(nn.Module):
    """Embedding, two LSTMs, a projection: token ids [batch, time] -> [batch, time, vocabulary]."""

    def __init__(self, vocabulary: int, width: int, dropout: float) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.lstm1 = nn.LSTM(width, width, batch_first=True)
        self.lstm2 = nn.LSTM(width, width, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        x, _ = self.lstm1(self.dropout(self.tokens(tokens)))
        x, _ = self.lstm2(self.dropout(x))
        return self.head(self.dropout(x))


class GRUClassifier(nn.Module):
    """Bidirectional GRU over sensor frames [batch, time, features]; its last states classify."""

    def __init__(self, features: int, width: int, n_classes: int) -> None:
        super().__init__()
        self.gru = nn.GRU(features, width, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        _, last = self.gru(x)
        return self.head(torch.cat([last[0], last[1]], 1))


def next_tokens(batch: int, scale: Scale) -> Tensor:
    """Return the tokens to predict, [batch, time]."""
    return torch.randint(pick(scale, *_VOCABULARY), (batch, pick(scale, *_LENGTH)))


MODELS = (
    ZooModel(
        "lstm_language_model",
        lambda scale: LanguageModel(*pick(scale, (_VOCABULARY[0], 8, 0.5), (10000, 650, 0.5))),
        tokens(_VOCABULARY, _LENGTH),
        next_tokens,
    ),
    ZooModel(
        "gru_classifier",
        lambda scale: GRUClassifier(*pick(scale, (3, 6, 4), (13, 128, 10))),
        lambda batch, scale: (torch.randn(batch, *pick(scale, (7, 3), (100, 13))),),
        classes(4, 10),
    ),
)
