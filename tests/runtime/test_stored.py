"""A run's stored state, for Programs of the same model that were compiled differently."""

from pathlib import Path

import numpy as np
import pytest

import edgetrain as et
from edgetrain.errors import CheckpointError, UsageError
from edgetrain.kernels import control
from edgetrain.program import Program
from edgetrain.program.stored import read_stored
from tests.compiler.nets import Net

LR = 1e-3
DRAW = np.random.default_rng(1)
X, Y = DRAW.standard_normal((4, 6), np.float32), DRAW.standard_normal((4, 3), np.float32)
AGAIN = "optimizer state starts again"
HEAD = {"train": ["two.*"]}


def compiled(seed: int = 0, **options) -> Program:
    net = Net(6, seed=seed)
    x = net.add("Gemm", ["x", net.weight("one.w", 6, 8), net.weight("one.b", 8)], "one")
    x = net.add("Tanh", [x], "act")
    net.add("Gemm", [x, net.weight("two.w", 8, 3), net.weight("two.b", 3)], "y")
    given = {"loss": "mse", "optimizer": et.Adam(lr=LR), "minibatch": 4, "effort": "quick"}
    return et.compile(net.model("y"), threads=1, verbose=False, **{**given, **options})


def carried(way: str, old: Program, new: Program, path: Path) -> tuple[et.Trainer, list[str]]:
    """Train the old Program, store its state and resume it with the new one.

    Args:
      way: "save" writes the state for the new Program, "resume" for the old one.
    Returns:
      The new Program's Trainer, and the messages of warnings.
    """
    events: list[dict] = []
    with et.Trainer(old, verbose=False, on_event=events.append) as trainer:
        for _ in range(20):
            trainer.step(X, Y)
        trainer.save_stored(path, new if way == "save" else None)
    result = et.Trainer(new, verbose=False, on_event=events.append)
    assert result.resume(path)
    return result, [event["message"] for event in events if event["event"] == "warning"]


WAYS = pytest.mark.parametrize("way", ["save", "resume"])


@WAYS
@pytest.mark.parametrize("frozen", ["fp32", "fp16"])
def test_a_trained_weight_that_the_other_program_keeps_frozen_is_refused(way, frozen, tmp_path):
    path, kind = tmp_path / "net.state", UsageError if way == "save" else CheckpointError
    with pytest.raises(kind, match="'one.w': .*frozen") as found:
        carried(way, compiled(), compiled(**HEAD, frozen=frozen), path)
    assert "\n" not in str(found.value) and path.exists() == (way == "resume")


@WAYS
@pytest.mark.parametrize("frozen", ["fp32", "fp16"])
def test_a_weight_that_never_moved_may_be_frozen_in_the_other_program(way, frozen, tmp_path):
    new = compiled(**HEAD, frozen=frozen)
    trainer, _ = carried(way, compiled(**HEAD), new, tmp_path / "net.state")
    with trainer, et.Trainer(new, verbose=False) as plain:
        assert trainer.steps == 20
        for name, array in trainer.parameters.items():
            same = np.array_equal(array, plain.parameters[name])
            assert same == name.startswith("one"), name


def test_adapters_say_that_frozen_weights_are_those_of_the_other_program(tmp_path):
    """A state of adapters does not contain the weights that they belong to."""
    lora = {"lora": "r=2,targets=one.w,two.w"}
    old, new = compiled(**lora), compiled(seed=5, **lora)
    trainer, said = carried("resume", old, new, tmp_path / "net.state")
    trainer.close()
    assert len(said) == 1 and "Frozen weights are those in this Program's file" in said[0]


# Storage of optimizer state before and after. Vectors stay fp32 in all of them.
FORMS = {
    "fp32 to bf16": ({}, {"state": "bf16"}),
    "fp32 to fp16": ({}, {"state": "fp16"}),
    "fp16 to fp32": ({"state": "fp16"}, {}),
    "adam to momentum": ({}, {"optimizer": et.SGD(lr=LR, momentum=0.9)}),
}


@WAYS
@pytest.mark.parametrize("form", FORMS)
def test_optimizer_state_in_another_form_starts_again_as_a_whole(way, form, tmp_path):
    old, new = (compiled(**options) for options in FORMS[form])
    trainer, said = carried(way, old, new, tmp_path / "net.state")
    with trainer, et.Trainer(new, verbose=False) as plain:
        assert len(said) == 1 and AGAIN in said[0]
        state, begun = trainer.session.state(), plain.session.state()
        roles = {slot.name: slot.role for slot in new.saved}
        for name in (name for name, role in roles.items() if role == "state"):
            np.testing.assert_array_equal(state[name], begun[name])
        for word in control.OF_STATE:
            assert trainer.session.ints[word] == plain.session.ints[word]
        assert trainer.steps == 20


@WAYS
def test_the_first_step_of_adam_that_starts_again_is_its_learning_rate(way, tmp_path):
    trainer, _ = carried(way, compiled(), compiled(state="bf16"), tmp_path / "net.state")
    with trainer:
        before = {name: np.array(array) for name, array in trainer.parameters.items()}
        trainer.step(X, Y)
        for name, array in trainer.parameters.items():
            assert np.abs(array - before[name]).max() == pytest.approx(LR, rel=1e-2), name


@WAYS
def test_optimizer_state_in_the_same_form_is_carried_over(way, tmp_path):
    old, new = compiled(), compiled(precision="bf16", weights="fp32", state="fp32")
    trainer, said = carried(way, old, new, tmp_path / "net.state")
    with trainer:
        assert not any(AGAIN in message for message in said)
        assert trainer.session.counters()["updates"] == 20
        assert all(trainer.session.values[slot.name].any() for slot in new.saved)


SCALES = {
    "automatic": ({"precision": "fp16"}, 4096),
    "fixed": ({"precision": "fp16", "loss_scale": 1024.0}, 1024),
}


@pytest.mark.parametrize("scale", SCALES)
def test_a_state_for_another_program_has_its_loss_scale(scale, tmp_path):
    options, expected = SCALES[scale]
    new, path = compiled(**options), tmp_path / "net.state"
    trainer, _ = carried("save", compiled(), new, path)
    trainer.close()
    assert trainer.session.loss_scale == expected
    assert read_stored(path, new).reals[control.LOSS_SCALE] == expected
