"""Recurrences in segments: which are cut, equal gradients, the same bits in every plan."""

from collections import Counter

import numpy as np
import pytest

import edgetrain as et
from benchmarks.sequences import lstm_net
from edgetrain.api import gradients, loss_and_gradients, make_options
from edgetrain.compiler.compilation import Compilation
from edgetrain.compiler.pipeline import build_graphs
from edgetrain.compiler.plan.frontier import find_frontier
from edgetrain.compiler.segments import described
from edgetrain.compiler.segments.layout import Axis, Move, Span, axis_of, part_shape, unfold
from edgetrain.compiler.segments.picks import picked
from edgetrain.compiler.segments.region import MOST_SEGMENTS, segment_steps, spans_of
from edgetrain.compiler.segments.rules import Look, layouts_of
from edgetrain.compiler.tapes.assemble import assemble
from edgetrain.errors import DataError, UsageError
from edgetrain.ir import Node, Value
from edgetrain.runtime.microbatch import run_microbatch
from edgetrain.runtime.session import Session
from tests.quick import slow_except, slow_unless

from .nets import Net, conv_bn_relu_conv

T, B, F, N, CLASSES = 70, 3, 5, 6, 4
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


class Sequences(Net):
    """Nets over [batch, T, F]; recurrences use time-first layout."""

    def ints(self, name: str, *values: int, dtype=np.int64) -> str:
        self.constants[name] = np.array(values, dtype)
        return name

    def cell(self, op: str, x: str, name: str, size: int = F, more=(), made=1, **attrs) -> str:
        sides = 2 if attrs.get("direction") == "bidirectional" else 1
        width = GATES[op] * N
        shapes = {"w": (sides, width, size), "r": (sides, width, N), "b": (sides, 2 * width)}
        reads = [x, *(self.weight(f"{name}.{key}", *shape) for key, shape in shapes.items())]
        outputs = [name, f"{name}.h"][:made]
        self.add(op, [*reads, *more], name, hidden_size=N, **attrs)
        self.nodes[-1].output[:] = outputs
        return name

    def states(self, y: str, size: int = N) -> str:
        """Transpose and reshape [T, d, B, N] to [T, B, d * N]."""
        turned = self.add("Transpose", [y], f"{y}.turned", perm=[0, 2, 1, 3])
        shape = self.ints(f"{y}.shape", T, -1, size)
        return self.add("Reshape", [turned, shape], f"{y}.states")

    def turned(self, x: str, name: str) -> str:
        return self.add("Transpose", [x], name, perm=[1, 0, 2])

    def linear(self, x: str, size: int, name: str = "logits") -> str:
        product = self.add("MatMul", [x, self.weight("head.w", size, CLASSES)], f"{name}.product")
        return self.add("Add", [product, self.weight("head.b", CLASSES)], name)


def every_step():
    """Two layers with dropout between them, a head on every step."""
    net = Sequences(T, F)
    net.constants |= {"ratio": np.float32(0.4), "training": np.array(True)}
    x = net.states(net.cell("LSTM", net.turned("x", "by_time"), "a"))
    x = net.add("Dropout", [x, "ratio", "training"], "dropped")
    x = net.turned(net.states(net.cell("LSTM", x, "b", N)), "by_batch")
    x = net.add("Dropout", [x, "ratio", "training"], "dropped2")
    net.linear(x, N)
    return net.model("logits")


def last_step():
    """Classification from the last element of Y."""
    net = Sequences(T, F)
    x = net.states(net.cell("GRU", net.turned("x", "by_time"), "a", linear_before_reset=1))
    x = net.add("Gather", [x, net.ints("last", -1)], "picked", axis=0)
    x = net.add("Squeeze", [x, net.ints("axis", 0)], "state")
    net.linear(x, N)
    return net.model("logits")


def last_state():
    """Classification from Y_h, with a trained initial state."""
    net = Sequences(T, F)
    net.weight("h0", 1, B, N)
    net.cell("RNN", net.turned("x", "by_time"), "a", more=("", "h0"), made=2)
    x = net.add("Squeeze", ["a.h", net.ints("axis", 0)], "state")
    net.linear(x, N)
    return net.model("logits")


