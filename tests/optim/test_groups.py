"""Parameters with their own rates and decays: like torch's groups, in every storage, and in C."""

import json

import numpy as np
import pytest
import torch
from torch import nn

import edgetrain as et
from edgetrain.cli import main
from edgetrain.compiler.options import Options
from edgetrain.errors import UsageError
from edgetrain.exporters import export_torch
from edgetrain.exporters.parity import parity
from edgetrain.runtime.samples.check import state_digest
from tests.bundle.loaded import Loaded
from tests.compiler.nets import Net, residual
from tests.fuzz.nets import _words as table
from tests.optim.cases import DIGITS
from tests.quick import slow_between

GROUPS = [et.Group("two.*", lr=0.07, weight_decay=0), et.Group("*.b", lr=0.02)]
STEPS = 4


def net():
    made = Net(6)
    x = made.add("Gemm", ["x", made.weight("one.w", 6, 8), made.weight("one.b", 8)], "one")
    x = made.add("Tanh", [x], "act")
    return made.model(
        made.add("Gemm", [x, made.weight("two.w", 8, 3), made.weight("two.b", 3)], "y")
    )


@pytest.mark.parametrize("name", DIGITS)
def test_groups_move_as_in_torch(name):
    """The run's weight decay, a group without any, and a group with another rate."""
    options = {**DIGITS[name].to_json(), "weight_decay": 0.1}
    report = parity(
        net(), optimizer=et.optim.make_optimizer(**options), groups=GROUPS, minibatch=4, steps=3
    )
    assert report.ok, report.summary()


@pytest.mark.parametrize("schedule", ["exponential", "step"])
def test_a_schedule_scales_the_rate_of_every_group(schedule, tmp_path):
    """Thirty steps against torch.optim with param groups and its own schedule."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 3))
    export_torch(module, torch.zeros(2, 6), tmp_path / "net.onnx")
    groups = [et.Group("3.*", lr=0.3), et.Group("3.bias", weight_decay=0.2)]
    program = et.compile(
        tmp_path / "net.onnx", minibatch=8, groups=groups, no_decay_1d=True,
        optimizer=et.SGD(lr=0.1, momentum=0.9, weight_decay=0.1),
    )  # fmt: skip
    by_name = dict(module.named_parameters())
    rows = {name: (0.3 if name[0] == "3" else 0.1, 0.1 if p.ndim > 1 else 0.0)
            for name, p in by_name.items()} | {"3.bias": (0.3, 0.2)}  # fmt: skip
    optimizer = torch.optim.SGD(
        [{"params": [by_name[n]], "lr": lr, "weight_decay": d} for n, (lr, d) in rows.items()],
        momentum=0.9,
    )
    rates = {
        "exponential": lambda: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9),
        "step": lambda: torch.optim.lr_scheduler.StepLR(optimizer, 7, 0.5),
    }[schedule]()
    draw = np.random.default_rng(0)
    x = draw.normal(size=(30, 8, 6)).astype(np.float32)
    y = draw.integers(0, 3, (30, 8))
    given = {"exponential": {"gamma": 0.9}, "step": {"step_size": 7, "gamma": 0.5}}[schedule]
    with et.Trainer(program, schedule=et.Schedule(schedule, **given)) as trainer:
        for k in range(30):
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(torch.tensor(x[k])), torch.tensor(y[k])).backward()
            optimizer.step()
            rates.step()
            trainer.step(x[k], y[k])
        for name, parameter in by_name.items():
            np.testing.assert_allclose(
                trainer.parameters[name], parameter.detach().numpy(), atol=1e-5, err_msg=name
            )


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
def test_biases_of_recurrent_layers_count_as_vectors(layer, tmp_path):
    """With `no_decay_1d`, although ONNX stores them with an axis of directions."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.last = layer(3, 4, batch_first=True), nn.Linear(4, 2)

        def forward(self, x):
            return self.last(self.layer(x)[0][:, -1])

    export_torch(Net(), torch.zeros(2, 5, 3), tmp_path / "net.onnx")
    x, y = np.ones((4, 5, 3), np.float32), np.array([0, 1, 0, 1])
    moved = []
    for decay in (0, 0.5):
        optimizer = et.SGD(lr=0.1, weight_decay=decay)
        program = et.compile(
            tmp_path / "net.onnx", minibatch=4, optimizer=optimizer, no_decay_1d=True, verbose=False
        )
        with et.Trainer(program, verbose=False) as trainer:
            trainer.step(x, y)
            moved.append({name: np.array(own) for name, own in trainer.parameters.items()})
    same = {name: np.array_equal(own, moved[1][name]) for name, own in moved[0].items()}
    assert same == {name: "bias" in name for name in same} and sum(same.values()) >= 2


# Storages and optimizers that update differently -> the model, options.
STORED = {
    "fp16": (residual, {"precision": "fp16"}),
    "int8": (residual, {"model_memory": "int8", "optimizer": "adam"}),
    "lamb": (net, {"optimizer": "lamb"}),
    "adafactor": (net, {"optimizer": "adafactor"}),
    "fused": (net, {"fused_update": True, "microbatch": 8}),
    "sparse": (residual, {"density": 0.5}),
    "fused sparse": (residual, {"density": 0.5, "fused_update": True, "microbatch": 8}),
    "rows": (table, {"allow": ("rows",), "optimizer": "sgd"}),
}


