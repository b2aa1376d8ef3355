"""Integer inputs are limited to the rows of the tables they index, however they get there."""

import numpy as np
import pytest
from onnx import numpy_helper, parser

import edgetrain as et
from edgetrain.importer.load import parse

from ..planner import hurried

_HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
_ARRAYS = {"emb": (11, 4), "wide": (40, 4), "w": (4, 5)}
_SLICE = "a = Constant<value_ints=[{}]>() b = Constant<value_ints=[100]>() "
_SLICE += "one = Constant<value_ints=[1]>() step = Constant<value_ints=[{}]>() "
_SLICE += "xs = Slice(x, a, b, one, step) e = Gather(emb, xs)"
_SPLIT = "at = Constant<value_ints=[3, 5]>() p, q = Split<axis=1>(x, at) "
# Body, from x [N, 8] to e [N, M, 4] -> limit of x, None if it has none.
WAYS = {
    "whole": ("e = Gather(emb, x)", 11),
    "shifted": (_SLICE.format(1, 1), 11),
    "the end": (_SLICE.format(2, 1), 11),
    "every other": (_SLICE.format(0, 2), 11),
    "swapped": (f"{_SPLIT} xs = Concat<axis=1>(q, p) e = Gather(emb, xs)", 11),
    "halves": (f"{_SPLIT} d = Gather(emb, p) c = Gather(emb, q) e = Concat<axis=1>(d, c)", 11),
    "two tables": (
        f"{_SPLIT} d = Gather(emb, p) c = Gather(wide, q) e = Concat<axis=1>(d, c)",
        40,
    ),
    "both tables": ("d = Gather(emb, x) c = Gather(wide, x) e = Add(c, d)", 11),
    "a number too": (
        f"{_SPLIT} d = Gather(emb, p) f = Cast<to=1>(q) two = Constant<value_ints=[2]>() "
        "n = Unsqueeze(f, two) s = Constant<value_ints=[1, 1, 4]>() c = Expand(n, s) "
        "e = Concat<axis=1>(d, c)",
        None,
    ),
}


def _model(text: str):
    proto = parser.parse_model(_HEAD + text)
    rng = np.random.default_rng(2)
    for name, shape in _ARRAYS.items():
        array = rng.uniform(-0.5, 0.5, shape).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    return parse(proto.SerializeToString(), "net")


@pytest.mark.parametrize("way", WAYS)
def test_ids_are_limited_however_they_are_read(way):
    body, limit = WAYS[way]
    model = _model(
        f"net (int64[N, 8] x) => (float[N, 5] out) {{ {body} "
        "m = ReduceMean<axes=[1], keepdims=0>(e) out = MatMul(m, w) }"
    )
    program = et.compile(model, minibatch=2, verbose=False)
    assert program.limits.get("x") == limit
    ids = np.full((2, 8), 3)
    with et.Trainer(program, verbose=False) as trainer:
        trainer.step(ids, np.array([0, 1]))
        if limit is not None:
            ids[1, 4] = limit
            with pytest.raises(et.errors.DataError, match=f"from 0 to {limit - 1}"):
                trainer.step(ids, np.array([0, 1]))


_TAGGER = """net (int64[N, T] x) => (float[N, T, 5] out) {
  e = Gather(emb, x) t = Transpose<perm=[1, 0, 2]>(e) y, h = GRU<hidden_size=4>(t, gw, gr)
  one = Constant<value_ints=[1]>() s = Squeeze(y, one) b = Transpose<perm=[1, 0, 2]>(s)
  out = MatMul(b, w) }"""


def _tagger(monkeypatch):
    monkeypatch.setitem(_ARRAYS, "gw", (1, 12, 4))
    monkeypatch.setitem(_ARRAYS, "gr", (1, 12, 4))
    return _model(_TAGGER)


@pytest.mark.parametrize("options", [{"dims": {"T": 128}}, {"dims": {"T": 8}, "bptt": 3}])
def test_ids_that_are_read_in_segments_are_limited(options, monkeypatch):
    with hurried():
        program = et.compile(_tagger(monkeypatch), minibatch=2, verbose=False, **options)
    assert program.limits["x"] == 11
    ids = np.full((2, options["dims"]["T"]), 3)
    ids[0, -1] = 11
    with et.Trainer(program, verbose=False) as trainer, pytest.raises(et.errors.DataError):
        trainer.step(ids, np.zeros_like(ids))


@pytest.mark.parametrize("options", [{"lengths": [8, 128]}, {"lengths": [3, 8, 16], "bptt": 3}])
def test_lengths_of_which_only_some_are_cut_into_segments(options, monkeypatch):
    with hurried():
        program = et.compile(
            _tagger(monkeypatch), minibatch=4, microbatch=2, verbose=False, **options
        )
    assert program.limits["x"] == 11


def test_limits_that_count_time_steps_may_differ_between_lengths():
    text = "net (float[N, T, 4] x) => (float[N, T, 5] out) { out = MatMul(x, w) }"
    loss = et.Loss("ctc", input_lengths=True, label_length=3)
    with hurried():
        program = et.compile(_model(text), loss=loss, lengths=[5, 10], minibatch=2, verbose=False)
    assert program.limits["loss.target"] == 11
    x = np.random.default_rng(0).normal(size=(2, 5, 4)).astype(np.float32)
    with et.Trainer(program, verbose=False) as trainer:
        assert np.isfinite(trainer.step(x, np.array([[5, 1, 2, 0], [4, 3, 0, 0]])).loss)
