"""A bundle's C functions compared with the Python step loop, argument by argument."""

import ctypes
import dataclasses
import math

import numpy as np
import pytest
from onnx import TensorProto

import edgetrain as et
from edgetrain.formats import INT8, decoded
from edgetrain.kernels import control, targets
from edgetrain.kernels.device import layout as device
from edgetrain.kernels.step_loop import layout
from edgetrain.losses import Loss
from edgetrain.optim import SCHEDULES, Schedule
from edgetrain.program.samples import made_up
from edgetrain.program.stored import read_stored, slot_nbytes
from edgetrain.runtime.run.stored import keep_schedule, stored_checkpoint
from edgetrain.runtime.samples.check import digest_of, made_up_filler, state_digest
from edgetrain.runtime.session import Session
from tests.bundle.flash import Flash
from tests.bundle.loaded import Loaded, Rates, made_up_fill
from tests.compiler.nets import Net
from tests.fuzz import nets
from tests.optim.cases import SCHEDULE_CASES

STEPS = 7
F16, I32, I64, U8 = 1, 2, 3, 4


@pytest.fixture(scope="module")
def expected(program):
    return state_digest(program, STEPS)


def test_steps_have_the_bits_of_the_drive_in_python(library, expected):
    net = library.net().made_up().steps(STEPS)
    assert net.digest() & 0xFFFFFFFF == expected
    report = net.report()
    assert (report.step, report.skipped, report.loss_scale) == (STEPS, 0, 4096.0)
    assert report.lr == 0.01 and 0 < report.loss < 5 and report.grad_norm > 0


@pytest.mark.parametrize("parts", [1, 3])
def test_pieces_have_the_bits_of_the_whole(library, expected, parts):
    net, pieces = library.net().made_up(), 0
    assert net.split(parts) == 0
    while net.report().step < STEPS:
        status = net.poll()
        assert status in (layout.DONE, layout.MORE)
        pieces += 1
        if status == 1 and net.report().step == 2:
            assert {net.eval(None, None), net.predict(None, 1, None), net.split(2),
                    net.set(0, None)} == {device.BUSY}  # fmt: skip
    assert net.digest() & 0xFFFFFFFF == expected and pieces > STEPS * 20 * parts


@pytest.mark.parametrize("parts", [1, 3])
def test_a_step_finishes_the_minibatch_that_polls_began(library, parts):
    other = library.net().made_up().steps(2)
    expected, report = other.digest(), other.report()
    pieces, done = 0, False
    while not done:
        pieces += 1
        net = library.net().made_up().steps(1)
        assert net.split(parts) == 0
        done = layout.DONE in [net.poll() for _ in range(pieces)]
        if not done:
            assert net.step() == layout.DONE
            found = net.report()
            assert (net.digest(), found.step) == (expected, 2), pieces
            assert (found.loss, found.grad_norm) == (report.loss, report.grad_norm)
    assert pieces > 20 * parts


def test_data_is_not_changed_within_a_minibatch(library, expected):
    net = library.net().made_up().steps(1)
    fill = made_up_fill(library.program)
    while net.poll() == layout.MORE:
        assert net.ask(fill, library.program.minibatch) == device.BUSY
    net.steps(STEPS - 2)
    assert net.digest() & 0xFFFFFFFF == expected
    assert net.ask(fill, library.program.minibatch) == 0


def test_means_of_nothing_are_no_numbers(two_layers):
    program = et.compile(two_layers, minibatch=8, microbatch=4, threads=1)
    net, good = Loaded(program).net(), made_up_fill(program)

    def fill(user, split, sample, x, y):
        good(user, split, sample, x, y)
        if not split:
            ctypes.c_int32.from_address(y).value = -100
        return 0

    assert net.ask(fill, 8, 5) == 0
    loss, accuracy = ctypes.c_double(), ctypes.c_double()
    assert net.eval(ctypes.addressof(loss), ctypes.addressof(accuracy)) == 0
    assert math.isnan(loss.value) and math.isnan(accuracy.value)


