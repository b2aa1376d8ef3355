"""Low-rank adapters: where they are added, what is trained, merged and separate export."""

import json

import numpy as np
import onnxruntime
import pytest
import safetensors.numpy
import torch

import edgetrain as et
from edgetrain.cli import main
from edgetrain.compiler.model.lora import Lora, layers_of, make_lora
from edgetrain.errors import DataError, ProgramError, UsageError
from edgetrain.exporters.parity import parity
from edgetrain.program.adapters import CONFIG_FILE, WEIGHTS_FILE
from tests.compiler.nets import Net

TEXT = "r=2,alpha=8,targets=*.q,*.v"


def net():
    """A net with weights in both layouts, [in, out] and [out, in]."""
    made = Net(6)
    x = made.add("MatMul", ["x", made.weight("b.q.weight", 6, 8)], "q")
    turned = made.add("Transpose", [made.weight("b.v.weight", 6, 8)], "v.t", perm=[1, 0])
    x = made.add("MatMul", [made.add("Relu", [x], "act"), turned], "v")
    x = made.add(
        "Gemm", [x, made.weight("b.k.weight", 7, 6), made.weight("b.k.bias", 7)], "k", transB=1
    )
    x = made.add("Gemm", [x, made.weight("head.weight", 7, 3)], "logits")
    return made.model(x)


@pytest.fixture(scope="module")
def samples():
    draw = np.random.default_rng(1)
    return draw.normal(size=(8, 6)).astype(np.float32), draw.integers(0, 3, 8).astype(np.int32)


def compiled(budget=None, **options):
    given = {"lora": TEXT, "optimizer": et.AdamW(lr=0.05), "minibatch": 8, **options}
    return et.compile(net(), budget=budget, **given)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("r=8,alpha=16,targets=*.q_proj,*.v_proj", Lora(8, 16.0, ("*.q_proj", "*.v_proj"))),
        ("targets='q'", Lora(8, 16.0, ("q",))),
        ("r=4,targets=q,init=normal", Lora(4, 8.0, ("q",), "normal")),
        ({"r": 1, "targets": ["q"]}, Lora(1, 2.0, ("q",))),
    ],
)
def test_lora_is_made_of_a_text_or_of_fields(text, expected):
    assert make_lora(text) == expected


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("r=0,targets=q", "r 0: expected a rank from 1 to"),
        ("r=2.5,targets=q", "expected a whole number"),
        ("r=2", "targets"),
        ("rank=2,targets=q", "'rank': no such field"),
        ("2,targets=q", "such as"),
        ("r=2,r=3,targets=q", "2 times"),
        ("alpha=nan,targets=q", "alpha"),
        ("alpha=x,targets=q", "alpha 'x' is not a number"),
        ("init=zero,targets=q", "kaiming or normal"),
        (3, "or a Lora"),
    ],
)
def test_lora_refuses_what_it_does_not_know(given, words):
    with pytest.raises(UsageError, match=words):
        make_lora(given)


def test_targets_name_weights_by_module_by_ending_and_by_name():
    model = net()
    for pattern, expected in (
        ("*.q", {"b.q.weight": True}),
        ("v", {"b.v.weight": False}),
        ("b.k.weight", {"b.k.weight": False}),
        ("head*", {"head.weight": True}),
        ("b.*", {"b.q.weight": True, "b.v.weight": False, "b.k.weight": False}),
    ):
        found = layers_of(model, Lora(targets=(pattern,)))
        assert {layer.weight: layer.turned for layer in found} == expected, pattern
    with pytest.raises(UsageError, match="target 'nothing': no weight .* b.q, b.v, b.k"):
        layers_of(model, Lora(targets=("b.q", "nothing")))


