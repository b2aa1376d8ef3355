"""The zoo's hot instructions: where compiled training steps spend their time.

A net is compiled as a user would compile it, and one microbatch runs through its tapes. Each hot
instruction is captured with the contents of its operands at that moment.
"""

import ctypes
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

import edgetrain as et
from edgetrain.exporters import export_torch
from edgetrain.kernels import control, registry
from edgetrain.kernels.cache import jit
from edgetrain.kernels.cache.load import load
from edgetrain.kernels.tapes.decode import Decoded, bound, decode
from edgetrain.kernels.targets import host
from edgetrain.losses import Loss
from edgetrain.program import Program
from edgetrain.runtime.session import Session
from examples.zoo import ZOO
from examples.zoo.resnet import ResNet
from examples.zoo.spec import ZooModel

from .machine import ENTRY, bandwidth, multiply_adds

TAPES = ("micro", "update")
RECURRENT = ("lstm", "gru", "rnn")
CONVOLUTION = ("conv", "conv_csr")
PASSES = {"": "forward", "_dx": "input gradient", "_dw": "weight gradient"}
ALIGN = 64


@dataclass(frozen=True)
class Net:
    """A model of the zoo and how it is trained."""

    zoo: str
    microbatch: int
    options: Mapping[str, Any] = field(default_factory=dict)
    size: int = 0  # of images, if not the zoo's


_FP16 = {"precision": "fp16"}
NETS = {
    "WRN-28-2": Net("wrn28_2", 10, _FP16),
    "WRN-28-2, density 0.3": Net("wrn28_2", 10, _FP16 | {"density": 0.3}),
    "WRN-28-2, density 0.1": Net("wrn28_2", 10, _FP16 | {"density": 0.1}),
    "ResNet-18 at 64": Net("resnet18", 8, _FP16, 64),
    "MobileNetV2 at 64": Net("mobilenet_v2", 8, _FP16, 64),
    "ViT-tiny": Net("vit_tiny", 4),
    "transformer encoder": Net("transformer_encoder", 8),
    "LSTM language model": Net("lstm_language_model", 8),
    "MLP": Net("mlp", 32),
}


@dataclass(frozen=True)
class Call:
    """A hot instruction.

    Attributes:
      values: integers and floats by operand; -1 for an absent reference.
      contents: bytes of each present reference.
      count: equal instructions in a step; fmas, nbytes: multiply-adds, bytes read and written.
    """

    net: str
    name: str
    storages: Mapping[str, str]
    values: Mapping[str, int]
    contents: Mapping[str, np.ndarray]
    count: int
    fmas: int
    nbytes: int

    def limit(self, target: jit.Target) -> tuple[float, str]:
        """Return the shortest time that this machine allows, in seconds, and what limits it."""
        products, passes = self.fmas / multiply_adds(target), self.nbytes / bandwidth(self.nbytes)
        return (products, "FMA") if products > passes else (passes, "bytes")

    def prepared(self, target: jit.Target) -> tuple[Any, str, list[Any]]:
        """Return (function that runs it once, the kernel's variant, objects to keep alive)."""
        kernel = registry.choose(self.name, self.values, self.storages, target)
        scratch = kernel.spec.scratch_nbytes(self.values, 1, target.lanes)
        kept: list[Any] = []
        words: list[int] = []
        for operand in kernel.spec.operands:
            if operand.mode == "t":
                words += [_placed(np.zeros(scratch, np.uint8), kept), scratch]
            elif operand.name in self.contents:
                words.append(_placed(self.contents[operand.name], kept))
            else:
                words.append(self.values[operand.name])
        array = np.array(words, np.int64)
        symbol = kernel.symbol(self.storages)
        if target == jit.host():
            address = load({symbol: lambda: kernel.object(self.storages, target)})[symbol]
        else:
            from edgetrain.kernels.cache.load import opened

            address = opened([kernel.object(self.storages, target)], [symbol])[symbol]
        run, at = ENTRY(address), array.ctypes.data
        return (lambda: run(0, at, 0, 1)), kernel.variant, [*kept, array]


def _placed(content: np.ndarray, kept: list[Any]) -> int:
    """Copy the content with margins around it, as in an arena; return the copy's address."""
    memory = np.zeros(content.nbytes + 512, np.uint8)
    start = -memory.ctypes.data % ALIGN + ALIGN
    memory[start : start + content.nbytes] = content
    kept.append(memory)
    return memory.ctypes.data + start


def compiled(net: Net) -> tuple[Program, ZooModel]:
    """Compile a net for one thread."""
    entry = ZOO[net.zoo]
    torch.manual_seed(0)
    module, example = entry.build("full"), entry.example_inputs(2, "full")
    if net.zoo == "resnet18" and net.size:
        module = ResNet((2, 2, 2, 2), False, net.size, 10)
    if net.size:
        example = (torch.randn(2, 3, net.size, net.size),)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        export_torch(module, example, path, batch_dim=entry.batch_dim)
        ignored = -100 if entry.ignore_index is None else entry.ignore_index
        program = et.compile(
            et.load_onnx(path),
            loss=Loss(entry.loss, ignore_index=ignored),
            threads=1,
            verbose=False,
            minibatch=net.microbatch,
            microbatch=net.microbatch,
            optimizer=et.SGD(lr=0.01, momentum=0.9),
            **net.options,
        )
    return program, entry


