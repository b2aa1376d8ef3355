"""export_torch: what is written to the file, and what stays unchanged."""

import copy
import subprocess
import sys
import warnings

import numpy as np
import onnx
import onnx_ir
import pytest
import torch
from torch import nn

import edgetrain as et
from edgetrain.errors import ModelError, UsageError
from edgetrain.exporters import ExportWarning, export_torch
from tests.exporters.exported import attribute, export, initializers, metadata, nodes, run


class Tied(nn.Module):
    """Shaped like a language model: the head shares the embedding's weight."""

    def __init__(self, padding_idx=None):
        super().__init__()
        self.tokens = nn.Embedding(11, 6, padding_idx=padding_idx)
        self.norm = nn.LayerNorm(6)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens):
        return self.head(self.norm(self.tokens(tokens)))


class TwoDropouts(nn.Module):
    """Two independent masks on one value, and dropout inside attention."""

    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout(0.25)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        y = self.dropout(x) - self.dropout(x)
        y = y.unsqueeze(1)
        y = nn.functional.scaled_dot_product_attention(y, y, y, dropout_p=0.5)
        return self.head(y.squeeze(1))


def conv_net():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, bias=False),
        nn.BatchNorm2d(4, eps=1e-3, momentum=0.2),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 5),
    )


IMAGES = torch.zeros(2, 3, 8, 8)
TOKENS = torch.zeros(2, 5, dtype=torch.int64)


def test_export_keeps_every_parameter_and_buffer_by_name(tmp_path):
    module = conv_net()
    model = export(module, IMAGES, tmp_path)
    found = initializers(model)
    expected = {k: v for k, v in module.state_dict().items() if "num_batches" not in k}
    assert {k: found[k].tobytes() for k in expected} == {
        k: v.numpy().tobytes() for k, v in expected.items()
    }
    assert metadata(model) == {
        "parameters": ["0.weight", "1.weight", "1.bias", "6.weight", "6.bias"],
        "buffers": ["1.running_mean", "1.running_var"],
    }


def test_export_leaves_module_and_random_state_alone(tmp_path):
    module = conv_net().eval()
    module[3].train()
    before = copy.deepcopy(module.state_dict())
    flags = [part.training for part in module.modules()]
    random_state = torch.get_rng_state()
    export(module, IMAGES, tmp_path)
    assert [part.training for part in module.modules()] == flags
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random_state)


def test_export_writes_training_mode_when_module_is_in_eval_mode(tmp_path):
    model = export(conv_net().eval(), IMAGES, tmp_path)
    norm, dropout = nodes(model, "BatchNormalization")[0], nodes(model, "Dropout")[0]
    constants = initializers(model)
    assert attribute(norm, "training_mode") == 1
    assert attribute(norm, "momentum") == pytest.approx(0.8)
    assert attribute(norm, "epsilon") == pytest.approx(1e-3)
    assert list(norm.output[1:]) == ["1.running_mean.updated", "1.running_var.updated"]
    assert [constants[name] for name in dropout.input[1:]] == [np.float32(0.1), True]


def test_export_keeps_batch_norm_frozen_when_only_it_is_in_eval_mode(tmp_path):
    module = conv_net()
    module[1].eval()
    norm = nodes(export(module, IMAGES, tmp_path), "BatchNormalization")[0]
    assert len(norm.output) == 1
    assert "training_mode" not in [item.name for item in norm.attribute]


def test_export_chains_statistics_when_batch_norm_is_applied_twice(tmp_path):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(3)

        def forward(self, x):
            return self.norm(torch.sigmoid(self.norm(x)) * 3 + 1)

    module = Twice()
    torch.manual_seed(1)
    x = torch.randn(7, 3)
    model = export(module, x, tmp_path)
    outputs = run(model, (x,))
    module(x)
    # ONNX uses the biased variance, so only the mean is equal.
    np.testing.assert_allclose(outputs[3], module.norm.running_mean, rtol=1e-5)
    second = nodes(model, "BatchNormalization")[1]
    assert second.input[3] == "norm.running_mean.updated"


def test_export_says_so_when_batch_norm_is_registered_twice(tmp_path):
    norm = nn.BatchNorm1d(3)
    with pytest.raises(ModelError, match=r"'0\.running_mean' is '2\.running_mean'"):
        export_torch(nn.Sequential(norm, nn.ReLU(), norm), torch.zeros(2, 3), tmp_path / "m.onnx")


