"""Models that sample pictures at computed positions, or fold blocks: exported, beside torch."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - its own name

from edgetrain.exporters import export_torch
from edgetrain.exporters.parity import parity


class _Transformer(nn.Module):
    """A spatial transformer (Jaderberg et al. 2015): six numbers choose the part it reads."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.mode = mode
        self.place, self.features = nn.Linear(3 * 64, 6), nn.Conv2d(3, 4, 3, padding=1)
        self.head = nn.Linear(4 * 36, 4)
        nn.init.normal_(self.place.weight, std=0.02)
        self.place.bias.data = torch.tensor([1.1, 0.1, 0.05, -0.1, 0.9, 0.1])

    def forward(self, x):
        transform = self.place(x.flatten(1)).view(-1, 2, 3)
        grid = F.affine_grid(transform, (x.shape[0], 3, 6, 6), align_corners=False)
        seen = F.grid_sample(self.features(x), grid, mode=self.mode, align_corners=False)
        return self.head(seen.flatten(1))


class _Blocks(nn.Module):
    """Overlapping blocks, each changed by a layer and added back."""

    def __init__(self) -> None:
        super().__init__()
        self.change, self.head = nn.Linear(3 * 9, 2 * 9), nn.Linear(2 * 64, 4)

    def forward(self, x):
        blocks = F.unfold(x, 3, padding=1)
        changed = self.change(blocks.transpose(1, 2)).transpose(1, 2)
        return self.head(F.fold(changed, (8, 8), 3, padding=1).flatten(1))


CASES = {
    "bilinear": lambda: _Transformer("bilinear"),
    "bicubic": lambda: _Transformer("bicubic"),
    "fold": _Blocks,
}


@pytest.mark.parametrize("name", CASES)
def test_sampling_inside_a_model_trains_as_in_torch(name, tmp_path):
    torch.manual_seed(0)
    path = export_torch(CASES[name](), (torch.randn(3, 3, 8, 8),), tmp_path / "m.onnx")
    report = parity(path, minibatch=4, microbatch=2, steps=2)
    assert report.ok, report.summary()
    assert report.worst("gradient").error < 1e-5