def _filled(program: Program, entry: ZooModel, net: Net) -> Session:
    session = Session(program)
    torch.manual_seed(1)
    x = entry.example_inputs(net.microbatch, "full")[0]
    if net.size:
        x = torch.randn(net.microbatch, 3, net.size, net.size)
    y = entry.target(net.microbatch, "full") % (10 if net.zoo == "resnet18" else 1 << 30)
    for slot, array in zip(program.staged("micro").values(), (x, y), strict=True):
        session.arena.view(slot)[...] = np.asarray(array).reshape(slot.shape)
    return session


def product_of(name: str) -> str:
    """Return the direct convolution kernel that computes the same product as a Winograd kernel."""
    return name.replace("winograd", "conv", 1) if name.startswith("winograd") else name


def fmas_of(name: str, v: Mapping[str, int], nonzeros: float = 0.0) -> int:
    """Multiply-adds of an instruction.

    Sparse convolutions only count nonzeros; Winograd's count a quarter of the dense ones.
    """
    if product_of(name) != name:
        dense = product_of(name).replace("_csr", "", 1)
        return fmas_of(dense, v) // 4
    if name == "gemm":
        return v["z1"] * v["z2"] * v["m"] * v["n"] * v["k2"] * v["k"]
    if name.removesuffix("_dx").removesuffix("_dw") in CONVOLUTION:
        taps = v["k"] * (v["c"] // v["g"]) * v["kh"] * v["kw"]
        return int((nonzeros if "csr" in name else taps) * v["n"] * v["oh"] * v["ow"])
    if name.removesuffix("_bwd") in RECURRENT or name == "recurrent_dr":
        gates = {"lstm": 4, "gru": 3, "rnn": 1}.get(name.removesuffix("_bwd")) or v["gates"]
        return gates * v["d"] * v["t"] * v["b"] * v["n"] * v["n"]
    return 0


def _nbytes(found: Decoded, extents: Mapping[str, int]) -> int:
    modes = {o.name: o.mode for o in found.kernel.spec.operands}
    return sum(nbytes * (1 + (modes[name] == "m")) for name, nbytes in extents.items())


def _same(found: Decoded) -> tuple:
    """Key that is equal for instructions that take equal time."""
    names = {o.name for o in found.kernel.spec.operands if o.is_reference}
    shape = tuple((n, v < 0 if n in names else v) for n, v in found.values.items() if n != "key")
    return found.kernel.name, tuple(found.storages.values()), shape


def calls(
    label: str, most: int = 24, family: Callable[[str], str] = str, each: int = 0
) -> Iterator[Call]:
    """Yield a net's most expensive instructions, by the least time that this machine allows.

    Args:
      most: number of different instructions.
      family: maps a kernel's name to its family.
      each: number of instructions of every family that are included in any case.
    """
    net = NETS[label]
    program, entry = compiled(net)
    kernels, lanes = bound(program.kernels), host().lanes
    tapes = {name: list(decode(program.tapes[name].tolist(), kernels)) for name in TAPES}
    counts: dict[tuple, int] = {}
    weights: dict[tuple, float] = {}
    target = jit.host()
    for found in (f for tape in tapes.values() for f in tape):
        key, extents = _same(found), found.extents(1, lanes)
        counts[key] = counts.get(key, 0) + 1
        name = found.kernel.name
        expanded = product_of(name) != name  # as many products at any density
        dense = fmas_of(name if expanded else name.replace("_csr", ""), found.values)
        nbytes = _nbytes(found, extents)
        seconds = max(
            dense * (1.0 if expanded else net.options.get("density", 1.0)) / multiply_adds(target),
            nbytes / bandwidth(nbytes),
        )
        weights[key] = weights.get(key, 0.0) + seconds
    order = sorted(weights, key=lambda key: -weights[key])
    hot = set(order[:most])
    for one in {family(key[0]) for key in order}:
        hot.update([key for key in order if family(key[0]) == one][:each])
    session = _filled(program, entry, net)
    run = [ENTRY(address) for address in _addresses(kernels)]
    base = session.arena.address
    for name, instructions in tapes.items():
        words = program.tapes[name]
        for found in instructions:
            key = _same(found)
            session.ints[control.SKIP] = 0  # no step loop has counted targets: update anyway
            if key in hot:
                hot.remove(key)
                yield _taken(label, found, base, lanes, counts[key])
            at = words.ctypes.data + 8 * (found.offset + 2)
            run[int(words[found.offset])](base, at, 0, 1)
    session.close()


def _addresses(kernels) -> list[int]:
    from edgetrain.kernels.cache.addresses import addresses

    return addresses(kernels)


def _taken(label: str, found: Decoded, base: int, lanes: int, count: int) -> Call:
    extents = found.extents(1, lanes)
    contents = {
        name: np.frombuffer(ctypes.string_at(base + found.values[name], nbytes), np.uint8)
        for name, nbytes in extents.items()
    }
    nonzeros = 0
    if "pointers" in contents:
        pointers = contents["pointers"].view(np.int32)
        nonzeros = int(pointers[-1] - pointers[0])
    fmas = fmas_of(found.kernel.name, found.values, nonzeros)
    nbytes = _nbytes(found, extents)
    return Call(
        label, found.kernel.name, found.storages, found.values, contents, count, fmas, nbytes
    )
