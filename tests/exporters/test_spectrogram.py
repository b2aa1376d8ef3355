"""Models with a spectrogram or a Fourier transform inside: exported, and compared with torch."""

import pytest
import torch
from torch import nn

from edgetrain.exporters import export_torch
from edgetrain.exporters.parity import parity


class _Keywords(nn.Module):
    """Log-mel features of the recording, then a classifier; the gain trains through them."""

    def __init__(self, center: bool) -> None:
        super().__init__()
        self.center, self.gain = center, nn.Parameter(torch.ones(1))
        self.register_buffer("window", torch.hann_window(64))
        self.register_buffer("mel", torch.rand(33, 10))
        self.head = nn.Linear(10, 4)

    def forward(self, x):
        bins = torch.stft(
            x * self.gain, 64, 16, window=self.window, center=self.center, return_complex=True
        )
        power = bins.real**2 + bins.imag**2 if self.center else bins.abs()
        features = torch.log1p(power.transpose(1, 2) @ self.mel)
        return self.head(features.mean(1))


class _Mixer(nn.Module):
    """Mixes steps and channels by a transform, as FNet does, and returns the result's spectrum."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(8, 8), nn.Linear(5, 4)

    def forward(self, x):
        mixed = torch.fft.fftn(self.body(x), dim=(1, 2)).real
        return self.head(torch.fft.rfft(mixed, dim=2).abs().mean(1))


CASES = {
    "stft": (lambda: _Keywords(False), (400,)),
    "stft, centred": (lambda: _Keywords(True), (400,)),
    "fft": (_Mixer, (6, 8)),
}


@pytest.mark.parametrize("name", CASES)
def test_transforms_inside_a_model_train_as_in_torch(name, tmp_path):
    make, shape = CASES[name]
    torch.manual_seed(0)
    path = export_torch(make(), (torch.randn(3, *shape),), tmp_path / "m.onnx", input_names=["x"])
    report = parity(path, minibatch=4, microbatch=2, steps=2)
    assert report.ok, report.summary()
    assert report.worst("gradient").error < 1e-5
