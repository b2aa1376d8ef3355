"""The step loop compared bit by bit with the Session's own loop: whole, in pieces, by callbacks."""

import numpy as np
import pytest

import edgetrain as et
from edgetrain.data.order.permute import permuted
from edgetrain.kernels import control
from edgetrain.kernels.step_loop import layout
from edgetrain.runtime.session import Session
from tests.digits_runs import digits_program
from tests.kernels.step_loop.plans import Plan
from tests.runtime.conftest import assert_same_bits
from tests.twins import evaluate, train_step

STEPS, LR = 7, 0.05


@pytest.fixture(scope="module", params=["fp32", "fp16"])
def program(request):
    return digits_program(precision=request.param, threads=2)


@pytest.fixture(scope="module")
def samples():
    source = et.open_data("digits", split="train")
    rows = source.read(("x", "y"), np.arange(40), (0, 0), False)
    x = source.scale["x"].apply(rows["x"]) if "x" in source.scale else rows["x"]
    return np.ascontiguousarray(x, np.float32), rows["y"].astype(np.int64)


@pytest.fixture(scope="module")
def expected(program, samples):
    """Return the state and losses of the Python loop."""
    session, (x, y) = Session(program, 1), samples
    inputs = session._staging["micro"]
    name = next(n for n in inputs if n != "loss.target")
    each, losses = len(x) // program.minibatch, []
    for step in range(STEPS):
        first = step % each * program.minibatch
        order = permuted(0, step // each, np.arange(first, first + program.minibatch), len(x))

        def fills(order=order):
            for part in order.reshape(-1, program.microbatch):
                inputs[name][...] = x[part]
                inputs["loss.target"][...] = y[part]
                yield True

        losses.append(train_step(session, step, LR, 8.0, fills()).loss)
    state = {n: a.copy() for n, a in session.state().items()}
    session.close()
    return state, losses


def prepared(program, samples, parts: int = 1) -> Plan:
    plan = Plan(Session(program, 1), len(samples[0]), parts)
    plan.set(LR=LR, LOSS_SCALE=8.0)
    return plan


def finished(plan: Plan, expected, whole: int = 1) -> None:
    state, losses = expected
    found = []
    for _ in range(STEPS):
        status = layout.MORE
        while status == layout.MORE:
            status = plan.train(whole)
        assert status == layout.DONE
        found.append(plan.session.reals[control.LAST_LOSS])
    assert found == losses and plan.session.ints[control.STEP] == STEPS
    assert_same_bits(plan.session.state(), state)
    plan.session.close()


def test_minibatches_from_memory_have_the_bits_of_the_loop(program, samples, expected):
    plan = prepared(program, samples)
    plan.read_from(*samples, limit=10)
    finished(plan, expected)


def test_minibatches_through_a_callback_have_the_bits_of_the_loop(program, samples, expected):
    plan, (x, y) = prepared(program, samples), samples
    staged = plan.session._staging["micro"]
    raw = x.astype(next(iter(staged.values())).dtype)  # no wider than the staged type
    plan.ask(raw, y.astype(np.int32))
    finished(plan, expected)


def test_microbatches_through_a_callback_have_the_bits_of_the_loop(program, samples, expected):
    plan, (x, y) = prepared(program, samples), samples
    staged = plan.session._staging["micro"]
    name = next(n for n in staged if n != "loss.target")

    def fill(user, split, count, indices, none) -> int:
        assert (split, count) == (layout.TRAIN_SPLIT, program.microbatch)
        staged[name][...] = x[plan.indices]
        staged["loss.target"][...] = y[plan.indices]
        return 0

    plan.callback(layout.FROM_MICROBATCHES, fill)
    finished(plan, expected)


@pytest.mark.parametrize("parts", [1, 3])
def test_pieces_have_the_bits_of_the_whole(program, samples, expected, parts):
    plan = prepared(program, samples, parts)
    plan.read_from(*samples)
    finished(plan, expected, whole=0)


@pytest.mark.parametrize(("whole", "said"), [(1, 7), (1, 1), (1, -1), (0, 1), (0, layout.MORE)])
def test_a_callback_that_fails_discards_the_minibatch(program, samples, whole, said):
    plan, calls = prepared(program, samples), []
    plan.read_from(*samples)
    state = {n: a.copy() for n, a in plan.session.state().items() if "running" not in n}
    plan.callback(layout.FROM_MICROBATCHES, lambda *_: calls.append(0) or said * (len(calls) > 1))
    status = layout.MORE
    while status == layout.MORE:
        status = plan.train(whole)
    assert status == abs(said)
    assert plan.session.ints[control.STEP] == 0
    assert_same_bits({n: plan.session.state()[n] for n in state}, state)
    for slot in program.persistent:
        if slot.role == "accumulator":
            assert not plan.session.values[slot.name].any(), slot.name
    plan.session.close()


def test_a_label_out_of_its_limit_is_named_and_nothing_moves(program, samples):
    plan, (x, y) = prepared(program, samples), samples
    wrong = y.copy()
    wrong[:] = 10
    plan.read_from(x, wrong, limit=10)
    assert plan.train() == layout.BAD_VALUE and plan.words[layout.BAD_FIELD] == 1
    assert 0 <= plan.words[layout.BAD_SAMPLE] < len(x)
    plan.session.close()


def test_a_minibatch_without_a_target_has_no_loss_and_moves_no_weight(program, samples):
    plan, (x, y) = prepared(program, samples), samples
    plan.read_from(x, np.full_like(y, -100))
    weights = {n: a.copy() for n, a in plan.session.state().items() if n.endswith(("w", "weight"))}
    plan.session.reals[control.LAST_LOSS] = 1.5
    assert plan.train() == layout.DONE and plan.session.ints[control.STEP] == 1
    assert plan.session.ints[control.TARGETS] == 0
    assert np.isnan(plan.session.reals[control.LAST_LOSS])
    assert weights
    assert_same_bits({n: plan.session.state()[n] for n in weights}, weights)
    plan.session.close()


def test_evaluation_equals_the_sessions(program, samples):
    (x, y), session = samples, Session(program, 1)
    inputs = session._staging["eval"]
    name, micro = next(n for n in inputs if n != "loss.target"), program.microbatch

    def batches():
        for first in range(0, len(x), micro):
            part = np.zeros(micro, int)
            valid = min(micro, len(x) - first)
            part[:valid] = np.arange(first, first + valid)
            inputs[name][...], inputs["loss.target"][...] = x[part], y[part]
            yield valid

    expected = evaluate(session, batches())
    predicted = session.predict({name: x})
    plan = Plan(session, len(x))
    plan.read_from(x, y)
    out = np.zeros((len(x), 10), np.float32)
    value = session._outputs[0]
    plan.words[[layout.OUTPUT, layout.OUTPUT_TYPE, layout.OUTPUT_SIZE, layout.PREDICTIONS]] = [
        value.ctypes.data, 0 if value.dtype == np.float32 else 1, 10, out.ctypes.data,
    ]  # fmt: skip
    assert plan.evaluate() == layout.DONE
    ints, reals = session.ints, session.reals
    assert reals[control.LOSS_SUM] / ints[control.TARGETS] == expected["loss"]
    assert ints[control.CORRECT] / ints[control.TARGETS] == expected["accuracy"]
    np.testing.assert_array_equal(out, predicted.reshape(out.shape))
    session.close()
