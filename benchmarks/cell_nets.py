"""Networks found by architecture search: stacks of one normal and one reduction cell.

Sources: Zoph et al. 2018, "Learning Transferable Architectures" (NASNet-A); Real et al. 2019,
"Regularized Evolution" (AmoebaNet-A); Liu et al. 2019, "DARTS" (second order). The network around
the cells and the operations inside them follow DARTS for CIFAR-10.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

_STEM = 3  # times the width of the first cells


@dataclass(frozen=True)
class Cell:
    """A cell: nodes 0 and 1 are its inputs; each further node is the sum of two operations.

    Attributes:
      operations: (name, index of the node it reads).
      concatenated: nodes concatenated into the cell's output.
    """

    operations: tuple[tuple[str, int], ...]
    concatenated: tuple[int, ...]


@dataclass(frozen=True)
class Genotype:
    """The result of a search."""

    normal: Cell
    reduction: Cell


def _cell(text: str, *concatenated: int) -> Cell:
    """Build a cell from words such as "sep3@1": the operation and the node it reads."""
    pairs = (word.split("@") for word in text.split())
    return Cell(tuple((name, int(node)) for name, node in pairs), concatenated)


NASNET = Genotype(
    _cell("sep5@1 sep3@0 sep5@0 sep3@0 avg@1 skip@0 avg@0 avg@0 sep3@1 skip@1", 2, 3, 4, 5, 6),
    _cell("sep5@1 sep7@0 max@1 sep7@0 avg@1 sep5@0 skip@3 avg@2 sep3@2 max@1", 4, 5, 6),
)
AMOEBANET = Genotype(
    _cell("avg@0 max@1 sep3@0 sep5@2 sep3@0 avg@3 sep3@1 skip@1 skip@0 avg@1", 4, 5, 6),
    _cell("avg@0 sep3@1 max@0 sep7@2 sep7@0 avg@1 max@0 max@1 row7@0 sep3@5", 3, 4, 6),
)
DARTS = Genotype(
    _cell("sep3@0 sep3@1 sep3@0 sep3@1 sep3@1 skip@0 skip@0 dil3@2", 2, 3, 4, 5),
    _cell("max@0 max@1 skip@2 max@1 max@0 skip@2 skip@2 max@1", 2, 3, 4, 5),
)


def _mixed(inputs: int, outputs: int) -> nn.Sequential:
    """ReLU, 1x1 convolution, norm."""
    conv = nn.Conv2d(inputs, outputs, 1, bias=False)
    return nn.Sequential(nn.ReLU(), conv, nn.BatchNorm2d(outputs))


def _depthwise(channels: int, kernel: int, stride: int, dilation: int = 1) -> nn.Sequential:
    """ReLU, depthwise convolution, 1x1 convolution, norm."""
    padding = dilation * (kernel // 2)
    conv = nn.Conv2d(
        channels, channels, kernel, stride, padding, dilation, groups=channels, bias=False
    )
    mix = nn.Conv2d(channels, channels, 1, bias=False)
    return nn.Sequential(nn.ReLU(), conv, mix, nn.BatchNorm2d(channels))


class Halved(nn.Module):
    """Halves the size: two 1x1 convolutions of stride 2, one shifted by a pixel, then a norm."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.even = nn.Conv2d(inputs, outputs // 2, 1, 2, bias=False)
        self.odd = nn.Conv2d(inputs, outputs // 2, 1, 2, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(x)
        return self.norm(torch.cat([self.even(x), self.odd(x[:, :, 1:, 1:])], 1))


def operation(name: str, channels: int, stride: int) -> nn.Module:
    """Build one operation of a cell."""
    if name == "skip":
        return nn.Identity() if stride == 1 else Halved(channels, channels)
    if name == "avg":
        return nn.AvgPool2d(3, stride, 1, count_include_pad=False)
    if name == "max":
        return nn.MaxPool2d(3, stride, 1)
    if name == "row7":
        row = nn.Conv2d(channels, channels, (1, 7), (1, stride), (0, 3), bias=False)
        column = nn.Conv2d(channels, channels, (7, 1), (stride, 1), (3, 0), bias=False)
        return nn.Sequential(nn.ReLU(), row, column, nn.BatchNorm2d(channels))
    kind, kernel = name[:3], int(name[3:])
    if kind == "dil":
        return _depthwise(channels, kernel, stride, 2)
    first = _depthwise(channels, kernel, stride)
    return nn.Sequential(first, _depthwise(channels, kernel, 1))


class CellModule(nn.Module):
    """A cell that reads the outputs of the two cells before it.

    Args:
      inputs: channels of the two outputs.
      halve_older: whether the older output has twice the size.
    """

    def __init__(
        self, cell: Cell, inputs: tuple[int, int], channels: int, reduce: bool, halve_older: bool
    ) -> None:
        super().__init__()
        adapt = Halved if halve_older else _mixed
        self.adapt = nn.ModuleList([adapt(inputs[0], channels), _mixed(inputs[1], channels)])
        self.cell = cell
        self.operations = nn.ModuleList(
            operation(name, channels, 2 if reduce and node < 2 else 1)
            for name, node in cell.operations
        )

    def forward(self, older: Tensor, newer: Tensor) -> Tensor:
        nodes = [self.adapt[0](older), self.adapt[1](newer)]
        reads = [node for _, node in self.cell.operations]
        for k in range(0, len(reads), 2):
            one, other = self.operations[k], self.operations[k + 1]
            nodes.append(one(nodes[reads[k]]) + other(nodes[reads[k + 1]]))
        return torch.cat([nodes[node] for node in self.cell.concatenated], 1)


class CellNet(nn.Module):
    """A network of cells for images [batch, 3, 32, 32]; two of them are reduction cells.

    Args:
      channels: width of the first cells.
      cells: number of cells.
    """

    def __init__(self, genotype: Genotype, channels: int = 36, cells: int = 20) -> None:
        super().__init__()
        stem = _STEM * channels
        self.stem = nn.Sequential(nn.Conv2d(3, stem, 3, 1, 1, bias=False), nn.BatchNorm2d(stem))
        inputs, halve = (stem, stem), False
        self.cells = nn.ModuleList()
        for index in range(cells):
            reduce = index in (cells // 3, 2 * cells // 3)
            channels *= 2 if reduce else 1
            cell = genotype.reduction if reduce else genotype.normal
            self.cells.append(CellModule(cell, inputs, channels, reduce, halve))
            inputs, halve = (inputs[1], len(cell.concatenated) * channels), reduce
        self.head = nn.Linear(inputs[1], 10)

    def forward(self, x: Tensor) -> Tensor:
        older = newer = self.stem(x)
        for cell in self.cells:
            older, newer = newer, cell(older, newer)
        return self.head(newer.mean((2, 3)))