@pytest.fixture(scope="module")
def weighted(two_layers):
    loss = Loss("cross_entropy", sample_weights=True)
    made = et.compile(two_layers, loss=loss, minibatch=8, microbatch=4, threads=1)
    return Loaded(made)


def test_weights_of_samples_are_one_more_input(weighted):
    net = weighted.net().made_up().steps(STEPS)
    assert net.digest() & 0xFFFFFFFF == state_digest(weighted.program, STEPS)


@pytest.mark.parametrize("weight", [-0.5, math.nan, math.inf])
def test_a_weight_below_zero_or_not_finite_is_refused(weighted, weight):
    net, good = weighted.net(), made_up_fill(weighted.program)

    def fill(user, split, sample, x, y):
        good(user, split, sample, x, y)
        place = (ctypes.c_void_p * 2).from_address(x)[1]
        value = weight if sample == 5 else -0.0
        ctypes.c_float.from_address(place).value = value
        return 0

    net.ask(fill, 8)
    assert net.step() == layout.BAD_VALUE and net.report().step == 0


def test_predict_of_weighted_samples_takes_no_weights(weighted):
    program, net = weighted.program, weighted.net().made_up().steps(2)
    x = np.stack([made_up(program, program.inputs["micro"][0], 0, k, "x") for k in range(5)])
    out, session = np.zeros((5, 3), np.float32), Session(program, 1)
    assert net.predict(x.ctypes.data, 5, out.ctypes.data) == 0
    for number, slot in enumerate(weighted.image.values):
        session.values[slot.name][...] = net.value(number)
    np.testing.assert_array_equal(out, session.predict({"x": x}))
    session.close()
    assert net.steps(STEPS - 2).digest() & 0xFFFFFFFF == state_digest(program, STEPS)


def test_a_net_in_memory_that_is_short_is_refused(library):
    nbytes = library.image.nbytes
    memory = np.zeros(nbytes + 64, np.uint8)
    start = memory.ctypes.data + -memory.ctypes.data % 64
    assert library.init(start, nbytes) == start
    assert library.init(start, nbytes - 1) is None
    assert library.init(start - 8, nbytes + 7) is None


def test_memory_that_was_used_is_begun_anew(library, expected):
    net = library.net().made_up().steps(3)
    net.handle = library.init(net.memory.ctypes.data, net.memory.nbytes)
    assert net.step() == device.REFUSED  # no data
    assert net.made_up().steps(STEPS).digest() & 0xFFFFFFFF == expected


def test_two_nets_do_not_meet(library, expected):
    one, other = library.net().made_up(), library.net().made_up()
    for _ in range(STEPS):
        one.steps(1)
        other.steps(2)
    assert one.digest() & 0xFFFFFFFF == expected
    assert other.digest() & 0xFFFFFFFF == state_digest(library.program, 2 * STEPS)


def test_a_callback_that_fails_discards_the_minibatch(library, expected):
    net, calls, good = library.net(), [], made_up_fill(library.program)

    def fill(*given):
        calls.append(0)
        return 7 if len(calls) == 13 else good(*given)

    net.ask(fill, 4 * library.program.minibatch)
    assert net.step() == 0 and net.step() == 7
    net.steps(STEPS - 1)
    assert net.digest() & 0xFFFFFFFF == expected


def test_a_label_out_of_its_limit_is_refused(library):
    net = library.net()

    def fill(user, split, sample, x, y):
        made_up_fill(library.program)(user, split, sample, x, y)
        np.ctypeslib.as_array((np.ctypeslib.ctypes.c_int32 * 1).from_address(y))[0] = 3
        return 0

    net.ask(fill, 32)
    assert net.step() == -1 and net.report().step == 0


