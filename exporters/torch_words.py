"""Traces torch functions that torch's export doesn't support as equivalent ones."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch._C import DispatchKey
from torch.nn import functional as F  # noqa: N812 - torch's own name for it
from torch.overrides import TorchFunctionMode

# Arguments of F.embedding_bag, from the fourth on.
_BAG = (
    "max_norm", "norm_type", "scale_grad_by_freq", "mode", "sparse", "per_sample_weights",
    "include_last_offset", "padding_idx",
)  # fmt: skip
_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")


@contextlib.contextmanager
def traceable_functions() -> Iterator[None]:
    """Trace attention of other than four dimensions, means of scatter_reduce, cdist, cumprod,
    diagonals, adaptive_avg_pool3d, embedding bags of equal length, and recurrences with dropout
    between layers."""
    bag, measure = F.embedding_bag, torch.cdist

    def distances(x: Tensor, y: Tensor, p: float = 2.0, *args: Any, **kwargs: Any) -> Tensor:
        if p not in (1.0, 2.0):
            return measure(x, y, p, *args, **kwargs)
        between = x.unsqueeze(-2) - y.unsqueeze(-3)
        if p == 1.0:
            return between.abs().sum(-1)
        squares = (between * between).sum(-1)  # at 0, torch's gradient is 0, the root's infinite
        return torch.where(squares > 0, squares, 1.0).sqrt() * (squares > 0)

    def bags(input: Tensor, weight: Tensor, offsets: Tensor | None = None, *args, **kwargs):
        known = dict(zip(_BAG, args, strict=False)) | kwargs
        odd = ("max_norm", "scale_grad_by_freq", "sparse", "include_last_offset")
        if (
            input.dim() != 2
            or any(known.get(name) for name in odd)
            or (known.get("padding_idx") is not None)
        ):
            return bag(input, weight, offsets, *args, **kwargs)
        rows, weights = F.embedding(input, weight), known.get("per_sample_weights")
        if weights is not None:
            rows = rows * weights.unsqueeze(-1)
        mode = known.get("mode", "mean")
        return rows.amax(1) if mode == "max" else getattr(rows, mode)(1)

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(F, "embedding_bag", bags))
        stack.enter_context(
            _Rewritten(
                {
                    F.scaled_dot_product_attention: _attention,
                    torch.scatter_reduce: _scatter_reduce,
                    Tensor.scatter_reduce: _scatter_reduce,
                    Tensor.scatter_reduce_: _scatter_reduce_,
                    torch.cdist: distances,
                    torch.ops.aten.cdist: distances,
                    torch.ops.aten.cdist.default: distances,
                    torch.cumprod: _cumprod,
                    Tensor.cumprod: _cumprod,
                    torch.ops.aten.cumprod: _cumprod,
                    torch.ops.aten.cumprod.default: _cumprod,
                    torch.diagonal: _diagonal,
                    Tensor.diagonal: _diagonal,
                    torch.linalg.diagonal: _last_diagonal,
                    torch.trace: _trace,
                    Tensor.trace: _trace,
                }
            )
        )
        stack.enter_context(mock.patch.object(F, "adaptive_avg_pool3d", _adaptive_means))
        for name in _RECURRENT:
            layers = _by_layers(getattr(torch._VF, name))
            stack.enter_context(mock.patch.object(torch._VF, name, layers, create=True))
        yield


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    *args: Any,
    **kwargs: Any,
) -> Tensor:
    """Attention of four dimensions, with a contiguous result: later export steps would assume
    another layout. As in torch, a sample whose boolean mask hides every key gets zeros: the
    file's softmax would give it the mean of all values. A mask with a row for each query is not
    looked at, since that would need the whole matrix; from opset 23, the op does."""
    attend, rank = F.scaled_dot_product_attention, query.dim()
    some = None
    if attn_mask is not None and attn_mask.dtype == torch.bool and attn_mask.shape[-2:-1] == (1,):
        some = attn_mask.any(-1, keepdim=True)
    if rank == 4 or {rank, key.dim(), value.dim()} != {rank}:
        result = attend(query, key, value, attn_mask, *args, **kwargs)
        result = result.clone(memory_format=torch.contiguous_format)
        return result if some is None else torch.where(some, result, 0.0)
    q, k, v = (_of_four_axes(part) for part in (query, key, value))
    if attn_mask is not None and attn_mask.dim() > (2 if rank < 4 else 3):
        attn_mask = attn_mask.expand(*query.shape[:-2], *attn_mask.shape[-2:])
        attn_mask = _of_four_axes(attn_mask)
    result = attend(q, k, v, attn_mask, *args, **kwargs)
    result = result.reshape(*query.shape[:-1], value.shape[-1])
    return result if some is None else torch.where(some, result, 0.0)


def _of_four_axes(part: Tensor) -> Tensor:
    """Queries, keys, values or a mask as [batch, heads, ...]."""
    if part.dim() > 4:
        return part.flatten(0, part.dim() - 4)
    return part.reshape(*part.shape[:-2], *[1] * (4 - part.dim()), *part.shape[-2:])


@contextlib.contextmanager
def recurrences_of_any_length() -> Iterator[None]:
    """Trace recurrences without unrolling their time steps, which would fix their number: torch
    only gets the shapes of the results."""
    with contextlib.ExitStack() as stack:
        for name in _RECURRENT:
            op = getattr(torch.ops.aten, name).input
            result = _lstm_result if name == "lstm" else _recurrent_result
            own = {DispatchKey.CompositeImplicitAutograd: result}
            stack.enter_context(mock.patch.dict(op.py_kernels, own))
            stack.callback(op._dispatch_cache.clear)
            op._dispatch_cache.clear()
        yield


def _recurrent_result(
    x: Tensor,
    state: Tensor,
    params: Any,
    biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    both: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor]:
    """Empty tensors with the shapes of (output, last state) of torch's gru."""
    width = state.shape[-1] * (2 if both else 1)
    return x.new_empty((*x.shape[:2], width)), torch.empty_like(state)