def lengths():
    """Rows of different lengths, initial states, peepholes."""
    net = Sequences(T, F)
    net.ints("lens", 70, 9, 41, dtype=np.int32)
    for name in ("h0", "c0"):
        net.weight(name, 1, B, N)
    net.weight("peep", 1, 3 * N)
    more = ("lens", "h0", "c0", "peep")
    x = net.states(net.cell("LSTM", net.turned("x", "by_time"), "a", more=more))
    net.linear(net.turned(x, "by_batch"), N)
    return net.model("logits")


def reverse():
    """A reversed recurrence, a head on every step."""
    net = Sequences(T, F)
    x = net.states(net.cell("GRU", net.turned("x", "by_time"), "a", direction="reverse"))
    net.linear(net.turned(x, "by_batch"), N)
    return net.model("logits")


def two_ways():
    """A bidirectional layer, which stays whole, below one that is cut."""
    net = Sequences(T, F)
    x = net.cell("LSTM", net.turned("x", "by_time"), "a", direction="bidirectional")
    x = net.states(net.cell("LSTM", net.states(x, 2 * N), "b", 2 * N))
    net.linear(net.turned(x, "by_batch"), N)
    return net.model("logits")


def rich():
    """Positions, normalisation, a residual, flattened rows, switched axis order."""
    net = Sequences(T, F)
    x = net.add("Add", ["x", net.weight("positions", T, F)], "placed")
    x = net.states(net.cell("RNN", net.turned(x, "by_time"), "a", activations=["Relu"]))
    x = net.turned(x, "a.by_batch")
    x = net.add("Tanh", [x], "bent")
    rows = net.add("Reshape", [x, net.ints("rows", -1, N)], "in_rows")
    rows = net.add("Gemm", [rows, net.weight("mix.w", N, N), net.weight("mix.b", N)], "mixed")
    y = net.add("Reshape", [rows, net.ints("back", -1, T, N)], "in_batches")
    y = net.add("LayerNormalization", [y, net.weight("g", N), net.weight("s", N)], "normal")
    y = net.add("Mul", [y, net.add("Sigmoid", [x], "gate")], "gated")
    both = net.add("Concat", [x, y], "both", axis=2)
    net.linear(both, 2 * N)
    return net.model("logits")


def pooled():
    """A mean over time, and reversed time: both need all steps."""
    net = Sequences(T, F)
    x = net.states(net.cell("GRU", net.turned("x", "by_time"), "a"))
    ends = [net.ints("start", -1), net.ints("stop", -(T + 1)), net.ints("zero", 0)]
    x = net.add("Slice", [x, *ends, net.ints("pace", -1)], "turned_round")
    x = net.states(net.cell("GRU", x, "b", N))
    net.linear(net.add("ReduceMean", [x], "mean", axes=[0], keepdims=0), N)
    return net.model("logits")


# net -> (recurrent nodes, losses); 18 segments of 4 steps
NETS = {
    every_step: (36, 18),
    last_step: (18, 1),
    last_state: (18, 1),
    lengths: (18, 18),
    reverse: (18, 18),
    two_ways: (19, 18),
    rich: (18, 18),
    pooled: (36, 1),
}


def batch(model, length: int = T):
    """Draw inputs and targets."""
    rng = np.random.default_rng(0)
    steps = build_graphs(Compilation(model, make_options(minibatch=B)), B).shape[:-1]
    x = rng.standard_normal((B, length, F)).astype(np.float32)
    return {"x": x}, rng.integers(0, CLASSES, steps).astype(np.int32)


@pytest.mark.parametrize("net", NETS, ids=lambda net: net.__name__)
def test_segments_cut_what_runs_along_time(net):
    graph = build_graphs(Compilation(net(), make_options(minibatch=B)), B).train
    count = Counter(node.op for node in graph.nodes)
    assert (sum(count[op] for op in ("lstm", "gru", "rnn")), count["loss"]) == NETS[net]


