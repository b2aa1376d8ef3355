"""Decides which initializers are trained: those named by the exporter, or those used as weights.

Metadata is `edgetrain.parameters` and `edgetrain.buffers` (JSON lists of torch names, written by
our exporter), or the graph signature of torch's exporter. If the file has all tensors they name,
only these are trained. If some are missing (folded, transposed, concatenated), constants used as
weights replace them. Without metadata, use decides; for constants that are added, multiplied or
looked up, also their torch name and values: masks, position tables and rotary tables are not
trained.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx

from ..ops.onnx_ops import OnnxNode
from ..units.statistics import is_tracked
from ..units.wording import counted
from .names import derived_names, tied_copies
from .origin import Origin, claim, is_anonymous, is_named_number, is_weight_name, origin_of
from .tables import is_counting, is_formula, is_hiding, is_progression, is_table
from .types import FLOATS
from .usage import Usage, scaling, usage_of

_PIPELINES = "skl2onnx"  # producer whose files scale data first


@dataclass(frozen=True)
class Parameters:
    """Trained and other tensors, by their name in the file.

    Attributes:
      buffers: running statistics; other buffers of the module are constants.
      aliases: other torch names of tied parameters.
      untrained: constants that may be weights, but are only trained on request.
      operands: name -> op, for other named constants used in arithmetic with data.
      names: name in the file -> torch name, for renamed parameters.
      copies: name in the file -> (parameter, axes), for transposed copies of tied parameters.
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
    """Classify the arrays of a file.

    Args:
      nodes: its nodes without constants.
      fixed: arrays that are not weights. Scalers of a scikit-learn pipeline aren't either.
    """
    if proto.producer_name == _PIPELINES:
        fixed = {*fixed, *scaling(nodes, arrays)}
    whole = [v.name for v in proto.graph.input if v.type.tensor_type.elem_type not in FLOATS]
    usage = usage_of(nodes, arrays, [value.name for value in proto.graph.output], whole)
    origin = origin_of(proto)
    result = _Arrays(proto, arrays, usage)
    missing = origin.missing(arrays)
    if origin.parameters is None:
        kept, untrained = result.by_use(), result.doubtful(())
        operands = result.operands({*kept, *untrained, *usage.statistics})
    else:
        kept = [n for n in dict.fromkeys(origin.parameters) if n in arrays]
        kept = [n for n in kept if arrays[n].dtype.kind == "f"]
        untrained, operands = (), {}
        if missing:
            kept += result.in_place_of(missing, {*kept, *origin.others}, origin)
            untrained = result.doubtful({*kept, *origin.others})
    kept = [n for n in kept if origin.parameters is not None or n not in usage.statistics]
    kept = [n for n in kept if n not in fixed]
    untrained = tuple(n for n in untrained if n not in fixed)
    copies = tied_copies(kept, arrays, usage)
    kept = [name for name in kept if name not in copies]
    names = derived_names(proto, kept, arrays, usage, origin)
    made, trained = {*names.values()}, {*kept}
    statistics = usage.statistics - trained
    gone = [n for n in missing if n not in made]
    return Parameters(
        tuple(kept),
        tuple(n for n in arrays if n in statistics and is_tracked(n)),
        origin.aliases,
        _warnings(gone, kept, origin),
        tuple(n for n in untrained if n not in trained and n not in copies),
        operands,
        names,
        copies,
    )


def frozen_names(proto: onnx.ModelProto) -> tuple[str, ...]:
    """Parameters with requires_grad=False in the exported module."""
    meta = {entry.key: entry.value for entry in proto.metadata_props}
    try:
        listed = json.loads(meta.get("edgetrain.frozen", "[]"))
    except (ValueError, RecursionError):
        return ()
    return tuple(str(name) for name in listed) if isinstance(listed, list) else ()