def test_all_linear_is_every_layer_but_the_last():
    model = net()
    for given in ("all-linear", "r=8,targets=all-linear", Lora(targets=("all-linear",))):
        found = [layer.weight for layer in layers_of(model, make_lora(given))]
        assert found == ["b.q.weight", "b.v.weight", "b.k.weight"], given
    program = compiled(lora="all-linear")
    assert program.recipe["lora"]["targets"] == ["all-linear"]
    trained = program.account["training"]["trained"]["names"]
    assert len(trained) == 6 and all(".lora_" in name for name in trained)
    alone = Net(6)
    alone = alone.model(alone.add("MatMul", ["x", alone.weight("head.weight", 6, 3)], "logits"))
    with pytest.raises(UsageError, match="all-linear: no MatMul or Gemm .* before the last layer"):
        et.compile(alone, lora="all-linear")


def cast_net():
    """A net whose middle weight is stored in fp16."""
    made = Net(6)
    made.weight("b.weight", 8, 8)
    made.constants["b.weight"] = made.weights.pop("b.weight").astype(np.float16)
    x = made.add("Tanh", [made.add("MatMul", ["x", made.weight("a.weight", 6, 8)], "a")], "act")
    wide = made.add("Cast", ["b.weight"], "b.wide", to=1)
    x = made.add("MatMul", [made.add("MatMul", [x, wide], "b"), made.weight("head", 8, 3)], "y")
    return made.model(x)


def test_all_linear_includes_weights_behind_a_cast(samples, tmp_path):
    x, _ = samples
    program = et.compile(
        cast_net(), lora="all-linear", optimizer=et.AdamW(lr=0.05), minibatch=8, effort="quick"
    )
    assert [layer[0] for layer in program.recipe["lora"]["layers"]] == ["a.weight", "b.weight"]
    with et.Trainer(program) as trainer:
        before = trainer.predict(x)
        for _ in range(3):
            trainer.step(*samples)
        found, path = trainer.predict(x), trainer.export_onnx(tmp_path / "merged.onnx")
    assert et.load_onnx(path).initializers["b.weight"].dtype == np.float16
    out = onnxruntime.InferenceSession(path).run(None, {"x": x})[0]
    np.testing.assert_allclose(out, found, rtol=1e-3, atol=2e-3)
    assert np.abs(found - before).max() > 0.1


def test_a_weight_that_others_read_too_gets_no_adapter():
    made = Net(6)
    table = made.weight("tied.weight", 6, 6)
    x = made.add("MatMul", ["x", table], "first")
    made.constants["two"] = np.float32(2)
    x = made.add("MatMul", [x, made.add("Mul", [table, "two"], "doubled")], "logits")
    with pytest.raises(UsageError, match="'tied.weight' is also read by .*merged"):
        compiled_of = made.model(x)
        et.compile(compiled_of, lora="targets=tied")


@pytest.mark.parametrize("turned_first", [True, False])
def test_a_weight_that_is_read_both_ways_round_gets_no_adapter(turned_first):
    """An A and B for one direction do not fit the other."""
    made = Net(6)
    table = made.weight("tied.weight", 6, 6)
    turned = made.add("Transpose", [table], "turned", perm=[1, 0])
    first, second = (turned, table) if turned_first else (table, turned)
    x = made.add("MatMul", [made.add("MatMul", ["x", first], "first"), second], "logits")
    with pytest.raises(UsageError, match="'tied.weight' is .*transposed"):
        et.compile(made.model(x), lora="targets=tied")


def test_an_adapter_counts_as_its_product_does(tmp_path):
    """Gemm scales its product by alpha; the adapter is scaled too, or it could not be merged."""
    made = Net(6)
    x = made.add("Gemm", ["x", made.weight("a.weight", 6, 8)], "a", alpha=0.25)
    x = made.add("Gemm", [x, made.weight("b.weight", 8, 8)], "b", alpha=0.25)
    x = made.add("Gemm", [x, made.weight("head.weight", 3, 8)], "logits", transB=1)
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(8, 6)).astype(np.float32), np.arange(8, dtype=np.int32) % 3
    model = made.model("logits")
    program = et.compile(model, lora="r=2,targets=a,b,head", optimizer=et.AdamW(lr=0.1))
    with et.Trainer(program) as trainer:
        for _ in range(5):
            trainer.step(x, y)
        found, path = trainer.predict(x), trainer.export_onnx(tmp_path / "merged.onnx")
    given = next(iter(et.forward(model, {"x": x}).values()))
    out = next(iter(et.forward(path, {"x": x}).values()))
    np.testing.assert_allclose(out, found, rtol=1e-4, atol=1e-5)
    assert np.abs(out - given).max() > 0.05


