"""Op cases: masks and selection, remainders, products and norms, repeats, running sums, Einsum."""

import numpy as np
import torch
import torch.nn.functional as F

from .op_case import BATCH, A, C, Case, Ids, P, X, floats, ints

_FULL = (BATCH, 3, 4)
_X = X(_FULL)
_ROWS = [[True, False, False, True], [False, False, True, True], [True, True, False, False]]
_MASK = C(_ROWS, np.bool_)


def _select(mask, a, b):
    return torch.where(torch.tensor(mask), torch.as_tensor(a), torch.as_tensor(b))


def _select_cases() -> list[Case]:
    return [
        Case("Where", "same", [_MASK, _X, A(_FULL)], _select),
        Case("Where", "constant", [_MASK, _X, floats(-3.0)], _select),
        Case("Where", "constant first", [_MASK, floats(0.5), _X], _select),
        Case("Where", "broadcast", [_MASK, _X, P((4,))], _select),
        Case("Where", "rows", [C([[True], [False], [True]], np.bool_), A((3, 1)), _X], _select),
        Case("Where", "one side", [C([[True]], np.bool_), _X, floats(-1.0)], _select),
        Case("Trilu", "upper", [_X], torch.triu),
        Case("Trilu", "lower", [_X, C(-1)], lambda x, k: torch.tril(x, -1), {"upper": 0}),
    ]


def _compare_cases() -> list[Case]:
    meanings = {
        "Less": torch.lt, "LessOrEqual": torch.le, "Greater": torch.gt,
        "GreaterOrEqual": torch.ge, "Equal": torch.eq,
    }  # fmt: skip
    rows = [Case(op, "same", [_X, A(_FULL)], f, mask=True) for op, f in meanings.items()]
    rows += [
        Case("Less", "vector", [_X, P((4,))], torch.lt, mask=True),
        Case("Greater", "constant", [_X, floats(0.1)], lambda x, c: x > 0.1, mask=True),
    ]
    logic = {"And": torch.logical_and, "Or": torch.logical_or, "Xor": torch.logical_xor}
    for op, f in logic.items():
        rows.append(
            Case(op, "constant", [_X, _MASK], lambda x, m, f=f: f(x > 0, torch.tensor(m)),
                 truth=True, mask=True)
        )  # fmt: skip
    rows.append(Case("IsNaN", "numbers", [_X], torch.isnan, mask=True))
    rows.append(Case("IsInf", "numbers", [_X], torch.isinf, mask=True))
    rows.append(Case("IsInf", "below", [_X], torch.isneginf, {"detect_positive": 0}, mask=True))
    rows.append(Case("Not", "plain", [_X], lambda x: x <= 0, truth=True, mask=True))
    return rows


def _sort(x, count, axis, largest=True):
    return torch.sort(x, axis, descending=largest)[0].narrow(axis, 0, count)


def _rank_cases() -> list[Case]:
    ties = floats([[[1, 2, 2, 0], [3, 3, 3, 3], [-1, 5, -1, 5]]])

    def index(axis, last=False, least=False):
        def meaning(x, _=None):
            x = torch.as_tensor(np.asarray(x)) if not isinstance(x, torch.Tensor) else x.detach()
            x = -x if least else x
            found = x.flip(axis).argmax(axis, keepdim=True) if last else x.argmax(axis, True)
            return x.shape[axis] - 1 - found if last else found

        return meaning

    return [
        Case("TopK", "middle", [_X, ints(2)], lambda x, _: _sort(x, 2, 1), {"axis": 1}, 11, 2),
        Case("TopK", "least", [_X, ints(3)], lambda x, _: _sort(x, 3, 2, False),
             {"largest": 0}, 11, 2),
        Case("TopK", "all", [X((BATCH, 9, 2)), ints(9)], lambda x, _: _sort(x, 9, 1),
             {"axis": 1, "sorted": 1}, 11, 2),
        Case("ArgMax", "last", [_X], index(2), {"axis": -1}, mask=True),
        Case("ArgMax", "middle", [_X], lambda x: x.argmax(1), {"axis": 1, "keepdims": 0},
             mask=True),
        Case("ArgMax", "ties", [ties], index(2), {"axis": 2}, mask=True),
        Case("ArgMax", "last of ties", [ties], index(2, True), {"axis": 2, "select_last_index": 1},
             mask=True),
        Case("ArgMin", "middle", [_X], index(1, least=True), {"axis": 1}, mask=True),
        Case("ArgMin", "last of ties", [ties], index(2, True, True),
             {"axis": 2, "select_last_index": 1}, mask=True),
        Case("ArgMax", "integers", [Ids((BATCH, 6), 9)], lambda x: x.argmax(1, True), {"axis": 1},
             mask=True),
    ]  # fmt: skip