def test_data_settings_inputs_and_values_refuse_what_cannot_be(library):
    net = library.net()
    refused = [
        net.ask(lambda *_: 0, 7), net.ask(lambda *_: 0, 8, -1), net.data(None, None, 8, 0),
        net.settings(0.1, 8, 0, 0, 1, 0.0), net.settings(0.1, 1, 0, 0, 0, 0.0),
        net.settings(0.1, 2, 5, 5, 0, 0.0), net.settings(0.1, 0, 0, -1, 0, 0.0), net.split(0),
        net.input(1, 0, None, None, 1, 1), net.input(0, I64, None, None, 1, 1),
        net.input(0, 0, net.memory.ctypes.data, None, 1, 1), net.input(0, 0, None, None, 0, 1),
        net.input(-1, 0, None, None, 1, 1), net.input(0, 5, None, None, 1, 1),
        net.get(-1, None), net.get(4, None), net.set(4, None), net.step(), net.eval(None, None),
    ]  # fmt: skip
    assert refused == [device.REFUSED] * len(refused)


def rates_of(schedule: Schedule, lr: float, total: int) -> Rates:
    """Return a Python schedule as a C caller would pass it."""
    size, patience, cooldown = (*schedule.whole_numbers(), 0, 0, 0)[:3]
    reals = (*schedule.numbers(), 0.0, 0.0, 0.0)[:3]
    out = Rates(
        [*SCHEDULES].index(schedule.name), total, schedule.warmup_steps, size, patience, cooldown,
        (ctypes.c_int64 * 8)(*schedule.chosen_steps()), lr, *reals,
    )  # fmt: skip
    if schedule.name == "one_cycle":
        out.rise, out.first, out.last = reals
    return out


GIVEN = [
    *(case for case in SCHEDULE_CASES.values() if case.name != "multistep"),
    Schedule("multistep", milestones=(3, 5, 11), gamma=0.5, warmup_steps=4),
    Schedule("plateau", window=2, patience=1, cooldown=1, gamma=0.5, threshold=0.05, min_lr=0.004),
    Schedule("one_cycle", pct_start=0.3, div_factor=49.0, final_div_factor=300.0),
]


@pytest.mark.parametrize("schedule", GIVEN, ids=lambda one: one.name)
def test_every_schedule_has_the_bits_of_the_drive_in_python(library, schedule, tmp_path):
    program, total, flash = library.program, 40, Flash(slot_nbytes(library.program))
    session = Session(program, 1)
    session.lr = 0.05
    session.set_schedule(schedule, total)
    filler, samples = made_up_filler(session), 4 * program.minibatch
    expected = [(r.lr, r.loss) for r in (session.minibatch(samples, filler) for _ in range(16))]
    net = library.net().made_up()
    assert net.schedule(ctypes.addressof(rates_of(schedule, 0.05, total))) == 0
    found = []
    for step in range(16):
        if step == 7:  # a net that loads the state continues the schedule
            assert net.save(flash.address) == 0
            net = library.net().made_up()
            assert net.load(flash.address) == 0
        net.steps(1)
        found.append((net.report().lr, net.report().loss))
    assert found == expected and net.digest() & 0xFFFFFFFF == digest_of(session)
    (tmp_path / "state").write_bytes(flash.data.tobytes())
    meta = stored_checkpoint(tmp_path / "state", program, 32, 0).meta
    given = dataclasses.replace(schedule, total_steps=total)
    assert Schedule.of_json(meta["schedule"]) == given
    block = session.ints.copy()
    keep_schedule(block, given)
    assert net.save(flash.address) == 0
    (tmp_path / "state").write_bytes(flash.data.tobytes())
    np.testing.assert_array_equal(
        block[control.RATE :], read_stored(tmp_path / "state", program).block[control.RATE :]
    )
    session.close()


