"""Op cases: ops that are composed of others."""

import numpy as np
import torch
import torch.nn.functional as F

from .op_case import BATCH, C, Case, Ids, P, X, ints


def _hot(axis: int, depth: int):
    """The meaning of OneHot."""

    def meaning(index, _, values):
        found = F.one_hot(index.long() % depth, depth).bool()
        return torch.where(found.movedim(-1, axis), values[1], values[0])

    return meaning


def _one_hot_cases() -> list[Case]:
    ids, sides = Ids((BATCH, 3), 4), P((2,))
    return [
        Case("OneHot", "last", [ids, C(4), sides], _hot(-1, 4)),
        Case("OneHot", "depth in a list", [ids, ints(5), sides], _hot(-1, 5), reference=False),
        Case("OneHot", "middle", [ids, C(4), sides], _hot(1, 4), {"axis": 1}),
        Case("OneHot", "from the end", [ids, C(6), sides], _hot(1, 6), {"axis": -2}),
        Case("OneHot", "out of range", [ids, C(1), sides],
             lambda i, _, v: torch.where((i == 0)[..., None], v[1], v[0])),
        Case("OneHot", "constant sides", [ids, C(4), C([-0.5, 2.0], np.float32)],
             lambda i, d, v: _hot(-1, 4)(i, d, torch.from_numpy(v).double()), mask=True),
    ]  # fmt: skip


def _largest(x, axis: int):
    return F.one_hot(x.argmax(axis), x.shape[axis]).movedim(-1, axis).double()


def _hardmax_cases() -> list[Case]:
    x = X((BATCH, 3, 4))
    return [
        Case("Hardmax", "last", [x], lambda x: _largest(x, 2), mask=True),
        Case("Hardmax", "middle", [x], lambda x: _largest(x, 1), {"axis": 1}, mask=True),
        Case("Hardmax", "one axis from there on", [x],
             lambda x: _largest(x.reshape(2, 12), 1).reshape(2, 3, 4), opset=11, mask=True,
             reference=False),
    ]  # fmt: skip


def _shrink_cases() -> list[Case]:
    x, name = X((BATCH, 3, 4)), "Shrink"
    return [
        Case(name, "plain", [x], lambda x: torch.where(x.abs() > 0.5, x, 0 * x)),
        Case(name, "bias", [x], lambda x: F.softshrink(x, 0.3), {"lambd": 0.3, "bias": 0.3}, 9,
             reference=False),
    ]  # fmt: skip


def _norm_cases() -> list[Case]:
    x, plain = X((BATCH, 3, 4)), F.normalize
    return [
        Case("LpNormalization", "last", [x], lambda x: plain(x, dim=2)),
        Case("LpNormalization", "one", [x], lambda x: plain(x, p=1, dim=1), {"axis": 1, "p": 1},
             reference=False),
        Case("LpNormalization", "newer", [x], lambda x: plain(x, dim=1), {"axis": 1}, 22),
    ]  # fmt: skip


def _backwards(time: int):
    """The meaning of ReverseSequence with the batch on axis 0."""

    def meaning(x, lengths):
        rows = []
        for row, count in zip(x, np.asarray(lengths).tolist(), strict=True):
            first, rest = row.movedim(time - 1, 0)[:count], row.movedim(time - 1, 0)[count:]
            rows.append(torch.cat([first.flip(0), rest]).movedim(0, time - 1))
        return torch.stack(rows)

    return meaning


def _reversed_cases() -> list[Case]:
    lengths = Ids((BATCH,), 5)
    return [
        Case("ReverseSequence", "time second", [X((BATCH, 4, 3)), lengths], _backwards(1),
             {"time_axis": 1, "batch_axis": 0}),
        Case("ReverseSequence", "time last", [X((BATCH, 3, 4)), lengths], _backwards(2),
             {"time_axis": 2, "batch_axis": 0}),
        Case("ReverseSequence", "constant lengths", [X((BATCH, 4, 3)), ints(4, 2)], _backwards(1),
             {"time_axis": 1, "batch_axis": 0}),
    ]  # fmt: skip


def _rotated(turned: int, beside: bool, heads: int = 0):
    """The meaning of RotaryEmbedding with tables by position, or by sample."""

    def meaning(x, cos, sin, places=None):
        y = x.reshape(*x.shape[:2], heads, -1).transpose(1, 2) if heads else x
        if places is not None:
            cos, sin = cos[places.long()], sin[places.long()]
        cos, sin, first = cos[:, None], sin[:, None], y[..., :turned]
        if beside:
            one, two = first[..., 0::2], first[..., 1::2]
        else:
            one, two = first.chunk(2, -1)
        pair = one * cos - two * sin, one * sin + two * cos
        joined = torch.stack(pair, -1).flatten(-2) if beside else torch.cat(pair, -1)
        y = torch.cat([joined, y[..., turned:]], -1)
        return y.transpose(1, 2).reshape(x.shape) if heads else y

    return meaning


def _rotary_cases() -> list[Case]:
    x, lines = X((BATCH, 2, 3, 4)), X((BATCH, 3, 8))
    tables, by_sample = [P((7, 2)), P((7, 2))], [X((BATCH, 3, 2)), X((BATCH, 3, 2))]
    places = Ids((BATCH, 3), 7)
    return [
        Case("RotaryEmbedding", "by position", [x, *tables, places], _rotated(4, False), {}, 23),
        Case("RotaryEmbedding", "by sample", [x, *by_sample], _rotated(4, False), {}, 23),
        Case("RotaryEmbedding", "side by side", [x, *tables, places], _rotated(4, True),
             {"interleaved": 1}, 23),
        Case("RotaryEmbedding", "some channels", [x, P((7, 1)), P((7, 1)), places],
             _rotated(2, False), {"rotary_embedding_dim": 2}, 23),
        Case("RotaryEmbedding", "heads in one axis", [lines, *tables, places],
             _rotated(4, True, 2), {"interleaved": 1, "num_heads": 2}, 23),
    ]  # fmt: skip


CASES = [
    *_one_hot_cases(),
    *_hardmax_cases(),
    *_norm_cases(),
    *_shrink_cases(),
    *_reversed_cases(),
    *_rotary_cases(),
]
