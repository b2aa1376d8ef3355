"""Libraries with tapes for all lengths of a Program, compared with training in Python."""

import ctypes
import json
import subprocess

import numpy as np
import pytest

import edgetrain as et
from edgetrain.api import bundle
from edgetrain.bundle.lengths import sets_of
from edgetrain.cli import main
from edgetrain.kernels.device import layout as device
from edgetrain.kernels.step_loop import layout
from edgetrain.program import TARGET
from edgetrain.program.stored import slot_nbytes
from edgetrain.runtime.samples.check import digest_of, lengths_digest
from tests.bundle.flash import Flash
from tests.bundle.loaded import FILL, Loaded, made_up_fill
from tests.bundle.test_files import STRICT, needs, said
from tests.planner import hurried
from tests.quick import slow_except
from tests.runtime.length_nets import (
    LENGTHS,
    LOSSES,
    OPTIONS,
    compiled,
    mean_loss,
    model,
    padded,
    samples_of,
    sequences,
    weighted,
)

TWO = {"logits": "cross_entropy", "wide": et.Loss("mse", weight=0.25)}
# Compile options by name.
CASES: dict[str, dict] = {
    "masked": {},
    "counted": {"kind": "counted"},
    "half": {"precision": "fp16", "optimizer": et.Adam(lr=0.01)},
    "frozen": {"freeze": ["w1"]},
    "blocks": {"frozen": "int8", "freeze": ["w1"]},
    "tokens": {"tokens": 48, "minibatch": 32},
    "fused": {"fused_update": True, "minibatch": 4},
    "threads": {"threads": 2},
    "constants": {"kind": "placed"},
    "losses": {"kind": "two", "losses": TWO},
    "dice and mse": {"kind": "two", "losses": {**TWO, "logits": "dice"}},
}


def case(name: str) -> et.Program:
    options = {**OPTIONS, **CASES[name]}
    with hurried():
        return et.compile(
            model(options.pop("kind", "masked")), lengths=LENGTHS, verbose=False, **options
        )


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return Loaded(compiled(), sets_of(compiled()))


def fed(net, fill, train, held=None) -> int:
    """Call `data` with a Python function and the sample counts of each length."""
    made = FILL(fill)
    counts = [None if n is None else np.array(n, np.int64) for n in (train, held)]
    net._kept += [made, *counts]
    address = ctypes.cast(made, ctypes.c_void_p)
    return net.data(address, None, *(None if n is None else n.ctypes.data for n in counts))


def made_up(net):
    """Train on four minibatches of made-up samples per length."""
    sets = net.library.image.programs
    counts, fills = [4 * one.minibatch for one in sets], [made_up_fill(one) for one in sets]
    ends = np.cumsum(counts)

    def fill(user, split, sample, x, y):
        return fills[int(np.searchsorted(ends, sample, "right"))](user, split, sample, x, y)

    assert fed(net, fill, counts) == 0
    return net


class Own:
    """Samples of `length_nets`, without padding, sorted by length class, shortest first."""

    def __init__(self, samples) -> None:
        longest = np.searchsorted(LENGTHS, [len(sample[0]) for sample in samples])
        self.samples = [samples[k] for k in np.argsort(longest, kind="stable")]
        self.counts = np.bincount(longest, minlength=len(LENGTHS))

    def fill(self, user, split, sample, x, y):
        own, classes = self.samples[sample]
        places = (ctypes.c_void_p * 2).from_address(x)
        return self._write(
            (*places, y), (own, np.ones(len(own), np.float32), classes.astype(np.int32))
        )

    def fill_one(self, user, split, sample, x, y):
        """Like `fill`, for a net without a mask."""
        own, target = self.samples[sample]
        return self._write((x, y), (own, target.astype(np.int32)))

    def fill_weighted(self, user, split, sample, x, y):
        """Like `fill_one`, with a weight for each sample."""
        own, target, weight = self.samples[sample]
        places = (ctypes.c_void_p * 2).from_address(x)
        return self._write((*places, y), (own, np.float32(weight), target.astype(np.int32)))

    def fill_two(self, user, split, sample, x, y):
        """Like `fill_one`, with targets for a second loss."""
        own, classes, wide = self.samples[sample]
        places = (ctypes.c_void_p * 2).from_address(x)
        return self._write((*places, y), (own, wide.astype(np.float32), classes.astype(np.int32)))

    @staticmethod
    def _write(places, arrays) -> int:
        for to, values in zip(places, arrays, strict=True):
            values = np.ascontiguousarray(values)
            ctypes.memmove(to, values.ctypes.data, values.nbytes)
        return 0


