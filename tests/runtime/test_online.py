"""Steps on samples passed by the caller, weights by name, and errors of one line."""

import gc
import os
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import edgetrain as et
from edgetrain.program import Program
from tests.runtime.online_net import CLASSES, FEATURES, Net, compiled, drawn, exported

CLOSE = 2e-6  # for weights near 1 after a dozen fp32 steps, in another summation order


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> tuple[Net, Path, Program]:
    module, path = exported(tmp_path_factory.mktemp("online"))
    return module, path, compiled(path)


@pytest.fixture()
def trainer(net) -> Iterator[et.Trainer]:
    with et.Trainer(net[2]) as made:
        yield made


def torch_steps(module: Net, batches) -> list[float]:
    """The same steps in a torch loop; the module is trained afterwards."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for x, y in batches:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(module(torch.tensor(x)), torch.tensor(y))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_step_is_torchs_for_any_number_of_samples(net, trainer: et.Trainer) -> None:
    module = Net()
    module.load_state_dict(net[0].state_dict())
    batches = [drawn(n, seed) for seed, n in enumerate([1, 3, 4, 5, 16, 9, 1, 8])]
    found = [trainer.step(x[0], y[0]) if len(x) == 1 else trainer.step(x, y) for x, y in batches]
    expected = torch_steps(module, batches)
    np.testing.assert_allclose([one.loss for one in found], expected, rtol=1e-5)
    assert [one.counted for one in found] == [len(x) for x, _ in batches]
    for name, value in module.named_parameters():
        np.testing.assert_allclose(trainer.parameters[name], value.detach(), atol=CLOSE)
    x, _ = drawn(7, 50)
    outputs = module(torch.tensor(x)).detach()
    np.testing.assert_allclose(trainer.predict(x), outputs, atol=1e-5)
    np.testing.assert_allclose(trainer.predict(x[2]), outputs[2], atol=1e-5)


def test_step_repeats_samples_for_batch_norm(tmp_path: Path) -> None:
    module, path = exported(tmp_path, norm=True)
    program = compiled(path, microbatch=8)
    batches = [drawn(n, n) for n in (2, 4, 8)]
    with et.Trainer(program) as trainer:
        losses = [trainer.step(x, y).loss for x, y in batches]
        np.testing.assert_allclose(losses, torch_steps(module, batches), rtol=1e-4)
        for name, value in module.named_parameters():
            np.testing.assert_allclose(trainer.parameters[name], value.detach(), atol=1e-5)
        assert "norm.running_mean" in trainer.state_dict()
        assert "norm.running_mean" not in trainer.parameters


@pytest.mark.parametrize("threads", [1, 2])
def test_step_gives_the_bits_of_a_whole_minibatch(net, threads: int) -> None:
    x, y = drawn(16)
    with et.Trainer(net[2], (x, y), threads=threads) as whole, et.Trainer(net[2]) as given:
        order: list[np.ndarray] = []
        fill = whole.source.fill
        whole.source.fill = lambda indices, *a, **k: (
            order.append(indices.copy()),
            fill(indices, *a, **k),
        )[1]
        whole.fit(steps=1)
        taken = np.concatenate(order)
        given.step(x[taken], y[taken])
        for name, value in whole.parameters.items():
            assert value.tobytes() == given.parameters[name].tobytes(), name


def test_step_takes_lists_tensors_and_dicts(net) -> None:
    x, y = drawn(2)
    forms = [
        (x, y), (x.tolist(), y.tolist()), (torch.tensor(x), torch.tensor(y)),
        ({"x": x.astype(np.float64)}, y[:, None]), (torch.tensor(x, requires_grad=True), y),
    ]  # fmt: skip
    name = list(net[2].inputs["micro"])[0].name
    losses = []
    for one, target in forms:
        with et.Trainer(net[2]) as trainer:
            one = {name: one["x"]} if isinstance(one, dict) else one
            losses.append(trainer.step(one, target).loss)
    assert len({*losses}) == 1


def test_parameters_are_written_and_read_back(net, trainer: et.Trainer) -> None:
    state = {name: value + 1 for name, value in net[0].state_dict().items()}
    trainer.load_state_dict(state)
    for name, value in trainer.state_dict().items():
        np.testing.assert_array_equal(value, state[name].numpy())
    trainer.parameters["fc2.bias"] = [1, 2, 3]
    assert trainer.parameters["fc2.bias"].tolist() == [1, 2, 3]
    copy = trainer.parameters["fc2.bias"]
    copy[:] = 0
    assert trainer.parameters["fc2.bias"].tolist() == [1, 2, 3]


def test_a_state_may_name_a_tensor_twice_but_not_have_another(trainer: et.Trainer) -> None:
    state = {name: torch.from_numpy(value) for name, value in trainer.state_dict().items()}
    trainer.load_state_dict({**state, "tied": state["fc1.weight"]})
    with pytest.raises(et.DataError, match="unknown other; .* Leave the others out"):
        trainer.load_state_dict({**state, "other": state["fc1.weight"].clone()})


def test_parameters_of_sparse_weights_keep_their_pattern(net) -> None:
    program = compiled(net[1], density=0.5, density_overrides={"fc1.*": 0.5, "fc2.*": 1.0})
    with et.Trainer(program) as trainer:
        weight = trainer.parameters["fc1.weight"]
        assert weight.shape == (16, FEATURES) and 0 < np.count_nonzero(weight) <= weight.size // 2
        trainer.parameters["fc1.weight"] = weight * 2
        np.testing.assert_array_equal(trainer.parameters["fc1.weight"], weight * 2)
        with pytest.raises(et.DataError, match="parameter 'fc1.weight': [0-9]+ nonzero"):
            trainer.parameters["fc1.weight"] = np.ones((16, FEATURES))


def test_lr_may_be_set_while_running(net, trainer: et.Trainer) -> None:
    x, y = drawn(4)
    trainer.lr = 0.0
    before = trainer.parameters["fc1.weight"]
    assert trainer.step(x, y).lr == 0.0
    np.testing.assert_array_equal(trainer.parameters["fc1.weight"], before)
    trainer.lr = 0.25
    assert trainer.step(x, y).lr == 0.25 and (trainer.parameters["fc1.weight"] != before).any()


def test_checkpoint_of_steps_goes_on_bit_for_bit(net, tmp_path: Path) -> None:
    batches = [drawn(n, n) for n in (1, 5, 16, 2, 7, 1)]

    def after(trainer: et.Trainer, part) -> dict[str, bytes]:
        for x, y in part:
            trainer.step(x, y)
        return {name: array.tobytes() for name, array in trainer.session.state().items()}

    with et.Trainer(net[2]) as through:
        expected = after(through, batches)
    with et.Trainer(net[2], out=tmp_path / "run") as first:
        after(first, batches[:3])
        first.save()
    with et.Trainer(str(tmp_path / "run" / "program.edge"), out=tmp_path / "run") as second:
        assert second.resume() and second.steps == 3
        assert after(second, batches[3:]) == expected


def test_a_schedule_that_needs_the_length_is_told_it(net) -> None:
    x, y = drawn(4)
    cosine = et.Schedule("cosine")
    with (
        et.Trainer(net[2], schedule=cosine) as trainer,
        pytest.raises(et.UsageError, match="total_steps"),
    ):
        trainer.step(x, y)
    with et.Trainer(net[2], schedule=cosine, total_steps=4) as trainer:
        rates = [trainer.step(x, y).lr for _ in range(4)]
    assert rates[0] == pytest.approx(0.1) and rates == sorted(rates, reverse=True)


def test_a_run_of_more_steps_than_31_bits_hold_is_refused(net) -> None:
    with pytest.raises(et.UsageError, match=r"total_steps 2147483648: .* to 2147483647"):
        et.Trainer(net[2], total_steps=2**31)


X, Y = drawn(5)
REFUSED: list[tuple[Callable[[et.Trainer], Any], str]] = [
    (lambda t: t.step(X, [1]), r"target has shape \[1\]; expected \[5\]"),
    (lambda t: t.step("abc", 1), "expected numbers"),
    (lambda t: t.step([[1, 2], [3]], 1), "input 'input_0'|input 'x'"),
    (lambda t: t.step(X[0], 7), "value 7; expected a whole number from 0 to 2"),
    (lambda t: t.step(X[0], 0.5), "expected a whole number"),
    (lambda t: t.step(X, np.eye(3)[Y]), r"pass y.argmax\(1\)"),
    (lambda t: t.step([1, 2], 1), r"expected \[6\] for one sample, or \[n, 6\] for several"),
    (lambda t: t.step(X), r"target: .*\[5\]"),
    (lambda t: t.step(np.zeros((17, 6)), np.zeros(17, int)), "minibatch is 16"),
    (lambda t: t.step(np.zeros((0, 6)), np.zeros(0, int)), "at least 1"),
    (lambda t: t.step({"a": X}, Y), "the model's are|inputs a"),
    (lambda t: t.step({**dict.fromkeys(t.program.input_names, X), "a": X}, Y), "Leave a out"),
    (lambda t: t.fit(1), "has no data"),
    (lambda t: t.evaluate(), "evaluate"),
    (lambda t: t.evaluate(3), "data of type int"),
    (lambda t: t.parameters["no"], "no such name; found fc1.weight"),
    (lambda t: t.parameters.update({"fc1.weight": [1]}), r"shape \[1\]; expected \[16, 6\]"),
    (lambda t: t.parameters.update({"fc2.bias": [1, 2, np.nan]}), "finite"),
    (lambda t: t.parameters.pop("fc2.bias"), "fc2.bias"),
    (lambda t: t.load_state_dict({}), "missing fc1.bias"),
    (lambda t: t.load_state_dict([1]), "expected arrays by name"),
    (lambda t: setattr(t, "lr", -1), "lr"),
    (lambda t: setattr(t, "lr", "big"), "lr"),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_is_wrong_is_one_line(net, trainer: et.Trainer, number: int) -> None:
    act, message = REFUSED[number]
    before = {name: value.tobytes() for name, value in trainer.parameters.items()}
    with pytest.raises(et.EdgetrainError, match=message) as found:
        act(trainer)
    assert "\n" not in str(found.value)
    assert before == {name: value.tobytes() for name, value in trainer.parameters.items()}


OPENED: list[tuple[Callable[[Program], Any], str]] = [
    (lambda p: et.Trainer(p, lrr=3), "lrr: no such setting"),
    (lambda p: et.Trainer("x.onnx"), "x.onnx: an ONNX model; expected a compiled"),
    (lambda p: et.Trainer(p, X, Y), r"data as a pair: \(x, y\)"),
    (lambda p: et.compile(Net()), "model Net: .*export_torch"),
    (lambda p: et.Trainer(5), "program 5: expected"),
    (lambda p: et.Trainer("/"), "a directory"),
    (lambda p: et.Trainer(p, callbacks=[3]), "callbacks: 3"),
    (lambda p: et.Trainer(p, callbacks=[et.EarlyStopping]), "callback"),
    (lambda p: et.Trainer(p, metrics="mae"), "metric mae: .* cross_entropy"),
    (lambda p: et.Trainer(p, metrics=["topmost"]), "topmost"),
    (lambda p: et.Trainer(p, [(X, Y)], validation=0.2), "validation 0.2: samples"),
    (lambda p: et.Trainer(p, []), "empty list"),
    (lambda p: et.Trainer(p, keep_last=1), "keep_last"),
    (lambda p: et.compile(3), "expected the path of an ONNX file"),
    (lambda p: et.compile("nope.onnx"), "nope.onnx"),
    (lambda p: et.Callback(on_stepp=print), "on_stepp"),
    (lambda p: et.EarlyStopping(patience=0), "patience"),
    (lambda p: et.KeepBest(mode="best"), "mode"),
]


@pytest.mark.parametrize("number", range(len(OPENED)))
def test_what_cannot_be_opened_is_one_line(net, number: int) -> None:
    act, message = OPENED[number]
    with pytest.raises(et.EdgetrainError, match=message) as found:
        act(net[2])
    assert "\n" not in str(found.value)


def test_predict_refuses_other_shapes(trainer: et.Trainer) -> None:
    with pytest.raises(et.DataError, match=r"the model expects \[6\]"):
        trainer.predict(np.zeros((2, CLASSES)))


def test_weights_of_samples_are_torchs(net) -> None:
    loss = et.Loss("cross_entropy", sample_weights=True)
    module = Net()
    module.load_state_dict(net[0].state_dict())
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    draw = np.random.default_rng(3)
    with et.Trainer(compiled(net[1], loss=loss)) as trainer:
        for n in (5, 16, 1, 3):
            x, y = drawn(n, n)
            w = draw.uniform(0.1, 2, n).astype(np.float32)
            each = torch.nn.functional.cross_entropy(
                module(torch.tensor(x)), torch.tensor(y), reduction="none"
            )
            expected = (each * torch.tensor(w)).sum() / w.sum()
            optimizer.zero_grad()
            expected.backward()
            optimizer.step()
            assert trainer.step(x, y, w).loss == pytest.approx(expected.item(), rel=1e-5)
        for name, value in module.named_parameters():
            np.testing.assert_allclose(trainer.parameters[name], value.detach(), atol=CLOSE)
        with pytest.raises(et.DataError, match="weights"):
            trainer.step(x, y, [-1.0, 1, 1])
        assert trainer.step(x, y).counted == 3
    with et.Trainer(net[2]) as plain, pytest.raises(et.UsageError, match="sample_weights=True"):
        plain.step(x, y, [1, 1, 1])


ROUNDS, STEPS = 10, 100  # a thousand steps


def resident_nbytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_thousand_steps_take_little_over_the_tapes(net) -> None:
    """CPU time of this process, since others may keep the processor busy. Rounds alternate."""
    x, y = drawn(STEPS)
    samples = list(zip(x, y, strict=True))
    with et.Trainer(net[2], threads=1) as trainer:
        run = trainer.session.executor.run

        def steps() -> None:
            for one, label in samples:
                trainer.step(one, label)

        def tapes() -> None:
            for _ in range(STEPS):
                run("micro")
                run("update")

        took: dict[Callable[[], None], list[float]] = {steps: [], tapes: []}
        for _ in range(ROUNDS):
            for act, found in took.items():
                start = time.process_time()
                act()
                found.append((time.process_time() - start) / STEPS)
        assert trainer.session.step >= ROUNDS * STEPS
    over = min(took[steps]) - min(took[tapes])
    assert over <= 0.3e-3, f"{1e3 * over:.3f} ms a step"


def test_a_thousand_steps_take_no_memory(net) -> None:
    x, y = drawn(STEPS)
    samples = list(zip(x, y, strict=True))
    with et.Trainer(net[2], threads=1) as trainer:

        def steps(rounds: int) -> None:
            for _ in range(rounds):
                for one, label in samples:
                    trainer.step(one, label)

        steps(1)
        gc.collect()
        before = resident_nbytes()
        steps(ROUNDS)
        gc.collect()
        assert resident_nbytes() - before < 2**19  # what the allocator keeps meanwhile
        tracemalloc.start()
        try:
            steps(6)  # numpy keeps a limited number of freed small blocks
            gc.collect()
            traced = tracemalloc.get_traced_memory()[0]
            steps(3)
            gc.collect()
            assert tracemalloc.get_traced_memory()[0] - traced < 8192  # what is cached meanwhile
        finally:
            tracemalloc.stop()


def test_parameters_are_rounded_as_they_are_stored(net) -> None:
    with et.Trainer(compiled(net[1], precision="fp16")) as trainer:
        trainer.parameters["fc2.weight"] = np.full((CLASSES, 16), 1.0001)
        assert (trainer.parameters["fc2.weight"] == 1).all()
        with pytest.raises(et.DataError, match="not finite in f16"):
            trainer.parameters["fc2.weight"] = np.full((CLASSES, 16), 1e6)
