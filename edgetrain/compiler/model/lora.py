"""Low-rank adapters: y = x W + alpha/r (x A) B, where only A and B are trained.

They are added to the model as nodes before dimensions are bound, at every MatMul and Gemm whose
constant weight is a target, so shapes, gradients and parity need no special cases. A is [r, in] and
B [out, r] as in peft. A is initialized randomly and B to zero, so the first output equals the
model's. Source: Hu et al. 2022, LoRA.
"""

import dataclasses
import math
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import numpy as np

from ...errors import UsageError
from ...ops.model import Model
from ...ops.onnx_ops import OnnxNode
from ...units import finite_number
from ...units.options import typed
from ...units.wording import listed

_PRODUCTS = ("MatMul", "Gemm")
_LAYOUT = ("Transpose", "Identity", "Cast")  # between a weight and the product
_INITS = ("kaiming", "normal")
ALL = "all-linear"  # as a target: every layer but the last ones, as in peft
_FORM = f"expected {ALL}, or such as 'r=8,alpha=16,targets=*.q_proj,*.v_proj'"


@dataclass(frozen=True)
class Lora:
    """Options of low-rank adapters.

    Attributes:
      r: rank.
      alpha: the product of A and B is scaled by alpha/r (0: 2 r).
      targets: patterns of names of modules or their weights, or of the ends of these names;
        "all-linear": every layer but those that make the outputs.
      init: initialization of A: kaiming (uniform within 1/sqrt(in), as in peft) or normal (standard
        deviation 1/r).
    """

    r: int = 8
    alpha: float = 0.0
    targets: tuple[str, ...] = ()
    init: str = "kaiming"

    def __post_init__(self) -> None:
        rank = typed("lora: r", self.r, (int,))
        if not 1 <= rank <= 4096:
            raise UsageError(f"lora: r {rank}: expected a rank from 1 to 4096.")
        object.__setattr__(self, "r", rank)
        alpha = finite_number("lora: alpha", self.alpha, least=0) or 2.0 * rank
        object.__setattr__(self, "alpha", float(alpha))
        targets = self.targets
        if isinstance(targets, str) or not all(isinstance(t, str) and t for t in targets):
            raise UsageError(f"lora: targets {repr(targets)[:80]}: expected name patterns.")
        if not targets:
            raise UsageError("lora: targets is missing; expected patterns such as '*.q_proj'.")
        object.__setattr__(self, "targets", tuple(targets))
        if self.init not in _INITS:
            raise UsageError(f"lora: init {self.init!r}: expected {' or '.join(_INITS)}.")

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"targets": list(self.targets)}

    def names(self, weight: str) -> bool:
        """Whether a target matches this weight."""
        module = _module(weight)
        return any(
            fnmatchcase(name, pattern) or fnmatchcase(name, f"*.{pattern}")
            for name in (weight, module)
            for pattern in self.targets
        )


def make_lora(given: "str | Lora | Mapping[str, Any] | None") -> Lora | None:
    """Adapters from a string such as `r=8,alpha=16,targets=*.q_proj,*.v_proj`, or from fields.

    Raises:
      UsageError: there is no such field, or its value is invalid.
    """
    if given is None or isinstance(given, Lora):
        return given
    if isinstance(given, str):
        given = {"targets": (ALL,)} if given.strip() == ALL else _fields(given)
    if not isinstance(given, Mapping):
        raise UsageError(f"lora {repr(given)[:80]}: {_FORM}, or a Lora.")
    known = {field.name for field in dataclasses.fields(Lora)}
    strange = sorted(set(map(str, given)) - known)
    if strange:
        raise UsageError(f"lora: {strange[0]!r}: no such field; {_FORM}.")
    return Lora(**given)


def _fields(text: str) -> dict[str, Any]:
    """Fields from comma-separated items; an item without `=` continues the previous list."""
    texts: dict[str, list[str]] = {}
    last = ""
    for item in text.split(","):
        name, equals, value = item.strip().partition("=")
        if equals:
            last = name.strip()
            texts.setdefault(last, []).append(value.strip().strip("'\""))
        elif last == "targets" and name:
            texts[last].append(name.strip("'\""))
        else:
            raise UsageError(f"lora {text!r}: {item!r}; {_FORM}.")
    out: dict[str, Any] = {}
    for name, values in texts.items():
        if name == "targets":
            out[name] = tuple(values)
            continue
        if len(values) != 1:
            raise UsageError(f"lora {text!r}: {name} is given {len(values)} times; {_FORM}.")
        out[name] = _number(text, name, values[0]) if name in ("r", "alpha") else values[0]
    return out


