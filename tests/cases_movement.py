"""Op cases: ops that move elements or reduce over axes."""

import numpy as np
import torch
import torch.nn.functional as F

from .op_case import BATCH, A, C, Case, Ids, P, X, floats, ints

_IMAGE = X((BATCH, 4, 5, 6))


def _movement_cases() -> list[Case]:
    x = X((BATCH, 3, 4))
    return [
        Case("Reshape", "infer", [x, ints(0, -1)], lambda x, _: x.reshape(2, 12)),
        Case("Reshape", "split", [x, ints(0, 3, 2, -1)], lambda x, _: x.reshape(2, 3, 2, 2)),
        Case("Flatten", "default", [_IMAGE], lambda x: x.flatten(1)),
        Case("Flatten", "negative", [x], lambda x: x.reshape(6, 4), {"axis": -1}),
        Case("Flatten", "zero", [x], lambda x: x.reshape(1, 24), {"axis": 0}),
        Case("Squeeze", "attribute", [X((BATCH, 1, 4, 1))], lambda x: x.squeeze(1),
             {"axes": [1]}, 11),
        Case("Squeeze", "input", [X((BATCH, 1, 4, 1)), ints(-1)], lambda x, _: x.squeeze(3)),
        Case("Squeeze", "all", [X((BATCH, 1, 4, 1))], torch.squeeze),
        Case("Unsqueeze", "attribute", [x], lambda x: x[:, None, :, None], {"axes": [1, 3]}, 11),
        Case("Unsqueeze", "input", [x, ints(-1)], lambda x, _: x[..., None]),
        Case("Transpose", "perm", [x], lambda x: x.permute(0, 2, 1), {"perm": [0, 2, 1]}),
        Case("Transpose", "default", [x], lambda x: x.permute(2, 1, 0)),
        Case("Transpose", "channels last", [_IMAGE], lambda x: x.permute(0, 2, 3, 1),
             {"perm": [0, 2, 3, 1]}),
        Case("Transpose", "of ones", [X((BATCH, 1, 4))], lambda x: x.permute(0, 2, 1),
             {"perm": [0, 2, 1]}),
        Case("Concat", "two", [x, A((BATCH, 2, 4))], lambda *a: torch.cat(a, 1), {"axis": 1}),
        Case("Concat", "three", [x, A((BATCH, 3, 1)), A((BATCH, 3, 2))],
             lambda *a: torch.cat(a, 2), {"axis": -1}),
        Case("Concat", "vector", [X((BATCH, 4)), A((BATCH, 4)), P((1, 4))],
             lambda *a: torch.cat(a, 0).reshape(5, 4), {"axis": 0}),
        Case("Concat", "one", [x], lambda x: x, {"axis": 1}),
        Case("Split", "even", [x], lambda x: torch.split(x, 2, 2), {"axis": 2, "num_outputs": 2},
             18, 2),
        Case("Split", "uneven rest", [X((BATCH, 5))], lambda x: torch.split(x, 2, 1),
             {"axis": 1, "num_outputs": 3}, 18, 3),
        Case("Split", "sizes", [X((BATCH, 5)), ints(1, 4)],
             lambda x, _: torch.split(x, [1, 4], 1), {"axis": -1}, 13, 2),
        Case("Split", "attribute", [X((BATCH, 5))], lambda x: torch.split(x, [3, 2], 1),
             {"axis": 1, "split": [3, 2]}, 11, 2),
        Case("Slice", "attribute", [x], lambda x: x[:, 1:3], {
            "starts": [1], "ends": [3], "axes": [1]}, 9),
        Case("Slice", "inputs", [x, ints(0, 1), ints(2, 2**62), ints(1, -1)],
             lambda x, *_: x[:, 0:2, 1:]),
        Case("Slice", "negative", [x, ints(-2), ints(-1), ints(1)],
             lambda x, *_: x[:, -2:-1]),
        Case("Slice", "reversed", [x, ints(-1), ints(-(2**62)), ints(2), ints(-1)],
             lambda x, *_: x.flip(2)),
        Case("Slice", "steps", [X((BATCH, 7)), ints(6), ints(0), ints(1), ints(-2)],
             lambda x, *_: x[:, [6, 4, 2]]),
        Case("Slice", "no axes", [x, ints(0, 1), ints(2, 3)], lambda x, *_: x[0:2, 1:3]),
        Case("Slice", "whole", [x, ints(0), ints(4), ints(2)], lambda x, *_: x),
        Case("Expand", "rank", [X((BATCH, 1, 4)), ints(3, 1)],
             lambda x, _: x.expand(2, 3, 4)),
        Case("Expand", "front", [A((1, 4)), ints(BATCH, 3, 1)], lambda x, _: x.expand(2, 3, 4)),
        Case("Expand", "view", [x, ints(1, 1, 1, 1)], lambda x, _: x[None]),
        Case("Pad", "attribute", [X((BATCH, 3))], lambda x: F.pad(x, (1, 2), value=0.5),
             {"pads": [0, 1, 0, 2], "value": 0.5}, 10),
        Case("Pad", "inputs", [x, ints(0, 1, 2, 0, 0, 1)], lambda x, _: F.pad(x, (2, 1, 1, 0))),
        Case("Pad", "axes", [x, ints(1, 1), floats(-1.0), ints(-1)],
             lambda x, *_: F.pad(x, (1, 1), value=-1.0), opset=18),
        Case("Pad", "crop", [x, ints(0, -1, 1, 0, 0, -2)],
             lambda x, _: F.pad(x, (1, -2, -1, 0)), reference=False),
        Case("Pad", "reflect", [_IMAGE, ints(0, 0, 2, 1, 0, 0, 1, 3)],
             lambda x, _: F.pad(x, (1, 3, 2, 1), mode="reflect"), {"mode": "reflect"}),
        Case("Pad", "edge", [_IMAGE, ints(0, 0, 2, 1, 0, 0, 1, 3)],
             lambda x, _: F.pad(x, (1, 3, 2, 1), mode="replicate"), {"mode": "edge"}),
        Case("Pad", "wrap", [_IMAGE, ints(0, 0, 2, 1, 0, 0, 1, 3)],
             lambda x, _: F.pad(x, (1, 3, 2, 1), mode="circular"), {"mode": "wrap"}, 19),
        Case("Pad", "wrap what is left", [_IMAGE, ints(0, 0, -1, 2, 0, 0, 2, -1)],
             lambda x, _: F.pad(x[:, :, 1:, :-1], (2, 0, 0, 2), mode="circular"),
             {"mode": "wrap"}, 19, reference=False),
        Case("Pad", "crop and wrap", [_IMAGE, ints(0, 0, -1, -2, 0, 0, -1, 1)],
             lambda x, _: F.pad(x[:, :, 1:-1, 2:], (0, 1, 0, 0), mode="circular"),
             {"mode": "wrap"}, 19, reference=False),
        Case("Gather", "embedding", [P((7, 3)), Ids((BATCH, 4), 7)], lambda w, i: w[i]),
        Case("Gather", "constant", [x, C([[2, 0], [-1, 1]])],
             lambda x, i: x[:, [[2, 0], [2, 1]]], {"axis": 1}),
        Case("Gather", "one", [x, C(-1)], lambda x, i: x[:, -1], {"axis": 1}),
        Case("Gather", "one kept", [x, C([1])], lambda x, i: x[..., [1]], {"axis": -1}),
        Case("Gather", "position", [P((6, 4)), C([[0, 1, 2]])], lambda w, i: w[:3][None]),
        Case("GatherND", "constant", [x, C([[[0, 2], [1, -1]], [[1, 0], [1, 0]]])],
             lambda x, i: x[i[..., 0], i[..., 1]]),
        Case("GatherND", "elements", [x, C([[1, 2, 3], [0, 0, -4]])],
             lambda x, i: torch.stack([x[1, 2, 3], x[0, 0, 0]])),
        Case("GatherND", "batch", [x, C([[[1], [0]], [[2], [-1]]])],
             lambda x, i: torch.stack([x[0, [1, 0]], x[1, [2, 2]]]), {"batch_dims": 1}),
        Case("GatherND", "every row", [x, C([[[b, t] for t in range(3)] for b in range(2)])],
             lambda x, i: x),
        Case("GatherND", "embedding", [P((7, 3)), Ids((BATCH, 4, 1), 7)],
             lambda w, i: w[i[..., 0]]),
        Case("GatherND", "computed", [P((5, 6, 3)), Ids((BATCH, 4, 2), 5)],
             lambda w, i: w[i[..., 0], i[..., 1]]),
        Case("GatherND", "computed, batch", [X((BATCH, 5, 3)), Ids((BATCH, 4, 1), 5)],
             lambda x, i: torch.stack([x[b, i[b, :, 0]] for b in range(BATCH)]),
             {"batch_dims": 1}),
        Case("GatherElements", "constant", [x, C([[[2, 0, -1], [1, 1, 0]]])],
             lambda x, i: x[:1, :2].gather(2, torch.tensor(i) % 4), {"axis": -1},
             reference=False),
        Case("GatherElements", "computed", [X((BATCH, 5, 3)), Ids((BATCH, 4, 3), 5)],
             lambda x, i: x.gather(1, i), {"axis": 1}),
        Case("GatherElements", "rows", [P((6, 3)), Ids((BATCH, 2), 6)],
             lambda w, i: w.gather(0, i), {"axis": 0}, reference=False),
        Case("Add", "integers", [Ids((BATCH, 4), 7), C([1, 2, 3, 2**23])],
             lambda x, k: x + torch.tensor(k), mask=True),
        Case("Div", "integers", [Ids((BATCH, 9), 50), C(7)], lambda x, d: x // 7, mask=True),
        Case("Mod", "integers", [Ids((BATCH, 9), 50), C(-7)], lambda x, d: x % -7, mask=True),
        Case("Mul", "integers", [Ids((BATCH, 4), 7), Ids((BATCH, 1), 5)], torch.mul, mask=True),
        Case("CumSum", "integers", [Ids((BATCH, 4), 7), C(1)], lambda x, _: x.cumsum(1), mask=True),
    ]  # fmt: skip


def _put(axis: int):
    """x.scatter along an axis."""
    return lambda x, i, u: x.scatter(axis, torch.as_tensor(i) % x.shape[axis], u)


def _scatter_cases() -> list[Case]:
    x = X((BATCH, 5, 4))
    many = [[k] for k in range(0, 200, 2)]  # more runs than there are copy instructions for
    turned = [list(range(k % 5, 5)) + list(range(k % 5)) for k in range(BATCH * 4)]
    order = np.array(turned).reshape(BATCH, 4, 5).transpose(0, 2, 1).tolist()
    return [
        Case("ScatterND", "rows", [A((6, 3)), C([[4], [1], [2]]), A((3, 3))],
             lambda x, i, u: x.index_put((torch.tensor([4, 1, 2]),), u), opset=18),
        Case("ScatterND", "every row", [floats(np.ones((3, 2))), C([[1], [2], [0]]), A((3, 2))],
             lambda x, i, u: u[[2, 0, 1]], opset=18),
        Case("ScatterND", "from the end", [A((6, 3)), C([[-1], [0]]), A((2, 3))],
             lambda x, i, u: x.index_put((torch.tensor([5, 0]),), u), opset=18),
        Case("ScatterND", "elements", [x, C([[0, 1, 2], [1, -1, 0]]), A((2,))],
             lambda x, i, u: x.index_put(tuple(torch.tensor([[0, 1, 2], [1, 4, 0]]).T), u)),
        Case("ScatterND", "many", [A((200, 2)), C(many), A((100, 2))],
             lambda x, i, u: x.index_put((torch.arange(0, 200, 2),), u)),
        Case("ScatterND", "many, again", [A((200, 2)), C([[0], *many]), A((101, 2))],
             lambda x, i, u: x.index_put((torch.arange(0, 200, 2),), u[1:])),
        Case("ScatterND", "again", [A((4, 2)), C([[1], [1], [3]]), A((3, 2))],
             lambda x, i, u: x.index_put((torch.tensor([1, 3]),), u[1:])),
        Case("ScatterND", "added", [A((4, 2)), C([[1], [1], [3]]), A((3, 2))],
             lambda x, i, u: x.index_add(0, torch.tensor([1, 1, 3]), u), {"reduction": "add"},
             opset=18),
        Case("ScatterND", "computed", [A((7, 3)), Ids((1, 1), 7), A((1, 3))],
             lambda x, i, u: x.index_put((i[:, 0],), u), opset=18),
        Case("ScatterND", "computed, added", [A((4, 6, 3)), Ids((BATCH, 5, 2), 4),
                                              A((BATCH, 5, 3))],
             lambda x, i, u: x.index_put((i[..., 0], i[..., 1]), u, True), {"reduction": "add"},
             opset=18),
        Case("ScatterElements", "slice",
             [x, C(np.full((BATCH, 2, 4), [[3], [1]])), A((BATCH, 2, 4))], _put(1), {"axis": 1}),
        Case("ScatterElements", "permuted", [floats(np.ones((BATCH, 5, 4))), C(order), x],
             lambda _, i, u: torch.zeros(BATCH, 5, 4).double().scatter(1, torch.tensor(i), u),
             {"axis": 1}, opset=18),
        Case("ScatterElements", "corner", [x, C([[[-1, 0]]]), A((1, 1, 2))],
             lambda x, i, u: x.scatter(2, torch.tensor([[[3, 0]]]), u), {"axis": -1}, opset=18),
        Case("ScatterElements", "computed", [X((BATCH, 5, 1)), Ids((BATCH, 1, 1), 5),
                                             A((BATCH, 1, 1))], _put(1), {"axis": 1}, opset=18),
        Case("ScatterElements", "computed, added", [x, Ids((BATCH, 3, 4), 5), A((BATCH, 3, 4))],
             lambda x, i, u: x.scatter_add(1, i, u), {"axis": 1, "reduction": "add"}, opset=18),
        Case("ScatterElements", "integers", [Ids((BATCH, 4), 7), C([[0, 2]] * BATCH),
                                             Ids((BATCH, 2), 7)],
             _put(1), {"axis": 1}, opset=18, mask=True),
        Case("ScatterElements", "integers, computed", [Ids((BATCH, 4), 7), Ids((BATCH, 1), 4),
                                                       Ids((BATCH, 1), 7)],
             _put(1), {"axis": 1}, opset=18, mask=True),
    ]  # fmt: skip


def _reduce_cases() -> list[Case]:
    x, rows = X((BATCH, 3, 4)), []
    for op, meaning in {
        "ReduceMean": torch.mean, "ReduceSum": torch.sum, "ReduceMax": torch.amax,
        "ReduceMin": torch.amin,
    }.items():  # fmt: skip
        rows += [
            Case(op, "one", [x, ints(-1)], lambda x, _, f=meaning: f(x, -1, keepdim=True),
                 opset=18),
            Case(op, "dropped", [x, ints(1)], lambda x, _, f=meaning: f(x, 1),
                 {"keepdims": 0}, 18),
            Case(op, "attribute", [_IMAGE], lambda x, f=meaning: f(x, (1, 3), keepdim=True),
                 {"axes": [1, -1]}, 11),
            Case(op, "all", [x], lambda x, f=meaning: f(x, (0, 1, 2), keepdim=True), {}, 18),
        ]  # fmt: skip
    rows.append(Case("ReduceMean", "front", [x, ints(0, 2)], lambda x, _: x.mean((0, 2)),
                     {"keepdims": 0}, 18))  # fmt: skip
    rows.append(Case("ReduceSum", "nothing", [x], lambda x: x, {"noop_with_empty_axes": 1}))
    return rows


CASES = [*_movement_cases(), *_scatter_cases(), *_reduce_cases()]
