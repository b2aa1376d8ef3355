"""Values, graphs, the builder's names and the text form."""

from dataclasses import FrozenInstanceError

import pytest

from edgetrain.ir import Builder, Value


def _graph():
    builder = Builder()
    builder.value("x", (2, 3), role="input")
    builder.value("w", (3, 4), "f16", "parameter")
    builder.value("spare", (5,), role="parameter")
    builder.value("unused", (5,))
    builder.value("h", (2, 4))
    builder.value("flat", (8,), view_of="h")
    builder.value("s", (), "f64")
    builder.node("matmul", ["x", "w", ""], ["h"], {"tb": False, "alpha": 1.0})
    builder.node("view", ["h"], ["flat"])
    builder.node("loss", ["flat"], ["s", ""], {"kind": "mse"})
    return builder.graph(["x"], ["s"])


def test_text_form_is_what_goldens_hold():
    assert str(_graph()) == (
        "input x:f32[2x3]\n"
        "h:f32[2x4] <- matmul(x, w, -) alpha=1.0 tb=False\n"
        "flat:f32[8] = h <- view(h)\n"
        "s:f64[scalar], - <- loss(flat) kind=mse\n"
        "output s"
    )


@pytest.mark.parametrize(
    ("dtype", "nbytes"),
    [("f64", 48), ("i64", 48), ("f32", 24), ("i32", 24), ("f16", 12), ("u16", 12), ("u8", 6)],
)
def test_value_knows_its_bytes(dtype, nbytes):
    value = Value("v", (2, 3), dtype)
    assert (value.size, value.nbytes) == (6, nbytes)


def test_scalar_has_one_element():
    assert Value("v", ()).size == 1


def test_values_are_frozen():
    with pytest.raises(FrozenInstanceError):
        Value("v", ()).name = "w"


def test_persistent_roles():
    roles = ("parameter", "buffer", "constant", "accumulator", "state", "control")
    assert all(Value("v", (), role=role).persistent for role in roles)
    others = ("input", "target", "activation", "statistic", "gradient")
    assert not any(Value("v", (), role=role).persistent for role in others)


def test_root_follows_chains_of_views():
    builder = Builder()
    for name, parent in (("a", ""), ("b", "a"), ("c", "b")):
        builder.value(name, (2,), view_of=parent)
    graph = builder.graph([], [])
    assert [graph.root(name) for name in "abc"] == ["a", "a", "a"]


def test_readers_are_listed_in_order_and_once():
    builder = Builder()
    for name in "xyz":
        builder.value(name, (2,))
    builder.node("mul", ["x", "x"], ["y"])
    builder.node("add", ["x", "y"], ["z"])
    readers = builder.graph(["x"], ["z"]).readers()
    assert {n: [node.op for node in nodes] for n, nodes in readers.items()} == {
        "x": ["mul", "add"], "y": ["add"], "z": [],
    }  # fmt: skip


def test_with_nodes_drops_what_nobody_mentions_but_keeps_what_persists():
    graph = _graph()
    kept = graph.with_nodes(graph.nodes)
    assert set(graph.values) - set(kept.values) == {"unused"}
    cut = graph.with_nodes(graph.nodes[2:])
    assert set(cut.values) == {"x", "w", "spare", "h", "flat", "s"}  # h: flat shares its bytes


def test_builder_makes_names_of_values_and_nodes_unique():
    builder = Builder({"y": Value("y", (1,))})
    assert [builder.value("y", (2,)) for _ in range(3)] == ["y~2", "y~3", "y~4"]
    nodes = [builder.node("relu", ["y"], ["y~2"]) for _ in range(3)]
    assert [node.name for node in nodes] == ["y~2", "y~2~2", "y~2~3"]


def test_node_reads_and_writes_skip_absent_operands():
    node = Builder().node("f", ["a", "", "b"], ["", "c"], name="n")
    assert (node.reads, node.writes, node.origin) == (("a", "b"), ("c",), "n")
