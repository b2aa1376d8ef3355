"""Turns a row of tests/cases.py into a model, its data, and torch's results in float64."""

import functools
import json
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

from edgetrain.api import gradient_program, gradients
from edgetrain.importer.decode import decode
from edgetrain.importer.load import parse
from edgetrain.ops.model import Model
from edgetrain.program import Program
from edgetrain.runtime.microbatch import run_microbatch
from edgetrain.runtime.session import Session

from ..op_case import BATCH, A, C, Case, Ids, P, X


@dataclass(frozen=True)
class Built:
    """A case as a model; `loss` and `grads` are torch's results in float64."""

    proto: onnx.ModelProto
    model: Model
    inputs: dict[str, np.ndarray]
    target: np.ndarray
    loss: float
    grads: dict[str, np.ndarray]
    output: np.ndarray


class Maker:
    """Collects the nodes, initializers and tensors of a case; see `build`."""

    def __init__(self, case: Case, split: bool) -> None:
        self.rng = np.random.default_rng(zlib.crc32(case.id.encode()))
        self.case, self.nodes, self.initializers = case, [], []
        self.split = split
        self.inputs: dict[str, np.ndarray] = {}
        self.parameters: dict[str, torch.Tensor] = {}
        self.buffers: list[str] = []
        self.names: list[str] = []
        self.values: list = []
        self.batch = next((a.shape[0] for a in case.args if isinstance(a, X | Ids)), BATCH)
        for k, arg in enumerate(case.args):
            self._add(k, arg)

    def numbers(self, shape, positive) -> np.ndarray:
        """Draw from half of a given range, because an X is the sum of two draws."""
        if isinstance(positive, tuple):
            return self.rng.uniform(positive[0] / 2, positive[1] / 2, shape).astype(np.float32)
        if positive:
            return self.rng.uniform(0.4, 1.2, shape).astype(np.float32)
        return (0.8 * self.rng.standard_normal(shape)).astype(np.float32)

    def _initializer(self, name: str, array: np.ndarray) -> None:
        self.initializers.append(numpy_helper.from_array(array, name))

    def _parameter(self, name: str, array: np.ndarray) -> torch.Tensor:
        self._initializer(name, array)
        self.parameters[name] = torch.tensor(array, dtype=torch.float64, requires_grad=True)
        return self.parameters[name]

    def _add(self, k: int, arg) -> None:
        name, value = f"a{k}", None
        if arg is None:
            name = ""
        elif isinstance(arg, X):
            self.inputs[f"x{k}"] = self.numbers(arg.shape, arg.positive)
            shape = (1, *arg.shape[1:]) if self.split else arg.shape
            shift = self._parameter(f"x{k}.shift", self.numbers(shape, arg.positive))
            self.nodes.append(helper.make_node("Add", [f"x{k}", f"x{k}.shift"], [name]))
            value = torch.tensor(self.inputs[f"x{k}"], dtype=torch.float64) + shift
        elif isinstance(arg, A):
            sign = -1 if arg.positive else 1
            source = self._parameter(f"{name}.w", sign * self.numbers(arg.shape, arg.positive))
            self.nodes.append(helper.make_node("Neg", [f"{name}.w"], [name]))
            value = -source
        elif isinstance(arg, P) and not arg.buffer:
            value = self._parameter(name, self.numbers(arg.shape, arg.positive))
        elif isinstance(arg, P):
            array = self.numbers(arg.shape, arg.positive)
            self._initializer(name, array)
            self.buffers.append(name)
            value = torch.tensor(array, dtype=torch.float64)
        elif isinstance(arg, C):
            self._initializer(name, arg.array)
            value = arg.array
        else:
            self.inputs[name] = self.rng.integers(0, arg.high, arg.shape).astype(np.int64)
            value = torch.tensor(self.inputs[name])
        if self.case.truth and isinstance(arg, X | A | P):
            self._initializer(f"{name}.zero", np.zeros((), np.float32))
            self.nodes.append(helper.make_node("Greater", [name, f"{name}.zero"], [f"{name}.on"]))
            name = f"{name}.on"
        self.names.append(name)
        self.values.append(value)

    def scaled(self, y: torch.Tensor) -> torch.Tensor:
        """Turn a boolean output into a float times a parameter, to have something to train."""
        scale = self._parameter("scale", self.numbers((), True))
        self.nodes.append(helper.make_node("Cast", ["y0"], ["number"], to=TensorProto.FLOAT))
        self.nodes.append(helper.make_node("Mul", ["number", "scale"], ["scaled"]))
        return y.double() * scale

    def node(self, parts) -> str:
        """Add the case's node; join several outputs in reverse order. Return the output's name."""
        outputs = [f"y{k}" for k in range(self.case.outputs)]
        attrs = dict(self.case.attrs)
        inputs = self.names[: len(self.names) - self.case.captured]
        if self.case.pair:
            self.nodes.append(helper.make_node("QuantizeLinear", inputs, ["whole"], **attrs))
            inputs = ["whole", *inputs[1:]]
        domain, _, op = ("DequantizeLinear" if self.case.pair else self.case.op).rpartition(".")
        self.nodes.append(helper.make_node(op, inputs, outputs, "case", domain=domain, **attrs))
        if len(parts) == 1:
            return "y0"
        axis = len(parts[0].shape) - 1 if "axis" not in attrs else attrs["axis"]
        self.nodes.append(helper.make_node("Concat", outputs[::-1], ["joined"], axis=axis))
        return "joined"

    def twice(self, name: str, y: torch.Tensor) -> tuple[str, torch.Tensor]:
        """Add the means of the activations to the output, so that each has two gradients."""
        args = zip(self.case.args, self.names, self.values, strict=True)
        used = [(name, value) for arg, name, value in args if isinstance(arg, X | A)]
        for k, (activation, value) in enumerate(used):
            self.nodes.append(
                helper.make_node("ReduceMean", [activation], [f"mean{k}"], keepdims=0)
            )
            self.nodes.append(helper.make_node("Add", [name, f"mean{k}"], [f"more{k}"]))
            name, y = f"more{k}", y + value.mean()
        return name, y

    def end(self, name: str, y: torch.Tensor) -> tuple[str, torch.Tensor]:
        """If the output has no batch axis, flatten it and add one."""
        if self.inputs and y.ndim >= 2 and y.shape[0] == self.batch:
            return name, y
        self._initializer("flat", np.array([1, -1]))
        self.nodes.append(helper.make_node("Reshape", [name, "flat"], ["row"]))
        self.inputs["front"] = self.numbers((self.batch, 1), False)
        self.nodes.append(helper.make_node("Add", ["row", "front"], ["ended"]))
        front = torch.tensor(self.inputs["front"], dtype=torch.float64)
        return "ended", y.reshape(1, -1) + front

    def model(self, output: str, shape) -> onnx.ModelProto:
        infos = [
            helper.make_tensor_value_info(
                name,
                TensorProto.INT64 if array.dtype == np.int64 else TensorProto.FLOAT,
                ["batch", *array.shape[1:]],
            )
            for name, array in self.inputs.items()
        ]
        out = helper.make_tensor_value_info(output, TensorProto.FLOAT, list(shape))
        graph = helper.make_graph(self.nodes, "case", infos, [out], self.initializers)
        domain = self.case.op.rpartition(".")[0]
        opsets = [helper.make_opsetid("", self.case.opset)]
        opsets += [helper.make_opsetid(domain, 1)] if domain else []
        proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        meta = {"edgetrain.parameters": list(self.parameters), "edgetrain.buffers": self.buffers}
        helper.set_model_props(proto, {key: json.dumps(value) for key, value in meta.items()})
        return proto