def _number(text: str, name: str, value: str) -> int | float:
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    raise UsageError(f"lora {text!r}: {name} {value!r} is not a number; {_FORM}.")


class Layer(NamedTuple):
    """An adapted weight; `turned`: stored as [in, out], as in a MatMul without a transpose."""

    weight: str
    a: str
    b: str
    turned: bool


def _module(weight: str) -> str:
    return weight.removesuffix(".weight")


def lora_recipe(model: Model, lora: "str | Lora | None") -> dict[str, Any]:
    """A Program's record of its adapters; empty without adapters."""
    if not isinstance(lora, Lora):
        return {}
    layers = [list(layer) for layer in layers_of(model, lora)]
    return {"lora": lora.to_json() | {"layers": layers}}


def layers_of(model: Model, lora: Lora) -> list[Layer]:
    """Adapted weights in file order.

    Raises:
      UsageError: a target matches no weight of a matrix product, or one with other readers.
    """
    lora = _resolved(model, lora)
    weights = _found(model, lora)
    for pattern in lora.targets:
        if not any(replace(lora, targets=(pattern,)).names(n) for n in _named(model, weights)):
            found = [_module(name) for name in _found(model, None)]
            raise UsageError(
                f"lora: target {pattern!r}: no weight of a MatMul or Gemm has this name; the model "
                f"has {listed(found) or 'none'}. 'edgetrain inspect' lists all."
            )
    return [
        Layer(name, f"{_module(name)}.lora_A.weight", f"{_module(name)}.lora_B.weight", turned)
        for name, turned in weights.items()
    ]


def _resolved(model: Model, lora: Lora) -> Lora:
    """The adapters, with layer names instead of "all-linear".

    Raises:
      UsageError: there is no layer before the last ones.
    """
    if ALL not in lora.targets:
        return lora
    last = _last(model)
    inner = [name for name in adaptable(model) if name not in last]
    if not inner:
        raise UsageError(
            f"lora: {ALL}: no MatMul or Gemm with a constant weight lies before the last layer. "
            "Name the layers: targets=PATTERN."
        )
    escaped = [_escaped(name) for name in inner]
    return replace(lora, targets=(*escaped, *(t for t in lora.targets if t != ALL)))


