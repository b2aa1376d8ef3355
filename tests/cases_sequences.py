"""Op cases: recurrences, attention, normalisation of groups and rows."""

from types import SimpleNamespace

import numpy as np
import torch
import torch.nn.functional as F

from edgetrain.exporters.reference_ops import RULES
from edgetrain.exporters.reference_recurrent import _GATES as GATES

from .op_case import BATCH, A, C, Case, P, X, floats

_BACK = {"forward": 0, "reverse": 1, "bidirectional": 2}


def recurrent(cell: str, made=("y",), **attrs):
    """ONNX's formulas: a function of the node's inputs, in order, returning what `made` names."""

    def meaning(x, w, r, bias=None, lens=None, h0=None, c0=None, peep=None):
        batched = attrs.get("layout", 0) == 1
        if batched:
            x, h0, c0 = (None if v is None else v.transpose(0, 1) for v in (x, h0, c0))
        d, n = w.shape[0], r.shape[-1]
        lens = None if lens is None else torch.tensor(np.asarray(lens)).long()
        options = {
            "back": _BACK[attrs.get("direction", "forward")], "d": d, "b": x.shape[1], "n": n,
            "after": attrs.get("linear_before_reset", 0), "made": made,
            "relu": "relu" in str(attrs.get("activations", "")).lower(),
        }  # fmt: skip
        node = SimpleNamespace(op=cell, attrs=options)
        found = RULES[cell](node, [x, w, r, bias, lens, h0, c0, peep], [None] * len(made))
        if batched:
            order = {"y": (2, 0, 1, 3), "yh": (1, 0, 2), "yc": (1, 0, 2)}
            found = tuple(v.permute(order[k]) for k, v in zip(made, found, strict=True))
        return found if len(made) > 1 else found[0]

    return meaning


def _weights(cell: str, d: int, i: int, n: int) -> list[P]:
    gates = GATES[cell]
    return [P((d, gates * n, i)), P((d, gates * n, n)), P((d, 2 * gates * n))]


def _recurrent_case(
    cell: str, name: str, d: int, sizes: tuple[int, int, int, int], *others, reference=True, **attrs
) -> Case:
    """sizes: steps, batch, features, units; others: lens, h0, c0, peepholes."""
    t, b, i, n = sizes
    shape = (b, t, i) if attrs.get("layout") else (t, b, i)
    args = [A(shape), *_weights(cell, d, i, n), *others]
    attrs |= {"hidden_size": n}
    meaning = recurrent(cell, **attrs)
    return Case(cell.upper(), name, args, meaning, attrs, opset=14, reference=reference)


def _lengths(*values: int) -> C:
    return C(list(values), np.int32)


def _recurrent_cases() -> list[Case]:
    both, back = {"direction": "bidirectional"}, {"direction": "reverse"}
    odd, wide = (4, 3, 2, 5), (3, 2, 3, 66)
    two = P((2, 3, 5))
    relus = {"activations": ["Relu", "Relu"]}
    return [
        _recurrent_case("lstm", "forward", 1, odd),
        _recurrent_case("lstm", "wide", 1, wide),
        _recurrent_case("lstm", "reverse", 1, odd, reference=False, **back),
        _recurrent_case("lstm", "both, states", 2, odd, None, two, two, reference=False, **both),
        _recurrent_case("lstm", "lengths", 2, odd, _lengths(4, 1, 3), two, two, reference=False,
                        **both),
        _recurrent_case("lstm", "peepholes", 1, odd, None, None, P((1, 3, 5)), P((1, 15))),
        _recurrent_case("lstm", "peepholes, lengths", 2, odd, _lengths(2, 4, 3), None, two,
                        P((2, 15)), reference=False, **both),
        _recurrent_case("lstm", "batch first", 1, odd, None, P((3, 1, 5)), reference=False,
                        layout=1),
        _recurrent_case("gru", "forward", 1, odd),
        _recurrent_case("gru", "wide", 1, wide, None, P((1, 2, 66))),
        _recurrent_case("gru", "as torch", 2, odd, None, two, linear_before_reset=1,
                        reference=False, **both),
        _recurrent_case("gru", "as torch, wide", 1, wide, linear_before_reset=1, reference=False),
        _recurrent_case("gru", "lengths", 2, odd, _lengths(4, 1, 3), two, reference=False, **both),
        _recurrent_case("gru", "as torch, lengths", 2, odd, _lengths(0, 2, 4), two,
                        linear_before_reset=1, reference=False, **both),
        _recurrent_case("gru", "batch first", 1, odd, reference=False, layout=1),
        _recurrent_case("rnn", "forward", 1, odd),
        _recurrent_case("rnn", "wide", 1, (1, 2, 3, 66), None, P((1, 2, 66))),
        _recurrent_case("rnn", "relu both", 2, odd, None, two, reference=False, **both, **relus),
        _recurrent_case("rnn", "lengths", 2, odd, _lengths(1, 4, 2), two, reference=False, **both),
        _recurrent_case("rnn", "reverse, batch first", 1, odd, reference=False, layout=1, **back),
    ]  # fmt: skip


def _group(groups: int, eps: float = 1e-5):
    def meaning(x, scale, bias):
        share = x.shape[1] // scale.shape[0]
        scale, bias = (torch.as_tensor(v, dtype=x.dtype) for v in (scale, bias))
        return F.group_norm(
            x, groups, scale.repeat_interleave(share), bias.repeat_interleave(share), eps
        )

    return meaning