def _lstm_result(
    x: Tensor,
    states: Sequence[Tensor],
    params: Any,
    biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    both: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Like `_recurrent_result` for lstm, which has two states; projections have shorter ones."""
    hidden, cell = states
    width = hidden.shape[-1] * (2 if both else 1)
    output = x.new_empty((*x.shape[:2], width))
    return output, torch.empty_like(hidden), torch.empty_like(cell)


class _Rewritten(TorchFunctionMode):
    """Runs replacements of functions, under whatever name a module calls them."""

    def __init__(self, functions: Mapping[Any, Callable[..., Tensor]]) -> None:
        super().__init__()
        self._functions = functions

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return self._functions.get(func, func)(*args, **kwargs or {})


def _scatter_reduce(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Tensor:
    """Means by sums and counts: ONNX's ScatterElements has none."""
    if reduce != "mean":
        return torch.scatter_reduce(input, dim, index, src, reduce, include_self=include_self)
    counts = torch.ones_like(input) if include_self else torch.zeros_like(input)
    counts = counts.scatter_add(dim, index, torch.ones_like(src))
    kept = input if include_self else torch.where(counts > 0, 0.0, input)
    return kept.scatter_add(dim, index, src) / counts.clamp(min=1)


def _scatter_reduce_(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return input.copy_(_scatter_reduce(input, *args, **kwargs))


def _cumprod(input: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """Cumulative product by runs of 1, 2, 4 ... elements: exact gradients at zeros, log2(n)
    products each."""
    made = (input if dtype is None else input.to(dtype)).movedim(dim, -1)
    reach, size = 1, made.shape[-1]
    while reach < size:
        made = made * F.pad(made[..., : size - reach], (reach, 0), value=1.0)
        reach *= 2
    return made.movedim(-1, dim)


def _diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Every (columns + 1)-th element of the flattened matrices: torch's exporter multiplies by an
    identity matrix."""
    matrices = input.movedim((dim1, dim2), (-2, -1))
    rows, columns = matrices.shape[-2:]
    if not isinstance(rows, int) or not isinstance(columns, int):  # the batch
        return torch.ops.aten.diagonal(input, offset, dim1, dim2)
    count = min(rows + min(offset, 0), columns - max(offset, 0))
    if count < 1:
        return matrices[..., 0, :0]
    first = offset if offset > 0 else -offset * columns
    elements = matrices.flatten(-2)[..., first :: columns + 1]
    return elements[..., :count]


def _last_diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:  # noqa: N803
    return _diagonal(A, offset, dim1, dim2)


def _trace(input: Tensor) -> Tensor:
    return _diagonal(input).sum()


def _adaptive_means(input: Tensor, output_size: int | Sequence[int | None]) -> Tensor:
    """Average over depth first, then over each image in two dimensions."""
    wanted = [output_size] * 3 if isinstance(output_size, int) else list(output_size)
    depth, rows, columns = (a or b for a, b in zip(wanted, input.shape[-3:], strict=True))
    parts = [
        input[..., k * input.shape[-3] // depth : -(-(k + 1) * input.shape[-3] // depth), :, :]
        for k in range(depth)
    ]
    slices = torch.stack([part.mean(-3) for part in parts], -3)
    pictures = slices.reshape(*slices.shape[:-4], -1, *slices.shape[-2:])
    means = F.adaptive_avg_pool2d(pictures, (rows, columns))
    return means.reshape(*slices.shape[:-2], rows, columns)


def _by_layers(run: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a recurrence to run layers one by one if there is dropout between them: ONNX's has
    none."""

    def called(x: Any, hx: Any, params: Any, *rest: Any) -> Any:
        if len(rest) != 6:  # a packed sequence
            return run(x, hx, params, *rest)
        biases, layers, dropout, train, both, batch_first = rest
        if not (dropout and train and layers > 1):
            return run(x, hx, params, *rest)
        states = hx if isinstance(hx, Sequence) else (hx,)
        each, ways = len(params) // layers, 2 if both else 1
        ends: list[tuple[Tensor, ...]] = []
        for layer in range(layers):
            own = params[layer * each : (layer + 1) * each]
            first = tuple(state.narrow(0, layer * ways, ways) for state in states)
            given = first if isinstance(hx, Sequence) else first[0]
            x = F.dropout(x, dropout, True) if layer else x
            x, *last = run(x, given, own, biases, 1, 0.0, train, both, batch_first)
            ends.append(tuple(last))
        return (x, *(torch.cat(parts) for parts in zip(*ends, strict=True)))

    return called


@contextlib.contextmanager
def traceable_experts(module: nn.Module) -> Iterator[None]:
    """Trace mixtures of experts of transformers with one product per token. Their default, one
    product per group of tokens, is equivalent but not an ONNX op."""
    name = "_experts_implementation_internal"
    configs = {id(config): config for each in module.modules() for config in _configs(each)}
    with contextlib.ExitStack() as stack:
        for config in configs.values():
            if getattr(config, name, None) == "grouped_mm":
                stack.enter_context(mock.patch.object(config, name, "batched_mm"))
        yield


def _configs(module: nn.Module) -> list[Any]:
    return [module.config] if hasattr(module, "config") else []


def hint(message: str) -> str:
    """Advice for torch's message after a failed export; "" if it is unknown."""
    for words, move in _HINTS:
        if any(word in message for word in words):
            return move
    return ""


_ADAPTIVE = "adaptive_", "_adaptive_"
_HINTS = (
    (
        tuple(f"No ONNX function found for <OpOverload(op='aten.{name}" for name in _ADAPTIVE),
        "ONNX has no adaptive pool of these sizes: use one with kernel_size and stride.",
    ),
    (
        ("No ONNX function found",),
        "ONNX has no such function, or not of these sizes: use others in its place.",
    ),
    (
        ("type must be tuple of ints,but got FakeTensor",),
        "A tensor is used as a size, as in packed sequences, which no file has: pass padded "
        "sequences, and give --lengths (in Python lengths) when you compile.",
    ),
    (
        ("data-dependent", "DataDependent"),
        "Data decides which code runs, but a file has only one path: turn that off (layerdrop=0.0 "
        "in a transformers configuration; is_causal=True with nn.Transformer's mask), or use "
        "torch.where.",
    ),
    (
        ("specialized it to be a constant", "Constraints violated"),
        "The forward pass turns the batch size into a constant: use x.shape[0] directly (not "
        "len(x), int() or numpy), or fix the size with batch_dim=None.",
    ),
)