def test_adapters_are_dense_beside_sparse_weights(samples, tmp_path):
    with pytest.raises(UsageError, match="density 0.5: no .* adapters"):
        compiled(density=0.5)
    with pytest.raises(UsageError, match="override .*lora_A.*: no match"):
        compiled(density_overrides={"*.lora_A.*": 0.5})
    program = compiled(density=0.5, train=["b.k.weight"], frozen="int8")
    facts = program.account["training"]
    assert facts["sparse"] == ["b.k.weight"] and facts["dense"]["b.q.lora_A.weight"] == "adapter"
    with et.Trainer(program, out=tmp_path / "run") as trainer:
        for _ in range(3):
            trainer.step(*samples)
        path = trainer.export_onnx(tmp_path / "merged.onnx")
        found = trainer.predict(samples[0])
    out = next(iter(et.forward(path, {"x": samples[0]}).values()))
    np.testing.assert_allclose(out, found, rtol=1e-4, atol=1e-5)


def test_an_adapter_of_a_sparse_trained_weight_is_merged_into_the_dense_one(samples, tmp_path):
    x, _ = samples
    sparse = {"density_overrides": {"b.q.weight": 0.3}, "train": ["b.q.weight"]}
    program = compiled(**sparse, effort="quick")
    assert program.account["training"]["sparse"] == ["b.q.weight"]
    with et.Trainer(program) as trainer:
        for _ in range(3):
            trainer.step(*samples)
        path, found = trainer.export_onnx(tmp_path / "merged.onnx"), trainer.predict(x)
        values = {name: np.array(array) for name, array in trainer.parameters.items()}
    delta = 4 * values["b.q.lora_B.weight"] @ values["b.q.lora_A.weight"]
    assert np.mean(values["b.q.weight"] == 0) > 0.6 and np.abs(delta).min() > 0
    merged = et.load_onnx(path).initializers["b.q.weight"]
    np.testing.assert_allclose(merged, values["b.q.weight"] + delta.T, atol=1e-6)
    out = onnxruntime.InferenceSession(path).run(None, {"x": x})[0]
    np.testing.assert_allclose(out, found, rtol=1e-4, atol=1e-5)


def test_a_storage_of_frozen_weights_needs_some():
    with pytest.raises(UsageError, match="frozen int4: all weights are trained.* --freeze"):
        compiled(lora=None, frozen="int4")
    assert compiled(lora=None, frozen="int4", freeze=["head.*"]).mapped


def test_adapters_alone_are_trained_beside_what_patterns_name():
    facts = compiled().account["training"]
    adapters = [f"b.{n}.lora_{m}.weight" for n in "qv" for m in "AB"]
    assert sorted(facts["trained"]["names"]) == sorted(adapters)
    assert facts["frozen"]["count"] == 5
    facts = compiled(train=["head.*", "*.bias"]).account["training"]
    assert sorted(facts["trained"]["names"]) == sorted([*adapters, "head.weight", "b.k.bias"])


def test_frozen_weights_take_no_arena():
    program = compiled()
    assert {slot.name for slot in program.mapped} >= {"b.q.weight", "b.k.bias", "head.weight"}
    kept = {slot.name for slot in program.persistent}
    assert not kept & {slot.name for slot in program.mapped}
    assert program.account["mapped_nbytes"] == program.mapped_nbytes > 4 * 48
    assert sum(program.account["by_kind"].values()) == program.arena_nbytes
    saved = sum(slot.size for slot in program.saved if slot.role == "parameter")
    assert saved == 2 * (6 + 8) + 2 * (6 + 8)


@pytest.mark.parametrize("frozen", [None, "fp32", "fp16", "int8", "int4"])
def test_parity_of_adapters_holds_with_every_storage_of_frozen_weights(frozen):
    report = parity(net(), steps=3, lora=TEXT, frozen=frozen, train=("head.*",))
    assert report.ok, report.summary()
    judged = {row.name for row in report.rows if row.kind == "gradient"}
    assert judged == {f"b.{n}.lora_{m}.weight" for n in "qv" for m in "AB"} | {"head.weight"}


