"""Programs of several lengths: every sample trains at the smallest length that holds it."""

import json
import re

import numpy as np
import onnx
import pytest

import edgetrain as et
from edgetrain.api import verify
from edgetrain.cli import main
from edgetrain.errors import BudgetError, CheckpointError, DataError, UsageError
from edgetrain.runtime.loading.program import load_program

from ..digests import digest
from ..planner import hurried
from .length_nets import (
    LENGTHS,
    LOSSES,
    OPTIONS,
    alone,
    compiled,
    decoded,
    mean_loss,
    model,
    padded,
    proto,
    samples_of,
    sequences,
    weighted,
)

SAMPLES = sequences()


def trained(program, data, steps=None, **settings):
    """Return the state after a run, and an evaluation of the data."""
    with et.Trainer(program, data, verbose=False, **settings) as trainer:
        trainer.fit(**({"epochs": 2} if steps is None else {"steps": steps}))
        return digest(trainer.session.state()), trainer.evaluate(data)


@pytest.mark.parametrize("budget", [None, 5000])
def test_the_arena_is_that_of_the_longest_and_weights_are_there_once(budget, tmp_path):
    with hurried():
        program = et.compile(model(), lengths=LENGTHS, budget=budget, verbose=False, **OPTIONS)
    longest = alone(max(LENGTHS), budget=budget).arena_nbytes
    assert program.arena_nbytes <= 1.02 * longest
    assert [*program.lengths] == [*LENGTHS] and program.dims == {"T": max(LENGTHS)}
    assert all(one.arena_nbytes <= program.arena_nbytes for one in program.sets)
    found = load_program(program.save(tmp_path / "m.edge"))
    assert found.digest() == program.digest() and [*found.lengths] == [*LENGTHS]
    with et.Trainer(found, SAMPLES, verbose=False) as trainer:
        assert trainer.session.arena.nbytes == program.arena_nbytes
    verify(found)


def test_a_stored_state_goes_on_with_the_data_of_its_run(tmp_path):
    with et.Trainer(compiled(), SAMPLES, verbose=False) as trainer:
        trainer.fit(steps=5)
        trainer.save_stored(tmp_path / "state.bin")
        trainer.fit(steps=4)
        expected = digest(trainer.session.state())
    with et.Trainer(compiled(), SAMPLES, verbose=False) as trainer:
        trainer.resume(tmp_path / "state.bin")
        trainer.fit(steps=9)
        assert digest(trainer.session.state()) == expected


@pytest.mark.parametrize("length", LENGTHS)
def test_samples_of_one_length_train_as_with_a_program_of_that_length(length):
    rng = np.random.default_rng(2)
    data = {
        "x": rng.standard_normal((44, length, 4)).astype(np.float32),
        "mask": np.ones((44, length), np.float32),
        "y": rng.integers(0, 3, (44, length)),
    }
    own = alone(length, budget=compiled().arena_nbytes)
    for settings in ({}, {"keep_last": True}):
        assert trained(compiled(), data, **settings) == trained(own, data, **settings)


def test_lists_padded_arrays_and_columns_are_the_same_data():
    wanted = trained(compiled(), SAMPLES)
    columns = [x for x, _ in SAMPLES], [y for _, y in SAMPLES]
    rows = [{"x": x, "y": y} for x, y in SAMPLES]
    for data in (padded(SAMPLES), columns, rows):
        assert trained(compiled(), data) == wanted


def test_every_sample_comes_once_at_the_smallest_length_that_holds_it():
    with et.Trainer(compiled(), SAMPLES, keep_last=True, verbose=False) as trainer:
        passes, seen = trainer._passes, []
        for epoch in range(2):
            steps = [passes._samples_of(epoch * passes.length + k) for k in range(passes.length)]
            for part, order in steps:
                smallest = {next(n for n in LENGTHS if n >= len(SAMPLES[k][0])) for k in order}
                assert smallest == {part.length} and len(order) <= 8
            seen.append(np.concatenate([order for _, order in steps]))
            lengths = [part.length for part, _ in steps]
            assert lengths != sorted(lengths)
        assert sorted(seen[0]) == sorted(seen[1]) == [*range(len(SAMPLES))]
        assert seen[0].tolist() != seen[1].tolist()