def _warnings(gone: Sequence[str], kept: Sequence[str], origin: Origin) -> tuple[str, ...]:
    if not gone:
        return ()
    known = {*(origin.parameters or ())}
    extra = [name for name in kept if name not in known]
    instead = (
        f"Trained instead: {counted(len(extra), 'constant')} used as weights"
        if extra
        else "They will not be trained"
    )
    return (
        f"missing in the file: {counted(len(gone), 'parameter')} of the original model (folded, "
        f"merged or unused): {', '.join(gone[:5])}. {instead}. Export with edgetrain's "
        "exporter to keep them.",
    )


class _Arrays:
    """Classifies the constants of a file."""

    def __init__(
        self, proto: onnx.ModelProto, arrays: Mapping[str, np.ndarray], usage: Usage
    ) -> None:
        self._proto, self._arrays, self._usage = proto, arrays, usage
        self._initializers = {tensor.name for tensor in proto.graph.initializer}
        self._constants = {n.output[0] for n in proto.graph.node if n.op_type == "Constant"}
        self._floats = [n for n, array in arrays.items() if array.dtype.kind == "f"]

    def by_use(self) -> list[str]:
        """Constants used as weights, in file order, if there is no metadata."""
        return [n for n in self._floats if self._is_weight(n) or self._is_named_weight(n)]

    def in_place_of(self, missing: Sequence[str], listed: set[str], origin: Origin) -> list[str]:
        """Constants without a torch name that replace missing parameters."""
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
        """Constants that may be weights: neither clearly weights nor formula tables."""
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
            and not self._is_counting(n)
        )

    def operands(self, known: set[str]) -> dict[str, str]:
        """Other named constants that may be a module's parameters: name -> op."""
        counting = {n: op for n, op in self._usage.factors.items() if self._is_told(n, known)}
        return counting | {
            n: op
            for n, op in self._usage.operands.items()
            if n in self._initializers
            and n in self._arrays
            and n not in known
            and self._arrays[n].dtype.kind == "f"
            and self._arrays[n].size > 0
            and not is_formula(self._arrays[n])
            and (is_named_number(n) if self._arrays[n].size == 1 else not self._is_anonymous(n))
        }

    def _is_told(self, name: str, known: set[str]) -> bool:
        return name in self._arrays and name not in known and self._is_counting(name)

    def _is_anonymous(self, name: str) -> bool:
        return name in self._constants or is_anonymous(name)

    def _is_weight(self, name: str) -> bool:
        """Whether it is used as a weight, after layout changes only."""
        usage = self._usage
        if name in usage.angles and is_progression(self._arrays[name]):
            return False
        if self._is_counting(name):
            return False
        return (name in usage.weights or name in usage.fillers) and not self._is_filler(name)

    def _is_counting(self, name: str) -> bool:
        """Whether it only sums, averages or picks data; a name of weights says otherwise."""
        factor = name in self._usage.factors and not is_weight_name(name)
        return factor and is_counting(self._arrays[name])

    def _is_filler(self, name: str) -> bool:
        """Whether it is all ones or zeros: for a norm without parameters, or padding."""
        array, usage = self._arrays[name], self._usage
        if not self._is_anonymous(name) or np.any(array != array.flat[0]):
            return False
        return name in usage.joined or usage.fillers.get(name) == array.flat[0]

    def _is_vector(self, name: str, claimed: set[str]) -> bool:
        """Whether it is a bias, scale or slope that the exporter reshaped or split."""
        array, usage = self._arrays[name], self._usage
        known = name in claimed and name in usage.summands and not self._is_filler(name)
        return array.size > 1 and not is_table(array) and (known or name in usage.biases)

    def _is_named_weight(self, name: str) -> bool:
        """Whether its name and use suggest a module's parameter."""
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
        """Whether it is a vector of a spectral norm, which torch updates itself."""
        base = name[:-1]
        return name.endswith(("weight._u", "weight.0._u", "weight._v", "weight.0._v")) or (
            name.endswith(("weight_u", "weight_v")) and f"{base}u" in self._arrays
        )


def _has_equal_rows(state: np.ndarray) -> bool:
    """Whether an initial state [directions, batch, hidden] has equal rows for all samples."""
    return state.ndim == 3 and state.shape[1] > 1 and bool((state == state[:, :1]).all())
