"""Checks local functions before they are expanded: no recursion, limited depth and size."""

from collections.abc import Iterable, Iterator

import onnx

from ..errors import ModelError

MAX_LEVELS = 256

_Key = tuple[str, str, str]


def check_functions(proto: onnx.ModelProto, label: str, most: int, nbytes: int) -> None:
    """Refuse functions that expand to more than `most` nodes or `nbytes` bytes.

    Raises:
      ModelError: a function calls itself (directly, through others or in a branch), is nested too
        deep, defined twice, or expands to too many nodes or bytes.
    """
    bodies: dict[_Key, onnx.FunctionProto] = {}
    for function in proto.functions:
        key = (_domain(function.domain), function.name, function.overload)
        if key in bodies:
            raise ModelError(f"{label}: function {function.name!r} is defined twice.")
        bodies[key] = function
    calls = {key: list(called(body.node)) for key, body in bodies.items()}
    sizes: dict[_Key, int] = {}
    lengths: dict[_Key, int] = {}
    levels: dict[_Key, int] = {}
    for key in _innermost_first(calls, label):
        inner = [c for c in calls[key] if c in calls]
        sizes[key] = min(most + 1, sum(sizes.get(c, 1) for c in calls[key]))
        own = min(nbytes + 1, bodies[key].ByteSize())
        lengths[key] = min(nbytes + 1, own + sum(lengths[c] for c in inner))
        levels[key] = 1 + max((levels[c] for c in inner), default=0)
        if levels[key] > MAX_LEVELS:
            raise ModelError(
                f"{label}: function {key[1]!r} nests calls more than {MAX_LEVELS} deep. "
                "Export the model without local functions."
            )
    total = sum(sizes.get(c, 1) for c in called(proto.graph.node))
    if total > most:
        raise ModelError(
            f"{label}: its functions expand to more than {most} nodes. Export a smaller model."
        )
    if sum(lengths.get(c, 0) for c in called(proto.graph.node)) > nbytes:
        raise ModelError(
            f"{label}: its functions expand to more than {nbytes} bytes. Export the model without "
            "local functions."
        )


def _innermost_first(calls: dict[_Key, list[_Key]], label: str) -> Iterator[_Key]:
    """Functions in an order where each follows those it calls; depth first, without recursion."""
    done: set[_Key] = set()
    for start in calls:
        path: dict[_Key, Iterator[_Key]] = {}
        pending = [start] if start not in done else []
        while pending:
            key = pending[-1]
            inner = path.setdefault(key, iter(dict.fromkeys(calls[key])))
            following = next((c for c in inner if c in calls and c not in done), None)
            if following is None:
                pending.pop()
                done.add(key)
                yield key
            elif following in path:
                names = [k[1] for k in pending[pending.index(following) :]] + [following[1]]
                shown = names if len(names) <= 8 else [*names[:7], "...", names[-1]]
                raise ModelError(
                    f"{label}: function {following[1]!r} calls itself ({' -> '.join(shown)}); "
                    "expected functions without recursion. Export the model again."
                )
            else:
                pending.append(following)


def called(nodes: Iterable[onnx.NodeProto]) -> Iterator[_Key]:
    """Functions called by the nodes, including those in branches."""
    for node in nodes:
        yield _domain(node.domain), node.op_type, node.overload
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs) if _has_graph(attribute) else ():
                yield from called(graph.node)


def _has_graph(attribute: onnx.AttributeProto) -> bool:
    return attribute.HasField("g") or bool(attribute.graphs)


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name
