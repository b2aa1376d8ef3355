"""Which initializers are trained: those the exporter names, else those that are weights by use.

Metadata: `edgetrain.parameters` and `edgetrain.buffers` (JSON lists of torch names, written by
our exporter), or the graph signature that torch's exporter leaves. Where all that they name is in
the file, nothing else is trained. Where some are gone (folded, transposed, concatenated), the
constants that stand where weights stand take their place. Without metadata use decides, and for
what is added, multiplied or looked up the name that torch gave it and the values: masks, tables of
positions and rotary tables stay what they are.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx

from ..ops.norm import is_tracked
from ..ops.registry import OnnxNode
from .names import derived_names, tied_copies
from .origin import Origin, claim, is_anonymous, is_named_number, origin_of
from .tables import is_formula, is_hiding, is_progression, is_table
from .types import FLOATS
from .usage import Usage, scaling, usage_of

_PIPELINES = "skl2onnx"  # a producer of files whose data is scaled first


@dataclass(frozen=True)
class Parameters:
    """What is trained, by the file's names.

    Attributes:
      buffers: running statistics; every other buffer of the module is a constant of the graph.
      aliases: further torch names of tied parameters.
      untrained: constants that may have been weights and stay constant unless asked for.
      operands: name -> op, of further named constants that arithmetic with data takes.
      names: file's name -> torch's name, of parameters that the exporter gave another one.
      copies: file's name -> (parameter, axes): a constant that is a tied parameter, transposed.
    """

    parameters: tuple[str, ...]
    buffers: tuple[str, ...]
    aliases: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    untrained: tuple[str, ...] = ()
    operands: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    copies: Mapping[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)


def classify(
    proto: onnx.ModelProto,
    nodes: Sequence[OnnxNode],
    arrays: Mapping[str, np.ndarray],
    fixed: Collection[str] = (),
) -> Parameters:
    """Sort the arrays of a file.

    Args:
      nodes: its nodes but the constant ones.
      fixed: arrays that are no weights. The scalers of a pipeline of scikit-learn are further ones.
    """
    if proto.producer_name == _PIPELINES:
        fixed = {*fixed, *scaling(nodes, arrays)}
    whole = [v.name for v in proto.graph.input if v.type.tensor_type.elem_type not in FLOATS]
    usage = usage_of(nodes, arrays, [value.name for value in proto.graph.output], whole)
    origin = origin_of(proto)
    found = _Arrays(proto, arrays, usage)
    missing = origin.missing(arrays)
    if origin.parameters is None:
        kept, untrained = found.by_use(), found.doubtful(())
        operands = found.operands({*kept, *untrained, *usage.statistics})
    else:
        kept = [n for n in dict.fromkeys(origin.parameters) if n in arrays]
        kept = [n for n in kept if arrays[n].dtype.kind == "f"]
        untrained, operands = (), {}
        if missing:
            kept += found.in_place_of(missing, {*kept, *origin.others}, origin)
            untrained = found.doubtful({*kept, *origin.others})
    kept = [n for n in kept if origin.parameters is not None or n not in usage.statistics]
    kept = [n for n in kept if n not in fixed]
    untrained = tuple(n for n in untrained if n not in fixed)
    copies = tied_copies(kept, arrays, usage)
    kept = [name for name in kept if name not in copies]
    names = derived_names(proto, kept, arrays, usage, origin)
    gone = [n for n in missing if n not in names.values()]
    return Parameters(
        tuple(kept),
        tuple(n for n in arrays if n in usage.statistics and n not in kept and is_tracked(n)),
        origin.aliases,
        _warnings(gone, kept, origin),
        tuple(n for n in untrained if n not in kept and n not in copies),
        operands,
        names,
        copies,
    )


def frozen_names(proto: onnx.ModelProto) -> tuple[str, ...]:
    """Parameters that the exported module had set not to require a gradient."""
    meta = {entry.key: entry.value for entry in proto.metadata_props}
    try:
        listed = json.loads(meta.get("edgetrain.frozen", "[]"))
    except (ValueError, RecursionError):
        return ()
    return tuple(str(name) for name in listed) if isinstance(listed, list) else ()


def _warnings(gone: Sequence[str], kept: Sequence[str], origin: Origin) -> tuple[str, ...]:
    if not gone:
        return ()
    extra = [name for name in kept if name not in (origin.parameters or ())]
    instead = (
        f"{len(extra)} constants that are used as weights are trained in their place"
        if extra
        else "They will not be trained"
    )
    return (
        f"{len(gone)} parameters of the original are not in the file (folded, merged or "
        f"unused): {', '.join(gone[:5])}. {instead}; export with edgetrain's exporter to keep "
        "them.",
    )


class _Arrays:
    """Questions about the constants of one file."""

    def __init__(
        self, proto: onnx.ModelProto, arrays: Mapping[str, np.ndarray], usage: Usage
    ) -> None:
        self._proto, self._arrays, self._usage = proto, arrays, usage
        self._initializers = {tensor.name for tensor in proto.graph.initializer}
        self._constants = {n.output[0] for n in proto.graph.node if n.op_type == "Constant"}
        self._floats = [n for n, array in arrays.items() if array.dtype.kind == "f"]

    def by_use(self) -> list[str]:
        """Weights of a file whose exporter says nothing, in file order."""
        return [n for n in self._floats if self._is_weight(n) or self._is_named_weight(n)]

    def in_place_of(self, missing: Sequence[str], listed: set[str], origin: Origin) -> list[str]:
        """Constants without a name of torch's that stand for parameters that are gone."""
        claimed, gone = set(), set(missing)
        for node in self._proto.graph.node:
            for index, name in enumerate(node.input):
                if name in self._initializers and name not in listed:
                    claimed.update(
                        [name] if gone.intersection(claim(node, index, origin) or ()) else []
                    )
        return [
            n
            for n in self._floats
            if n not in listed and (self._is_weight(n) or self._is_vector(n, claimed))
        ]

    def doubtful(self, listed) -> tuple[str, ...]:
        """Constants that may be weights: neither surely so nor a formula's."""
        usage = self._usage
        used = usage.summands | usage.tables | usage.parts | usage.computed | usage.weights
        return tuple(
            n
            for n in self._floats
            if n in used
            and n not in listed
            and self._arrays[n].size > 1
            and not self._is_filler(n)
            and not is_formula(self._arrays[n])
        )

    def operands(self, known: set[str]) -> dict[str, str]:
        """Named constants besides the `known` that may be a module's own: name -> op."""
        return {
            n: op
            for n, op in self._usage.operands.items()
            if n in self._initializers
            and n in self._arrays
            and n not in known
            and self._arrays[n].dtype.kind == "f"
            and not is_formula(self._arrays[n])
            and (is_named_number(n) if self._arrays[n].size == 1 else not self._is_anonymous(n))
        }

    def _is_anonymous(self, name: str) -> bool:
        return name in self._constants or is_anonymous(name)

    def _is_weight(self, name: str) -> bool:
        """Whether it reaches a weight's slot by changes of layout alone."""
        usage = self._usage
        if name in usage.angles and is_progression(self._arrays[name]):
            return False
        return (name in usage.weights or name in usage.fillers) and not self._is_filler(name)

    def _is_filler(self, name: str) -> bool:
        """Ones and zeros that no module has: of a norm without parameters, or padding."""
        array, usage = self._arrays[name], self._usage
        if not self._is_anonymous(name) or np.any(array != array.flat[0]):
            return False
        return name in usage.joined or usage.fillers.get(name) == array.flat[0]

    def _is_vector(self, name: str, claimed: set[str]) -> bool:
        """A bias, scale or slope that the exporter reshaped or split."""
        array, usage = self._arrays[name], self._usage
        known = name in claimed and name in usage.summands and not self._is_filler(name)
        return array.size > 1 and not is_table(array) and (known or name in usage.biases)

    def _is_named_weight(self, name: str) -> bool:
        """Whether it was a parameter of a module, going by its name and what is done with it."""
        array, usage = self._arrays[name], self._usage
        if name not in self._initializers or is_hiding(array):
            return False
        if name in usage.angles and is_progression(array):
            return False
        if name in usage.thin and array.size == 1 and array.ndim and not self._is_anonymous(name):
            return True
        if name in usage.summands and array.size > 1 and not is_table(array):
            return True
        if self._is_anonymous(name) or self._is_iterated(name):
            return False
        if name in usage.computed and (array.size > 1 or "." in name):
            return True
        if name in usage.states:
            return not _has_equal_rows(array)
        used = name in usage.summands or name in usage.tables or name in usage.parts
        return used and array.size > 1 and not is_formula(array)

    def _is_iterated(self, name: str) -> bool:
        """The vectors of a spectral norm, which torch moves by itself."""
        base = name[:-1]
        return name.endswith(("weight._u", "weight.0._u", "weight._v", "weight.0._v")) or (
            name.endswith(("weight_u", "weight_v")) and f"{base}u" in self._arrays
        )


def _has_equal_rows(state: np.ndarray) -> bool:
    """Whether a first state [directions, batch, hidden] is one row for each sample of a batch."""
    return state.ndim == 3 and state.shape[1] > 1 and bool((state == state[:, :1]).all())
