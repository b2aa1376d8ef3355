"""Several outputs, several losses: against torch, in Python and in the shell."""

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

import edgetrain as et
from edgetrain.cli import main
from edgetrain.exporters.parity import parity
from edgetrain.losses import Loss

from ..compiler.nets import Net

LOSSES = {"class": "cross_entropy", "box": Loss("huber", weight=0.5)}
N = 48


def two_heads() -> Net:
    net = Net(5)
    net.add("Tanh", [net.add("MatMul", ["x", net.weight("w", 5, 8)], "a")], "h")
    net.add("MatMul", ["h", net.weight("wc", 8, 4)], "class")
    net.add("MatMul", ["h", net.weight("wb", 8, 3)], "box")
    return net


def drawn() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    x, box = draw.standard_normal((N, 5)), draw.standard_normal((N, 3))
    found = {"x": x.astype(np.float32), "box": box.astype(np.float32)}
    return found | {"class": draw.integers(0, 4, N)}


class Torch:
    """The same model and losses in torch."""

    def __init__(self, net: Net, weight: float = 0.5) -> None:
        self.w = {n: torch.tensor(a.copy(), requires_grad=True) for n, a in net.weights.items()}
        self._method, self._weight = torch.optim.SGD(self.w.values(), lr=0.1), weight

    def losses(self, data, part=slice(None)) -> tuple[torch.Tensor, ...]:
        x, target, box = (torch.tensor(data[name][part]) for name in ("x", "class", "box"))
        h = torch.tanh(x @ self.w["w"])
        of_class = F.cross_entropy(h @ self.w["wc"], target)
        of_box = F.huber_loss(h @ self.w["wb"], box)
        return of_class + self._weight * of_box, of_class, of_box

    def step(self, data, part) -> float:
        self._method.zero_grad()
        loss, *_ = self.losses(data, part)
        loss.backward()
        self._method.step()
        return float(loss.detach())


@pytest.mark.parametrize("microbatch", [2, 8])
def test_steps_and_evaluations_are_torchs(microbatch):
    net, data = two_heads(), drawn()
    program = et.compile(
        net.model("class", "box"), losses=LOSSES, minibatch=8, microbatch=microbatch,
        optimizer=et.SGD(lr=0.1),
    )  # fmt: skip
    other, trainer = Torch(net), et.Trainer(program)
    for start, stop in ((0, 8), (8, 16), (16, 19), (19, 27)):  # one of them is not full
        part = slice(start, stop)
        given = {"class": data["class"][part], "box": data["box"][part]}
        assert trainer.step(data["x"][part], given).loss == pytest.approx(
            other.step(data, part), rel=1e-5
        )
    for name, weight in other.w.items():
        found, wanted = trainer.parameters[name], weight.detach().numpy()
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    found = trainer.evaluate(data)
    expected = [float(loss.detach()) for loss in other.losses(data)]
    assert [found[name] for name in ("loss", "class_loss", "box_loss")] == pytest.approx(expected)
    outputs = trainer.predict(data["x"][:11])
    assert {name: array.shape for name, array in outputs.items()} == {
        "class": (11, 4),
        "box": (11, 3),
    }
    right = (trainer.predict(data["x"])["class"].argmax(1) == data["class"]).mean()
    assert found["class_accuracy"] == right
    trainer.close()


SEVERAL = {
    "weights": {"class": Loss("cross_entropy", weight=2.0), "box": Loss("l1", weight=0.3)},
    "two of one": {"class": ["cross_entropy", Loss("dice", weight=0.3)], "box": "mse"},
    "weighted classes": {
        "class": Loss("cross_entropy", class_weights=(1.0, 0.5, 2.0, 0.0)),
        "box": Loss("l1", sample_weights=True),
        "h": Loss("output", weight=0.1),
    },
    "off": {"class": "cross_entropy", "box": Loss("mse", weight=0.0)},
}


@pytest.mark.parametrize("losses", SEVERAL)
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_losses_and_gradients_equal_torchs(losses, precision):
    model = two_heads().model("class", "box", "h")
    options = {"losses": SEVERAL[losses], "steps": 2, "minibatch": 8, "precision": precision}
    report = parity(model, **options)
    assert report.ok, report.summary()


