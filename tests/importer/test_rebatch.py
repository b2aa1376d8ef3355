"""Files exported with a fixed batch: trained with any other, or refused with what would help."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import edgetrain as et


class Encoder(nn.Module):
    """Tokens, learned positions, two layers of torch's own, time first."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(13, 8), nn.Embedding(6, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        spots = torch.arange(x.shape[1]).expand(x.shape[0], -1)
        h = (self.table(x) + self.places(spots)).transpose(0, 1)
        return self.head(self.layers(h).mean(0))


class Recurrent(nn.Module):
    """An LSTM whose first states are written out, then a GRU in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.LSTM(5, 6, 2, batch_first=True)
        self.second = nn.GRU(6, 4, bidirectional=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        state = torch.zeros(2, x.shape[0], 6, dtype=x.dtype)
        h, _ = self.first(x, (state, state))
        h, _ = self.second(h.transpose(0, 1))
        steps, batch, width = h.shape
        return self.head(h.reshape(steps * batch, width)).view(steps, batch, 3)[-1]


class Convolutions(nn.Module):
    """A view with the batch written out, and a product over it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, stride=2)
        self.head = nn.Linear(36, 3)

    def forward(self, x):
        h = torch.relu(self.conv(x))
        return self.head(h.view(h.shape[0], -1))


class Patches(nn.Module):
    """A small ViT: a class token for each sample, patches by a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(1, 8, 4, stride=4)
        self.token = nn.Parameter(torch.randn(1, 1, 8))
        self.places = nn.Parameter(torch.randn(1, 5, 8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        h = self.patch(x).flatten(2).transpose(1, 2)
        h = torch.cat([self.token.expand(x.shape[0], -1, -1), h], 1) + self.places
        return self.head(self.layer(h)[:, 0])


NETS = {
    "encoder": (Encoder, lambda b: torch.randint(0, 13, (b, 6))),
    "recurrent": (Recurrent, lambda b: torch.randn(b, 5, 5)),
    "convolutions": (Convolutions, lambda b: torch.randn(b, 2, 8, 8)),
    "patches": (Patches, lambda b: torch.randn(b, 1, 8, 8)),
}


def _exported(name: str, batch: int, dynamo: bool, path: Path):
    torch.manual_seed(0)
    made, sample = NETS[name]
    module = made()
    for parameter in module.parameters():  # the exporter ties what is equal
        nn.init.normal_(parameter, std=0.4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options = {} if dynamo else {"training": torch.onnx.TrainingMode.PRESERVE}
        module.train()
        torch.onnx.export(
            module, (sample(batch),), path, dynamo=dynamo, input_names=["x"], **options
        )
    return module, sample


def _compared(name: str, batch: int, dynamo: bool, others, path: Path) -> None:
    module, sample = _exported(name, batch, dynamo, path)
    loaded = et.load_onnx(path)
    named = dict(module.double().named_parameters())
    for other in others:
        x = sample(other)
        target = torch.randint(0, 3, (other,))
        loss, gradients = et.loss_and_gradients(loaded, {"x": x.numpy()}, target.numpy())
        module.zero_grad()
        given = x.double() if x.is_floating_point() else x
        expected = nn.functional.cross_entropy(module(given), target)
        expected.backward()
        assert loss == pytest.approx(expected.item(), rel=1e-5)
        assert gradients
        for key, found in gradients.items():
            if key in named:
                true = named[key].grad.numpy()
                np.testing.assert_allclose(found, true, rtol=1e-3, atol=1e-5, err_msg=key)


@pytest.mark.parametrize("dynamo", [False, True], ids=["script", "dynamo"])
@pytest.mark.parametrize("batch", [1, 2, 3])
@pytest.mark.parametrize("name", NETS)
def test_rebatch_gradients_equal_torch(name, batch, dynamo, tmp_path, capfd):
    _compared(name, batch, dynamo, (4, batch), tmp_path / "m.onnx")