@pytest.mark.parametrize("name", slow_except(CASES, "masked", "half", "tokens"))
def test_steps_have_the_bits_of_python(name):
    program = case(name)
    net = made_up(Loaded(program, sets_of(program)).net())
    for steps in (1, 9):
        net.steps(steps - net.report().step)
        assert net.digest() & 0xFFFFFFFF == lengths_digest(program, steps)


@pytest.fixture(scope="module")
def several() -> Loaded:
    """A net with two losses."""
    program = case("losses")
    return Loaded(program, sets_of(program))


def test_changed_weights_of_losses_are_kept_at_every_length(several):
    net = made_up(several.net())
    number = [slot.name for slot in net.library.image.values].index("loss.weights")
    changed = np.array([0, 3], np.float32)
    assert net.set(number, changed.ctypes.data) == 0
    for length in (4, 12, 7):
        assert net.length(length) == 0
        np.testing.assert_array_equal(net.value(number), changed)
    before = net.value(1)
    net.steps(3)
    np.testing.assert_array_equal(net.value(number), changed)
    np.testing.assert_array_equal(net.value(1), before)  # w2: read by the first loss only


def test_a_run_on_samples_of_any_length_has_the_bits_of_fit(loaded):
    own, held = Own(sequences()), Own(sequences(23, 5))
    with et.Trainer(compiled(), own.samples, verbose=False) as trainer:
        trainer.fit(epochs=3)
        expected, steps = digest_of(trainer.session), trainer.session.step
        judged = trainer.evaluate(held.samples)
    net = loaded.net()

    def fill(user, split, *given):
        return (own if split else held).fill(user, split, *given)

    assert fed(net, fill, own.counts, held.counts) == 0
    assert net.steps(steps).digest() & 0xFFFFFFFF == expected
    found = (ctypes.c_double * 2)()
    at = ctypes.addressof(found)
    assert net.eval(at, at + 8) == 0
    assert found[0] == pytest.approx(judged["loss"], rel=1e-12)
    assert found[1] == judged["accuracy"]
    assert net.digest() & 0xFFFFFFFF == expected


@pytest.mark.parametrize("loss", slow_except(LOSSES, "dice"))
def test_a_loss_over_samples_is_a_mean_over_the_samples_of_all_lengths(loss):
    program, own = compiled(*LOSSES[loss]), Own(samples_of(loss))
    net, found = Loaded(program, sets_of(program)).net(), (ctypes.c_double * 2)()
    assert fed(net, own.fill_one, own.counts, own.counts) == 0
    at = ctypes.addressof(found)
    assert net.eval(at, at + 8) == 0
    assert found[0] == pytest.approx(mean_loss(loss, own.samples), rel=1e-5)


def test_samples_of_weight_0_do_not_change_what_a_length_counts_for():
    data, program = samples_of("dice"), weighted("dice")
    own = Own([(x, y, float(k % 3)) for k, (x, y) in enumerate(data)])
    weights = [weight for *_, weight in own.samples]
    expected = mean_loss("dice", [row[:2] for row in own.samples], weights)
    net, found = Loaded(program, sets_of(program)).net(), (ctypes.c_double * 2)()
    assert fed(net, own.fill_weighted, own.counts, own.counts) == 0
    at = ctypes.addressof(found)
    assert net.eval(at, at + 8) == 0
    with et.Trainer(program, verbose=False) as trainer:
        assert (
            found[0] == trainer.evaluate(own.samples)["loss"] == pytest.approx(expected, rel=1e-5)
        )