def policy_and_value():
    """A board game net: a convolution with batch-norm, moves and the game's outcome."""
    net = Net(2, 3, 3)
    x = net.add("Relu", [net.norm(net.conv("x", "conv", 4, 2), "bn", 4)], "relu")
    flat = net.add("Flatten", [x], "flat")
    net.add("Gemm", [flat, net.weight("p.w", 36, 9), net.weight("p.b", 9)], "policy")
    net.add("Tanh", [net.add("MatMul", [flat, net.weight("v", 36, 1)], "won")], "value")
    return net.model("policy", "value")


@pytest.mark.parametrize("microbatch", [4, 8])
def test_a_policy_and_a_value_equal_torchs(microbatch):
    losses = {"policy": "cross_entropy", "value": "mse"}
    sizes = {"minibatch": 8, "microbatch": microbatch}
    report = parity(policy_and_value(), losses=losses, steps=2, freeze_bn=False, **sizes)
    assert report.ok, report.summary()


def two_regressions() -> Net:
    """A temperature and three forces from five measurements."""
    net = Net(5)
    net.add("Relu", [net.add("MatMul", ["x", net.weight("w", 5, 16)], "a")], "h")
    net.add("Gemm", ["h", net.weight("t.w", 16, 1), net.weight("t.b", 1)], "temperature")
    net.add("Gemm", ["h", net.weight("f.w", 16, 3), net.weight("f.b", 3)], "forces")
    return net


def az() -> Net:
    """A board game net without normalisation: moves and the game's outcome."""
    net = Net(2, 3, 3)
    x = net.add("Relu", [net.conv("x", "conv", 4, 2)], "relu")
    x = net.add("Relu", [net.add("Add", [net.conv(x, "block", 4, 4), x], "sum")], "h")
    flat = net.add("Flatten", [x], "flat")
    net.add("Gemm", [flat, net.weight("p.w", 36, 9), net.weight("p.b", 9)], "policy")
    net.add("Tanh", [net.add("MatMul", [flat, net.weight("v", 36, 1)], "won")], "value")
    return net


def torch_regressions(w, x):
    h = torch.relu(x @ w["w"])
    return {"temperature": h @ w["t.w"] + w["t.b"], "forces": h @ w["f.w"] + w["f.b"]}


def torch_az(w, x):
    x = torch.relu(F.conv2d(x, w["conv.w"], padding=1))
    flat = torch.relu(F.conv2d(x, w["block.w"], padding=1) + x).flatten(1)
    return {"policy": flat @ w["p.w"] + w["p.b"], "value": torch.tanh(flat @ w["v"])}