@pytest.mark.parametrize(
    "net", slow_unless(NETS, lambda net: net is not pooled), ids=lambda net: net.__name__
)
def test_segments_leave_the_gradients_as_they_are(net):
    model = net()
    inputs, target = batch(model)
    found, expected = (
        loss_and_gradients(model, inputs, target, dropout=True, segments=segments, budget=None)
        for segments in ("auto", "off")
    )
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-6)
    assert found[1].keys() == expected[1].keys()
    for name, gradient in expected[1].items():
        # Sums of up to 210 terms in another order.
        np.testing.assert_allclose(
            found[1][name], gradient, rtol=1e-4, atol=1e-5 * np.abs(gradient).max(), err_msg=name
        )


@pytest.mark.parametrize(
    "net", slow_except([every_step, pooled], every_step), ids=lambda net: net.__name__
)
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_segments_make_the_same_bits_in_every_plan(net, precision):
    model = net()
    options = make_options(minibatch=B, microbatch=B, precision=precision)
    front = find_frontier(Compilation(model, options))
    plans = [*front[:3], *front[3:-1:8], front[-1]]
    assert len(front) >= 4 and len(bits(model, options, plans)) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "every"), [(250, True), (4000, False)])
def test_segments_make_the_same_bits_over_long_sequences(steps, every):
    model = lstm_net(steps, F, 8, 2, CLASSES)
    options = make_options(minibatch=2, microbatch=2)
    front = find_frontier(Compilation(model, options))
    plans = front if every else [front[0], front[-1]]
    assert len(front) >= 8 and len(bits(model, options, plans)) == 1


def bits(model, options, plans) -> set[bytes]:
    """Return the distinct bits of loss and gradients over the plans."""
    rng, found = np.random.default_rng(0), set()
    shape = build_graphs(Compilation(model, options), options.minibatch).shape
    x = rng.standard_normal((*shape[:1], plans[0].candidate.train.graph.values["x"].shape[1], F))
    inputs = {"x": x.astype(np.float32)}
    target = rng.integers(0, CLASSES, shape[:-1]).astype(np.int32)
    for plan in plans:
        session = Session(assemble(plan, {}))
        try:
            loss = run_microbatch(session, inputs, target)
            parts = [
                np.float64(loss).tobytes(),
                *(g.tobytes() for g in gradients(session).values()),
            ]
            found.add(b"".join(parts))
        finally:
            session.close()
    return found


def test_segments_make_the_same_bits_with_any_number_of_threads():
    model, found = rich(), set()
    for threads in (1, 2, 3):
        options = make_options(minibatch=B, microbatch=B, threads=threads)
        found |= bits(model, options, find_frontier(Compilation(model, options))[-1:])
    assert len(found) == 1


@pytest.mark.parametrize(
    ("net", "segments", "words"),
    [
        (two_ways, "auto", "in 18 segments of at most 4 time steps, a (bidirectional) over all 70"),
        (last_step, "30", "in 3 segments of at most 30 time steps."),
        (last_step, "off", "Recurrences run a over all 70 steps at once."),
    ],
)
def test_described_says_what_is_cut_and_what_is_whole(net, segments, words):
    options = make_options(minibatch=B, segments=segments)
    assert words in described(build_graphs(Compilation(net(), options), B).train)


def test_segments_take_memory_that_grows_with_the_root_of_time():
    """Compares the least memory at 64 and 256 steps, with at most one extra forward pass and not
    counting persistent memory and inputs."""
    least = []
    for length in (64, 256):
        net = Sequences(length, F)
        x = net.cell("LSTM", net.turned("x", "by_time"), "a")
        x = net.add("Squeeze", [x, net.ints("axis", 1)], "a.states")
        net.linear(net.turned(x, "by_batch"), N)
        options = make_options(minibatch=32, microbatch=32, max_extra_forward=1.0)
        plan = find_frontier(Compilation(net.model("logits"), options))[0]
        inputs = 32 * length * (F + 1) * 4  # + 1 for targets
        least.append(plan.arena_nbytes - plan.candidate.persistent_nbytes - inputs)
    assert least[1] < 2.5 * least[0]


