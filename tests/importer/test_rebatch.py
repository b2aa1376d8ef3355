"""Files exported with a fixed batch: trained with any other, or refused with advice."""

import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper
from torch import nn

import edgetrain as et
from edgetrain.cli import main
from edgetrain.compiler.bind import bind
from edgetrain.errors import ModelError

from .models import info, model, node, tensor


class Encoder(nn.Module):
    """Tokens, learned positions, two torch encoder layers, time first."""

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
    """An LSTM with explicit initial states, then a bidirectional GRU."""

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
    """A view with an explicit batch size, and a product after it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, stride=2)
        self.head = nn.Linear(36, 3)

    def forward(self, x):
        h = torch.relu(self.conv(x))
        return self.head(h.view(h.shape[0], -1))


class Patches(nn.Module):
    """A small ViT: patches from a convolution, a class token for each sample."""

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
    for parameter in module.parameters():  # the exporter ties equal parameters
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
                if found.shape == true.shape:
                    np.testing.assert_allclose(found, true, rtol=1e-3, atol=1e-5, err_msg=key)
        # Tensors that the file merged or stores in another layout: compare the norm of all.
        if sum(found.size for found in gradients.values()) == sum(
            p.numel() for p in named.values()
        ):
            whole = np.sqrt(sum(float((found**2).sum()) for found in gradients.values()))
            assert whole == pytest.approx(
                np.sqrt(sum(float((p.grad**2).sum()) for p in named.values())), rel=1e-4
            )


SOON = {("encoder", 2), ("recurrent", 2), ("patches", 1), ("convolutions", 3)}
EXPORTS = [
    pytest.param(
        name, batch, dynamo, id=f"{name}-{batch}-{'dynamo' if dynamo else 'script'}",
        marks=[] if (name, batch) in SOON and not dynamo else pytest.mark.slow,
    )
    for name in NETS for batch in (1, 2, 3) for dynamo in (False, True)
]  # fmt: skip


@pytest.mark.parametrize(("name", "batch", "dynamo"), EXPORTS)
def test_rebatch_gradients_equal_torch(name, batch, dynamo, tmp_path, capfd):
    _compared(name, batch, dynamo, (4, batch), tmp_path / "m.onnx")


def _ints(name: str, *values: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, np.int64), name)


def _zeros(name: str, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.zeros(shape, np.float32), name)


# name -> (nodes and initializers for a batch size, other input dimensions, fixed batch size)
CASES = {
    "reshape": (lambda b: ([node("Reshape", "x s", "r"), node("MatMul", "r w", "y")],
                           [_ints("s", b, 2, 2), tensor("w", 2, 3)]), (4,), 2),
    "reshape and back": (lambda b: ([
        node("Reshape", "x s", "r"), node("MatMul", "r w", "m"), node("Reshape", "m t", "y"),
    ], [_ints("s", 6 * b, 4), tensor("w", 4, 3), _ints("t", b, 6, 3)]), (6, 4), 2),
    "reshape by one unknown": (lambda b: ([
        node("Transpose", "x", "t", perm=[1, 0, 2]), node("Reshape", "t s", "r"),
        node("MatMul", "r w", "m"), node("Reshape", "m u", "v"),
        node("Transpose", "v", "y", perm=[1, 0, 2]),
    ], [_ints("s", -1, 4), tensor("w", 4, 3), _ints("u", 6, b, -1)]), (6, 4), 3),
    "heads": (lambda b: ([
        node("MatMul", "x w", "h"), node("Reshape", "h s", "r"),
        node("Transpose", "r", "t", perm=[0, 2, 1, 3]), node("Reshape", "t u", "v"),
        node("Softmax", "v", "p", axis=-1), node("Reshape", "p z", "q"),
        node("Transpose", "q", "k", perm=[0, 2, 1, 3]), node("Reshape", "k e", "y"),
    ], [tensor("w", 4, 4), _ints("s", b, 6, 2, 2), _ints("u", 2 * b, 6, 2),
        _ints("z", b, 2, 6, 2), _ints("e", b, 6, 4)]), (6, 4), 1),
    "expand": (lambda b: ([
        node("Expand", "w s", "e"), node("Concat", "e x", "y", axis=1),
    ], [tensor("w", 1, 1, 4), _ints("s", b, 1, 4)]), (6, 4), 2),
    "mask of rows": (lambda b: ([node("Mul", "x w", "m"), node("Add", "m k", "y")],
                                [tensor("w", 4), tensor("k", b, 6, 4, value=0.5)]), (6, 4), 3),
    "states": (lambda b: ([
        node("Transpose", "x", "t", perm=[1, 0, 2]),
        helper.make_node("GRU", ["t", "w", "r", "", "", "h"], ["", "o"], "gru", hidden_size=3),
        node("Squeeze", "o zero", "y"),
    ], [tensor("w", 1, 9, 4), tensor("r", 1, 9, 3), tensor("h", 1, b, 3, value=0.25),
        _ints("zero", 0)]), (6, 4), 2),
    "filled states": (lambda b: ([
        node("Transpose", "x", "t", perm=[1, 0, 2]), node("ConstantOfShape", "size", "h"),
        node("Add", "h one", "k"),
        helper.make_node("GRU", ["t", "w", "r", "", "", "k"], ["", "o"], "gru", hidden_size=3),
        node("Squeeze", "o zero", "y"),
    ], [tensor("w", 1, 9, 4), tensor("r", 1, 9, 3), _ints("size", 1, b, 3), _ints("zero", 0),
        tensor("one", 1, value=1.0)]), (6, 4), 1),
    "slice": (lambda b: ([node("Slice", "x a e", "s"), node("MatMul", "s w", "y")],
                         [_ints("a", 0, 1), _ints("e", b, 4), tensor("w", 4, 3)]), (6, 4), 2),
    "positions": (lambda b: ([
        node("Expand", "p s", "e"), node("Gather", "table e", "g"), node("Add", "x g", "y"),
    ], [_ints("p", 0, 1, 2, 3, 4, 5), _ints("s", b, 6), tensor("table", 9, 4)]), (6, 4), 3),
    "resize": (lambda b: ([
        node("Reshape", "x s", "r"), node("Mul", "r w", "m"),
        helper.make_node("Resize", ["m", "", "", "z"], ["u"], "u", mode="nearest"),
        node("Flatten", "u", "y"),
    ], [_ints("s", b, 1, 6, 4), tensor("w", 4), _ints("z", b, 1, 12, 4)]), (6, 4), 2),
}  # fmt: skip


def _case(name: str, batch: int, path: Path):
    make, rest, _ = CASES[name]
    nodes, arrays = make(batch)
    inputs = [info("x", batch, *rest)]
    weights = [a.name for a in arrays if a.name in ("w", "r", "table")]
    outputs = [info("y", None, None, None)]
    made = model(nodes, arrays, inputs, outputs, meta={"edgetrain.parameters": weights})
    rank = {"states": 2, "filled states": 2, "resize": 2}.get(name, 3)
    del made.graph.output[0].type.tensor_type.shape.dim[rank:]
    path.write_bytes(made.SerializeToString())
    return et.load_onnx(path)


@pytest.mark.parametrize("name", CASES)
def test_rebatch_gives_every_sample_what_the_file_gives_it(name, tmp_path):
    """Compared with the same nodes written for the larger batch."""
    baked, wide = CASES[name][2], 6
    small = _case(name, baked, tmp_path / "small.onnx")
    large = _case(name, wide, tmp_path / "large.onnx")
    one, other = bind(small, wide), bind(large, wide)
    shapes = [b.graph.values[b.graph.outputs[0]].shape for b in (one, other)]
    assert shapes[0] == shapes[1] and shapes[0][0] == wide
    x = np.random.default_rng(0).standard_normal((wide, *CASES[name][1])).astype(np.float32)
    found, wanted = (et.forward(m, {"x": x})["y"] for m in (small, large))
    np.testing.assert_array_equal(found, wanted)


def _refused(path: Path):
    """A constant has a separate row for each of the two samples."""
    rows = numpy_helper.from_array(np.array([[1.0], [2.0]], np.float32), "k")
    nodes = [node("Gemm", "x w b", "h"), node("Mul", "h k", "y")]
    made = model(nodes, [tensor("w", 4, 3), tensor("b", 3), rows], [info("x", 2, 4)],
                 meta={"edgetrain.parameters": ["w", "b"]})  # fmt: skip
    path.write_bytes(made.SerializeToString())
    return et.load_onnx(path)


REFUSAL = (
    r"m\.onnx: the batch size 2 .*constant 'k'.*\)\. Use --minibatch 2, or "
    r"export with dynamic_shapes"
)


def test_rebatch_refuses_a_batch_that_has_rows_of_its_own(tmp_path):
    loaded = _refused(tmp_path / "m.onnx")
    for batch in (1, 3, 4):
        with pytest.raises(ModelError, match=REFUSAL):
            bind(loaded, batch)
    with pytest.raises(ModelError, match=REFUSAL):
        et.plan(loaded, loss="mse", minibatch=3)


@pytest.mark.parametrize("minibatch", [2, 4])
def test_rebatch_leaves_the_batch_of_the_file_to_train_with(minibatch, tmp_path, capsys):
    _refused(tmp_path / "m.onnx")
    x = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
    np.savez(tmp_path / "d.npz", x=x, y=x[:, :3])
    command = ["train", str(tmp_path / "m.onnx"), "--data", f"npz:{tmp_path / 'd.npz'}"]
    status = main([*command, "--loss", "mse", "--minibatch", str(minibatch), "--epochs", "1"])
    assert status == 0, capsys.readouterr().err


def test_rebatch_refuses_time_as_the_first_axis(tmp_path):
    nodes = [
        helper.make_node("GRU", ["x", "w", "r"], ["", "h"], "gru", hidden_size=3),
        node("Squeeze", "h zero", "y"),
    ]
    made = model(nodes, [tensor("w", 1, 9, 4), tensor("r", 1, 9, 3), _ints("zero", 0)],
                 [info("x", 6, 2, 4)], [info("y", 2, 3)])  # fmt: skip
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    with pytest.raises(ModelError, match="the batch is the axis of time"):
        bind(et.load_onnx(tmp_path / "m.onnx"), 4)


def _of_one(path: Path, nodes, arrays):
    """A file with a batch of one: x [1, 5, 4] or [1, 4] through `nodes` to y."""
    kept = [numpy_helper.from_array(np.asarray(a), name) for name, a in arrays.items()]
    sizes = (1, 5, 4) if any(part.op_type == "Gather" for part in nodes) else (1, 4)
    made = model(nodes, kept, [info("x", *sizes)], [info("y", 1, None)])
    path.write_bytes(made.SerializeToString())
    return et.load_onnx(path)


_W = {"w": np.ones((4, 3), np.float32), "zero": np.array([0])}
_LAST = [
    node("Squeeze", "x zero", "s"), node("Gather", "s last", "h", axis=0),
    node("MatMul", "h w", "y"),
]  # fmt: skip
_FLIP = [
    node("Squeeze", "x zero", "s"), node("Slice", "s minus least zero minus", "f"),
    node("Unsqueeze", "f zero", "u"), node("MatMul", "u w", "y"),
]  # fmt: skip
_BESIDE = [
    node("MatMul", "x w", "h"), node("Squeeze", "h zero", "s"),
    node("Concat", "s one", "y", axis=0),
]  # fmt: skip
OF_ONE = {
    "the last step": (_LAST, {"last": np.array([4])}, "the batch is gathered over"),
    "the step before": (_LAST, {"last": np.array([-2])}, "the batch is gathered over"),
    "a flip": (
        _FLIP, {"minus": np.array([-1]), "least": np.array([-(2**31)])}, "the batch is reversed",
    ),
    "a number beside": (_BESIDE, {"one": np.ones(1, np.float32)}, "batch size 1 is fixed"),
}  # fmt: skip


@pytest.mark.parametrize("case", OF_ONE)
def test_rebatch_refuses_what_would_mix_samples(case, tmp_path):
    nodes, arrays, words = OF_ONE[case]
    loaded = _of_one(tmp_path / "m.onnx", nodes, {**_W, **arrays})
    with pytest.raises(ModelError, match=words):
        bind(loaded, 3)