@pytest.mark.slow
def test_each_of_several_losses_has_its_own_mean():
    """Dice counts each sample once, mse each position."""
    data = [(np.resize(x, (LENGTHS[k % 3], 4)), y) for k, (x, y) in enumerate(sequences(24))]
    rows = [(x, np.resize(y, len(x)), np.ones((len(x), 6))) for x, y in data]
    own, program = Own(rows), case("dice and mse")
    net, found = Loaded(program, sets_of(program)).net(), np.zeros(6)
    assert fed(net, own.fill_two, own.counts, own.counts) == 0
    loss, each, accuracy = (found[k : k + 2].ctypes.data for k in (0, 2, 4))
    assert net.eval(loss, accuracy) == 0 and net.losses(each, accuracy) == 0
    errors = np.concatenate([x @ model("two").initializers["w1"] - 1 for x, _ in data])
    expected = [mean_loss("dice", [row[:2] for row in rows]), np.square(errors).mean()]
    np.testing.assert_allclose(found[2:4], expected, rtol=1e-5)
    assert found[0] == pytest.approx(expected[0] + 0.25 * expected[1], rel=1e-5)


def test_pieces_and_a_saved_state_have_the_bits_of_the_whole(loaded):
    flash = Flash(slot_nbytes(loaded.program))
    net, expected = made_up(loaded.net()), lengths_digest(loaded.program, 9)
    assert net.split(3) == 0
    while net.report().step < 5:
        status = net.poll()
        assert status in (layout.DONE, layout.MORE)
        if status == layout.MORE and net.report().step == 2:
            assert {net.length(4), net.eval(None, None), net.split(2)} == {device.BUSY}
    assert net.save(flash.address) == 0
    other = made_up(loaded.net())
    assert other.load(flash.address) == 0
    assert {one.steps(4).digest() & 0xFFFFFFFF for one in (net, other)} == {expected}


def test_a_state_is_of_every_length(loaded):
    expected = made_up(loaded.net()).steps(6).digest()
    for saving in LENGTHS:
        flash, net = Flash(slot_nbytes(loaded.program)), made_up(loaded.net()).steps(3)
        assert net.length(saving) == 0 and net.save(flash.address) == 0
        for loading in LENGTHS:
            other = made_up(loaded.net())
            assert other.length(loading) == 0 and other.load(flash.address) == 0
            assert other.steps(3).digest() == expected


def test_predictions_are_those_of_the_length_in_use(loaded):
    net, rng = loaded.net(), np.random.default_rng(3)
    with et.Trainer(compiled(), verbose=False) as trainer:
        for length in (12, 3, 7, 1):
            assert net.length(length) == 0
            wide = next(n for n in LENGTHS if n >= length)
            x = np.zeros((5, wide, 4), np.float32)
            x[:, :length] = rng.standard_normal((5, length, 4))
            mask = np.zeros((5, wide), np.float32)
            mask[:, :length] = 1
            out = np.zeros((5, wide, 3), np.float32)
            places = (ctypes.c_void_p * 2)(x.ctypes.data, mask.ctypes.data)
            assert net.predict(ctypes.addressof(places), 5, out.ctypes.data) == 0
            wanted = trainer.predict({"x": x, "mask": mask})
            np.testing.assert_array_equal(out, wanted)