def test_export_symbolic_batch_accepts_another_one(tmp_path):
    module = conv_net()
    module[3].p = 0.0
    model = export(module, torch.zeros(1, 3, 8, 8), tmp_path)
    dims = model.graph.input[0].type.tensor_type.shape.dim
    assert (dims[0].dim_param, [dim.dim_value for dim in dims[1:]]) == ("batch", [3, 8, 8])
    x = torch.randn(5, 3, 8, 8)
    np.testing.assert_allclose(run(model, (x,))[0], module(x).detach(), atol=1e-5)


def test_export_keeps_dropouts_of_one_value_apart(tmp_path):
    model = export(TwoDropouts(), torch.zeros(2, 3, 4), tmp_path)
    constants = initializers(model)
    found = [[constants[name].item() for name in n.input[1:]] for n in nodes(model, "Dropout")]
    assert found == [[0.25, True], [0.25, True], [0.5, True]]
    assert all(item.name != "seed" for n in nodes(model, "Dropout") for item in n.attribute)


def test_export_keeps_tied_parameters_tied(tmp_path):
    model = export(Tied(), TOKENS, tmp_path)
    assert "tokens.weight" in initializers(model)
    assert "head.weight" not in initializers(model)
    assert metadata(model)["tied"] == {"head.weight": "tokens.weight"}


def test_export_keeps_equal_parameters_apart(tmp_path):
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    module[1].load_state_dict(module[0].state_dict())
    found = initializers(export(module, torch.zeros(2, 3), tmp_path))
    assert {"0.weight", "0.bias", "1.weight", "1.bias"} <= set(found)


def test_export_names_frozen_parameters(tmp_path):
    module = conv_net()
    module[0].weight.requires_grad_(False)
    assert metadata(export(module, IMAGES, tmp_path))["frozen"] == ["0.weight"]


def test_export_warns_of_parameters_the_forward_never_reads(tmp_path):
    module = Tied()
    module.extra = nn.Linear(2, 2, bias=False)
    with pytest.warns(ExportWarning, match=r"leaves out extra\.weight,"):
        model = export(module, TOKENS, tmp_path)
    assert metadata(model)["unused"] == ["extra.weight"]


def test_export_warns_of_padding_idx(tmp_path):
    with pytest.warns(ExportWarning, match=r"'tokens\.weight': ONNX has no padding_idx, so row 3"):
        model = export(Tied(padding_idx=3), TOKENS, tmp_path)
    assert metadata(model)["padding_idx"] == {"tokens.weight": 3}


def test_export_folds_buffers_that_are_not_in_the_state_dict(tmp_path):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("kept", torch.tensor([2.0, 3.0]))
            self.register_buffer("table", torch.tensor([4.0, 5.0]), persistent=False)
            self.weight = nn.Parameter(torch.ones(2))

        def forward(self, x):
            return x * self.weight * self.kept + self.table.flip(0)

    model = export(Scaled(), torch.zeros(3, 2), tmp_path)
    assert metadata(model)["buffers"] == ["kept"]
    x = torch.randn(4, 2)
    np.testing.assert_allclose(
        run(model, (x,))[0], x * torch.tensor([2.0, 3.0]) + torch.tensor([5.0, 4.0]), atol=1e-6
    )


def test_export_warns_of_buffers_that_only_torch_updates(tmp_path):
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(3))
            self.register_buffer("total", torch.zeros(3))

        def forward(self, x):
            self.total += 1
            return x * self.scale + self.total

    with pytest.warns(ExportWarning, match="updates total, which are constants in the file"):
        export(Counts(), torch.zeros(2, 3), tmp_path)


