"""Finds how constants are used, tracing back from the ops that use weights.

A constant is used as a weight if it reaches a weight input through layout changes only; a named one
may also pass through computation (Softmax, weight norm). Constants that are added to data,
multiplied with it or looked up are listed separately, because they may be masks or position tables.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..ops.onnx_ops import OnnxNode, OnnxOp, Subgraph, Use, onnx_op


@dataclass
class Usage:
    """Names by use, including intermediate results; a name may have several uses.

    Attributes:
      weights: reach a weight input through layout changes only.
      computed: reach a weight input through other ops.
      states: initial states of recurrences.
      summands: added to data, or multiplied with it.
      biases: the summands added to a product.
      tables: indexed by row.
      parts: concatenated with data.
      fillers: name -> the value it has in a norm without parameters.
      joined: concatenated with other constants.
      statistics: running statistics.
      operands: name -> op, for operands of arithmetic with data, operands that rules of ops do not
        list, and what they are computed from; formulas take precedence.
      thin: biases added to a product with one output.
      angles: multiplied with data that is then used only as an angle.
      factors: name -> op, for matrices and kernels of products.
      readers: name -> (node, input) of its first use in the graph.
    """

    weights: set[str] = field(default_factory=set)
    computed: set[str] = field(default_factory=set)
    states: set[str] = field(default_factory=set)
    summands: set[str] = field(default_factory=set)
    biases: set[str] = field(default_factory=set)
    tables: set[str] = field(default_factory=set)
    parts: set[str] = field(default_factory=set)
    fillers: dict[str, float] = field(default_factory=dict)
    joined: set[str] = field(default_factory=set)
    statistics: set[str] = field(default_factory=set)
    operands: dict[str, str] = field(default_factory=dict)
    thin: set[str] = field(default_factory=set)
    angles: set[str] = field(default_factory=set)
    factors: dict[str, str] = field(default_factory=dict)
    readers: dict[str, tuple[str, int]] = field(default_factory=dict)


def usage_of(
    nodes: Sequence[OnnxNode],
    arrays: Mapping[str, np.ndarray],
    outputs: Sequence[str],
    integers: Collection[str] = (),
) -> Usage:
    """How the graph uses its constants; branches count as part of the outer graph.

    Args:
      integers: integer inputs, which may be positions.
    """
    flat = list(_flat(nodes))
    data, products = _data(flat, arrays)
    positions = _positions(flat, arrays, data, integers)
    scan = _Scan(Usage(), data, products, positions, dict.fromkeys(outputs, False))
    for node in reversed(flat):
        scan.visit(node)
    return scan.found


def _flat(nodes: Sequence[OnnxNode]) -> Iterator[OnnxNode]:
    """All nodes, with those of branches before the node that contains them."""
    for node in nodes:
        for part in _branches(node):
            yield from _flat(part.nodes)
        yield node


def _branches(node: OnnxNode) -> list[Subgraph]:
    return [part for part in node.attrs.values() if isinstance(part, Subgraph)]


def _data(
    flat: Sequence[OnnxNode], arrays: Mapping[str, np.ndarray]
) -> tuple[set[str], dict[str, int]]:
    """(names that depend on inputs, number of outputs of those that are products with constants).

    The number is 0 if unknown.
    """
    known = {name for node in flat for name in node.outputs} | {""}
    known.update(*(part.arrays for node in flat for part in _branches(node)))
    data = {name for node in flat for name in node.inputs if name not in arrays} - known
    products: dict[str, int] = {}
    for node in flat:
        op = onnx_op(node.op_type)
        if op.measure or data.isdisjoint(node.inputs):
            continue
        data.update(node.outputs)
        if op.passes and node.inputs[0] in products:
            products |= dict.fromkeys(node.outputs, products[node.inputs[0]])
        elif op.width and any(n and n not in data for n in node.inputs):
            products |= dict.fromkeys(node.outputs, _width(node, arrays))
    return data, products


def scaling(nodes: Sequence[OnnxNode], arrays: Mapping[str, np.ndarray]) -> set[str]:
    """Constants that scale data: arithmetic with inputs before any product with constants."""
    flat = list(_flat(nodes))
    data, _ = _data(flat, arrays)
    result: set[str] = set()
    behind: set[str] = set()
    for node in flat:
        reads, op = {name for name in node.inputs if name}, onnx_op(node.op_type)
        if behind & reads or op.width and reads - data:
            behind.update(node.outputs)
        elif op.use in (Use.TERMS, Use.FORMULA) and data & reads:
            result |= reads - data
    return result


def _width(node: OnnxNode, arrays: Mapping[str, np.ndarray]) -> int:
    """Number of outputs of a product with a constant; 0 if unknown."""
    weight = arrays.get(node.inputs[1]) if len(node.inputs) > 1 else None
    width = onnx_op(node.op_type).width
    return width(node, weight.shape) if width and weight is not None and weight.ndim > 1 else 0


def _positions(
    flat: Sequence[OnnxNode],
    arrays: Mapping[str, np.ndarray],
    data: set[str],
    integers: Collection[str],
) -> set[str]:
    """Names computed only from integer inputs, such as positions, without learned numbers."""
    result = set(integers)

    def counts(name: str) -> bool:
        if not name or name in result:
            return True
        known = arrays.get(name)
        return name not in data and (known is None or known.size == 1 or known.dtype.kind in "iub")

    for node in flat:
        counting = not result.isdisjoint(node.inputs) and not onnx_op(node.op_type).periodic
        result.update(node.outputs if counting and all(map(counts, node.inputs)) else ())
    return result


@dataclass
class _Scan:
    """One pass backwards from the outputs.

    Attributes:
      angles: name -> whether all its readers so far compute sines and cosines of it.
    """

    found: Usage
    data: set[str]
    products: Mapping[str, int]
    positions: set[str]
    angles: dict[str, bool]

    def visit(self, node: OnnxNode) -> None:
        op, on_data = onnx_op(node.op_type), not self.data.isdisjoint(node.outputs)
        self._pass_on(node, op, on_data)
        makes = all([self.angles.get(name, False) for name in node.outputs if name])
        angle = op.periodic or (op.passes or op.scales) and makes
        for name in node.inputs:
            self.angles[name] = angle and self.angles.get(name, True)
        if on_data:
            self._use(node, op, makes)

    def _pass_on(self, node: OnnxNode, op: OnnxOp, on_data: bool) -> None:
        """Pass the uses of a node's results on to its operands."""
        result, outputs = self.found, node.outputs
        computed = not on_data and op.rule is not None
        readers = [result.readers[n] for n in outputs if n in result.readers]
        reader = readers[0] if readers else None
        if not (op.passes or computed or reader):
            return
        sources = set(node.inputs if op.variadic and op.moves else node.inputs[:1]) - {""}
        if op.passes:
            for names in (
                result.weights,
                result.computed,
                result.states,
                result.summands,
                result.biases,
                result.tables,
                result.parts,
                result.joined,
            ):
                if names.intersection(outputs):
                    names.update(sources)
            for known in (result.thin, result.angles):
                if known.intersection(outputs):
                    known.update(sources)
            for name in set(outputs) & result.fillers.keys():
                result.fillers |= dict.fromkeys(sources, result.fillers[name])
            for ops in (result.operands, result.factors):
                for name in set(outputs) & ops.keys():
                    ops |= dict.fromkeys(sources, ops[name])
            if len(sources) > 1:
                result.joined.update(sources)
        elif computed:
            sources = set(node.inputs) - {""}
            if any(name in result.weights or name in result.computed for name in outputs):
                result.computed.update(sources)
            for name in set(outputs) & result.operands.keys():
                result.operands = dict.fromkeys(sources, result.operands[name]) | result.operands
        if reader is not None:
            for name in sources:
                result.readers[name] = reader

    def _use_unlisted(self, node: OnnxNode, op: OnnxOp, name: str) -> None:
        """Record a use of an operand that the op's rule does not list as a weight."""
        if op.passes or not name:
            return
        if name in self.data:
            self.found.parts.add(name)
        else:
            self.found.operands.setdefault(name, node.op_type)

    def _use(self, node: OnnxNode, op: OnnxOp, angles: bool) -> None:
        """Record how a node that processes data uses its operands."""
        result = self.found
        weighted, formula = op.weighted(len(node.inputs)), op.use is Use.FORMULA
        listed = {*weighted, *op.buffers, *op.settings}
        products = self.products if op.adds else {}
        widths = {products[name] for name in node.inputs if name in products}
        result.statistics.update(node.inputs[k] for k in op.buffers if k < len(node.inputs))
        placed = angles and self.data.intersection(node.inputs) <= self.positions
        for k, name in enumerate(node.inputs):
            if k in op.states:
                result.states.add(name)
            if k not in listed:
                self._use_unlisted(node, op, name)
            if k not in weighted or not name or placed:
                continue
            if name not in self.data and (formula or op.use is Use.TERMS):
                old = result.operands.get(name, "")
                kept = onnx_op(old).use is Use.FORMULA
                result.operands[name] = old if kept else node.op_type
            if formula:
                continue
            if angles and name not in self.data:
                result.angles.add(name)
            result.readers[name] = (node.name, k)
            if op.use is Use.TERMS:
                result.summands.add(name)
                if op.adds and widths:
                    result.biases.add(name)
                    result.thin.update([name] if 1 in widths else ())
            elif name in self.data:
                result.parts.add(name)
            elif op.use is Use.TABLE:
                result.tables.add(name)
            elif k in op.neutral:
                result.fillers[name] = op.neutral[k]
            else:
                result.weights.add(name)
                if op.width and (k < 2 or op.variadic):
                    result.factors[name] = node.op_type