def test_a_schedule_that_cannot_be_is_refused_and_the_one_before_stays(library):
    good = {
        "kind": 0, "total_steps": 20, "lr": 0.1, "gamma": 0.5, "size": 1, "drops": (3, 5),
    }  # fmt: skip
    bad = [
        {"kind": len(SCHEDULES)}, {"kind": -1}, {"kind": 8, "total_steps": 0},
        {"kind": 8, "warmup_steps": 20}, {"kind": 8, "size": 65}, {"kind": 8, "size": 0},
        {"kind": 8, "gamma": 1.5}, {"kind": 8, "gamma": math.nan}, {"kind": 8, "lr": math.inf},
         {"lr": -0.1}, {"lr": math.nan}, {"lr": math.inf},
        {"kind": 1, "size": 0}, {"kind": 1, "gamma": math.nan}, {"kind": 3, "gamma": -1.0},
        {"kind": 2, "total_steps": 0}, {"kind": 2, "warmup_steps": 20}, {"warmup_steps": -1},
        {"kind": 4, "size": -1}, {"kind": 5, "size": 0}, {"kind": 5, "size": 9},
        {"kind": 5, "size": 3}, {"kind": 5, "size": 2, "drops": (5, 5)}, {"total_steps": -1},
        {"kind": 6, "warmup_steps": 1}, {"kind": 6, "rise": 1.5}, {"kind": 6, "last": -1.0},
        {"kind": 7, "size": 0}, {"kind": 7, "patience": -1}, {"kind": 7, "gamma": 2.0},
        {"kind": 7, "cooldown": -1}, {"kind": 7, "threshold": 2.0}, {"kind": 7, "min_lr": -1.0},
        {"kind": 3, "gamma": 1e3}, {"kind": 1, "gamma": 1e3}, {"kind": 1, "gamma": 1e300},
    ]  # fmt: skip
    net = library.net().made_up()
    assert net.settings(0.25, 1, 0, 0, 2, 0.5) == 0
    for words in bad:
        given = good | words
        given["drops"] = (ctypes.c_int64 * 8)(*given["drops"])
        rates = Rates(**given)
        assert net.schedule(ctypes.addressof(rates)) == device.REFUSED, words
    net.steps(3)
    assert net.report().lr == 0.125


def test_bytes_are_scaled_as_they_are_staged(library):
    program, samples = library.program, np.arange(32 * 6, dtype=np.uint8).reshape(32, 6)
    factor = np.array([0.01, 0.02, 0.03], np.float32)
    shift = np.array([-1.0, 0.0, 0.5], np.float32)
    floats = samples * np.repeat(factor, 2) + np.repeat(shift, 2)

    def filled(rows):
        def fill(user, split, sample, x, y):
            np.ctypeslib.ctypes.memmove(x, rows[sample].ctypes.data, rows[sample].nbytes)
            np.ctypeslib.ctypes.memset(y, 0, 4)
            return 0

        return fill

    net, other, half = library.net(), library.net(), library.net()
    assert net.input(0, U8, factor.ctypes.data, shift.ctypes.data, 3, 2) == 0
    net.ask(filled(samples), 32)
    other.ask(filled(floats.astype(np.float32)), 32)
    assert half.input(0, F16, None, None, 1, 1) == 0
    half.ask(filled(floats.astype(np.float32).astype(np.float16)), 32)
    digests = {one.steps(3).digest() for one in (net, other, half)}
    assert len(digests) == 1 and program.inputs["micro"][0].dtype == "f16"


def test_eval_and_predict_are_the_sessions(library):
    program = library.program
    net = library.net().made_up(held=11).steps(3)
    loss, accuracy = np.zeros(1), np.zeros(1)
    assert net.eval(loss.ctypes.data, accuracy.ctypes.data) == 0
    x = np.stack([made_up(program, program.inputs["micro"][0], 0, k, "x") for k in range(11)])
    y = np.array(
        [made_up(program, program.targets["micro"], 1, k, "loss.target")[0] for k in range(11)]
    )
    out = np.zeros((11, 3), np.float32)
    before = net.digest()
    assert net.predict(x.ctypes.data, 11, out.ctypes.data) == 0
    session = Session(program, 1)
    for number, slot in enumerate(library.image.values):
        session.values[slot.name][...] = net.value(number)
    np.testing.assert_array_equal(out, session.predict({"x": x}))
    session.close()
    assert accuracy[0] == (out.argmax(1) == y).mean() and net.digest() == before
    shifted = out - out.max(1, keepdims=True)
    each = np.log(np.exp(shifted).sum(1)) - shifted[np.arange(11), y]
    np.testing.assert_allclose(loss[0], each.mean(), rtol=1e-3)  # logits are stored as fp16
    assert net.eval(loss.ctypes.data, accuracy.ctypes.data) == 0  # the data is still set
    assert net.steps(4).digest() & 0xFFFFFFFF == state_digest(program, STEPS)