def _escaped(name: str) -> str:
    """A pattern that matches only this name."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def _last(model: Model) -> set[str]:
    """Weights of products whose results no other product reads, directly or through other nodes."""
    paths, before, out = matrices(model), set[str](), set[str]()
    for node in reversed(model.nodes):
        feeds = bool(before.intersection(node.outputs))
        if _is_product(node, paths) and not feeds:
            out.add(paths[node.inputs[1]][0])
        if feeds or _is_product(node, paths):
            before.update(node.inputs)
    return out


def _named(model: Model, found: Mapping[str, bool]) -> list[str]:
    """Names of these weights, including other names of tied ones."""
    return [*found, *(alias for alias, kept in model.aliases.items() if kept in found)]


def adaptable(model: Model) -> list[str]:
    """Weights that can have an adapter: used in matrix products and nowhere else."""
    weights, others = _read(model, None)
    return [name for name in weights if name not in others]


def _found(model: Model, lora: Lora | None) -> dict[str, bool]:
    """{weight of a matrix product: whether its layout is [in, out]}; only the targets, or all.

    Raises:
      UsageError: a target also has other readers.
    """
    out, others = _read(model, lora)
    for name in () if lora is None else out:
        if name in others:
            raise UsageError(
                f"lora: weight {name!r} is also read by {others[name]}, so its adapter can't be "
                "merged. Leave it out of the targets."
            )
    return out


def _read(model: Model, lora: Lora | None) -> tuple[dict[str, bool], dict[str, str]]:
    """Weights as in `_found`, and a description of other readers of each matrix."""
    paths = matrices(model)
    aliases: dict[str, list[str]] = {}
    for alias, kept in model.aliases.items():
        aliases.setdefault(kept, []).append(alias)
    out: dict[str, bool] = {}
    others: dict[str, str] = {}
    for node in model.nodes:
        if node.op_type in _LAYOUT and node.outputs[0] in paths:
            continue
        for index, name in enumerate(node.inputs):
            weight, turned = paths.get(name, ("", False))
            wanted = lora is None or any(lora.names(n) for n in (weight, *aliases.get(weight, ())))
            if not weight or not wanted:
                continue
            if node.op_type not in _PRODUCTS or index != 1 or node.attrs.get("transA", 0):
                others[weight] = f"node {node.name!r} ({node.op_type})"
                continue
            if node.op_type == "Gemm" and node.attrs.get("transB", 0):
                turned = not turned
            if out.setdefault(weight, turned) != turned:
                others[weight] = f"node {node.name!r}, transposed"
    return out, others


def matrices(model: Model) -> dict[str, tuple[str, bool]]:
    """Name of a matrix -> (its constant, whether it is read as stored: [in, out] in a product)."""
    out = {
        name: (name, True)
        for name, array in model.initializers.items()
        if array.ndim == 2 and array.dtype.kind == "f"
    }
    for node in model.nodes:
        source = out.get(node.inputs[0]) if node.inputs else None
        if source is None or node.op_type not in _LAYOUT:
            continue
        swaps = node.op_type == "Transpose" and list(node.attrs.get("perm", (1, 0))) == [1, 0]
        if node.op_type != "Transpose" or swaps:
            out[node.outputs[0]] = source[0], source[1] != swaps
    return out


def adapted(model: Model, lora: Lora, seed: int) -> Model:
    """The model with its adapters; all other parameters are frozen unless a pattern matches them.

    Raises:
      UsageError: see `layers_of`, or the name of an adapter is already used.
    """
    layers = {layer.weight: layer for layer in layers_of(model, lora)}
    taken = {*model.initializers, *(name for node in model.nodes for name in node.outputs)}
    arrays = dict(model.initializers)
    for layer in layers.values():
        for name in (layer.a, layer.b):
            if name in taken:
                raise UsageError(f"lora: {name!r}: the model already has this name. Rename it.")
        rows, columns = arrays[layer.weight].shape
        inner, outer = (rows, columns) if layer.turned else (columns, rows)
        arrays[layer.a] = _first(lora, layer.a, inner, seed)
        arrays[layer.b] = np.zeros((outer, lora.r), np.float32)
    scales: dict[float, str] = {}  # alpha of a product -> constant with its adapter's scale
    paths, nodes = matrices(model), list[OnnxNode]()
    for node in model.nodes:
        weight = paths[node.inputs[1]][0] if _is_product(node, paths) else ""
        if weight not in layers:
            nodes.append(node)
            continue
        alpha = float(node.attrs.get("alpha", 1.0))
        if alpha not in scales:
            scales[alpha] = _free("lora.scale", {*taken, *arrays})
            arrays[scales[alpha]] = np.float32(alpha * lora.alpha / lora.r).reshape(1)
        nodes += _with_adapter(node, layers[weight], scales[alpha], taken)
    names = tuple(name for layer in layers.values() for name in (layer.a, layer.b))
    return replace(
        model,
        nodes=tuple(nodes),
        initializers=arrays,
        parameters=(*model.parameters, *(n for n in layers if n not in model.parameters), *names),
        frozen=tuple(dict.fromkeys((*model.frozen, *model.parameters, *layers))),
        adapters=names,
    )


def _is_product(node: OnnxNode, paths: Mapping[str, Any]) -> bool:
    return node.op_type in _PRODUCTS and len(node.inputs) > 1 and node.inputs[1] in paths


def _first(lora: Lora, name: str, inner: int, seed: int) -> np.ndarray:
    """A; for a given seed it depends only on the layer's name, not its position."""
    draw = np.random.default_rng([seed & (2**63 - 1), zlib.crc32(name.encode())])
    if lora.init == "normal":
        return (draw.standard_normal((lora.r, inner)) / lora.r).astype(np.float32)
    bound = 1 / math.sqrt(inner)
    return draw.uniform(-bound, bound, (lora.r, inner)).astype(np.float32)


def _free(name: str, taken: Collection[str]) -> str:
    while name in taken:
        name += "'"
    return name


def _with_adapter(node: OnnxNode, layer: Layer, scale: str, taken: set[str]) -> Sequence[OnnxNode]:
    """The matrix product with its adapter added."""
    (out,) = node.outputs

    def fresh(tag: str) -> str:
        name = _free(f"{out}.{tag}", taken)
        taken.add(name)
        return name

    base, left, low, scaled, right, high = map(
        fresh, ("base", "lora_A", "low", "scaled", "lora_B", "high")
    )

    def made(tag: str, kind: str, inputs: tuple[str, ...], output: str, **attrs: Any) -> OnnxNode:
        return OnnxNode(f"{node.name}/{tag}", kind, inputs, (output,), attrs)

    return [
        replace(node, outputs=(base,)),
        made("lora_A/turn", "Transpose", (layer.a,), left, perm=[1, 0]),
        made("lora_A", "MatMul", (node.inputs[0], left), low),
        made("lora_scale", "Mul", (low, scale), scaled),
        made("lora_B/turn", "Transpose", (layer.b,), right, perm=[1, 0]),
        made("lora_B", "MatMul", (scaled, right), high),
        made("lora_add", "Add", (base, high), out),
    ]
