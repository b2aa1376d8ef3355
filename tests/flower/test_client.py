"""A board's part in a federation, without Flower: arrays, rounds, what is refused."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import edgetrain as et
from edgetrain.flower import Client, Exchange, evaluate, export_onnx, initial_state
from edgetrain.program import Program
from tests.digits_runs import MODEL
from tests.runtime.online_net import compiled, drawn, exported

X, Y = drawn(48)
SPARSE = {"density": 0.4, "rewiring": "none"}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(tmp_path_factory.mktemp("board"))[1]


@pytest.fixture(scope="module")
def program(path: Path) -> Program:
    return compiled(path)


def begun(program: Program, wire: str = "stored") -> dict[str, np.ndarray]:
    return Exchange(program, initial_state(program), wire).read()


def averaged(arrays: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.mean([each[name] for each in arrays], axis=0) for name in arrays[0]}


def same(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> bool:
    return [*one] == [*other] and all(v.tobytes() == other[k].tobytes() for k, v in one.items())


def test_arrays_are_the_models_in_the_order_of_its_file() -> None:
    import onnx

    program = et.compile(MODEL, minibatch=16, microbatch=8, threads=1)
    model = onnx.load(MODEL)
    arrays = begun(program)
    wanted = [i for i in model.graph.initializer if i.name in arrays]
    assert [*arrays] == [i.name for i in wanted] and len(arrays) == 17
    for initializer in wanted:
        np.testing.assert_array_equal(
            arrays[initializer.name], onnx.numpy_helper.to_array(initializer)
        )


def test_arrays_are_views_of_the_arena(program: Program) -> None:
    with et.Trainer(program) as trainer:
        exchange = Exchange(program, trainer.session.values)
        found = exchange.read()
        assert all(np.shares_memory(v, trainer.session.values[k]) for k, v in found.items())
        trainer.step(X[:4], Y[:4])
        assert any(v.tobytes() != begun(program)[k].tobytes() for k, v in found.items())
        exchange.write(begun(program))
        assert same(exchange.read(), begun(program))


def test_only_what_is_trained_travels() -> None:
    head = et.compile(MODEL, minibatch=16, microbatch=8, threads=1, train=["head.*"])
    assert [*begun(head)] == ["head.weight", "head.bias"]
    biases = et.compile(MODEL, minibatch=16, microbatch=8, threads=1, train=["*.bias"])
    assert {name.rpartition(".")[2] for name in begun(biases)} <= {
        "bias",
        "running_mean",
        "running_var",
    }


@pytest.mark.parametrize("options", [{}, {"precision": "fp16"}, SPARSE], ids=str)
def test_boards_with_other_budgets_give_the_same_bits(options: dict[str, Any]) -> None:
    plan = {"minibatch": 16, "microbatch": 8, "optimizer": et.SGD(lr=0.05, momentum=0.9), **options}
    rich = et.compile(MODEL, threads=1, budget="1MiB", **plan)
    least = rich.account["min_budget_nbytes"]
    poor = et.compile(MODEL, threads=1, budget=least, **plan)
    assert poor.arena_nbytes < rich.arena_nbytes and poor.digest() == rich.digest()
    x, y = drawn_digits(48)
    found = []
    for each in (rich, poor):
        board, arrays = Client(each, (x, y)), begun(rich)
        for number in (1, 2):
            arrays, metrics = board.train(arrays, {"server-round": number}, {})
        found.append(arrays)
    assert same(*found) and metrics["steps"] == 3 and not same(found[0], begun(rich))


def drawn_digits(count: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(3)
    return draw.random((count, 1, 8, 8), np.float32), np.arange(count) % 10


def test_one_board_alone_trains_as_a_run_does_but_for_the_optimizers_state(path: Path) -> None:
    plain = compiled(path, optimizer=et.SGD(lr=0.1))
    arrays = begun(plain)
    for number in (1, 2, 3):
        arrays, _ = Client(plain, (X, Y)).train(arrays, {"server-round": number}, {})
    with et.Trainer(plain, (X, Y)) as trainer:
        trainer.fit(epochs=3)
        assert same(arrays, Exchange(plain, trainer.session.values).read())


def test_a_board_that_comes_back_does_as_it_would_have_done(program: Program) -> None:
    first, _ = Client(program, (X, Y)).train(begun(program), {"server-round": 1}, {})
    through = Client(program, (X, Y))
    through.train(begun(program), {"server-round": 1}, {})
    stayed, _ = through.train(first, {"server-round": 2}, {})
    back, _ = Client(program, (X, Y)).train(first, {"server-round": 2}, {})
    assert same(stayed, back)


def test_three_boards_learn_what_none_of_them_has_alone(program: Program, tmp_path: Path) -> None:
    whole = {"keep_last": True}
    boards = [Client(program, (X[k == Y], Y[k == Y]), settings=whole) for k in range(3)]
    arrays = begun(program)
    before = evaluate(program, arrays, (X, Y))
    for number in range(1, 7):
        config = {"server-round": number, "epochs": 1, "lr": 0.1}
        arrays = averaged([board.train(arrays, config, {})[0] for board in boards])
    after = evaluate(program, arrays, (X, Y))
    assert after["loss"] < 0.8 * before["loss"]
    run = onnxruntime.InferenceSession(export_onnx(program, arrays, tmp_path / "fed.onnx"))
    out = run.run(None, {run.get_inputs()[0].name: X})[0]
    assert np.mean(out.argmax(1) == Y) == pytest.approx(after["accuracy"])


def test_sparse_weights_travel_as_their_nonzeros() -> None:
    plan = {"minibatch": 16, "microbatch": 8, "threads": 1}
    sparse = et.compile(MODEL, **plan, **SPARSE)
    arrays, dense = begun(sparse), begun(et.compile(MODEL, **plan))
    names = {name.partition("@")[0]: name for name in arrays}
    assert [*names] == [*dense]
    layers = {layer[0]: layer[2] for layer in sparse.recipe["sparse_layers"]}
    assert layers and {n: arrays[names[n]].shape for n in layers} == {
        n: (k,) for n, k in layers.items()
    }
    with et.Trainer(sparse) as trainer:
        for name in layers:
            weight = trainer.parameters[name]
            np.testing.assert_array_equal(weight[weight != 0], arrays[names[name]])
            doubled = {**arrays, names[name]: 2 * arrays[names[name]]}
            Exchange(sparse, trainer.session.values).write(doubled)
            np.testing.assert_array_equal(trainer.parameters[name], 2 * weight)


def test_patterns_have_to_agree() -> None:
    plan = {"minibatch": 16, "microbatch": 8, "threads": 1}
    one, other = (et.compile(MODEL, **plan, **SPARSE, seed=seed) for seed in (0, 1))
    with pytest.raises(et.DataError, match=r"'conv\d.weight' has sparse pattern \w{16}; exp"):
        Client(one, drawn_digits(16)).train(begun(other), {}, {})
    again = et.compile(MODEL, **plan, **SPARSE)
    assert [*begun(one)] == [*begun(again)]
    with pytest.raises(et.UsageError, match="rewiring='none'"):
        begun(et.compile(MODEL, **plan, density=0.4))


@pytest.mark.parametrize("wire", ["stored", "fp32"])
def test_fp16_travels_as_it_is_stored_or_wider(wire: str) -> None:
    half = et.compile(MODEL, minibatch=16, microbatch=8, threads=1, precision="fp16")
    arrays = begun(half, wire)
    kinds = {array.dtype.name for array in arrays.values()}
    assert kinds == ({"float16", "float32"} if wire == "stored" else {"float32"})
    with et.Trainer(half) as trainer:
        Exchange(half, trainer.session.values, wire).write(arrays)
        assert same(Exchange(half, trainer.session.values, wire).read(), arrays)


def test_blocks_of_8_bits_travel_as_numbers_and_come_back_as_they_were() -> None:
    small = et.compile(MODEL, minibatch=16, microbatch=8, threads=1, model_memory="int8")
    arrays = begun(small)
    assert {array.dtype.name for array in arrays.values()} == {"float32"}
    with et.Trainer(small) as trainer:
        exchange = Exchange(small, trainer.session.values)
        exchange.write(exchange.read())
        assert same(exchange.read(), arrays)


def test_a_board_says_what_it_takes(program: Program) -> None:
    numbers, texts = Client(program, (X, Y)).facts({})
    assert numbers["arena-nbytes"] == program.arena_nbytes
    assert numbers["arrays-nbytes"] == sum(a.nbytes for a in begun(program).values())
    kinds = program.account["by_kind"]
    assert sum(numbers[f"{kind}-nbytes"] for kind in kinds) == program.arena_nbytes
    assert texts["digest"] == program.digest() and texts["pattern"] == ""


def test_program_and_data_may_depend_on_the_node(program: Program, tmp_path: Path) -> None:
    program.save(tmp_path / "own.edge")
    board = Client(lambda node: node["program"], lambda node: (X[: node["n"]], Y[: node["n"]]))
    node = {"program": str(tmp_path / "own.edge"), "n": 32}
    sent, metrics = board.train(begun(program), {}, node)
    assert metrics["num-examples"] == 32 and metrics["steps"] == 2
    batches = Client(program, lambda: ((X[k : k + 16], Y[k : k + 16]) for k in (0, 16)))
    found = batches.train(begun(program), {"epochs": 2.0}, {})[1]
    assert found["steps"] == 4 and found["num-examples"] == 64


def test_metrics_of_a_round_and_of_an_evaluation(program: Program) -> None:
    board = Client(program, (X, Y), settings={"validation": 0.25, "metrics": ["f1"]})
    _, metrics = board.train(begun(program), {"steps": 5}, {})
    assert metrics["steps"] == 5 and metrics["num-examples"] == 36 and metrics["skipped"] == 0
    found = board.evaluate(begun(program), {"server-round": 1}, {})
    assert found["num-examples"] == 12 and {"loss", "accuracy", "f1"} <= {*found}


REFUSED: dict[str, tuple[Any, str]] = {
    "an unknown word": ({"learning-rate": 0.1}, "config 'learning-rate'.*Did you mean lr"),
    "FedProx": ({"proximal-mu": 0.1}, "proximal"),
    "no rate": ({"lr": -1.0}, "lr"),
    "no steps": ({"steps": 0}, "steps 0"),
    "no epochs": ({"epochs": 0.0}, "epochs 0"),
    "a text": ({"steps": "many"}, "steps"),
    "endless steps": ({"steps": 10**12}, r"steps 10{12}: expected .* to 1000000000"),
    "endless epochs": ({"epochs": 1e308}, r"epochs 1e\+308: expected"),
    "epochs beyond floats": ({"epochs": 10**400}, "epochs 10+.*: expected"),
    "epochs of many steps": ({"epochs": 1e9}, r"epochs .*: \d+ steps .*at most \d+"),
    "no number of epochs": ({"epochs": float("nan")}, "epochs nan"),
    "an endless round": ({"server-round": 2**70}, "server-round"),
    "a number for a name": ({3: 1}, "config 3: not supported"),
    "a list": ([1], r"config \[1\]: expected "),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_a_server_cannot_ask(program: Program, what: str) -> None:
    config, wanted = REFUSED[what]
    with pytest.raises(et.UsageError, match=wanted) as found:
        Client(program, (X, Y)).train(begun(program), config, {})
    assert "\n" not in str(found.value)


def test_arrays_that_do_not_fit_are_refused_and_nothing_is_written(program: Program) -> None:
    arrays = begun(program)
    name = next(iter(arrays))
    wrong: dict[str, tuple[dict[str, Any], str]] = {
        "lacks one": ({k: v for k, v in arrays.items() if k != name}, "missing"),
        "one more": ({**arrays, "extra": np.zeros(3)}, "unknown extra"),
        "another shape": ({**arrays, name: np.zeros(3)}, r"shape \[3\]; expected"),
        "not finite": ({**arrays, name: np.full_like(arrays[name], np.nan)}, "finite"),
        "none": ({}, "missing"),
    }
    with et.Trainer(program) as trainer:
        exchange = Exchange(program, trainer.session.values)
        for given, wanted in wrong.values():
            changed = {k: v + 1 if k != name and k in arrays else v for k, v in given.items()}
            with pytest.raises(et.DataError, match=wanted):
                exchange.write(changed)
        assert same(exchange.read(), arrays)


def test_settings_that_make_no_sense_are_refused(program: Program) -> None:
    with pytest.raises(et.UsageError, match="schedule: no such setting"):
        Client(program, (X, Y), settings={"schedule": et.Schedule("cosine")})
    slips: dict[str, Any] = {
        "epochs 0.0: expected more": {"epochs": 0},
        "epochs 'one'": {"epochs": "one"},
        "steps -1: expected more": {"steps": -1},
        "settings None: expected": {"settings": None},
        "batch_size: no such argument": {"batch_size": 8},
    }
    for wanted, given in slips.items():
        with pytest.raises(et.UsageError, match=wanted):
            Client(program, (X, Y), **given)
    for wanted, own in {
        "no 'path'; found share": (lambda node: node["path"], (X, Y)),
        "--node-config 'data=..'": (program, lambda node: node["data"]),
    }.items():
        with pytest.raises(et.UsageError, match=wanted):
            Client(*own).train(begun(program), {}, {"share": 1})
    assert Client(program, (X, Y)).train(begun(program), None, {})[1]["steps"] == 3  # type: ignore[arg-type]
    with pytest.raises(et.UsageError, match="wire 'fp8'"):
        Client(program, (X, Y), wire="fp8").train(begun(program), {}, {})
    with pytest.raises(et.UsageError, match="no test split"):
        Client(program, (X, Y)).evaluate(begun(program), {}, {})


def test_words_as_labels_need_a_model_that_names_its_classes(
    program: Program, tmp_path: Path
) -> None:
    words = np.array(["ant", "bee", "cat"])[Y]
    with pytest.raises(et.DataError, match="words .ant, bee, cat.*numbers"):
        Client(program, (X, words)).train(begun(program), {}, {})
    with et.Trainer(program, (X, words)) as trainer:
        trainer.fit(epochs=1)
        trainer.export_onnx(tmp_path / "named.onnx")
    named = compiled(tmp_path / "named.onnx")
    assert Client(named, (X, words)).train(begun(named), {}, {})[1]["steps"] == 3


def test_rounds_of_steps_go_on_in_batches_where_the_last_ended(program: Program) -> None:
    used: list[int] = []

    class Batches:
        def __iter__(self):
            for k in (0, 16, 32):
                used.append(k)
                yield X[k : k + 16], Y[k : k + 16]

        def __len__(self) -> int:
            return 3

    board = Client(program, Batches(), steps=1)
    ends = []
    for number in (1, 2, 3, 4):
        board.train(begun(program), {"server-round": number}, {})
        ends.append(used[-1])
    assert ends == [0, 16, 32, 0]
