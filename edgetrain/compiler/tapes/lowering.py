"""Nodes -> kernel instructions with chosen variants, storages and scratch, but without offsets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import ModelError
from ...formats import FORMATS
from ...ir import Call, Graph, Node
from ...kernels.cache import jit
from ...kernels.registry import Kernel, choose, variants
from ...ops.registry import op
from ..passes.packed import bare


@dataclass(frozen=True, slots=True)
class Instruction:
    """One kernel call; `args` as in ir.Call.

    Attributes:
      scratch: bytes per thread, for all operands.
      skip: operand name -> byte offset within its value, if it is only part of one.
    """

    kernel: Kernel
    storages: Mapping[str, str]
    args: Mapping[str, str | int | float | None]
    scratch: int
    skip: Mapping[str, int]

    @property
    def key(self) -> tuple[str, str, tuple[str, ...]]:
        """(kernel, variant, storages in the order of the declaration)."""
        chosen = tuple(self.storages[v] for v in self.kernel.spec.variables)
        return self.kernel.name, self.kernel.variant, chosen


def bind_call(call: Call, graph: Graph, threads: int, target: jit.Target) -> Instruction:
    """Choose the variant of a call and check its operands against the declaration.

    Results are cached: a network's equal blocks make equal calls on values of equal storage.

    Raises:
      ModelError: no kernel has this combination of storages.
    """
    alike = tuple(
        (name, graph.values[arg].dtype if isinstance(arg, str) else _hashable(arg))
        for name, arg in call.args.items()
    )
    key = call.kernel, alike, threads, target
    known = _known.get(key)
    if known is None:
        if len(_known) == _MOST_KNOWN:
            _known.clear()
        known = _known[key] = _bind(call, graph, threads, target)
    kernel, storages, scratch = known
    args = kernel.spec.flat(call.args)
    skip = {n: FORMATS[graph.values[args[n]].dtype].nbytes(k) for n, k in call.skip.items() if k}
    return Instruction(kernel, storages, args, scratch, skip)


_Bound = tuple[Kernel, Mapping[str, str], int]
_MOST_KNOWN = 4096
_known: dict[tuple, _Bound] = {}


def _hashable(arg: Any) -> Any:
    return tuple(arg) if isinstance(arg, list) else arg


def _bind(call: Call, graph: Graph, threads: int, target: jit.Target) -> _Bound:
    """Kernel, storages and scratch bytes per thread."""
    spec = variants(call.kernel)[0].spec
    args = spec.flat(call.args)
    names, needed = spec.arguments, spec.needed
    assert needed <= args.keys() <= names, f"{call.kernel}: {needed ^ args.keys()}"
    assert call.skip.keys() <= args.keys(), f"{call.kernel}: {[*call.skip]}"
    storages: dict[str, str] = {}
    values: dict[str, int] = {}
    for operand in spec.operands:
        if operand.mode == "t":
            continue
        arg = args.get(operand.name) if operand.optional else args[operand.name]
        if operand.is_reference:
            values[operand.name] = -1 if arg is None else 0
            dtype = graph.values[str(arg)].dtype if arg is not None else ""
            if arg is not None and operand.storage in FORMATS and dtype != operand.storage:
                raise ModelError(
                    f"kernel {call.kernel}: operand {operand.name} ({arg}) is stored as {dtype}; "
                    f"expected {operand.storage}."
                )
            if arg is None or not operand.storage.isupper():
                continue
            if storages.setdefault(operand.storage, dtype) != dtype:
                raise _two_storages(call, graph, operand.storage)
        else:
            values[operand.name] = int(args[operand.name]) if operand.mode == "i" else 0
    for variable in spec.variables:  # Absent operands may have any storage.
        storages.setdefault(variable, "f32")
    kernel = choose(call.kernel, values, storages, target)
    return kernel, storages, kernel.spec.scratch_nbytes(values, threads, target.lanes)


def _two_storages(call: Call, graph: Graph, variable: str) -> ModelError:
    """The error for operands that must have the same storage."""
    spec = variants(call.kernel)[0].spec
    names = [call.args.get(o.name) for o in spec.operands if o.storage == variable]
    of = {graph.root(str(name)): graph.values[str(name)].dtype for name in names if name}
    stored = ", ".join(f"{name!r} as {dtype}" for name, dtype in of.items())
    if all(FORMATS[dtype].floats for dtype in of.values()):
        return ModelError(f"kernel {call.kernel}: {stored}; expected the same format.")
    return ModelError(
        f"kernel {call.kernel}: {stored}; expected floats. Cast integers to float in the model."
    )


def encode(
    instruction: Instruction, index: int, offsets: Mapping[str, int], scratch: int, nbytes: int
) -> list[int]:
    """Words of an instruction in a tape.

    Args:
      index: the kernel's index in the Program.
      offsets: value name -> byte offset in the arena.
      scratch: offset of thread 0's scratch region.
      nbytes: scratch bytes of one thread (the stride between threads).
    """
    words: list[int] = []
    address = scratch
    for operand in instruction.kernel.spec.operands:
        if operand.mode == "t":
            words += [address, nbytes]
            continue
        arg = instruction.args.get(operand.name)
        if operand.is_reference:
            skip = instruction.skip.get(operand.name, 0)
            words.append(-1 if arg is None else offsets[str(arg)] + skip)
        elif operand.mode == "f":
            words.append(int(np.float32(arg).view(np.uint32)))
        else:
            words.append(int(arg))  # type: ignore[arg-type]
    return [index, len(words), *words]


def flops(nodes: Sequence[Node], graph: Graph) -> list[int]:
    """Floating point operations of each node."""
    return [op(node.op).flops(bare(node), graph) for node in nodes]
