"""Nodes and graphs of values: all dimensions bound, all names unique.

A graph is a list of nodes in execution order. Values are referred to by name. A value may be a
view: another name (and shape) for the bytes of its root. A node that writes a value whose root
was written before updates those bytes in place (gradient accumulation).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .values import PERSISTENT, Call, Value

__all__ = ["PERSISTENT", "Builder", "Call", "Graph", "Node", "Value"]


@dataclass(frozen=True, slots=True)
class Node:
    """One operation; `phase` is forward, loss, backward, update, rewire or eval.

    An empty input or output name means that it is absent. `origin` names the ONNX node.
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    phase: str = "forward"
    origin: str = ""

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(filter(None, self.inputs)) if "" in self.inputs else self.inputs

    @property
    def writes(self) -> tuple[str, ...]:
        return tuple(filter(None, self.outputs)) if "" in self.outputs else self.outputs


@dataclass(frozen=True)
class Graph:
    """Nodes in order over named values.

    Attributes:
      inputs: values filled from outside before the first node.
      outputs: values read after the last node.
    """

    nodes: tuple[Node, ...]
    values: Mapping[str, Value]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def root(self, name: str) -> str:
        """The value whose bytes `name` uses."""
        values = self.values
        while above := values[name].view_of:
            name = above
        return name

    def readers(self) -> dict[str, list[Node]]:
        """Value name -> nodes that read it by that name, in order."""
        out: dict[str, list[Node]] = {name: [] for name in self.values}
        for node in self.nodes:
            for name in dict.fromkeys(node.reads):
                out[name].append(node)
        return out

    def with_nodes(self, nodes: Iterable[Node], values: Mapping[str, Value] | None = None):
        """The same graph with other nodes; values that are no longer mentioned are dropped."""
        nodes = tuple(nodes)
        values = self.values if values is None else values
        names = {*self.inputs, *self.outputs}
        for node in nodes:
            names.update(node.reads, node.writes)
        pending = [name for name in names if values[name].view_of]
        while pending:
            parent = values[pending.pop()].view_of
            if parent and parent not in names:
                names.add(parent)
                pending.append(parent)
        kept = {n: v for n, v in values.items() if n in names or v.persistent}
        return replace(self, nodes=nodes, values=kept)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        def show(name: str) -> str:
            if not name:
                return "-"
            value = self.values[name]
            shape = "x".join(map(str, value.shape)) or "scalar"
            view = f" = {value.view_of}" if value.view_of else ""
            return f"{name}:{value.dtype}[{shape}]{view}"

        for name in self.inputs:
            yield f"input {show(name)}"
        for node in self.nodes:
            attrs = " ".join(f"{k}={v}" for k, v in sorted(node.attrs.items()))
            outputs = ", ".join(show(n) for n in node.outputs)
            inputs = ", ".join(n or "-" for n in node.inputs)
            yield f"{outputs} <- {node.op}({inputs}) {attrs}".rstrip()
        yield f"output {', '.join(self.outputs)}"


class Builder:
    """Collects nodes and values; names are made unique by a counter."""

    def __init__(
        self, values: Mapping[str, Value] | None = None, nodes: Iterable[Node] = ()
    ) -> None:
        """`nodes`: existing nodes."""
        self.values: dict[str, Value] = dict(values or {})
        self.nodes = [*nodes]
        self._counts: dict[str, int] = {}
        self._names = {node.name for node in self.nodes}
        self._repeats: dict[str, int] = {}  # like _counts, for node names

    def unique(self, name: str) -> str:
        """`name`, or `name~2`, `name~3`, ... if it is taken."""
        if name not in self.values:
            return name
        while True:
            self._counts[name] = self._counts.get(name, 1) + 1
            candidate = f"{name}~{self._counts[name]}"
            if candidate not in self.values:
                return candidate

    def value(self, name: str, shape, dtype="f32", role="activation", view_of="") -> str:
        """Add a value; returns its final name. A view of a view becomes a view of its root."""
        name = self.unique(name)
        while view_of and self.values[view_of].view_of:
            view_of = self.values[view_of].view_of
        self.values[name] = Value(name, tuple(map(int, shape)), dtype, role, view_of)
        return name

    def node(self, op, inputs, outputs, attrs=None, *, name="", phase="forward", origin="") -> Node:
        """Append a node; its name defaults to the name of its first output."""
        base = name or next((o for o in outputs if o), op)
        unique = base
        while unique in self._names:
            self._repeats[base] = self._repeats.get(base, 1) + 1
            unique = f"{base}~{self._repeats[base]}"
        self._names.add(unique)
        node = Node(
            unique, op, tuple(inputs), tuple(outputs), dict(attrs or {}), phase, origin or base
        )
        self.nodes.append(node)
        return node

    def graph(self, inputs, outputs) -> Graph:
        """The graph built so far."""
        return Graph(tuple(self.nodes), self.values, tuple(inputs), tuple(outputs))
