"""Expands functions: a file's local ones, and those by which the ONNX standard defines ops.

Local functions are checked first: no recursion, limited depth and size.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import onnx
import onnx.inliner

from ..errors import ModelError
from ..ops.onnx_ops import onnx_op
from .branches import flat, subgraphs

MAX_LEVELS = 256
_MOST_ROUNDS = 8  # of expansion: definitions use ops that have definitions
_LOOPS = ("Loop", "Scan", "SequenceMap")

_Key = tuple[str, str, str]


def check_functions(proto: onnx.ModelProto, label: str, most: int, nbytes: int) -> None:
    """Refuse functions that expand to more than `most` nodes or `nbytes` bytes.

    Raises:
      ModelError: a function calls itself (directly, through others or in a branch), is nested too
        deep, defined twice, or expands to too many nodes or bytes.
    """
    bodies: dict[_Key, onnx.FunctionProto] = {}
    for function in proto.functions:
        key = _key(function)
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


def inlined(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model without local functions, which `check_functions` has accepted.

    Attributes that a call leaves out have the function's defaults. Functions that no other function
    calls come first, so that what their calls of others leave out is known.
    """
    bodies = {_key(function): function for function in proto.functions}
    while any(function.attribute_proto for function in proto.functions):
        _set_function_defaults(proto.graph.node, bodies)
        wanted = set(called(proto.graph.node))
        pending, inner = list(wanted), set[_Key]()
        while pending:
            calls = bodies[key] if (key := pending.pop()) in bodies else None
            more = set(called(calls.node)) - inner if calls else set()
            inner |= more
            pending += more
        names = {key[:2] for key in wanted if key in bodies} - {key[:2] for key in inner}
        if not names:
            break
        proto = onnx.inliner.inline_selected_functions(proto, sorted(names))
    return onnx.inliner.inline_local_functions(proto)


def _key(function: onnx.FunctionProto) -> _Key:
    return _domain(function.domain), function.name, function.overload


def _set_function_defaults(
    nodes: Iterable[onnx.NodeProto], bodies: Mapping[_Key, onnx.FunctionProto]
) -> None:
    """Write out attributes that calls of local functions leave at the function's defaults."""
    for node in flat(nodes):
        function = bodies.get((_domain(node.domain), node.op_type, node.overload))
        given = {attribute.name for attribute in node.attribute}
        known = () if function is None else function.attribute_proto
        node.attribute.extend(item for item in known if item.name not in given)


def expanded(proto: onnx.ModelProto, known: Collection[str]) -> onnx.ModelProto:
    """Expand ops without a rule by their definition in the ONNX standard (such as SwiGLU).

    A definition with a loop, such as Range's, is not expanded: such ops are folded if they are
    constant.

    Args:
      known: ops that the importer rewrites itself.
    """
    versions = {_domain(opset.domain): opset.version for opset in proto.opset_import}
    left = {*known}
    for _ in range(_MOST_ROUNDS):
        names = {op for domain, op, _ in called(proto.graph.node) if not domain} - left
        schemas = [_definition(op, versions.get("", 1)) for op in names if not onnx_op(op).rule]
        if not any(schemas):
            break
        for schema in sorted(filter(None, schemas), key=lambda schema: schema.name):
            _set_defaults(proto.graph.node, schema)
            result = _expanded(proto, schema.name)
            left.add(schema.name)
            proto = proto if result is None else result
    return proto


def _definition(name: str, version: int) -> Any:
    """The schema of an op that is defined by other ops, or None."""
    try:
        schema: Any = onnx.defs.get_schema(name, version, "")
    except (onnx.defs.SchemaError, TypeError):  # protobuf returns bytes if a name is not UTF-8
        return None
    return schema if schema.has_function or schema.has_context_dependent_function else None


def _set_defaults(nodes: Iterable[onnx.NodeProto], schema: Any) -> None:
    """Write out attributes left at their defaults, because bodies read them."""
    for node in nodes:
        for graph in subgraphs(node):
            _set_defaults(graph.node, schema)
        if (_domain(node.domain), node.op_type) == ("", schema.name):
            given = {attribute.name for attribute in node.attribute}
            node.attribute.extend(
                known.default_value
                for name, known in schema.attributes.items()
                if name not in given and known.default_value.type
            )


def _expanded(proto: onnx.ModelProto, name: str) -> onnx.ModelProto | None:
    """The model with one op expanded; None if its definition does not fit, or has a loop."""
    before = Counter(op for _, op, _ in called(proto.graph.node))
    try:
        result = onnx.inliner.inline_selected_functions(
            proto, [("", name)], inline_schema_functions=True
        )
    except (RuntimeError, ValueError, TypeError, onnx.checker.ValidationError):
        return None
    after = Counter(op for _, op, _ in called(result.graph.node))
    return None if any(after[op] > before[op] for op in _LOOPS) or after[name] else result


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
        for graph in subgraphs(node):
            yield from called(graph.node)


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name