def test_a_value_may_be_clipped_twice(tmp_path):
    """onnxscript gives the bounds of both the same names."""

    class Clips(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(3, 6)

        def forward(self, x):
            scale, y = self.body(x).chunk(2, -1)
            y = scale * y.clamp(-0.3, 0.2) + y.clamp(-0.3, 0.2).exp() + y.clamp(-0.1, 0.4)
            return y + y.clamp(max=1.0) * y.clamp(max=1.0)

    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    module = Clips()
    model = export(module, x, tmp_path)
    np.testing.assert_allclose(run(model, (x,))[0], module(x).detach(), atol=1e-6)


def test_export_takes_inputs_of_a_forward_with_stars(tmp_path):
    class Stars(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(3))

        def forward(self, first, *others):
            return first * self.scale + sum(others)

    model = export(Stars(), (torch.zeros(2, 3),) * 3, tmp_path)
    assert len(model.graph.input) == 3


class Padded(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(10, 4))

    def forward(self, tokens):
        return nn.functional.embedding_bag(tokens, self.table, padding_idx=0)


def test_export_refuses_a_graph_that_onnx_refuses(tmp_path):
    with pytest.raises(ModelError, match="torch wrote an invalid ONNX graph"):
        export_torch(Padded(), TOKENS, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


class _Called(nn.LSTM):
    """A recurrence through torch's function itself, which the export does not decompose."""

    def forward(self, x):
        state = torch.zeros(2, x.shape[0], 4)
        return torch.lstm(x, (state, state), self._flat_weights, True, 2, 0.5, True, False, True)[0]


def test_export_refuses_dropout_between_layers_of_a_recurrence(tmp_path):
    with pytest.raises(ModelError, match="lstm with dropout 0.5 between its 2 layers"):
        module = _Called(3, 4, num_layers=2, batch_first=True)
        export_torch(module, torch.zeros(2, 5, 3), tmp_path / "model.onnx")


def test_export_omits_zero_initial_states(tmp_path):
    model = export(nn.GRU(3, 4, batch_first=True), torch.zeros(2, 5, 3), tmp_path)
    assert len(nodes(model, "GRU")[0].input) == 4
    assert not nodes(model, "Shape")


@pytest.mark.parametrize(
    ("part", "feature"),
    [
        (nn.BatchNorm1d(3, momentum=None), "momentum=None"),
        (nn.InstanceNorm1d(3, track_running_stats=True), "track_running_stats=True"),
        (nn.LSTM(3, 4, proj_size=2), "proj_size=2"),
        (nn.Embedding(5, 3, max_norm=1.0), r"max_norm=1\.0"),
        (nn.EmbeddingBag(5, 3, padding_idx=0), "padding_idx=0"),
    ],
)
def test_export_refuses_features_that_onnx_lacks(tmp_path, part, feature):
    with pytest.raises(UsageError, match=f"'0': {feature}"):
        export_torch(nn.Sequential(part), torch.zeros(2, 3), tmp_path / "model.onnx")


def test_export_refuses_lazy_parameters(tmp_path):
    with pytest.raises(UsageError, match="'weight' has no shape yet"):
        export_torch(nn.LazyLinear(3), torch.zeros(2, 3), tmp_path / "model.onnx")


def test_export_refuses_two_parameters_over_one_memory(tmp_path):
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    module[1].weight = nn.Parameter(module[0].weight.data)
    with pytest.raises(UsageError, match=r"'1\.weight' and '0\.weight' are two tensors"):
        export_torch(module, torch.zeros(2, 3), tmp_path / "model.onnx")


def test_export_refuses_a_forward_that_bakes_the_batch(tmp_path):
    class Baked(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(6, 2)

        def forward(self, x):
            return self.head(x.reshape(2, 6))

    with pytest.raises(ModelError, match="your code specialized it to be a constant"):
        export_torch(Baked(), torch.zeros(2, 2, 3), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_export_takes_a_batch_axis_per_input(tmp_path):
    class TwoInputs(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRU(3, 4)
            self.scale = nn.Parameter(torch.ones(4))

        def forward(self, x, state, offset):
            return self.rnn(x, state)[0] * self.scale + offset

    inputs = (torch.zeros(5, 1, 3), torch.zeros(1, 1, 4), torch.zeros(4))
    model = export(
        TwoInputs(), inputs, tmp_path, batch_dim=(1, 1, None), input_names=["a", "b", "c"]
    )
    shapes = {
        value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in model.graph.input
    }
    assert shapes == {"a": [5, "batch", 3], "b": [1, "batch", 4], "c": [4]}
    assert len(nodes(model, "GRU")[0].input) == 6


@pytest.mark.parametrize("batch_dim", [2, (0, 0)])
def test_export_refuses_a_batch_axis_that_is_not_there(tmp_path, batch_dim):
    with pytest.raises(UsageError, match="batch_dim"):
        export_torch(nn.Linear(3, 2), torch.zeros(2, 3), tmp_path / "m.onnx", batch_dim=batch_dim)


@pytest.mark.parametrize(
    ("opset", "op"), [(20, "InstanceNormalization"), (21, "GroupNormalization")]
)
def test_export_writes_the_opset_asked_for(tmp_path, opset, op):
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4))
    model = export(module, IMAGES, tmp_path, opset=opset)
    assert (model.opset_import[0].version, len(nodes(model, op))) == (opset, 1)


def test_export_refuses_an_opset_out_of_range(tmp_path):
    with pytest.raises(UsageError, match="opset 11: expected 18 to 23"):
        export_torch(nn.Linear(3, 2), torch.zeros(2, 3), tmp_path / "model.onnx", opset=11)


def test_export_puts_weights_beside_the_file_when_asked(tmp_path):
    module = nn.Linear(300, 20)
    model = export(module, torch.zeros(2, 300), tmp_path, external_data=True)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model.onnx", "model.onnx.data"]
    np.testing.assert_array_equal(initializers(model)["weight"], module.weight.detach())


def test_export_goes_external_above_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr("edgetrain.exporters.onnx_save.INLINE_LIMIT_NBYTES", 1000)
    export(nn.Linear(300, 20), torch.zeros(2, 300), tmp_path)
    assert (tmp_path / "model.onnx.data").stat().st_size >= 300 * 20 * 4


def test_export_refuses_inline_weights_above_the_protobuf_limit(tmp_path, monkeypatch):
    monkeypatch.setattr("edgetrain.exporters.onnx_save.PROTOBUF_LIMIT_NBYTES", 1000)
    with pytest.raises(UsageError, match="24080 bytes of weights; expected at most 1000"):
        export(nn.Linear(300, 20), torch.zeros(2, 300), tmp_path, external_data=False)


def test_export_keeps_the_old_file_when_writing_fails(tmp_path, monkeypatch):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"old")

    def fail(model, draft, external_data):
        draft.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(onnx_ir, "save", fail)
    with pytest.raises(OSError, match="disk full"):
        export_torch(nn.Linear(3, 2), torch.zeros(2, 3), path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_export_refuses_a_missing_directory(tmp_path):
    with pytest.raises(UsageError, match="the directory does not exist"):
        export_torch(nn.Linear(3, 2), torch.zeros(2, 3), tmp_path / "no" / "model.onnx")


def test_export_file_names_nodes_by_module_and_no_source_files(tmp_path):
    model = export(Tied(), TOKENS, tmp_path)
    names = [node.name for node in model.graph.node]
    assert names == ["tokens/Gather", "norm/LayerNormalization", "head/Transpose", "head/MatMul"]
    assert b".py" not in model.SerializeToString()
    assert not model.functions
    assert isinstance(model, onnx.ModelProto)


def test_exporters_imports_neither_torch_nor_onnx_until_asked():
    code = "import sys, exporters; assert not {'torch', 'onnx'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


class Recurrent(nn.Module):
    """Two bidirectional layers, their last states and outputs."""

    def __init__(self, cell, **options):
        super().__init__()
        self.cells = cell(4, 5, **options)

    def forward(self, x):
        outputs, states = self.cells(x)
        return outputs, states[0] if isinstance(states, tuple) else states


@pytest.mark.parametrize(
    "options", [{"batch_first": True}, {"num_layers": 2, "bidirectional": True}, {"bias": False}]
)
@pytest.mark.parametrize("cell", [nn.GRU, nn.LSTM, nn.RNN])
def test_a_recurrence_keeps_its_length_symbolic(cell, options, tmp_path):
    torch.manual_seed(0)
    module, first = Recurrent(cell, **options), options.get("batch_first", False)
    example, batch = torch.randn(2, 7, 4), 0 if first else 1
    model = export(module, example, tmp_path, batch_dim=batch, dims={1 - batch: "T"})
    assert {*initializers(model)} >= {name for name, _ in module.named_parameters()}
    for time in (1, 3, 12):
        x = torch.randn((3, time, 4) if first else (time, 3, 4))
        for found, expected in zip(run(model, (x,)), module(x), strict=True):
            np.testing.assert_allclose(found, expected.detach(), atol=1e-6)  # other summation order


class _Named(nn.Module):
    """A parameter and a buffer with names of arguments."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.x = nn.Parameter(torch.randn(1, 6))
        self.register_buffer("y", torch.rand(1, 6) + 0.5)
        self.layer = nn.Linear(6, 3)

    def forward(self, x, y):
        return self.layer((x - self.x) / self.y + y)


def test_arguments_may_have_names_of_parameters(tmp_path):
    module, given = _Named(), (torch.randn(4, 6), torch.randn(4, 6))
    model = export(module, given, tmp_path)
    assert [value.name for value in model.graph.input] == ["x_input", "y_input"]
    assert {"x", "y", "layer.weight", "layer.bias"} == {*initializers(model)}
    arrays = {f"{n}_input": t.numpy() for n, t in zip("xy", given, strict=True)}
    (found,) = et.forward(tmp_path / "model.onnx", arrays).values()
    np.testing.assert_allclose(found, module(*given).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_arguments_may_have_names_of_constants(tmp_path):
    module = nn.Sequential(nn.Linear(6, 3))
    module.register_buffer("x", torch.rand(1, 6), persistent=False)
    layer = module[0]
    module.forward = lambda x: layer(x - module.x)
    given = torch.randn(4, 6)
    export(module, given, tmp_path)
    (found,) = et.forward(tmp_path / "model.onnx", given.numpy()).values()
    np.testing.assert_allclose(found, module(given).detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("given", [{"input_names": ["x", "b"]}, {"output_names": ["layer.weight"]}])
def test_given_names_are_not_those_of_parameters(tmp_path, given):
    pair = torch.zeros(2, 6), torch.zeros(2, 6)
    with pytest.raises(UsageError, match="a parameter or buffer of the module has this name"):
        export_torch(_Named(), pair, tmp_path / "model.onnx", **given)


class _Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return -0.5 * g


class _Changed(nn.Module):
    """A net whose gradients are changed in some way."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.first, self.last, self.how = nn.Linear(4, 4), nn.Linear(4, 2), how
        self.rows = nn.Embedding(5, 4, scale_grad_by_freq=how == "scale_grad_by_freq")
        if how == "module hook":
            self.first.register_full_backward_hook(lambda module, given, made: None)
        if how == "parameter hook":
            self.first.weight.register_hook(lambda g: g * 0.5)

    def forward(self, x):
        h = self.first(x) + self.rows(torch.zeros(x.shape[0], dtype=torch.int64))
        if self.how == "function":
            h = _Reversed.apply(h)
        if self.how == "hook":
            h.register_hook(lambda g: g * 0.5)
        if self.how == "detach_":
            h = h.clone().detach_()
        if self.how == "inference_mode":
            with torch.inference_mode():
                h = 2 * h
        return self.last(h)


CHANGED = {
    "function": r"_Reversed\.backward", "hook": "register_hook", "module hook": "first may change",
    "parameter hook": r"first\.weight may", "scale_grad_by_freq": "scale_grad_by_freq",
}  # fmt: skip


@pytest.mark.parametrize("how", CHANGED)
def test_changed_gradients_are_told(tmp_path, how):
    with pytest.warns(ExportWarning, match=CHANGED[how]):
        export_torch(_Changed(how), torch.zeros(3, 4), tmp_path / "model.onnx")


@pytest.mark.parametrize("how", ["not at all", "detach_", "inference_mode"])
def test_gradients_that_the_file_keeps_or_stops_are_not_told(tmp_path, how):
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        export_torch(_Changed(how), torch.zeros(3, 4), tmp_path / "model.onnx")


def test_parts_of_a_parameter_s_memory_are_refused(tmp_path):
    module = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Linear(4, 3, bias=False))
    module[1].weight = nn.Parameter(module[0].weight.data.t())
    with pytest.raises(UsageError, match="over the same memory"):
        export_torch(module, torch.zeros(2, 3), tmp_path / "model.onnx")
    module = nn.Sequential(nn.Linear(3, 4, bias=False))
    module.register_buffer("rows", module[0].weight.data[1:])
    with pytest.raises(UsageError, match="'rows' and '0.weight'"):
        export_torch(module, torch.zeros(2, 3), tmp_path / "model.onnx")


def test_columns_of_one_memory_are_parameters(tmp_path):
    whole = torch.randn(4, 6)
    module = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Linear(3, 4, bias=False))
    module[0].weight, module[1].weight = (
        nn.Parameter(part) for part in (whole[:, :3], whole[:, 3:])
    )
    module.forward = lambda x: module[0](x) + module[1](x)
    assert len(initializers(export(module, torch.zeros(2, 3), tmp_path))) == 2


@pytest.mark.parametrize("twice", [False, True])
def test_norms_without_statistics_stay_without_in_the_trained_file(tmp_path, twice):
    norm = nn.BatchNorm1d(4, track_running_stats=False)
    module = nn.Sequential(nn.Linear(6, 4), norm, nn.Tanh(), *([norm] if twice else []))
    x = torch.randn(8, 6, generator=torch.Generator().manual_seed(0))
    path = export_torch(module, x, tmp_path / "model.onnx")
    program = et.compile(path, loss="mse", optimizer=et.SGD(lr=0.1), minibatch=8, microbatch=8)
    trainer = et.Trainer(program)
    trainer.step(x.numpy(), np.zeros((8, 4), np.float32))
    out = trainer.export_onnx(tmp_path / "out.onnx")
    found = run(onnx.load(out), (x,))[0]
    np.testing.assert_allclose(found, trainer.predict(x), rtol=1e-4, atol=1e-5)