def test_adapters_train_alike_in_every_plan_and_on_any_number_of_threads(samples):
    states = []
    smallest = compiled(microbatch=4).account["min_budget_nbytes"]
    for budget, threads in ((None, 1), (smallest, 1), (None, 2)):
        trainer = et.Trainer(compiled(budget, microbatch=4), threads=threads)
        for _ in range(4):
            trainer.step(*samples)
        states.append({name: array.tobytes() for name, array in trainer.session.state().items()})
        trainer.close()
    assert states[0] == states[1] == states[2]
    with pytest.raises(et.BudgetError):
        compiled(smallest - 1, microbatch=4)


def test_first_output_is_the_models_own(samples):
    x, _ = samples
    trainer = et.Trainer(compiled())
    np.testing.assert_array_equal(
        trainer.predict(x), next(iter(et.forward(net(), {"x": x}).values()))
    )
    trainer.close()


@pytest.fixture(scope="module", params=["fp32", "int4"])
def trained(request, samples, tmp_path_factory):
    """Load a Program from its file and train it for some steps."""
    path = compiled(frozen=request.param).save(tmp_path_factory.mktemp("lora") / "net.edge")
    trainer = et.Trainer(et.load_program(path))
    for _ in range(6):
        trainer.step(*samples)
    yield trainer
    trainer.close()


def test_export_merges_adapters_into_weights_of_the_file(trained, samples, tmp_path):
    x, _ = samples
    path = trained.export_onnx(tmp_path / "merged.onnx")
    merged = et.load_onnx(path)
    assert set(merged.initializers) == set(net().initializers)
    shown, found = trained.parameters, merged.initializers
    delta = 4 * shown["b.q.lora_B.weight"] @ shown["b.q.lora_A.weight"]
    np.testing.assert_allclose(found["b.q.weight"], shown["b.q.weight"] + delta.T, atol=1e-6)
    out = next(iter(et.forward(path, {"x": x}).values()))
    np.testing.assert_allclose(out, trained.predict(x), rtol=1e-4, atol=1e-5)
    assert np.abs(delta).max() > 1e-3


def test_adapter_is_written_as_peft_has_it(trained, tmp_path):
    folder = trained.export_adapter(tmp_path / "adapter")
    data = (folder / WEIGHTS_FILE).read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    name = "base_model.model.b.v.lora_A.weight"
    start, stop = header[name]["data_offsets"]
    array = np.frombuffer(data[8 + length :][start:stop], "<f4").reshape(header[name]["shape"])
    np.testing.assert_array_equal(array, trained.parameters["b.v.lora_A.weight"])
    config = json.loads((folder / CONFIG_FILE).read_text())
    assert (config["peft_type"], config["r"], config["lora_alpha"]) == ("LORA", 2, 8)
    assert config["target_modules"] == ["b.q", "b.v"]


def test_frozen_parameters_cannot_be_set_to_others(trained):
    parameters = trained.parameters
    same = parameters["b.k.weight"]
    parameters["b.k.weight"] = same
    with pytest.raises(DataError, match="'b.k.weight': it is mapped"):
        parameters["b.k.weight"] = same + 1


def test_a_program_without_adapters_writes_none(samples, tmp_path):
    trainer = et.Trainer(compiled(lora=None))
    with pytest.raises(ProgramError, match="no adapters. Compile the model with --lora"):
        trainer.export_adapter(tmp_path / "none")
    trainer.close()


def test_a_run_goes_on_from_its_checkpoint(samples, tmp_path):
    x, y = samples
    np.savez(tmp_path / "data.npz", x=x, y=y)
    data = et.open_data(f"npz:{tmp_path / 'data.npz'}")
    whole = et.Trainer(compiled(), data=data)
    whole.fit(steps=6)
    first = et.Trainer(compiled(), data=data, out=tmp_path / "run")
    first.fit(steps=3)
    first.save()
    first.close()
    second = et.Trainer(tmp_path / "run" / "program.edge", data=data)
    assert second.resume(tmp_path / "run")
    second.fit(steps=6)
    for name, array in whole.session.state().items():
        np.testing.assert_array_equal(second.session.state()[name], array)
    whole.close()
    second.close()


