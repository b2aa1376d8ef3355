"""A sparse embedding, tied to the classifier, trains and is rewired in the pool of all layers."""

import numpy as np
import pytest
from onnx import TensorProto

import edgetrain as et
from edgetrain.formats import csr
from edgetrain.runtime.session import Session
from edgetrain.sparse import DSR, SET
from tests.twins import train_step

from ..compiler.nets import Net

BATCH, ROWS, STEPS = 8, 30, 40


def _program(rewiring, threads: int = 2):
    net = Net(6, dtype=TensorProto.INT32)
    net.add("Gather", [net.weight("table.w", ROWS, 40), "x"], "rows")
    x = net.add("ReduceMean", ["rows"], "mean", axes=[1], keepdims=0)
    x = net.add("Tanh", [net.add("Gemm", [x, net.weight("mid.w", 20, 40)], "mid", transB=1)], "act")
    net.add("Gather", [net.weight("tied.w", ROWS, 20), "x"], "own")
    x = net.add("Add", [x, net.add("ReduceMean", ["own"], "m", axes=[1], keepdims=0)], "sum")
    net.add("Gemm", [x, "tied.w"], "logits", transB=1)
    return et.compile(
        net.model("logits"), minibatch=BATCH, density=0.3, density_overrides={"tied.w": 0.4},
        optimizer=et.SGD(lr=0.5, momentum=0.9), rewiring=rewiring, threads=threads,
    )  # fmt: skip


def _run(program, threads: int | None = None):
    """(losses, state, columns before) of some steps with a rewiring after every tenth."""
    session, rng, losses = Session(program, threads), np.random.default_rng(0), []
    first = session.values[csr.COLUMNS].copy()
    x = rng.integers(0, ROWS, (BATCH, 6))
    for step in range(STEPS):
        session.arena.view(program.inputs["micro"][0])[...] = x
        session.arena.view(program.targets["micro"])[...] = x[:, 0]
        losses.append(train_step(session, step, 0.5, 1.0, [True]).loss)
        if step % 10 == 9:
            session.rewire()
            assert csr.fault(session.layers, session.values) == ""
    state = {name: array.copy() for name, array in session.state().items()}
    session.close()
    return losses, state, first


@pytest.mark.parametrize("rewiring", [DSR(fraction=0.1, threshold=0.02), SET()])
def test_embeddings_learn_and_are_rewired_within_the_pool(rewiring):
    program = _program(rewiring)
    assert [layer[0] for layer in program.recipe["sparse_layers"]] == ["table.w", "mid.w", "tied.w"]
    losses, state, first = _run(program)
    assert losses[-1] < losses[0] / 2
    assert (state[csr.COLUMNS] != first).any()
    used = [state[csr.pointers_name(n)][-1] for n in ("table.w", "mid.w", "tied.w")]
    assert used[-1] == sum(layer[2] for layer in program.recipe["sparse_layers"])


def test_sparse_embeddings_are_the_same_for_1_and_3_threads():
    program = _program(SET(), threads=3)
    one, three = (_run(program, threads)[1] for threads in (1, 3))
    for name, array in one.items():
        np.testing.assert_array_equal(three[name], array, err_msg=name)