def test_padding_counts_nowhere():
    """Loss, accuracy and predictions equal those of unpadded samples, one at a time."""
    with et.Trainer(compiled(), verbose=False) as trainer:
        found, right, losses = trainer.evaluate(SAMPLES), [], []
        for length in {len(x) for x, _ in SAMPLES}:
            with et.Trainer(alone(length), verbose=False) as other:
                for x, y in SAMPLES:
                    if len(x) != length:
                        continue
                    logits = other.predict({"x": x, "mask": np.ones(length, np.float32)})
                    got = trainer.predict(x)
                    np.testing.assert_allclose(got, logits, rtol=1e-5, atol=1e-6)
                    wide = np.exp(logits - logits.max(axis=1, keepdims=True))
                    losses += ((-np.log(wide / wide.sum(1, keepdims=True)))[np.arange(length), y],)
                    right += (logits.argmax(1) == y,)
        assert found["loss"] == pytest.approx(np.concatenate(losses).mean(), rel=1e-5)
        assert found["accuracy"] == np.concatenate(right).mean()
        assert found["samples"] == len(SAMPLES)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_over_samples_counts_each_once_whatever_its_length(loss):
    data = samples_of(loss)
    batches = [
        tuple(np.stack([one[field] for one in data if len(one[0]) == n]) for field in (0, 1))
        for n in {len(x) for x, _ in data}
    ]
    with et.Trainer(compiled(*LOSSES[loss]), verbose=False) as trainer:
        for given in (data, batches):
            found = trainer.evaluate(given)
            assert found["samples"] == len(data)
            assert found["loss"] == pytest.approx(mean_loss(loss, data), rel=1e-5)


@pytest.mark.parametrize("loss", LOSSES)
def test_samples_of_weight_0_do_not_change_what_a_length_counts_for(loss):
    data = samples_of(loss)
    weights = [float(len(x) % 3 and k % 3) for k, (x, _) in enumerate(data)]
    given = [(x, y, weight) for (x, y), weight in zip(data, weights, strict=True)]
    with et.Trainer(weighted(loss), verbose=False) as trainer:
        found = trainer.evaluate(given)["loss"]
    assert found == pytest.approx(mean_loss(loss, data, weights), rel=1e-5)


def test_gradients_of_padded_samples_are_those_of_each_alone():
    batch = [(x, y) for x, y in SAMPLES if 4 < len(x) < 7][:2]
    count = sum(len(x) for x, _ in batch)
    expected = 0.0
    for x, y in batch:
        one = {"x": x[None], "mask": np.ones((1, len(x)), np.float32)}
        _, grads = et.loss_and_gradients(model(), one, y[None], dims={"T": len(x)})
        expected = expected + grads["w1"] * len(x) / count
    with et.Trainer(compiled(), verbose=False, lr=1.0) as trainer:
        before = np.array(trainer.parameters["w1"])
        arrays = padded(batch, 6)
        trainer.step({"x": arrays["x"], "lengths": arrays["lengths"]}, arrays["y"])
        assert trainer.session.program.dims == {"T": 7}
        moved = before - trainer.parameters["w1"]
    np.testing.assert_allclose(moved, expected, rtol=1e-4, atol=1e-6)


def test_a_resumed_run_has_the_same_bits(tmp_path):
    wanted, _ = trained(compiled(), SAMPLES, 17)
    for stop in (3, 9):
        out = tmp_path / str(stop)
        trained(compiled(), SAMPLES, stop, out=out)
        with et.Trainer(compiled(), padded(SAMPLES), out, resume=True, verbose=False) as trainer:
            trainer.fit(steps=17)
            assert digest(trainer.session.state()) == wanted
    others = sequences(seed=1)
    trainer = et.Trainer(compiled(), others, out, verbose=False)
    with pytest.raises(CheckpointError, match="12: .* 12: "):
        trainer.resume()
    trainer.close()


def test_batches_of_one_length_each_are_steps():
    arrays = [
        tuple(np.stack([row[field] for row in SAMPLES if len(row[0]) == n][:3]) for field in (0, 1))
        for n in (3, 7, 10)
    ]
    with et.Trainer(compiled(), arrays, verbose=False) as one:
        one.fit(epochs=1)
        with et.Trainer(compiled(), verbose=False) as other:
            for x, y in arrays:
                other.step(x, y)
            assert digest(one.session.state()) == digest(other.session.state())
        both = one.evaluate(arrays)
        rows = [(x, y) for xs, ys in arrays for x, y in zip(xs, ys, strict=True)]
        assert both["loss"] == pytest.approx(one.evaluate(rows)["loss"], rel=1e-6)
        with pytest.raises(DataError, match="single samples"):
            et.Trainer(compiled(), lambda: iter(rows), verbose=False).fit(epochs=1)