# Net, the same in torch, --loss of each output, its loss in torch and its weight.
FILES = {
    "two regressions": (
        two_regressions, torch_regressions,
        {"temperature": ("mse", F.mse_loss, 1.0), "forces": ("l1*0.25", F.l1_loss, 0.25)},
    ),
    "az": (
        az, torch_az,
        {"policy": ("cross_entropy", F.cross_entropy, 1.0), "value": ("mse", F.mse_loss, 1.0)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_thirty_steps_of_a_file_alone_are_torchs(name, tmp_path, capsys):
    make, forward, losses = FILES[name]
    net, draw, path = make(), np.random.default_rng(2), tmp_path / "net.onnx"
    path.write_bytes(net.proto(*losses).SerializeToString())
    data = {"x": draw.standard_normal((16, *net.shape)).astype(np.float32)}
    w = {n: torch.tensor(a.copy(), requires_grad=True) for n, a in net.weights.items()}
    for output, found in forward(w, torch.tensor(data["x"])).items():
        targets = draw.uniform(-1, 1, found.shape).astype(np.float32)
        classes = losses[output][1] is F.cross_entropy
        data[output] = draw.integers(0, found.shape[1], 16) if classes else targets
    np.savez(tmp_path / "d.npz", **data)
    argv = ["train", str(path), "--data", f"npz:{tmp_path / 'd.npz'}", "--steps", "30", "--json"]
    argv += [
        part for output, (loss, *_) in losses.items() for part in ("--loss", f"{output}={loss}")
    ]
    argv += ["--minibatch", "16", "--lr", "0.02", "--momentum", "0.5", "--weight-decay", "0"]
    assert main([*argv, "--out", str(tmp_path / "run")]) == 0, capsys.readouterr().err
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    # Each side sums the minibatch in its own order; larger steps would amplify the difference.
    method, expected = torch.optim.SGD(w.values(), lr=0.02, momentum=0.5), []
    for _ in range(30):
        outputs = forward(w, torch.tensor(data["x"]))
        terms = [
            weight * function(outputs[output], torch.tensor(data[output]))
            for output, (_, function, weight) in losses.items()
        ]
        method.zero_grad()
        sum(terms).backward()
        method.step()
        expected.append(float(sum(terms).detach()))
    found = [event["loss"] for event in events if event.get("event") == "step"]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert main(["export", str(tmp_path / "run"), "-o", str(tmp_path / "trained.onnx")]) == 0
    session = onnxruntime.InferenceSession(tmp_path / "trained.onnx")
    for output, wanted in forward(w, torch.tensor(data["x"])).items():
        (result,) = session.run([output], {"x": data["x"]})
        np.testing.assert_allclose(result, wanted.detach().numpy(), rtol=1e-5, atol=1e-5)


def test_a_weight_changes_while_training_and_is_resumed(tmp_path):
    net, data = two_heads(), drawn()
    program = et.compile(
        net.model("class", "box"), losses=LOSSES, minibatch=8, optimizer=et.SGD(lr=0.1)
    )
    trainer = et.Trainer(program, data, out=tmp_path / "run")
    trainer.loss_weights["box"] = 0.0
    assert dict(trainer.loss_weights) == {"class": 1.0, "box": 0.0}
    before = np.array(trainer.parameters["wb"])
    trainer.fit(epochs=1)
    np.testing.assert_array_equal(trainer.parameters["wb"], before)
    with pytest.raises(et.UsageError, match="nose"):
        trainer.loss_weights["nose"] = 1.0
    trainer.close()
    again = et.Trainer(program, data, out=tmp_path / "again")
    again.resume(tmp_path / "run")
    assert dict(again.loss_weights) == {"class": 1.0, "box": 0.0}
    again.close()


def test_a_state_for_a_bundle_is_refused_if_it_would_train_otherwise(tmp_path):
    data, path = drawn(), tmp_path / "state.bin"
    program = et.compile(two_heads().model("class", "box"), losses=LOSSES, minibatch=8)
    trainer = et.Trainer(program)
    trainer.save_stored(path)
    trainer.loss_weights["box"] = 0.1
    with pytest.raises(et.UsageError, match=r"loss weight box 0\.1; the bundle's Program has 0\.5"):
        trainer.save_stored(path)
    trainer.loss_weights["box"] = 0.5
    trainer.save_stored(path)
    clipped = et.Trainer(program, max_grad_norm=0.05)
    with pytest.raises(et.UsageError, match=r"max_grad_norm 0\.05; the bundle's Program has 0;"):
        clipped.save_stored(path)
    some = {name: array[:20] for name, array in data.items()}
    partial = et.Trainer(program, some, keep_last=True)
    with pytest.raises(et.UsageError, match="keep_last: 20 samples leave a partial minibatch"):
        partial.save_stored(path)


def test_loss_and_gradients_take_targets_by_output():
    net, data = two_heads(), drawn()
    target = {"class": data["class"][:8], "box": data["box"][:8]}
    value, found = et.loss_and_gradients(
        net.model("class", "box"), {"x": data["x"][:8]}, target, losses=LOSSES
    )
    other = Torch(net)
    loss, *_ = other.losses(data, slice(0, 8))
    loss.backward()
    assert value == pytest.approx(float(loss.detach()), rel=1e-6)
    for name, weight in other.w.items():
        np.testing.assert_allclose(found[name], weight.grad.numpy(), rtol=1e-5, atol=1e-7)


def test_one_loss_may_have_a_weight():
    report = parity(two_heads().model("box"), loss=Loss("mse", weight=0.25), steps=2, minibatch=8)
    assert report.ok, report.summary()


@pytest.mark.parametrize("how", ["arrays", "two dicts", "pairs", "dicts", "tuples"])
def test_targets_come_by_the_names_of_outputs(how):
    data = drawn()
    program = et.compile(two_heads().model("class", "box"), losses=LOSSES, minibatch=8)
    names = {"class": data["class"], "box": data["box"]}
    items = {
        "arrays": (data["x"], names),
        "two dicts": ({"x": data["x"]}, names),
        "pairs": [(data["x"][k], {n: a[k] for n, a in names.items()}) for k in range(N)],
        "dicts": [{n: a[k : k + 8] for n, a in data.items()} for k in range(0, N, 8)],
        "tuples": [(data["x"][k : k + 8], {n: a[k : k + 8] for n, a in names.items()})
                   for k in range(0, N, 8)],
    }  # fmt: skip
    trainer = et.Trainer(program, items[how])
    assert np.isfinite(trainer.fit(epochs=1)["loss"]).all()
    trainer.close()


def test_columns_of_a_table_are_targets_by_name(tmp_path: Path):
    data, path = drawn(), tmp_path / "d.csv"
    box = [f"box.{k}" for k in range(3)]
    columns = ["x0", "class", "x1", *box, "x2", "x3", "x4"]
    table = np.concatenate(
        [
            data["x"][:, :1],
            data["class"][:, None],
            data["x"][:, 1:2],
            data["box"],
            data["x"][:, 2:],
        ],
        1,
    )
    np.savetxt(path, table, "%.9g", ",", header=",".join(columns), comments="")
    program = et.compile(two_heads().model("class", "box"), losses=LOSSES, minibatch=8)
    trainer = et.Trainer(program, f"csv:{path}")
    expected, found = trainer.evaluate(data), trainer.evaluate(f"csv:{path}")
    assert found == pytest.approx(expected)
    assert np.isfinite(trainer.fit(epochs=1)["loss"]).all()
    trainer.close()


def test_the_shell_trains_two_losses(tmp_path: Path, capsys):
    net, data = two_heads(), drawn()
    path = tmp_path / "net.onnx"
    path.write_bytes(net.proto("class", "box").SerializeToString())
    np.savez(tmp_path / "d.npz", **{f"{n}_train": a for n, a in data.items()},
             **{f"{n}_test": a[:20] for n, a in data.items()})  # fmt: skip
    argv = ["train", str(path), "--data", f"npz:{tmp_path / 'd.npz'}", "--json", "--epochs", "1"]
    argv += ["--loss", "class=cross_entropy", "--loss", "box=huber*0.5", "--delta", "0.7"]
    argv += ["--minibatch", "8", "--out", str(tmp_path / "run")]
    argv += ["--metrics", "class=f1", "--metrics", "mae"]
    assert main(argv) == 0, capsys.readouterr().err
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    found = next(event for event in events if "class_loss" in event)
    assert found["loss"] == pytest.approx(found["class_loss"] + 0.5 * found["box_loss"])
    assert 0 <= found["class_accuracy"] <= 1 and 0 <= found["class_f1"] <= 1
    with np.load(tmp_path / "d.npz") as file:
        targets = file["box_test"]
    argv = ["eval", str(tmp_path / "run"), "--data", f"npz:{tmp_path / 'd.npz'}"]
    assert main([*argv, "--json", "--metrics", "class=f1,confusion,box=mae"]) == 0
    evaluated = json.loads(capsys.readouterr().out)
    assert evaluated["class_f1"] == found["class_f1"]
    assert evaluated["box_mae"] == found["box_mae"] > 0
    assert np.sum(evaluated["class_confusion"]) == len(targets)
    assert main([*argv, "--metrics", "class=confusion"]) == 0
    assert "class_confusion" in capsys.readouterr().out


@pytest.mark.parametrize(
    "losses, words",
    [
        ({"nose": "mse", "box": "mse"}, "nose"),
        ({"box": "mse", "class": 3}, "3"),
        ({"box": ["mse", "mse"]}, "box_mse twice"),
        ({"class": ["cross_entropy", "mse"]}, "class"),
        ([], "[]"),
    ],
)
def test_losses_that_cannot_be_are_refused(losses, words):
    with pytest.raises(et.EdgetrainError) as caught:
        et.compile(two_heads().model("class", "box"), losses=losses or "mse", minibatch=8)
    assert words in str(caught.value) or not losses


@pytest.mark.parametrize("given", [{"class": 0}, {"class": 0, "box": 0, "nose": 0}, None, 0])
def test_targets_that_are_missing_are_named(given):
    program = et.compile(two_heads().model("class", "box"), losses=LOSSES, minibatch=8)
    trainer, data = et.Trainer(program), drawn()
    y = {n: data.get(n, data["x"])[:8] for n in given} if isinstance(given, dict) else given
    with pytest.raises(et.DataError, match="class, box"):
        trainer.step(data["x"][:8], y)
    trainer.close()


def test_ignored_targets_want_a_whole_minibatch():
    net, data = two_heads(), drawn()
    data["class"][:3] = -100
    for microbatch in (8, 4):
        program = et.compile(
            net.model("class", "box"), losses=LOSSES, minibatch=8, microbatch=microbatch,
            optimizer=et.SGD(lr=0.1),
        )  # fmt: skip
        trainer, given = et.Trainer(program), {n: data[n][:8] for n in ("class", "box")}
        if microbatch == 8:
            expected = Torch(net).step(data, slice(0, 8))
            assert trainer.step(data["x"][:8], given).loss == pytest.approx(expected, rel=1e-5)
        else:
            with pytest.raises(et.DataError, match="-100"):
                trainer.step(data["x"][:8], given)
        trainer.close()


def test_ignored_targets_of_one_weighted_loss_want_a_whole_minibatch():
    net, data = two_heads(), drawn()
    data["class"][:3] = -100
    loss = Loss("cross_entropy", weight=2.0)
    for microbatch in (8, 4):
        program = et.compile(
            net.model("class"), loss=loss, minibatch=8, microbatch=microbatch,
            optimizer=et.SGD(lr=0.1),
        )  # fmt: skip
        trainer, given = et.Trainer(program), (data["x"][:8], data["class"][:8])
        if microbatch == 8:
            other = Torch(net)
            expected = 2 * other.losses({**data}, slice(0, 8))[1]
            assert trainer.step(*given).loss == pytest.approx(float(expected.detach()), rel=1e-5)
        else:
            with pytest.raises(et.DataError, match="-100"):
                trainer.step(*given)
        trainer.close()


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("several", [False, True])
def test_a_minibatch_without_a_counted_target_is_skipped(several, fused, tmp_path):
    data = drawn()
    x, box, ignored = data["x"][:8], data["box"][:8], np.full(8, -100)
    losses = {"class": "cross_entropy", "box": Loss("mse", sample_weights=True)}
    given = {"losses": losses} if several else {"loss": Loss("cross_entropy", weight=2.0)}
    program = et.compile(
        two_heads().model("class", "box") if several else two_heads().model("class"),
        minibatch=8, microbatch=8, optimizer=et.SGD(lr=0.1, momentum=0.9, weight_decay=0.1),
        fused_update=fused, **given,
    )  # fmt: skip
    trainer = et.Trainer(program, out=tmp_path / "run")

    def step(target, weights):
        if several:
            return trainer.step(x, {"class": target, "box": box}, weights)
        return trainer.step(x, target)

    assert not step(data["class"][:8], np.ones(8)).skipped
    before = trainer.state_dict()
    result = step(ignored, np.zeros(8))
    assert (result.skipped, result.counted, np.isnan(result.loss)) == (True, 0, True)
    for name, array in trainer.state_dict().items():
        np.testing.assert_array_equal(array, before[name])
    assert not step(data["class"][:8], np.ones(8)).skipped


def test_predictions_of_several_outputs_if_nothing_is_counted():
    losses = {"class": Loss("cross_entropy", ignore_index=0), "box": "mse"}
    program = et.compile(
        two_heads().model("class", "box"), losses=losses, minibatch=8, microbatch=4
    )
    trainer, x = et.Trainer(program), drawn()["x"][:11]
    found = trainer.predict(x)
    for k in range(11):
        single = trainer.predict(x[k : k + 1])
        for name, array in found.items():
            np.testing.assert_allclose(array[k], single[name][0], rtol=1e-5, atol=1e-6)


def test_resuming_restores_the_weights_of_losses(tmp_path):
    data = drawn()

    def step(part):
        given = {"class": data["class"][part], "box": data["box"][part]}
        trainer.step(data["x"][part], given)

    program = et.compile(two_heads().model("class", "box"), losses=LOSSES, minibatch=8)
    trainer = et.Trainer(program, out=tmp_path / "run")
    step(slice(0, 8))
    trainer.save()
    step(slice(8, 16))
    expected = trainer.state_dict()
    trainer.resume()
    trainer.loss_weights["box"] = 5.0
    step(slice(16, 24))
    trainer.resume()
    assert dict(trainer.loss_weights) == {"class": 1.0, "box": 0.5}
    step(slice(8, 16))
    for name, array in trainer.state_dict().items():
        np.testing.assert_array_equal(array, expected[name])


def test_data_without_targets_trains_losses_that_take_none(tmp_path):
    draw = np.random.default_rng(0)
    x = draw.standard_normal((16, 3, 5)).astype(np.float32)
    np.savez(tmp_path / "d.npz", x=x)
    net = Net(3, 5)
    model = net.model(net.add("MatMul", ["x", net.weight("w", 5, 4)], "y"))
    program = et.compile(model, loss="triplet", minibatch=8)
    trainer = et.Trainer(program, f"npz:{tmp_path / 'd.npz'}")
    assert np.isfinite(trainer.fit(epochs=1)["loss"]).all()
    trainer.close()
    with pytest.raises(et.DataError, match="no target field 'y'"):
        et.Trainer(et.compile(model, loss="mse", minibatch=8), {"x": x}).fit(epochs=1)


X = np.random.default_rng(0).standard_normal((24, 3, 5)).astype(np.float32)
PARTS = [X[:8], X[8:16], X[16:]]


@pytest.mark.parametrize(
    "data, like",
    [
        (X, {"x": X}),
        (torch.tensor(X), {"x": X}),
        ((X,), {"x": X}),
        ((X, None), {"x": X}),
        (({"x": X}, None), {"x": X}),
        ([*X], {"x": X}),
        ([*torch.tensor(X)], {"x": X}),
        (PARTS, [{"x": x} for x in PARTS]),
        (torch.utils.data.DataLoader([*X], batch_size=8), [{"x": x} for x in PARTS]),
        (lambda: iter(PARTS), [{"x": x} for x in PARTS]),
    ],
)
def test_inputs_alone_are_data_of_losses_that_take_no_target(data, like):
    net = Net(3, 5)
    model = net.model(net.add("MatMul", ["x", net.weight("w", 5, 4)], "y"))
    program, found = et.compile(model, loss="triplet", minibatch=8), []
    for given in (data, like):
        with et.Trainer(program) as trainer:
            trainer.fit(given, epochs=2)
            found.append((trainer.parameters["w"].tobytes(), trainer.evaluate(given)))
    assert found[0] == found[1]


ASKED = {
    "every output that a metric suits": ("f1,mae", {"class_f1", "box_mae"}),
    "one output": ("class=f1,auc,box=rmse", {"class_f1", "class_auc", "box_rmse"}),
    "words": (["class=top2", "box=mae"], {"class_top2", "box_mae"}),
    "a mapping": (
        {"class": ["confusion", "perplexity"], "box": "mae"},
        {"class_confusion", "class_perplexity", "box_mae"},
    ),
    "a function of one": ({"box": {"worst": lambda y, t: abs(y - t).max()}}, {"box_worst"}),
}


def metrics_of(trainer: et.Trainer, data: dict[str, np.ndarray]) -> dict[str, object]:
    """Metrics of the outputs, by scikit-learn and numpy."""
    outputs = trainer.predict(data["x"])
    scores, truth, away = outputs["class"], data["class"], outputs["box"] - data["box"]
    shares = torch.softmax(torch.tensor(scores.astype(np.float64)), 1).numpy()
    said = scores.argmax(1)
    own = np.take_along_axis(scores, truth[:, None], 1)
    pairs = [(shares[truth == k, k][:, None] > shares[truth != k, k]).mean() for k in range(4)]
    hits = [2 * ((said == k) & (truth == k)).sum() / ((said == k).sum() + (truth == k).sum())
            for k in range(4)]  # fmt: skip
    table = np.zeros((4, 4), int)
    np.add.at(table, (truth, said), 1)
    return {
        "class_f1": np.mean(hits), "class_auc": np.mean(pairs), "class_confusion": table.tolist(),
        "class_top2": ((scores > own).sum(1) < 2).mean(),
        "class_perplexity": np.exp(-np.log(shares[np.arange(len(truth)), truth]).mean()),
        "box_mae": abs(away).mean(), "box_rmse": np.sqrt(np.square(away).mean()),
        "box_worst": abs(away).max(),
    }  # fmt: skip


@pytest.mark.parametrize("how", ASKED)
def test_metrics_are_of_outputs(how):
    asked, names = ASKED[how]
    data = drawn()
    program = et.compile(two_heads().model("class", "box"), losses=LOSSES, minibatch=8)
    with et.Trainer(program, data, validation=data, metrics=asked) as trainer:
        expected = metrics_of(trainer, data)
        plain = {*trainer.evaluate(data, metrics=())}
        parts = [
            (data["x"][k : k + 9], {n: data[n][k : k + 9] for n in LOSSES}) for k in range(0, N, 9)
        ]
        for found in (trainer.evaluate(data), trainer.evaluate(parts)):
            assert {*found} - plain == names
            for name in names:
                np.testing.assert_allclose(found[name], expected[name], rtol=1e-5)
        history = trainer.fit(epochs=1)
        numbers = {name for name in names if not name.endswith("confusion")}
        assert {f"val_{name}" for name in numbers} <= {*history}


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_metrics_are_of_outputs_in_16_bits(precision):
    """Including numbers in a format that numpy lacks."""
    data, asked = drawn(), ["class=f1,confusion", "box=mae,rmse"]
    program = et.compile(
        two_heads().model("class", "box"), losses=LOSSES, minibatch=8, precision=precision
    )
    with et.Trainer(program, data, metrics=asked) as trainer:
        trainer.fit(epochs=1)
        found, expected = trainer.evaluate(data), metrics_of(trainer, data)
        assert found["class_confusion"] == expected["class_confusion"]
        for name in ("class_f1", "box_mae", "box_rmse"):
            assert found[name] == pytest.approx(expected[name], rel=2e-2), name


def test_weighted_accuracies_are_of_the_losses_that_weigh():
    data = drawn()
    losses = {"class": Loss("cross_entropy", sample_weights=True), "box": "mse"}
    program = et.compile(two_heads().model("class", "box"), losses=losses, minibatch=8)
    data["w"] = np.random.default_rng(3).integers(0, 3, N).astype(np.float32)
    with et.Trainer(program) as trainer:
        right = trainer.predict(data["x"])["class"].argmax(1) == data["class"]
        found = trainer.evaluate(data, metrics="mae")
        away = trainer.predict(data["x"])["box"] - data["box"]
    assert found["class_accuracy"] == pytest.approx((right * data["w"]).sum() / data["w"].sum())
    assert found["box_mae"] == pytest.approx(abs(away).mean(), rel=1e-5)


@pytest.mark.parametrize(
    "asked, words",
    [
        ("nose=f1", "nose"),
        ({"nose": "f1"}, "nose"),
        ("box=f1", "box huber"),
        ("class=mae", "class cross_entropy"),
        ("class=f7", "f7"),
        ("h=mae", "h output"),
    ],
)
def test_metrics_that_suit_no_output_are_refused(asked, words):
    losses = LOSSES | {"h": Loss("output", weight=0.1)}
    program = et.compile(two_heads().model("class", "box", "h"), losses=losses, minibatch=8)
    with pytest.raises(et.UsageError, match=words):
        et.Trainer(program, drawn(), metrics=asked)


def test_a_metric_of_an_output_is_watched():
    from edgetrain.runtime.training.monitors import KeepBest

    program = et.compile(two_heads().model("class", "box"), losses=LOSSES, minibatch=8)
    data = drawn()
    given = {"validation": data, "metrics": "class=f1", "callbacks": [KeepBest("class_f1")]}
    with et.Trainer(program, data, **given) as trainer:
        best = max(trainer.fit(epochs=3)["val_class_f1"])
        assert trainer.evaluate()["class_f1"] == best
    with pytest.raises(et.UsageError, match="class_f1"):
        et.Trainer(program, data, callbacks=[KeepBest("class_f1")])


@pytest.mark.parametrize(
    "monitor, rises",
    [
        ("class_f1", True), ("miou", True), ("box_auc", True), ("class_top5", True),
        ("top_loss", False), ("f1_loss", False), ("box_mae", False), ("f1_score", True),
        ("val_f1_macro", True), ("recall_error", False), ("accuracy_gap", False),
        ("topology_error", False), ("class_recall_error", False), ("accurate", False),
    ],
)  # fmt: skip
def test_which_metrics_rise(monitor, rises):
    from edgetrain.runtime.training.monitors import KeepBest

    assert (KeepBest(monitor)._sign < 0) == rises


@pytest.mark.parametrize("asked", ["class=f1", " class = f1, auc", ["class=f1 ", "auc"]])
def test_a_metric_may_name_the_only_output(asked):
    data = drawn()
    program = et.compile(two_heads().model("class"), losses={"class": "cross_entropy"}, minibatch=8)
    with et.Trainer(program, metrics=asked) as trainer:
        assert "f1" in trainer.evaluate({"x": data["x"], "y": data["class"]})