def _taken_together(folder, loss):
    """Return a Program that subtracts the samples' mean or, with its own loss, outputs a mean."""
    from onnx import TensorProto, helper, numpy_helper, save

    draw = np.random.default_rng(0)
    w = numpy_helper.from_array(draw.standard_normal((6, 3)).astype(np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"])]
    if loss == "mse":
        nodes += [
            helper.make_node("ReduceMean", ["h"], ["m"], axes=[0], keepdims=1),
            helper.make_node("Sub", ["h", "m"], ["out"]),
        ]
    else:
        nodes += [
            helper.make_node("Mul", ["h", "h"], ["s"]),
            helper.make_node("ReduceMean", ["s"], ["out"], keepdims=0),
        ]
    x, out = (
        helper.make_tensor_value_info(n, TensorProto.FLOAT, shape)
        for n, shape in (("x", ["batch", 6]), ("out", ["batch", 3] if loss == "mse" else []))
    )
    graph = helper.make_graph(nodes, "together", [x], [out], [w])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), folder / "m.onnx")
    return et.compile(et.load_onnx(folder / "m.onnx"), loss=loss, minibatch=8, threads=1)


@pytest.mark.parametrize("loss", ["mse", "output"])
def test_samples_that_are_taken_together_are_evaluated_in_whole_microbatches(loss, tmp_path):
    """Like the session: padding of the last microbatch would enter the other samples' mean."""
    program = _taken_together(tmp_path, loss)
    assert program.microbatch == 8 and ("mixed_by" in program.account) == (loss == "mse")
    library, session = Loaded(program), Session(program, 1)
    found, accuracy = np.zeros(1), np.zeros(1)
    where = found.ctypes.data, accuracy.ctypes.data
    staged, losses = session._staging["eval"], {}

    def fill(indices):
        for k, (name, slot) in enumerate(program.staged("eval").items()):
            rows = [made_up(program, slot, k, int(sample), name) for sample in indices]
            staged[name][...] = np.reshape(rows, staged[name].shape)

    for held in (8, 11, 16):
        net = library.net().made_up(held)
        assert net.eval(*where) == 0
        losses[held] = found[0]
        expected = session.evaluate(held, fill)
        assert (found[0], held - held % 8) == (expected["loss"], expected["samples"])
        assert net.steps(2).eval(*where) == 0  # all held-out samples are still there
    assert losses[8] == losses[11] != losses[16]
    assert library.net().made_up(7).eval(*where) == device.REFUSED
    if loss == "mse":
        out = np.zeros((16, 3), np.float32)
        x = np.random.default_rng(1).standard_normal((16, 6)).astype(np.float32)
        net = library.net()
        assert net.predict(x.ctypes.data, 16, out.ctypes.data) == 0
        np.testing.assert_array_equal(out, session.predict({"x": x}))
        assert net.predict(x.ctypes.data, 11, out.ctypes.data) == device.REFUSED
    session.close()


def test_values_are_read_and_replaced(library):
    net, names = library.net(), [slot.name for slot in library.image.values]
    assert names == ["one.w", "one.b", "two.w", "two.b"]
    for number, name in enumerate(names):
        np.testing.assert_array_equal(net.value(number), library.program.init[name])
    new = np.linspace(-2, 2, 36, dtype=np.float32).reshape(3, 12)
    assert net.set(2, new.ctypes.data) == 0
    np.testing.assert_array_equal(net.value(2), new.astype(np.float16).astype(np.float32))