@pytest.mark.slow
def test_truncation_passes_no_gradient_beyond_its_steps():
    """Truncated gradients equal those of windows trained in sequence from fixed initial states."""
    model = every_step().without_dropout()
    inputs, target = batch(model)
    whole, cut, never = (
        loss_and_gradients(model, inputs, target, bptt=steps)[1] for steps in (0, 35, T)
    )
    for name, gradient in whole.items():
        np.testing.assert_allclose(never[name], gradient, rtol=1e-4, atol=1e-7)
    assert not np.allclose(cut["a.r"], whole["a.r"], rtol=1e-3)
    np.testing.assert_allclose(cut["head.w"], whole["head.w"], rtol=1e-4, atol=1e-7)


def first_state():
    """A trained initial state, read by the first window only."""
    net = Sequences(T, F)
    net.weight("h0", 1, B, N)
    x = net.states(net.cell("RNN", net.turned("x", "by_time"), "a", more=("", "h0")))
    net.linear(net.turned(x, "by_batch"), N)
    return net.model("logits")


def test_fused_updates_wait_for_the_losses_of_all_windows(tmp_path):
    """The number of targets is known only after the last window."""
    given = {"minibatch": B, "microbatch": B, "bptt": 10, "optimizer": et.SGD(lr=0.1)}
    model, states = first_state(), []
    graph = build_graphs(Compilation(model, make_options(fused_update=True, **given)), B).train
    last = max(at for at, node in enumerate(graph.nodes) if node.phase == "loss")
    first = min(at for at, node in enumerate(graph.nodes) if node.phase == "backward")
    updates = [at for at, node in enumerate(graph.nodes) if node.op.startswith("fused_")]
    assert first < last < min(updates)
    inputs, target = batch(model)
    for fused in (False, True):
        program = et.compile(model, fused_update=fused, **given)
        with et.Trainer(program, out=tmp_path / str(fused)) as trainer:
            for _ in range(3):
                trainer.step(inputs["x"], target)
            states.append({name: a.tobytes() for name, a in trainer.session.state().items()})
    assert states[0] == states[1]


def test_truncation_takes_the_memory_of_a_window():
    model = every_step()
    plans = [
        find_frontier(Compilation(model, make_options(minibatch=B, microbatch=B, bptt=steps)))[-1]
        for steps in (0, 10)
    ]
    whole, cut = (plan.simulation.peak_nbytes for plan in plans)
    assert cut < 0.4 * whole


def test_output_that_is_not_kept_is_judged_and_not_predicted(tmp_path):
    net = Sequences(T, F)
    x = net.states(net.cell("RNN", net.turned("x", "by_time"), "a"))
    x = net.add("MatMul", [net.turned(x, "by_batch"), net.weight("w", N, 40)], "logits")
    model, rng = net.model("logits"), np.random.default_rng(0)
    data = {
        "x_train": rng.standard_normal((4, T, F)).astype(np.float32),
        "y_train": rng.integers(0, 40, (4, T)),
    }
    found = {}
    for segments in ("auto", "off"):
        program = et.compile(model, minibatch=2, microbatch=2, segments=segments)
        path = program.save(tmp_path / f"{segments}.edge")
        trainer = et.Trainer(path, (data["x_train"], data["y_train"]))
        try:
            found[segments] = trainer.evaluate((data["x_train"], data["y_train"]))
            if segments == "auto":
                with pytest.raises(DataError, match="not kept"):
                    trainer.session.predict({"x": data["x_train"]})
        finally:
            trainer.close()
    assert found["auto"] == pytest.approx(found["off"], rel=1e-6)


def both_ways():
    """A bidirectional layer alone."""
    net = Sequences(T, F)
    x = net.cell("GRU", net.turned("x", "by_time"), "a", direction="bidirectional")
    net.linear(net.turned(net.states(x, 2 * N), "by_batch"), 2 * N)
    return net.model("logits")