def test_predictions_are_as_long_as_their_samples():
    with et.Trainer(compiled(), verbose=False) as trainer:
        several = [x for x, _ in SAMPLES[:5]]
        found = trainer.predict(several)
        assert [len(one) for one in found] == [len(x) for x in several]
        np.testing.assert_array_equal(trainer.predict(several[1]), found[1])
        arrays = padded(SAMPLES[:5], 12)
        whole = trainer.predict({"x": arrays["x"], "lengths": arrays["lengths"]})
        assert whole.shape == (5, 12, 3)
        for one, row in zip(found, whole, strict=True):
            np.testing.assert_allclose(row[: len(one)], one, rtol=1e-5, atol=1e-6)
        with pytest.raises(DataError, match=r"length 13; .* T=12"):
            trainer.predict(np.zeros((13, 4), np.float32))


def test_a_callback_may_predict_another_length_after_the_first_step():
    class Predicts(et.Callback):
        def on_step(self, trainer, result):
            trainer.predict(np.zeros((2, 4), np.float32))

    long = [(x, y) for x, y in SAMPLES if len(x) > 7][:8]
    with et.Trainer(compiled(), long, callbacks=[Predicts()], verbose=False) as trainer:
        trainer.fit(epochs=1)
        assert trainer.steps == 1


def test_a_metric_of_all_outputs_at_once_is_refused():
    with et.Trainer(compiled(), SAMPLES, verbose=False) as trainer:
        with pytest.raises(UsageError, match="metrics: mine"):
            trainer.evaluate(SAMPLES, metrics={"mine": lambda outputs, targets: 0.0})
        assert trainer.evaluate(SAMPLES, metrics=["f1", "top2"])["top2"] > 0


def test_an_input_named_lengths_says_where_samples_end():
    data = [(x, int(y.sum()) % 3) for x, y in SAMPLES]
    program = compiled("counted")
    with et.Trainer(program, data, verbose=False) as trainer:
        for x, _ in data[:4]:
            with et.Trainer(alone(len(x), "counted"), verbose=False) as other:
                wanted = other.predict({"x": x, "lengths": np.float32([len(x)])})
            np.testing.assert_allclose(trainer.predict(x), wanted, rtol=1e-5, atol=1e-6)


def test_what_a_model_reads_of_padding_is_said():
    told = {}
    for kind in ("masked", "alone"):
        events = []
        with et.Trainer(compiled(kind), SAMPLES, verbose=False, on_event=events.append) as trainer:
            trainer.fit(steps=1)
        told[kind] = next(e["message"] for e in events if e["event"] == "data")
        assert re.search(r"T=4: \d+, T=7: \d+, T=12: \d+", told[kind])
    assert "lengths" in told["alone"] and "lengths" not in told["masked"]


def test_targets_that_no_loss_ignores_are_refused_when_padded():
    with hurried():
        program = et.compile(model("alone"), lengths=LENGTHS, loss="mse", verbose=False, **OPTIONS)
    values = [(x, x[:, :3]) for x, _ in SAMPLES]
    with pytest.raises(DataError, match=r"'y'.* mse .*ignore_index"):
        et.Trainer(program, values, verbose=False)
    exact = [(x, y) for x, y in values if len(x) in LENGTHS]
    assert len({len(x) for x, _ in exact}) == 3
    et.Trainer(program, exact, keep_last=True, verbose=False).fit(epochs=1)


@pytest.mark.parametrize("labels", [None, 2])
def test_ctc_refuses_padding_and_trains_without(labels):
    data = [(x, y[:labels]) for x, y in samples_of("ctc")]
    short = [(x[:-1], y[: labels or -1]) for x, y in data]
    program = compiled("alone", et.Loss("ctc", label_length=labels))
    with pytest.raises(DataError, match="ctc .*padding as time steps"):
        et.Trainer(program, short, verbose=False)
    with et.Trainer(program, data, keep_last=True, verbose=False) as trainer:
        before = trainer.evaluate(data)["loss"]
        trainer.fit(epochs=2)
        assert trainer.evaluate(data)["loss"] < before


def test_labels_of_ctc_may_be_filled_up_with_the_blank():
    data = samples_of("ctc of counted steps")
    arrays = padded([(x, x[:, 0]) for x, _ in data])
    arrays["y"] = np.full((len(data), 15), -100)
    for row, (_, y) in enumerate(data):
        arrays["y"][row, : len(y)] = y
    blank = arrays | {"y": np.where(arrays["y"] == -100, 0, arrays["y"])}
    with et.Trainer(compiled(*LOSSES["ctc of counted steps"]), verbose=False) as trainer:
        expected = trainer.evaluate(data)["loss"]
        assert trainer.evaluate(arrays)["loss"] == trainer.evaluate(blank)["loss"] == expected
        blank["y"][5, 14] = 3
        with pytest.raises(DataError, match="sample 5: field 'y': more than"):
            trainer.evaluate(blank)