@functools.cache
def build(case: Case, *, twice: bool = False, split: bool = False) -> Built:
    """Build the model, data and torch reference of a case.

    Args:
      twice: the loss also depends on the activations without the op.
      split: activations do not depend on the size of the batch.
    """
    maker = Maker(case, split)
    y = case.meaning(*maker.values)
    parts = tuple(y) if isinstance(y, tuple | list) else (y,)
    name = maker.node(parts)
    axis = case.attrs.get("axis", -1)
    joined = parts[0] if len(parts) == 1 else torch.cat(parts[::-1], axis)
    if case.mask:
        name, joined = "scaled", maker.scaled(joined)
    if twice:
        name, joined = maker.twice(name, joined)
    name, joined = maker.end(name, joined)
    target = maker.numbers(tuple(joined.shape), False)
    loss = torch.nn.functional.mse_loss(joined, torch.tensor(target, dtype=torch.float64))
    loss.backward()
    zero = {n: torch.zeros_like(p) for n, p in maker.parameters.items()}
    grads = {
        n: (zero[n] if p.grad is None else p.grad).numpy() for n, p in maker.parameters.items()
    }
    proto = maker.model(name, joined.shape)
    model = decode(parse(proto.SerializeToString(), case.id), Path(case.id))
    return Built(proto, model, maker.inputs, target, loss.item(), grads, joined.detach().numpy())


def program(built: Built, **options) -> Program:
    """Compile one microbatch of the model, with workspaces for three threads."""
    return gradient_program(
        built.model, built.inputs, built.target, loss="mse", threads=3, **options
    )


def run(compiled: Program, built: Built, threads: int) -> tuple[float, dict[str, np.ndarray]]:
    """Return loss and gradients of one microbatch."""
    session = Session(compiled, threads=threads)
    try:
        loss = run_microbatch(session, built.inputs, built.target)
        return loss, gradients(session)
    finally:
        session.close()


def predict(compiled: Program, built: Built) -> np.ndarray:
    """Return the model's output in evaluation mode."""
    session = Session(compiled, threads=2)
    try:
        needed = {slot.name for slot in compiled.inputs["eval"]}
        return session.predict({n: a for n, a in built.inputs.items() if n in needed})
    finally:
        session.close()