@pytest.mark.parametrize("name", slow_between(STORED, 2))
def test_a_group_of_all_has_the_bits_of_a_run_at_its_rate(name):
    """A ratio of 2 is exact, so every number that an update computes from the rate is the same."""
    build, options = STORED[name]
    options, model = {"minibatch": 8, "microbatch": 4, "threads": 1, **options}, build()
    kind = et.optim.make_optimizer(options.pop("optimizer", "adamw"))
    optimizer = type(kind)(lr=0.02, weight_decay=0.1)
    run = et.compile(model, optimizer=optimizer, **options)
    half = type(kind)(lr=0.01, weight_decay=0.3)
    group = et.Group("*", lr=0.02, weight_decay=0.1)
    grouped = et.compile(model, optimizer=half, groups=[group], **options)
    plain = et.compile(model, optimizer=half, **options)
    digests = [state_digest(one, STEPS) for one in (run, grouped, plain)]
    assert digests[0] == digests[1] != digests[2]


def test_fused_groups_have_the_bits_of_others():
    options = {"minibatch": 8, "microbatch": 8, "groups": GROUPS, "optimizer": et.AdamW(lr=0.01)}
    one, other = (et.compile(net(), fused_update=fused, **options) for fused in (False, True))
    assert state_digest(one, STEPS) == state_digest(other, STEPS)


def test_groups_in_c_have_the_bits_of_python():
    program = et.compile(
        net(), minibatch=8, microbatch=4, threads=1, groups=GROUPS, optimizer=et.SGD(lr=0.1)
    )
    made = Loaded(program).net().made_up().steps(STEPS)
    assert made.digest() & 0xFFFFFFFF == state_digest(program, STEPS)
    assert made.report().lr == 0.1


def test_a_resumed_run_goes_on_with_its_groups(tmp_path):
    draw = np.random.default_rng(0)
    data = draw.normal(size=(32, 6)).astype(np.float32), draw.integers(0, 3, 32)
    program = et.compile(net(), minibatch=8, groups=GROUPS, optimizer=et.AdamW(lr=0.01))
    assert Options.of_recipe(program.recipe).groups == tuple(GROUPS)
    found = []
    for folder, parts in (("whole", [8]), ("parts", [4, 8])):
        for steps in parts:
            with et.Trainer(program, data=data, out=tmp_path / folder) as trainer:
                trainer.resume()
                trainer.fit(steps=8 if steps == 8 else None, epochs=None if steps == 8 else 1)
                found.append({n: a.copy() for n, a in trainer.session.state().items()})
    whole, _, parts = found
    assert all((whole[name] == parts[name]).all() for name in whole)


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ([et.Group("nothing.*", lr=1)], "'nothing.*': it matches none .* one.w, one.b, two.w"),
        ("fc.*=0.1", "groups 'fc.*=0.1': expected a list"),
        ([("fc.*", 0.1)], "expected a list such as"),
    ],
)
def test_groups_that_say_nothing_are_refused(groups, words):
    with pytest.raises(UsageError, match=words):
        et.compile(net(), groups=groups)


def test_a_group_needs_a_pattern_and_a_number():
    for given, words in (
        ({"pattern": ""}, "expected a pattern"),
        ({"pattern": "fc.*"}, "expected lr or weight_decay"),
        ({"pattern": "fc.*", "lr": -1.0}, "lr -1.0: expected at least 0|lr"),
        ({"pattern": "fc.*", "lr": "x"}, "lr"),
    ):
        with pytest.raises(UsageError, match=words):
            et.Group(**given)


def test_a_frozen_parameter_has_no_group_and_a_rate_of_0_no_multiple():
    with pytest.raises(UsageError, match="'one.*': it matches none of the 2 trained"):
        et.compile(net(), train=["two.*"], groups=[et.Group("one.*", lr=1)])
    with pytest.raises(UsageError, match="'two.*': lr 1 .* which is 0"):
        et.compile(net(), optimizer=et.SGD(lr=0), groups=[et.Group("two.*", lr=1)])


def test_sparse_layers_that_differ_are_refused():
    with pytest.raises(
        UsageError, match="'b0.conv1.w' has lr 0.1 .* has 0.2 .* --density-override"
    ):
        et.compile(residual(), density=0.5, groups=[et.Group("b1.conv2.w", lr=0.2)])


def test_commands_take_patterns_beside_numbers(tmp_path, capsys):
    path = tmp_path / "net.onnx"
    torch.manual_seed(0)
    export_torch(nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3)), torch.zeros(2, 6), path)
    options = ["--lr", "0.2", "--lr", "1.*=0.1", "--weight-decay", "*.bias=0", "--no-decay-1d"]
    program = str(tmp_path / "net.edge")
    assert main(["compile", str(path), "-o", program, "--weight-decay", "0.01", *options]) == 0
    capsys.readouterr()
    assert main(["inspect", program, "--json"]) == 0
    recipe = json.loads(capsys.readouterr().out)["recipe"]
    assert recipe["groups"] == [
        {"pattern": "1.*", "lr": 0.1},
        {"pattern": "*.bias", "weight_decay": 0.0},
    ]
    assert (recipe["optimizer"]["lr"], recipe["optimizer"]["weight_decay"]) == (0.2, 0.01)
    assert recipe["no_decay_1d"] is True
    assert main(["compile", str(path), "-o", program, "--lr", "fc.*=0.1"]) == 2
    assert "'fc.*': it matches none of the 4 trained parameters" in capsys.readouterr().err
    data = tmp_path / "data.npz"
    np.savez(data, x=np.zeros((8, 6), np.float32), y=np.zeros(8, np.int64))
    given = ["train", program, "--data", f"npz:{data}", "--lr", "1.*=0.1", "--steps", "1"]
    assert main([*given, "--out", str(tmp_path / "run")]) == 2
    assert "--lr" in capsys.readouterr().err
