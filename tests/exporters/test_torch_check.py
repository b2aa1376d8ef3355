"""export_torch compares the new file with the module in evaluation mode."""

import warnings

import onnx
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from edgetrain.errors import ModelError
from edgetrain.exporters import ExportWarning, export_torch
from edgetrain.exporters.torch_check import check_file
from edgetrain.exporters.torch_names import take_inventory


class _Net(nn.Module):
    """A layer, and what a test does with its output."""

    def __init__(self, after) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.after = nn.Linear(6, 4), after
        self.register_buffer("seen", torch.zeros(1), persistent=False)

    def forward(self, x):
        self.seen += 1
        return self.after(self.first(x), self.training)


def _probabilities(x, training):
    return x if training else x.softmax(-1)


def _words(x, training):
    """A mask that is not divided by its share."""
    return x * (torch.rand(x.shape[0], 1) < 0.6).float() if training else x


def _wrong(x, training):
    """torch's exporter ignores align_corners here."""
    maps = x.reshape(-1, 1, 2, 2)
    return F.interpolate(maps, (5, 5), mode="bilinear", antialias=True, align_corners=True)


def _overflows(x, training):
    """The file has NaN and -inf, and where one becomes the other depends on roundings."""
    return torch.special.log_ndtr(torch.linspace(-25, 5, 4) + x / 100)


def _right(x, training):
    return F.dropout(x, 0.5, training).relu()


@pytest.mark.parametrize(
    ("after", "advice"),
    [(_probabilities, "self.training"), (_words, "Divide the mask"), (_right, "")],
)
def test_export_warns_if_evaluation_differs(tmp_path, after, advice):
    net = _Net(after)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        export_torch(net, torch.zeros(3, 6), tmp_path / "model.onnx")
    found = [str(each.message) for each in caught if each.category is ExportWarning]
    assert [advice in message for message in found] == [True] * bool(advice)
    assert all("module '_Net'" in message and "output" in message for message in found)
    assert net.seen == 0
    assert net.training


@pytest.mark.parametrize(
    ("after", "found"), [(_wrong, r"differs by [\d.]+"), (_overflows, "has NaN or infinity")]
)
def test_export_refuses_a_file_that_computes_something_else(tmp_path, after, found):
    net, path = _Net(after), tmp_path / "model.onnx"
    path.write_bytes(b"older")
    with pytest.raises(ModelError, match=rf"'_Net': output '\w+' .* {found}.*check=False"):
        export_torch(net, torch.zeros(3, 6), path)
    assert [entry.read_bytes() for entry in tmp_path.iterdir()] == [b"older"]
    export_torch(net, torch.zeros(3, 6), path, check=False)
    assert len(onnx.load(path).graph.node) > 1


def test_check_names_the_first_output_that_departs(tmp_path):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(6, 2), nn.Linear(6, 2)

        def forward(self, x):
            return self.a(x), self.b(x)

    net, x = Two(), torch.randn(3, 6)
    path = export_torch(net, x, tmp_path / "model.onnx", output_names=["first", "second"])
    inventory = take_inventory(net)
    inventory.used = {*inventory.parameters}
    assert check_file(path, net, (x,), inventory) == ""
    with torch.no_grad():
        net.b.bias += 1.0
    with pytest.raises(ModelError, match="output 'second'"):
        check_file(path, net, (x,), inventory)


@pytest.mark.parametrize("norm", [nn.utils.spectral_norm, nn.utils.parametrizations.spectral_norm])
def test_layers_that_are_estimated_in_training_are_exported_with_a_warning(tmp_path, norm):
    torch.manual_seed(0)
    net = nn.Sequential(norm(nn.Linear(6, 4)))
    with torch.no_grad():
        for weight in net.parameters():
            weight.copy_(torch.randn(weight.shape))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        export_torch(net, torch.zeros(3, 6), tmp_path / "model.onnx")
    found = [str(each.message) for each in caught if each.category is ExportWarning]
    assert any("depends on self.training" in message for message in found)