def test_fp32_steps_have_the_bits_of_the_drive_in_python(two_layers):
    import edgetrain as et

    made = et.compile(two_layers, minibatch=6, microbatch=2, threads=1, loss="mse")
    net = Loaded(made).net().made_up().steps(STEPS)
    assert net.digest() & 0xFFFFFFFF == state_digest(made, STEPS)


def test_expanded_rows_have_the_same_bits_in_python_and_c_for_any_lanes_and_threads():
    whole, threads, narrow = (
        nets.compiled("sparse channels", threads=threads, target=target)
        for threads, target in ((1, targets.HOST), (3, targets.HOST), (1, "x86-64-v3"))
    )
    assert {"winograd_csr", "winograd_csr_dx"} <= {row[0] for row in whole.kernels}
    digests = {state_digest(made, STEPS) for made in (whole, threads, narrow)}
    net = Loaded(narrow).net().made_up().steps(STEPS)
    assert digests == {net.digest() & 0xFFFFFFFF}


def test_saved_values_in_blocks_have_the_bits_of_the_drive(tmp_path):
    import edgetrain as et
    from tests.runtime.models import write_forked

    model = et.load_onnx(write_forked(tmp_path / "forked.onnx", blocks=1))
    how = {"minibatch": 8, "microbatch": 4, "threads": 1, "saved": "int8"}
    made = et.compile(model, optimizer=et.Adam(lr=0.01), **how)
    kernels = {row[0] for row in made.kernels}
    assert {"pack", "pack_sides", "unpack"} <= kernels
    net = Loaded(made).net().made_up().steps(STEPS)
    assert net.digest() & 0xFFFFFFFF == state_digest(made, STEPS)


def test_model_memory_in_blocks_has_the_bits_of_the_drive_and_is_got_and_set(two_layers):
    memory = {"precision": "fp16", "model_memory": "int8"}
    how = {"minibatch": 8, "microbatch": 4, "threads": 1, **memory}
    packed = et.compile(two_layers, optimizer=et.Adam(lr=0.01), **how)
    assert packed.slot("one.w").dtype == packed.slot("one.w.moment2").dtype == "q8"
    loaded = Loaded(packed)
    net = loaded.net().made_up().steps(STEPS)
    assert net.digest() & 0xFFFFFFFF == state_digest(packed, STEPS)
    number = [slot.name for slot in loaded.image.values].index("one.w")
    values = np.random.default_rng(0).normal(size=(12, 6)).astype(np.float32)
    assert net.set(number, values.ctypes.data) == 0
    expected = decoded(INT8.encode(values), values.shape)
    np.testing.assert_array_equal(net.value(number), expected)


@pytest.fixture(scope="module")
def heads():
    """A net with two losses."""
    from tests.losses.test_several import LOSSES, two_heads

    made = et.compile(
        two_heads().model("class", "box"), losses=LOSSES, minibatch=8, microbatch=4, threads=1
    )
    return Loaded(made)


