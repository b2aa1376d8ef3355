"""Winograd's convolutions on a board: instructions a sample and flash, beside direct ones.

    python -m benchmarks.boards

Nets train in fp32 on an emulated board that executes one instruction per nanosecond. The output
goes into docs/convolutions.md. If the rule keeps a net's convolutions direct, the net is
measured with Winograd kernels too.
"""

import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import edgetrain as et
from device_tests.boards import TICK, board_files, made, missing, ran, said, sections
from edgetrain.kernels import targets
from edgetrain.ops import conv
from edgetrain.units.convolutions import AUTO, DIRECT

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
BUILDS = (("cortex-m7", False), ("cortex-m7", True), ("cortex-m4", True))
QEMU = Path(shutil.which("qemu-system-arm") or "/qemu-system-arm is not installed")
MINIBATCH, STEPS = 4, 2


@dataclass(frozen=True)
class Net:
    """A model and its name in the table."""

    label: str
    model: Path | onnx.ModelProto


def convolutions(channels: int, size: int) -> onnx.ModelProto:
    """Two 3 x 3 convolutions; the second has as many outputs as inputs."""
    draw = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        scale = np.sqrt(2 / np.prod(shape[1:]))
        return numpy_helper.from_array((draw.standard_normal(shape) * scale).astype("f"), name)

    nodes = [
        helper.make_node("Conv", ["x", "a"], ["1"], pads=[1] * 4),
        helper.make_node("Relu", ["1"], ["2"]),
        helper.make_node("Conv", ["2", "b"], ["3"], pads=[1] * 4),
        helper.make_node("Relu", ["3"], ["4"]),
        helper.make_node("GlobalAveragePool", ["4"], ["5"]),
        helper.make_node("Flatten", ["5"], ["6"]),
        helper.make_node("Gemm", ["6", "c"], ["y"], transB=1),
    ]
    weights = [
        weight("a", channels, 1, 3, 3),
        weight("b", channels, channels, 3, 3),
        weight("c", 10, channels),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1, size, size])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 10])
    graph = helper.make_graph(nodes, "convolutions", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


NETS = (
    Net("digits", EXAMPLES / "digits" / "model.onnx"),
    Net("keywords", EXAMPLES / "keywords" / "model.onnx"),
    Net("16 channels, 16 x 16", convolutions(16, 16)),
    Net("32 channels, 8 x 8", convolutions(32, 8)),
    Net("32 channels, 16 x 16", convolutions(32, 16)),
)


def is_computed(sizes: Mapping[str, int], attrs: Mapping[str, int], kernel: str) -> bool:
    """A rule that uses Winograd for every convolution with at least 16 channels, even if slower."""
    wide = min(sizes["c"], sizes["k"]) >= 16
    square = (sizes["kh"], sizes["kw"]) == (3, 3) and attrs["ph"] == attrs["pw"] == 1
    return wide and square and all(attrs[key] == 1 for key in ("sh", "sw", "dh", "dw", "g"))


@dataclass(frozen=True)
class Run:
    """RAM bytes with the stack, flash bytes without data, and instructions per sample."""

    ram: int
    flash: int
    instructions: float


def run(net: Net, target: str, size: bool, **options: str) -> Run:
    """Train the net for a few steps on the emulated board; `size` is the argument of `bundle`."""
    processor = targets.get(target)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if isinstance(net.model, Path):
            path = net.model
        else:
            path = folder / "net.onnx"
            onnx.save(net.model, path)
        program = et.compile(
            path, minibatch=MINIBATCH, loss="cross_entropy", target=target, verbose=False,
            optimizer=et.SGD(lr=0.01, momentum=0.9), **options,
        )  # fmt: skip
        et.bundle(program, folder, name="net", target=target, size=size)
        board_files(folder, processor, "net")
        made(folder, processor, ["CHECK", f"STEPS={STEPS}"])
        text = ran(folder, processor, "net")
        return Run(
            said(text, "ram") + said(text, "stack"),
            sections(folder / "net")[".text"],
            said(text, "ticks") * TICK / (STEPS * MINIBATCH),
        )


def lines() -> Iterator[str]:
    """Lines of the table."""
    yield "| target | net | chosen | instructions a sample: direct | Winograd | RAM | flash |"
    yield "|---|---|---|---:|---:|---:|---:|"
    for target, size in BUILDS:
        for net in NETS:
            cells = [f"{target}, --size" if size else target, net.label]
            yield f"| {' | '.join([*cells, *_cells(net, target, size)])} |"


def _cells(net: Net, target: str, size: bool) -> list[str]:
    direct, chosen = run(net, target, size, convolutions=DIRECT), run(net, target, size)
    with mock.patch.object(conv, "pays_winograd", is_computed):
        fewer = run(net, target, size, convolutions=AUTO)
    ram, flash = _kb(direct.ram), _kb(direct.flash)
    if fewer.flash == direct.flash:  # no convolution is 3 x 3 with 16 channels on both sides
        return [DIRECT, f"{direct.instructions:,.0f}", "", ram, flash]
    return [
        DIRECT if chosen.flash == direct.flash else "Winograd",
        f"{direct.instructions:,.0f}",
        f"{fewer.instructions:,.0f}",
        f"{ram}, {_kb(fewer.ram)}",
        f"{flash}, {_kb(fewer.flash)}",
    ]


def _kb(nbytes: int) -> str:
    return f"{nbytes / 1000:,.0f} KB"


def main() -> None:
    """Print the lines."""
    for name in dict(BUILDS):
        if absent := missing(targets.get(name)):
            sys.exit(f"{name}: {absent}")
    for line in lines():
        print(line, flush=True)


if __name__ == "__main__":
    main()
