"""The grammar of graphs: every violation is reported by name."""

from dataclasses import replace

import pytest

from edgetrain.compiler.passes.verify import GraphError, verify
from edgetrain.ir import Builder, Value


def _graph():
    builder = Builder()
    x, w = builder.value("x", (2, 3), role="input"), builder.value("w", (2, 3), role="parameter")
    a, b = builder.value("a", (2, 3)), builder.value("b", (6,), view_of="a")
    builder.node("add", [x, w], [a])
    builder.node("relu", [b], [builder.value("y", (6,))])
    return builder.graph([x], ["y"])


def test_verify_accepts_a_sound_graph():
    graph = _graph()
    assert verify(graph) is graph


def _renamed(graph):
    return replace(graph, nodes=tuple(replace(n, name="same") for n in graph.nodes))


def _valued(graph, **values):
    return replace(graph, values={**graph.values, **values})


BROKEN = {
    "two nodes are named": _renamed,
    "reads 'b' before": lambda g: replace(g, nodes=g.nodes[::-1]),
    "reads 'x' before": lambda g: replace(g, inputs=()),
    "value 'a' is unknown": lambda g: replace(
        g, values={k: v for k, v in g.values.items() if k != "a"}
    ),
    "value 'z' is unknown": lambda g: replace(
        g, nodes=(*g.nodes, replace(g.nodes[0], name="n", inputs=("z", "w")))
    ),
    "output 'y' is never written": lambda g: replace(g, nodes=g.nodes[:1]),
    "another size": lambda g: _valued(g, b=Value("b", (5,), view_of="a")),
    "another size or dtype": lambda g: _valued(g, b=Value("b", (6,), "f16", view_of="a")),
    "view of itself": lambda g: _valued(
        g, a=Value("a", (6,), view_of="b"), b=Value("b", (6,), view_of="a")
    ),
}


@pytest.mark.parametrize("message", BROKEN)
def test_verify_names_the_breach(message):
    with pytest.raises(GraphError, match=message):
        verify(BROKEN[message](_graph()))