def test_several_losses_have_targets_by_index_and_the_bits_of_python(heads, tmp_path):
    from edgetrain.api import bundle

    loaded, program = heads, heads.program
    net = loaded.net().made_up(held=12).steps(STEPS)
    assert net.digest() & 0xFFFFFFFF == state_digest(program, STEPS)
    # each loss as Python evaluates it with the same weights
    loss, each, right = np.zeros(1), np.zeros(2), np.zeros(2)
    assert net.eval(loss.ctypes.data, right.ctypes.data) == 0
    assert net.losses(each.ctypes.data, right.ctypes.data) == 0
    session = Session(program, 1)
    for number, slot in enumerate(loaded.image.values):
        session.values[slot.name][...] = net.value(number)
    staged = session.buffers("eval")

    def fill(indices):
        for k, (name, slot) in enumerate(program.staged("eval").items()):
            rows = [made_up(program, slot, k, int(sample), name) for sample in indices]
            staged[name][...] = np.reshape(rows, staged[name].shape)

    found = session.evaluate(12, fill)
    assert [loss[0], *each] == [found["loss"], found["class_loss"], found["box_loss"]]
    assert right[0] == found["class_accuracy"]
    session.close()
    # loss weights are a value
    names = [slot.name for slot in loaded.image.values]
    weights = names.index("loss.weights")
    np.testing.assert_array_equal(net.value(weights), [1, 0.5])
    changed, before = np.array([1, 0], np.float32), net.value(names.index("wb"))
    assert net.set(weights, changed.ctypes.data) == 0
    np.testing.assert_array_equal(net.steps(1).value(names.index("wb")), before)
    manifest = bundle(program, tmp_path, name="two")
    assert manifest["targets"] == [
        {"output": "class", "values": 1, "type": "i32", "at": "y"},
        {"output": "box", "values": 3, "type": "f32", "at": "x[1]"},
    ]
    assert [(one["output"], one["name"], one["weight"]) for one in manifest["losses"]] == [
        ("class", "cross_entropy", 1.0),
        ("box", "huber", 0.5),
    ]
    header = (tmp_path / "two.h").read_text()
    assert "#define TWO_TARGETS 2" in header and "#define TWO_LOSSES 2" in header
    assert "#define TWO_TARGET1 3 /* float values of output box, at x[1] */" in header
    assert "#define TWO_PARAM_LOSS_WEIGHTS" in header
    assert "two_losses(" in header


def _predicted(net, flash):
    x = np.zeros((4, 8), np.float32)  # more than a sample's values
    assert net.predict(x.ctypes.data, 1, np.zeros(8, np.float32).ctypes.data) == 0


def _stepped(net, flash):
    net.steps(1)


def _loaded(net, flash):
    assert net.save(flash.address) == 0 and net.load(flash.address) == 0


@pytest.mark.parametrize("work", [_predicted, _stepped, _loaded])
def test_losses_are_refused_unless_an_evaluation_came_last(heads, work):
    net, found = heads.net().made_up(held=12), np.zeros((2, 2))
    flash = Flash(slot_nbytes(heads.program))

    def losses():
        return net.losses(found[0].ctypes.data, found[1].ctypes.data)

    assert losses() == device.REFUSED
    loss, accuracy = np.zeros(1), np.zeros(1)
    assert net.eval(loss.ctypes.data, accuracy.ctypes.data) == 0
    assert losses() == 0
    assert found[0] @ [1, 0.5] == pytest.approx(loss[0], rel=1e-12)
    work(net, flash)
    assert losses() == device.REFUSED


def test_a_factor_for_integers_is_refused():
    made = Net(2, dtype=TensorProto.INT64)
    tokens = made.add("Gather", [made.weight("table", 5, 4), "x"], "tokens")
    model = made.model(made.add("ReduceMean", [tokens], "out", axes=[1], keepdims=0))
    net = Loaded(et.compile(model, minibatch=2, threads=1)).net()
    factor, shift = np.ones(1, np.float32), np.zeros(1, np.float32)
    given = factor.ctypes.data, shift.ctypes.data, 1, 1
    assert {net.input(0, kind, *given) for kind in (I32, I64, U8)} == {device.REFUSED}
    assert net.input(0, U8, None, None, 1, 1) == 0


def test_schedules_of_more_steps_than_31_bits_hold_are_refused(library):
    net, most = library.net().made_up(), 2**31 - 1
    for words, expected in (
        ({"total_steps": most}, 0), ({"total_steps": most + 1}, device.REFUSED),
        ({"total_steps": most, "warmup_steps": most + 1}, device.REFUSED),
    ):  # fmt: skip
        rates = Rates(kind=0, lr=0.1, **words)
        assert net.schedule(ctypes.addressof(rates)) == expected
        given = words["total_steps"], words.get("warmup_steps", 0)
        assert net.settings(0.1, 0, *given, 0, 0.0) == expected