@pytest.mark.parametrize("asked", [{"segments": 16}, {"bptt": 16}, {"bptt": 7, "segments": "off"}])
@pytest.mark.parametrize(
    ("net", "words"),
    [
        (conv_bn_relu_conv, "the model has none"),
        (both_ways, r"a \(over 70 steps\) is bidirectional"),
    ],
)
def test_segments_of_what_is_not_there_are_refused(net, words, asked):
    name = "bptt" if "bptt" in asked else "segments"
    with pytest.raises(UsageError, match=f"{name} {asked[name]}: .*{words}.* Leave {name} out"):
        build_graphs(Compilation(net(), make_options(minibatch=B, **asked)), B)
    build_graphs(Compilation(net(), make_options(minibatch=B, segments="off")), B)


@pytest.mark.parametrize("segments", ["none", "0", "-3", "1.5", "", 2**31, "9" * 30])
def test_options_refuse_other_segments(segments):
    with pytest.raises(UsageError, match="segments .*expected auto, off,"):
        make_options(segments=segments)


def test_segment_steps_grow_with_the_root():
    assert [segment_steps(steps) for steps in (64, 250, 1000, 4000)] == [4, 8, 16, 32]


@pytest.mark.parametrize("steps", [128**2 + 1, 70_001, 10**6 + 7])
def test_segments_are_never_more_than_a_graph_can_be_planned_with(steps):
    assert len(spans_of(steps, segment_steps(steps), 0)) <= MOST_SEGMENTS


@pytest.mark.parametrize("bias", [(), ("bias",)])
def test_a_product_with_time_in_its_columns_is_cut_unless_it_has_a_bias(bias):
    """The bias runs along the columns, so each segment would need a part of it."""
    shapes = {"a": (3, 5), "b": (5, 8), "bias": (8,), "y": (3, 8)}
    values = {name: Value(name, shape, "f32", "activation") for name, shape in shapes.items()}
    node = Node("product", "matmul", ("a", "b", *bias), ("y",))
    found = layouts_of(Look(node, values, steps=8, known={"b": 1}))
    assert found == (None if bias else {"b": 1, "y": 1})


def test_spans_end_with_windows():
    spans = [(span.start, span.length) for span in spans_of(11, 3, 5)]
    assert spans == [(0, 3), (3, 2), (5, 3), (8, 2), (10, 1)]


@pytest.mark.parametrize(
    ("shape", "inner", "axis", "part"),
    [
        ((8, 3, 5), 15, Axis(0, 1, 1), (2, 3, 5)),
        ((3, 8, 5), 5, Axis(1, 1, 1), (3, 2, 5)),
        ((24, 5), 5, Axis(0, 3, 1), (6, 5)),
        ((24, 5), 15, Axis(0, 1, 3), (6, 5)),
        ((3, 2, 4, 5), 5, None, None),
        ((3, 8, 5), 1, None, None),
    ],
)
def test_axis_is_where_time_lies(shape, inner, axis, part):
    assert axis_of(shape, inner, 8) == axis
    assert part_shape(shape, inner, Span(0, 2, 8)) == part


def test_unfold_splits_a_dimension_that_holds_more_than_time():
    rows = Move(0, 0, 0, (24, 5), (10, 1), (5, 1))
    move, at = unfold(rows, 5, 8)
    assert (move.dims, move.xs, move.ys, at) == ((3, 8, 1, 5), (80, 10, 10, 1), (40, 5, 5, 1), 1)
    assert unfold(Move(0, 0, 0, (4, 5), (10, 1), (10, 1)), 5, 8) is None


def test_picked_takes_steps_from_the_parts_that_hold_them():
    spans = spans_of(8, 3, 0)
    back = Move(0, 35, 0, (8, 5), (-5, 1), (5, 1))
    found = [(s.start, m.xo, m.yo, m.dims) for s, m in picked(back, 5, spans)]
    assert found == [(0, 10, 25, (3, 5)), (3, 10, 10, (3, 5)), (6, 5, 0, (2, 5))]
