"""A board as seen by Flower's server: messages, records, lists."""

import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import edgetrain as et
from edgetrain.flower import Client, client_app, evaluate, initial_arrays, numpy_client
from edgetrain.program import Program
from tests.digits_runs import MODEL
from tests.flower.test_client import begun, same
from tests.runtime.online_net import compiled, drawn, exported

X, Y = drawn(48)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return compiled(exported(tmp_path_factory.mktemp("board"))[1])


def ask(flower: SimpleNamespace, board: Any, kind: str, *records: Any, **node: Any) -> Any:
    """Ask a board; return its answer."""
    names = ("arrays", "config")
    content = flower.app.RecordDict(dict(zip(names, records, strict=False)))
    metadata = flower.Metadata(1, "first", 2, 1, "", "", time.time(), 60.0, kind)
    state = flower.app.RecordDict()
    context = flower.app.Context(1, 1, node, state, {})
    return board(flower.app.Message(content=content, metadata=metadata), context)


def test_fedavg_takes_what_boards_answer(flower: SimpleNamespace, program: Program) -> None:
    shares = {"n": 3}
    board = client_app(program, lambda node: (X[node["k"] :: 3], Y[node["k"] :: 3]))
    strategy, arrays = flower.strategy.FedAvg(), initial_arrays(program)
    before = evaluate(program, arrays, (X, Y))
    for number in (1, 2, 3):
        config = flower.app.ConfigRecord({"server-round": number, "lr": 0.1})
        replies = [ask(flower, board, "train", arrays, config, k=k, **shares) for k in range(3)]
        arrays, metrics = strategy.aggregate_train(number, replies)
        assert metrics["steps"] == 1 and metrics["arrays-nbytes"] > 0
    assert evaluate(program, arrays, (X, Y))["loss"] < before["loss"]
    plain = [ask(flower, board, "train", initial_arrays(program), k=k) for k in (0, 0)]
    same_arrays = [
        {n: a.numpy() for n, a in reply.content.array_records["arrays"].items()} for reply in plain
    ]
    own, _ = Client(program, (X[::3], Y[::3])).train(begun(program), {}, {})
    assert same(*same_arrays) and same(same_arrays[0], own)


def test_evaluate_and_query_answer_in_records(flower: SimpleNamespace, program: Program) -> None:
    board = client_app(program, (X, Y), validation=0.25)
    found = ask(flower, board, "evaluate", initial_arrays(program)).content.metric_records
    assert found["metrics"]["num-examples"] == 12 and "accuracy" in found["metrics"]
    answer = ask(flower, board, "query").content
    assert answer["plan"]["arena-nbytes"] == program.arena_nbytes
    assert answer["program"]["digest"] == program.digest()
    kind, name = flower.app.Array, "fc1.weight"
    for stype in ("numpy.ndarray", "torch.tensor"):
        damaged = kind("float32", (16, 6), stype, b"junk")
        arrays = flower.app.ArrayRecord({**initial_arrays(program), name: damaged})
        with pytest.raises(et.DataError, match="array 'fc1.weight': .* numpy array"):
            ask(flower, board, "train", arrays)
    with pytest.raises(et.DataError, match="0 ArrayRecords"):
        ask(flower, board, "train")


def test_flower_refuses_to_average_two_patterns(flower: SimpleNamespace) -> None:
    sparse = {"density": 0.4, "rewiring": "none", "minibatch": 16, "microbatch": 8, "threads": 1}
    replies = []
    for seed in (0, 1):
        made = et.compile(MODEL, seed=seed, **sparse)
        x = np.random.default_rng(0).random((16, 1, 8, 8), np.float32)
        board = client_app(made, (x, np.arange(16) % 10))
        replies.append(ask(flower, board, "train", initial_arrays(made)))
    from flwr.serverapp.exception import InconsistentMessageReplies

    with pytest.raises(InconsistentMessageReplies, match="same keys"):
        flower.strategy.FedAvg().aggregate_train(1, replies)


def test_numpy_client_speaks_in_lists(flower: SimpleNamespace, program: Program) -> None:
    board = numpy_client(program, (X, Y), validation=0.25)
    arrays = board.get_parameters({})
    assert [a.tobytes() for a in arrays] == [a.tobytes() for a in begun(program).values()]
    sent, examples, metrics = board.fit(arrays, {"server_round": 1, "epochs": 2.0})
    assert examples == 36 and metrics["pattern"] == "" and len(sent) == len(arrays)
    loss, count, found = board.evaluate(sent, {})
    assert count == 12 and loss > 0 and "accuracy" in found
    assert board.get_properties({})["arena-nbytes"] == program.arena_nbytes
    assert board.to_client() is not None
    with pytest.raises(et.DataError, match="arrays: found 1; expected"):
        board.fit(arrays[:1], {})
    for wrong in (None, dict(enumerate(arrays))):
        with pytest.raises(et.DataError, match="expected a list of"):
            board.fit(wrong, {})
    assert board.fit(arrays, None)[1] == 36
    with pytest.raises(et.UsageError, match="config pattern 'ffff'"):
        board.fit(arrays, {"pattern": "ffff"})


def test_without_flower_it_says_what_to_install(program: Program, monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "flwr", None)
    monkeypatch.setitem(__import__("sys").modules, "flwr.app", None)
    monkeypatch.setitem(__import__("sys").modules, "flwr.client", None)
    for make in (client_app, numpy_client):
        with pytest.raises(et.UsageError, match=r"pip install 'edgetrain\[flower\]'"):
            make(program, (X, Y))
    with pytest.raises(et.UsageError, match="flwr is needed"):
        initial_arrays(program)