def test_targets_that_are_filled_up_may_be_longer_than_their_samples():
    longer = [(x, np.append(y, [-100] * 9)) for x, y in SAMPLES]
    arrays = padded(SAMPLES, 12)
    wide = np.concatenate([arrays["y"], np.full((len(SAMPLES), 3), -100)], 1)
    with et.Trainer(compiled(), verbose=False) as trainer:
        expected = trainer.evaluate(SAMPLES)
        assert trainer.evaluate(longer) == trainer.evaluate(arrays | {"y": wide}) == expected


def with_targets(number: int, size: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Some of the samples; one of them has more or fewer targets."""
    result = SAMPLES[:20]
    result[number] = result[number][0], np.resize(result[number][1], size)
    return result


@pytest.mark.parametrize(
    "data, says",
    [
        (padded(SAMPLES) | {"lengths": np.full(60, 13)}, "sample 0: length 13; .* T=12"),
        (padded(SAMPLES) | {"lengths": np.full(60, 15)}, "'lengths'.* 0 to 14. Correct it"),
        (padded(SAMPLES) | {"lengths": np.ones((60, 2), int)}, "'lengths'.* 2 numbers"),
        ([(x[:, :3], y) for x, y in SAMPLES], r"'x' has shape .*, 3\]"),
        ([*SAMPLES, (SAMPLES[0][0][0], SAMPLES[0][1])], "sample 60"),
        (with_targets(3, 20), "sample 3: field 'y': targets for more than the sample's"),
        (with_targets(3, 1), "sample 3: field 'y': targets for 1 positions; expected"),
        (padded(SAMPLES, 12) | {"y": padded(SAMPLES)["y"]}, "'y': .* the sample's 12 positions"),
        (
            padded(SAMPLES) | {"y": padded(SAMPLES, 12)["y"][:, :11]},
            "for 11 pos.*; expected 12",
        ),
        (
            [{"x": np.ones((5, 4)), "y": np.ones(5), "lengths": 3.7}],
            "sample 0.*'lengths': .* 3.7",
        ),
        (padded(SAMPLES) | {"y": padded(SAMPLES)["y"] + 3}, "sample .* 0 to 2"),
    ],
)
def test_data_that_does_not_fit_is_refused(data, says):
    with pytest.raises(DataError, match=says):
        et.Trainer(compiled(), data, verbose=False)


@pytest.mark.parametrize(
    "options, says",
    [
        ({"lengths": [4, 4]}, "lengths: 4 occurs 2 times"),
        ({"lengths": [4]}, "lengths: 1 .*--dim T=4"),
        ({"lengths": [0, 4]}, "lengths 0"),
        ({"lengths": "4,7"}, "lengths '4,7'"),
        ({"lengths": {"S": [4, 7]}}, "lengths S=4,7: no such .* T"),
        ({"lengths": {"batch": [4, 7]}}, "lengths batch=4,7: .*axis 0 of input"),
        ({"lengths": {"T": [4, 7], "S": [4, 7]}}, "lengths: dimensions T, S; expected one"),
        ({"lengths": {"T": [4, 7]}, "dims": {"T": 5}}, "lengths T=4,7: dim T=5"),
        ({"tokens": 64}, "tokens: .* lengths"),
        ({"lengths": [4, 7], "tokens": 6}, "tokens 6: length T=7 needs 28"),
        ({"lengths": [4, 7], "tokens": 64, "minibatch": 16}, "tokens 64: .* 16"),
    ],
)
def test_lengths_that_can_not_be_are_refused(options, says):
    given = {**OPTIONS, "minibatch": 32, **options}
    with pytest.raises(UsageError, match=says):
        et.compile(model(), verbose=False, **given)


def test_lengths_of_a_fixed_model_or_of_one_with_several_dimensions_are_refused():
    for text, says in (("5", "x .batch,5,4"), ("S", "free dimensions S,T")):
        made = proto("alone")
        inputs = made.graph.input
        inputs[0].type.tensor_type.shape.dim[1].Clear()
        if text.isdecimal():
            inputs[0].type.tensor_type.shape.dim[1].dim_value = int(text)
        else:
            inputs[0].type.tensor_type.shape.dim[1].dim_param = "T"
            inputs.append(onnx.helper.make_tensor_value_info("z", 1, ["batch", text, 4]))
        found = decoded(made)
        with pytest.raises(UsageError, match=says):
            et.compile(found, lengths=[4, 7], verbose=False, **OPTIONS)


def test_a_budget_names_the_length_that_is_too_long_and_one_that_fits():
    least = {n: et.plan(model(), dims={"T": n}, **OPTIONS)["min_budget_nbytes"] for n in (7, 600)}
    with hurried(), pytest.raises(BudgetError, match="length T=600: .* Length 7 fits") as raised:
        et.compile(model(), lengths=[7, 600], budget=least[600] - 64, verbose=False, **OPTIONS)
    assert raised.value.min_budget_nbytes == least[600]


def test_tokens_give_each_length_its_minibatch():
    options = {name: value for name, value in OPTIONS.items() if name != "minibatch"}
    with hurried():
        program = et.compile(model(), lengths=LENGTHS, tokens=100, verbose=False, **options)
    assert {n: one.minibatch for n, one in program.lengths.items()} == {4: 24, 7: 12, 12: 8}
    digest_, found = trained(program, SAMPLES)
    assert digest_ != trained(compiled(), SAMPLES)[0] and found["samples"] == 60
    assert program.digest() != compiled().digest()


def test_clipping_is_changed_at_every_length():
    with et.Trainer(compiled(), SAMPLES, max_grad_norm=1e-6, verbose=False) as trainer:
        before = {name: np.array(array) for name, array in trainer.parameters.items()}
        trainer.fit(steps=12)
        for name, array in trainer.parameters.items():
            np.testing.assert_allclose(array, before[name], atol=1e-4)


def test_commands_compile_train_and_evaluate_several_lengths(tmp_path, capsys):
    path, data, run = tmp_path / "net.onnx", tmp_path / "d.npz", tmp_path / "run"
    onnx.save(proto("masked"), path)
    np.savez(data, **padded(SAMPLES))
    few = ["--minibatch", "8", "--microbatch", "4", "--effort", "quick"]
    assert main(["plan", str(path), "--lengths", "4,7,12", *few]) == 0
    out = capsys.readouterr().out
    assert all(f"T={n}" in out for n in LENGTHS) and "microbatch 4 of 8" in out
    argv = ["train", str(path), "--data", f"npz:{data}", "--lengths", "T=4,7,12", *few]
    argv += ["--validation", "0.2"]
    assert main([*argv, "--epochs", "2", "--out", str(run), "--json"]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [e["samples"] for e in events if e["event"] == "eval"] == [12, 12]
    assert "T=12" in next(e["message"] for e in events if e["event"] == "data")
    assert main(["eval", str(run), "--data", f"npz:{data}", "--json", "--metrics", "f1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["samples"] == 60 and 0 < found["f1"] <= 1
    assert main(["inspect", str(run / "program.edge"), "--verify"]) == 0
    capsys.readouterr()
    assert main(["plan", str(path), "--lengths", "T=4,x"]) == 2
    error = capsys.readouterr().err
    assert "--lengths" in error and "'T=4,x'" in error


def test_a_migrated_run_keeps_its_lengths(tmp_path):
    run = tmp_path / "run"
    trained(compiled(), SAMPLES, 3, out=run)
    found = load_program(et.migrate(run).path / "program.edge")
    assert [*found.lengths] == [*LENGTHS]
    with et.Trainer(found, SAMPLES, run, verbose=False) as trainer:
        assert trainer.resume() and trainer.steps == 3
        trainer.fit(steps=5)


def test_floats_after_a_first_sample_of_ints_are_kept():
    exact = [(np.array(x, np.float32).round(2), y) for x, y in SAMPLES[:7]]
    exact.insert(0, (np.eye(3, 4, dtype=np.float32), np.array([0, 1, 2])))
    lists = [(x.tolist(), y.tolist()) for x, y in exact]
    lists[0] = (np.eye(3, 4, dtype=int).tolist(), [0, 1, 2])
    with et.Trainer(compiled(), verbose=False) as trainer:
        assert trainer.evaluate(lists) == trainer.evaluate(exact)


def test_targets_and_weights_after_a_first_sample_of_ints_are_kept():
    with hurried():
        loss = et.Loss("mse", sample_weights=True)
        program = et.compile(model("counted"), lengths=(4, 7), loss=loss, verbose=False, **OPTIONS)
    x = np.ones((4, 4), np.float32)
    samples = [(x, [1, 2, 3], 1), (x, [0.5, 2.5, 1.5], 0.25)]
    exact = [(x, np.array(y, np.float32), np.float32(w)) for x, y, w in samples]
    with et.Trainer(program, verbose=False) as trainer:
        assert trainer.evaluate(samples) == trainer.evaluate(exact)