def test_export_command_writes_the_adapter(samples, tmp_path, capsys):
    x, y = samples
    np.savez(tmp_path / "data.npz", x=x, y=y)
    data = et.open_data(f"npz:{tmp_path / 'data.npz'}")
    trainer = et.Trainer(compiled(), data=data, out=tmp_path / "run")
    trainer.fit(steps=2)
    trainer.save()
    trainer.close()
    out = tmp_path / "adapter"
    assert main(["export", str(tmp_path / "run"), "-o", str(out), "--adapter", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["files"].keys() == {WEIGHTS_FILE, CONFIG_FILE}
    header = (out / WEIGHTS_FILE).read_bytes()
    assert b"base_model.model.b.q.lora_B.weight" in header


class Body(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.v, self.head = (torch.nn.Linear(*sizes) for sizes in ((6, 8), (8, 5), (5, 3)))

    def forward(self, x):
        return self.head(torch.relu(self.v(torch.relu(self.q(x)))))


@pytest.fixture
def adapted(tmp_path):
    """Train some parameters of a Body besides its adapters: the module, an input, and a Trainer."""
    opened = []

    def make(*train):
        torch.manual_seed(0)
        body, x = Body(), torch.randn(8, 6)
        path = et.exporters.export_torch(body, (x,), tmp_path / "body.onnx")
        more = {"train": list(train)} if train else {}
        program = et.compile(
            path, lora="r=2,targets=q,v", minibatch=8, optimizer=et.SGD(lr=0.5), **more
        )
        trainer = et.Trainer(program)
        opened.append(trainer)
        for _ in range(5):
            trainer.step(x.numpy(), np.arange(8, dtype=np.int32) % 3)
        return body, x, trainer

    yield make
    for trainer in opened:
        trainer.close()


@pytest.mark.parametrize("train", [(), ("head.*",), ("head.bias",)])
def test_peft_reads_the_adapter(adapted, train, tmp_path):
    peft = pytest.importorskip("peft", reason="peft is not installed")
    body, x, trainer = adapted(*train)
    folder = trainer.export_adapter(tmp_path / "adapter")
    with torch.no_grad():
        out = peft.PeftModel.from_pretrained(body, folder)(x).numpy()
    np.testing.assert_allclose(out, trainer.predict(x.numpy()), rtol=1e-4, atol=1e-5)


def test_an_adapter_has_the_modules_trained_besides_it(adapted, tmp_path):
    _, _, trainer = adapted("head.bias")
    folder = trainer.export_adapter(tmp_path / "adapter")
    config = json.loads((folder / CONFIG_FILE).read_text())
    found = safetensors.numpy.load_file(folder / WEIGHTS_FILE)
    assert config["modules_to_save"] == ["head"]
    for name in ("head.weight", "head.bias"):
        np.testing.assert_array_equal(found[f"base_model.model.{name}"], trainer.parameters[name])


def test_a_bias_trained_beside_an_adapter_is_not_exported_with_it(adapted, tmp_path):
    _, _, trainer = adapted("q.bias")
    with pytest.raises(ProgramError, match="q.bias: also trained.*Export the whole model"):
        trainer.export_adapter(tmp_path / "adapter")
    assert not (tmp_path / "adapter").exists()


def test_a_merged_weight_that_is_not_finite_is_not_exported(tmp_path):
    with et.Trainer(compiled()) as trainer:
        for name in ("b.q.lora_A.weight", "b.q.lora_B.weight"):
            trainer.parameters[name] = np.full_like(trainer.parameters[name], 1e30)
        with pytest.raises(et.errors.RunError, match="'b.q.weight' is not finite"):
            trainer.export_onnx(tmp_path / "merged.onnx")
    assert not [*tmp_path.iterdir()]