def _scalar_cases() -> list[Case]:
    return [
        Case("PRelu", "channels", [_X, P((3, 1))], lambda x, s: torch.where(x > 0, x, x * s)),
        Case("PRelu", "shared", [_X, P((1,))], lambda x, s: torch.where(x > 0, x, x * s)),
        Case("Mod", "float", [_X, A((4,), True)], torch.fmod, {"fmod": 1}),
        Case("Mean", "two", [_X, A((4,))], lambda a, b: (a + b) / 2),
        Case("Pow", "cube", [_X, floats(3.0)], lambda x, _: x**3),
        Case("Pow", "reciprocal", [X(_FULL, True), floats(-1.0)], lambda x, _: 1 / x),
        Case("Pow", "one", [_X, floats(1.0)], lambda x, _: x),
        Case(
            "Pow", "integers", [X(_FULL, True), C([0, 1, 2, 3])], lambda x, n: x ** torch.tensor(n)
        ),
        Case("Pow", "given", [X(_FULL, True), Ids(_FULL, 4)], lambda x, n: x**n),
        Case("Selu", "attributes", [_X], lambda x: 3 * F.elu(x, 2.0), {"alpha": 2.0, "gamma": 3.0}),
        Case("Swish", "alpha", [_X], lambda x: x * torch.sigmoid(1.5 * x), {"alpha": 1.5}, 24),
        Case("Floor", "plain", [_X], lambda x: torch.floor(x.detach()) + 0 * x),
        Case("Ceil", "plain", [_X], lambda x: torch.ceil(x.detach()) + 0 * x),
        Case("Round", "plain", [_X], lambda x: torch.round(x.detach()) + 0 * x),
        Case("Sign", "plain", [_X], lambda x: torch.sign(x.detach()) + 0 * x),
        Case("Cast", "truth", [_X], lambda x: x != 0, {"to": 9}, mask=True),
    ]


def _reduction_cases() -> list[Case]:
    positive = X(_FULL, True)
    return [
        Case("ReduceProd", "one", [_X, ints(2)], lambda x, _: x.prod(2), {"keepdims": 0}, 18),
        Case("ReduceProd", "two", [_X, ints(1, 2)],
             lambda x, _: x.prod(2, keepdim=True).prod(1, keepdim=True), {}, 18),
        Case("ReduceL1", "two", [_X, ints(1, 2)], lambda x, _: x.abs().sum((1, 2)),
             {"keepdims": 0}, 18),
        Case("ReduceL2", "one", [_X, ints(1)], lambda x, _: x.norm(dim=1, keepdim=True), {}, 18),
        Case("ReduceSumSquare", "old", [_X], lambda x: (x * x).sum(1), {"axes": [1], "keepdims": 0},
             13),
        Case("ReduceLogSum", "one", [positive, ints(-1)], lambda x, _: x.sum(2, True).log(),
             {}, 18),
        Case("ReduceLogSumExp", "one", [_X, ints(1)], lambda x, _: torch.logsumexp(x, 1),
             {"keepdims": 0}, 18),
        Case("ReduceLogSumExp", "all", [_X],
             lambda x: torch.logsumexp(x.reshape(-1), 0).reshape(1, 1, 1), {}, 18),
    ]  # fmt: skip


def _einsum(name, equation, *args) -> Case:
    return Case("Einsum", name, args, lambda *a: torch.einsum(equation, *a), {"equation": equation})


def _index_cases() -> list[Case]:
    return [
        Case("Tile", "inner", [_X, ints(1, 2, 3)], lambda x, _: x.repeat(1, 2, 3)),
        Case("Tile", "of ones", [X((BATCH, 1, 4)), ints(1, 5, 1)], lambda x, _: x.repeat(1, 5, 1)),
        Case("Tile", "nothing", [_X, ints(1, 1, 1)], lambda x, _: x),
        Case("CumSum", "plain", [_X, C(2)], lambda x, _: x.cumsum(2)),
        Case("CumSum", "reverse exclusive", [_X, C(1)],
             lambda x, _: x.flip(1).cumsum(1).flip(1) - x, {"exclusive": 1, "reverse": 1}),
        _einsum("matrices", "bij,bjk->bik", _X, A((BATCH, 4, 5))),
        _einsum("heads", "bqhd,khd->bhqk", X((BATCH, 3, 4, 5)), A((6, 4, 5))),
        _einsum("dots", "...ij,jk->...ki", _X, P((4, 5))),
        _einsum("repeated dots", "...ij,...jk->...ik", _X, A((1, 4, 5))),
        _einsum("three", "bi,ij,bj->b", X((BATCH, 3)), P((3, 4)), A((BATCH, 4))),
        _einsum("sum", "bij->bj", _X),
        _einsum("implicit", "ij,jk", X((BATCH, 3)), P((3, 4))),
        _einsum("outer", "bi,bj->bij", X((BATCH, 3)), A((BATCH, 4))),
    ]  # fmt: skip


CASES: list[Case] = [
    *_select_cases(),
    *_compare_cases(),
    *_rank_cases(),
    *_scalar_cases(),
    *_reduction_cases(),
    *_index_cases(),
]