def test_what_cannot_be_is_refused(loaded):
    net, own = loaded.net(), Own(sequences())
    assert net.step() == device.REFUSED  # no data yet
    assert {net.length(0), net.length(13), net.length(-1)} == {device.REFUSED}
    assert fed(net, own.fill, [8, -1, 0]) == device.REFUSED
    assert fed(net, own.fill, [7, 7, 7], [0, 0, 0]) == 0
    assert net.step() == device.REFUSED  # no length has a full minibatch
    found = (ctypes.c_double * 2)()
    assert net.eval(ctypes.addressof(found), ctypes.addressof(found)) == device.REFUSED
    assert fed(net, lambda *_: 5, [8, 0, 0]) == 0
    assert net.step() == 5 and net.report().step == 0


def test_losses_are_those_of_the_evaluation_over_all_lengths(several):
    net, counts = several.net(), [8, 0, 0]
    assert fed(net, made_up_fill(several.image.programs[0]), counts, counts) == 0
    losses, rights, whole = np.zeros(2), np.zeros(2), np.zeros(2)
    where = losses.ctypes.data, rights.ctypes.data
    assert net.losses(*where) == device.REFUSED
    assert net.eval(whole.ctypes.data, whole[1:].ctypes.data) == 0
    for length in LENGTHS:  # another length has the same counts
        assert net.length(length) == 0 == net.losses(*where)
        assert losses @ [1, 0.25] == pytest.approx(whole[0], rel=1e-12)
    assert net.steps(1).losses(*where) == device.REFUSED


def test_a_shift_is_refused_since_padding_is_zero(loaded):
    factor, shift = np.full(1, 0.1, np.float32), np.zeros(1, np.float32)
    net, given = loaded.net(), (0, 4, factor.ctypes.data, shift.ctypes.data, 1, 1)
    assert net.input(*given) == 0
    shift[0] = -0.5
    assert net.input(*given) == device.REFUSED


def test_files_say_what_the_lengths_take(tmp_path, capsys):
    path, out = compiled().save(tmp_path / "net.edge"), tmp_path / "out"
    assert main(["bundle", str(path), "-o", str(out)]) == 0
    assert "T=4, 7, 12" in capsys.readouterr().out
    manifest = json.loads((out / "MANIFEST.json").read_text())
    found = manifest["lengths"]
    assert found["dimension"] == "T" and found["padding"][TARGET] == -100
    assert [one["length"] for one in found["sets"]] == [*LENGTHS]
    assert found["sets"][0]["values"] == {"x": 16, "mask": 4, TARGET: 4}
    assert manifest["tapes"]["left_out"] == []
    assert manifest["ram_nbytes"]["arena"] == compiled().arena_nbytes
    alone = bundle(compiled(), tmp_path / "alone", length=12)
    flash = manifest["flash_nbytes"]["all"] / alone["flash_nbytes"]["all"]
    assert flash < 2 and "lengths" not in alone


@needs("gcc", "make")
def test_main_trains_on_a_file_of_all_lengths(tmp_path):
    own = Own(sequences())
    data = padded(own.samples)
    test = padded(sequences(9, 5))
    np.savez(
        tmp_path / "data.npz",
        **{f"{name}_train": array for name, array in data.items()},
        **{f"{name}_test": array for name, array in test.items()},
    )
    source = et.open_data(f"npz:{tmp_path / 'data.npz'}")
    manifest = bundle(compiled(), tmp_path, data=source)
    said("gcc", *STRICT, "main.c", cwd=tmp_path)
    subprocess.run(["make"], cwd=tmp_path, check=True, capture_output=True)
    assert said("./net", "check", cwd=tmp_path).strip() == manifest["check"]["digest"]
    with et.Trainer(compiled(), own.samples, verbose=False, lr=compiled().lr) as trainer:
        trainer.fit(steps=11)
        expected, judged = digest_of(trainer.session), trainer.evaluate(sequences(9, 5))
    text = said("./net", "net.samples", "11", cwd=tmp_path)
    assert f"digest {expected:08x}" in text
    assert f"eval loss {judged['loss']:.6f}" in text