def _rms(axes: int, eps: float = 1e-5):
    def meaning(x, scale):
        square = (x * x).mean(tuple(range(-axes, 0)), keepdim=True)
        return x / (square + eps).sqrt() * scale

    return meaning


def _rows(x, scale, bias):
    """Layer normalisation with its statistics, which keep the rank of x."""
    mean, variance = x.mean(-1, keepdim=True), x.var(-1, correction=0, keepdim=True)
    inverse = (variance + 1e-5).rsqrt()
    return (x - mean) * inverse * scale + bias, mean, inverse


def _norm_cases() -> list[Case]:
    image = X((BATCH, 6, 3, 2))
    ones, zeros = floats([1.0] * 6), floats([0.0] * 6)
    return [
        Case("GroupNormalization", "channels", [image, P((6,)), P((6,))], _group(3, 1e-3),
             {"num_groups": 3, "epsilon": 1e-3}, 21),
        Case("GroupNormalization", "computed scale", [image, A((6,)), A((6,))], _group(2),
             {"num_groups": 2}, 21),
        Case("GroupNormalization", "constants", [image, ones, zeros], _group(2),
             {"num_groups": 2}, 21),
        Case("InstanceNormalization", "image", [image, P((6,)), P((6,))], _group(6)),
        Case("InstanceNormalization", "row", [X((BATCH, 6, 9)), P((6,)), zeros], _group(6)),
        Case("RMSNormalization", "last", [X((BATCH, 3, 8)), P((8,))], _rms(1), opset=23),
        Case("RMSNormalization", "two axes", [X((BATCH, 3, 8)), P((3, 8))], _rms(2), {"axis": 1},
             23),
        Case("RMSNormalization", "broadcast scale", [X((BATCH, 3, 8)), P((8,))], _rms(2),
             {"axis": -2}, 23),
        Case("LayerNormalization", "computed scale", [X((BATCH, 3, 8)), A((8,)), P((8,))],
             lambda *a: _rows(*a)[0]),
        Case("LayerNormalization", "statistics", [X((BATCH, 3, 8)), P((8,)), P((8,))], _rows, {},
             17, 3),
    ]  # fmt: skip


def _attend(mask=None, causal=False, scale=None, cap=0.0, heads=None, past=False):
    """mask: function of `given` that returns the mask; heads: numbers for 3-d queries and keys."""

    def meaning(q, k, v, *given):
        if heads:
            q, k, v = (
                x.reshape(*x.shape[:2], count, -1).transpose(1, 2)
                for x, count in zip((q, k, v), (heads[0], heads[1], heads[1]), strict=True)
            )
        if past:
            k, v = torch.cat([given[1], k], 2), torch.cat([given[2], v], 2)
        share = q.shape[1] // k.shape[1]
        k, v = (x.repeat_interleave(share, 1) for x in (k, v))
        factor = q.shape[-1] ** -0.5 if scale is None else scale
        scores = factor * (q @ k.transpose(-2, -1))
        scores = cap * (scores / cap).tanh() if cap else scores
        if mask:
            scores = mask(scores, given[0])
        if causal:
            ahead = given[1].shape[2] if past else 0
            keep = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(ahead)
            scores = scores.masked_fill(~keep, -torch.inf)
        y = torch.nan_to_num(scores.softmax(-1), 0.0) @ v
        return y.transpose(1, 2).flatten(2) if heads else y

    return meaning


def _kept(scores, mask):
    return scores.masked_fill(~torch.tensor(np.asarray(mask)), -torch.inf)


def _attention_cases() -> list[Case]:
    q, k, v = X((BATCH, 4, 3, 6)), X((BATCH, 4, 5, 6)), X((BATCH, 4, 5, 2))
    shared = X((BATCH, 2, 5, 6)), X((BATCH, 2, 5, 2))
    flat = X((BATCH, 3, 8)), X((BATCH, 5, 4)), X((BATCH, 5, 6))
    rows = C([[1, 0, 1, 0, 1], [0, 0, 0, 0, 0], [1, 1, 1, 1, 0]], np.bool_)
    some = C([[1, 0, 1, 0, 1], [0, 1, 0, 0, 0], [1, 1, 1, 1, 0]], np.bool_)
    bias = floats([[0.5, -1.0, 0.0, 2.0, 0.1]])
    return [
        Case("Attention", "plain", [q, k, v], _attend(), {}, 23),
        Case("Attention", "causal", [q, k, v], _attend(causal=True), {"is_causal": 1}, 23),
        Case("Attention", "shared heads", [q, *shared], _attend(scale=0.3), {"scale": 0.3}, 23),
        Case("Attention", "three dimensions", list(flat), _attend(heads=(4, 2)),
             {"q_num_heads": 4, "kv_num_heads": 2}, 23),
        Case("Attention", "bias and cap", [q, k, v, bias],
             _attend(lambda s, m: s + torch.tensor(m), cap=2.0), {"softcap": 2.0}, 23),
        Case("Attention", "trained bias", [q, k, v, P((4, 3, 5))], _attend(lambda s, m: s + m),
             {}, 23),
        Case("Attention", "mask", [q, k, v, some], _attend(_kept), {}, 23),
        Case("Attention", "nothing to attend", [q, k, v, rows], _attend(_kept), {}, 23,
             reference=False),
        Case("Attention", "past", [q, k, v, None, X((BATCH, 4, 2, 6)), X((BATCH, 4, 2, 2))],
             _attend(causal=True, past=True), {"is_causal": 1}, 23),
    ]  # fmt: skip


CASES: list[Case] = [*_recurrent_cases(), *_norm_cases(), *_attention_cases()]
