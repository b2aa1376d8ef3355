"""The plain recurrence h = f(x W^T + h R^T + b), f tanh or relu; see recurrent/walk.py."""

from ..language.block import buffers, get, new, put
from ..language.inlining import inline
from ..language.lanes import LANES
from ..language.mathf import ONE, ZERO
from ..registry import kernel
from .loop import Backward, Forward, backward, forward
from .walk import (
    SIDES,
    TOGETHER,
    WIDE,
    biases,
    carriers,
    finals,
    gate_loader,
    loader,
    meeting,
    squash_tanh,
    store32,
    storer,
)

_SIZES = "t b d n back=0..2 relu=flag"
_CHECK = "min(t, b, d, n) > 0;d <= 2;(back == 2) == (d == 2);back <= 2"


def _forward_cell(V, P, S) -> Forward:
    gate, store, add_bias, final = gate_loader(S), storer(S), biases(V), finals(S, P)

    @inline
    def constants(blocks, args, side, u, m):
        add_bias(blocks[0], args, side * 2, side * 2 + 1, u, m)

    @inline
    def step(args, blocks, products, spot, turn):
        h = new()
        gate(h, args.gates, spot.gates, products, spot.product, blocks[0], spot.m)
        if args.relu:
            for j in range(LANES):
                put(h, j, ZERO if get(h, j) < ZERO else get(h, j))
        else:
            squash_tanh(h)
        store(h, args.y, spot.y, spot.m)

    @inline
    def ended(args, none, spot):
        store(none, args.y, spot.y, spot.m)

    @inline
    def finish(args, task):
        final(args, task, args.yh, args.y, args.d * args.b, args.b, args.h0)

    return Forward(1, 1, buffers(1), constants, step, ended, finish)


@kernel(
    "rnn",
    "r:r:W[d*n*n] bias?:r:V[d*2*n] lens?:r:i32[b] h0?:r:P[d*b*n] gates:r:S[d*t*b*n] "
    f"y:w:S[t*d*b*n] yh?:w:S[d*b*n] ws:t[4*{TOGETHER}*({WIDE} + {SIDES})] {_SIZES}",
    check=_CHECK,
    storages=meeting("V", "P"),
    work="d*t*b*n*n",
)
def rnn(W, V, P, S):
    """y = f(gates + h R^T + biases) step by step; gates hold x W^T, f is tanh or relu.

    r [d, n, n], bias [d, 2 n], lens [b]: steps of each row that count (y is 0 after them). back: 0
    forward, 1 in reverse, 2 both. yh: the last states. Scratch and threads as in lstm.
    """
    return forward(W, S, P, _forward_cell(V, P, S))


def _backward_cell(S) -> Backward:
    load, store, (_, arrive) = loader(S), storer(S), carriers(S)

    @inline
    def constants(blocks, args, side, u, m):
        """No constants."""

    @inline
    def step(args, blocks, space, spot, turn, last):
        dh, value = new(), new()
        arrive(dh, space.h, args.dy, args.dyh, spot, last)
        load(value, args.y, spot.y, spot.m)
        for j in range(LANES):
            v = get(value, j)
            slope = (ONE if v > ZERO else ZERO) if args.relu else ONE - v * v
            put(dh, j, get(dh, j) * slope)
        store(dh, args.dgates, spot.gates, spot.m)
        store32(dh, space.products, spot.product, LANES)

    return Backward(1, 1, 2, buffers(1), constants, step)


@kernel(
    "rnn_bwd",
    "r:r:W[d*n*n] lens?:r:i32[b] y:r:S[t*d*b*n] dy?:r:S[t*d*b*n] dyh?:r:S[d*b*n] "
    "dgates:w:S[d*t*b*n] dh0?:w:f32[d*b*n] "
    f"ws:t[4*{TOGETHER}*(2*{WIDE} + {SIDES})] {_SIZES}",
    check=_CHECK,
    work="d*t*b*n*n",
)
def rnn_bwd(W, S):
    """dgates = gradient before the activation of every step, 0 after a row's end.

    dh0: gradient of the initial state. Scratch, order and threads as in lstm_bwd.
    """
    return backward(W, S, _backward_cell(S))
