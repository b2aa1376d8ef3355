"""Constants that may be weights: recognised by use or by pattern, refused, or left on request."""

import json

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import edgetrain as et
from edgetrain.cli import main
from edgetrain.errors import ModelError, UsageError
from edgetrain.importer import load_onnx
from edgetrain.importer.tables import is_formula
from edgetrain.program.trained import export_trained

from .models import info, model, node, tensor


@pytest.fixture
def save(tmp_path):
    def saved(nodes, initializers, name="m.onnx", **options):
        path = tmp_path / name
        path.write_bytes(model(nodes, initializers, **options).SerializeToString())
        return path

    return saved


def array(name: str, values) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(values, np.float32), name)


def learned(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


AT = np.arange(12)[:, None] / 50 ** (np.arange(8) / 8)
TABLES = {
    "sines": (np.sin(AT), True),
    "rotary cosines in half precision": (np.cos(AT).astype(np.float16), True),
    "pairs over a plane": (
        np.concatenate([np.sin(AT), np.cos(AT)], 1)[np.random.default_rng(0).permutation(12)],
        True,
    ),
    "causal mask": (np.triu(np.full((5, 5), -np.inf), 1), True),
    "finite mask": (np.triu(np.full((5, 5), -1e9), 1), True),
    "zeros and ones": (np.tril(np.ones((5, 5))), True),
    "slopes": (np.arange(3)[:, None] * np.arange(9.0)[None], True),
    "learned": (learned(12, 8), False),
    "learned, few": (learned(2, 8), False),
    "learned from zeros": (np.zeros((12, 8)), False),
    "learned from ones": (np.ones((12, 8)), False),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_tells_formulas_from_learned_numbers(name):
    values, expected = TABLES[name]
    assert is_formula(np.asarray(values)) == expected


# Nodes between a weight such as "net.w" [4, 3] and an operand of a product.
CHAINS = {
    "transposed": ([node("Transpose", "net.w", "k")], (3, 4)),
    "sliced": ([node("Slice", "net.w zero four", "k")], (6, 3)),
    "squeezed": ([node("Squeeze", "net.w zero", "k")], (1, 4, 3)),
    "cast": ([node("Cast", "net.w", "k", to=1)], (4, 3)),
    "joined": ([node("Concat", "net.w net.w", "k", axis=0)], (2, 3)),
    "softmax": ([node("Softmax", "net.w", "k", axis=0)], (4, 3)),
    "normed": (
        [node("ReduceL2", "net.w", "n", axes=[0]), node("Div", "net.w n", "v"),
         node("Mul", "v net.g", "k")], (4, 3),
    ),
}  # fmt: skip


@pytest.mark.parametrize("chain", CHAINS)
def test_weight_is_trained_through_what_leads_to_its_slot(save, chain):
    nodes, shape = CHAINS[chain]
    places = [numpy_helper.from_array(np.array([k]), n) for k, n in ((0, "zero"), (4, "four"))]
    extra = [array("net.g", learned(1, 3))] if chain == "normed" else []
    path = save(
        [*nodes, node("MatMul", "x k", "y")], [array("net.w", learned(*shape)), *extra, *places]
    )
    expected = ("net.w", "net.g") if extra else ("net.w",)
    loaded = load_onnx(path)
    assert loaded.parameters == expected
    x, target = learned(5, 4), np.array([0, 1, 2, 0, 1], np.int32)
    _, gradients = et.loss_and_gradients(loaded, {"x": x}, target)
    assert set(gradients) == set(expected)
    assert all(np.any(gradient) for gradient in gradients.values())


def anonymous(save, **options):
    """A linear layer; a table of 12 numbers of unknown purpose is added to its input."""
    nodes = [node("Reshape", "x shape", "t"), node("Add", "t onnx::Add_9", "s"),
             node("Reshape", "s flat", "f"), node("MatMul", "f onnx::MatMul_7", "y",
                                                  name="/net/head/MatMul")]  # fmt: skip
    shapes = [("shape", [-1, 3, 4]), ("flat", [-1, 12])]
    arrays = [array("onnx::MatMul_7", learned(12, options.pop("classes", 2))),
              array("onnx::Add_9", learned(3, 4)),
              *(numpy_helper.from_array(np.array(v), n) for n, v in shapes)]  # fmt: skip
    return save(nodes, arrays, inputs=[info("x", "batch", 12)], **options)


def test_untrained_constants_above_a_tenth_are_refused_with_the_ways_out(save):
    loaded = load_onnx(anonymous(save))
    assert (loaded.parameters, loaded.untrained) == (("net.head.weight",), ("onnx::Add_9",))
    with pytest.raises(ModelError) as refused:
        et.plan(loaded)
    for words in ("12 of 36", "'onnx::Add_9' [3, 4]", "--train-constants", "--allow-constants",
                  "export_torch"):  # fmt: skip
        assert words in str(refused.value)


@pytest.mark.parametrize(
    "options",
    [
        {"allow_constants": True}, {"train_constants": ["onnx::Add*"]}, {"train": ["net.*"]},
        {"freeze": ["net.*"], "train_constants": ["onnx::Add_9"]},
    ],
)  # fmt: skip
def test_untrained_constants_may_be_asked_for(save, options):
    loaded = load_onnx(anonymous(save))
    x, target = learned(5, 12), np.array([0, 1, 1, 0, 1], np.int32)
    _, gradients = et.loss_and_gradients(loaded, {"x": x}, target, **options)
    expected = {"onnx::Add_9"} if "train_constants" in options else set()
    expected |= {"net.head.weight"} if "freeze" not in options else set()
    assert set(gradients) == expected


def test_untrained_constants_below_a_tenth_are_a_note(save, capsys):
    path = anonymous(save, classes=20)
    assert main(["plan", str(path), "--minibatch", "2", "--json"]) == 0
    assert "not trained: 12 numbers of 1 constant" in capsys.readouterr().err


def test_train_constants_refuses_a_pattern_that_matches_nothing(save):
    with pytest.raises(UsageError, match="'pe': no match among .*onnx"):
        et.plan(load_onnx(anonymous(save)), train_constants=["pe"])


def test_trained_constants_are_written_to_their_own_names(save, tmp_path):
    path = anonymous(save)
    program = et.compile(load_onnx(path), train_constants=["onnx::Add_9"], minibatch=4)
    state = {"net.head.weight": learned(12, 2) + 1, "onnx::Add_9": learned(3, 4) + 2}
    trained = onnx.load(export_trained(program, state, tmp_path / "t.onnx"))
    found = {t.name: numpy_helper.to_array(t) for t in trained.graph.initializer}
    np.testing.assert_array_equal(found["onnx::MatMul_7"], state["net.head.weight"])
    np.testing.assert_array_equal(found["onnx::Add_9"], state["onnx::Add_9"])
    assert not trained.metadata_props


REFUSED = {
    "op": ([node("Det", "x", "y")], [], {}),
    "shape": ([node("MatMul", "x w", "y")], [tensor("w", 5, 3)], {}),
    "dimension": (
        [node("MatMul", "x w", "y")],
        [tensor("w", 4, 3)],
        {"inputs": [info("x", "batch", "T", 4)], "outputs": [info("y", "batch", "T", 3)]},
    ),
    "value": ([node("Range", "zero x one", "y")], [tensor("zero"), tensor("one")], {}),
    "branch": ([node("MatMul", "x w", "h"), node("Unique", "h", "y")], [tensor("w", 4, 3)], {}),
}


@pytest.mark.parametrize("name", [*REFUSED, "constants"])
def test_inspect_says_what_plan_says(save, capsys, name):
    if name == "constants":
        path = anonymous(save)
    else:
        nodes, arrays, options = REFUSED[name]
        path = save(nodes, arrays, **options)
    assert main(["plan", str(path)]) != 0
    refusal = capsys.readouterr().err.splitlines()[-1].removeprefix("edgetrain plan: error: ")
    assert main(["inspect", str(path), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["trainable"], facts["problem"]) == (False, refusal)


def test_inspect_takes_the_options_of_plan(save, capsys):
    path = anonymous(save)
    assert main(["inspect", str(path), "--allow-constants"]) == 0
    assert "  can be trained\n" in capsys.readouterr().out


@pytest.mark.parametrize("named", [True, False])
def test_a_weight_without_a_name_is_called_by_its_node(save, named):
    """Nodes have no module path, as in older exports, or no name at all."""
    nodes = [node("MatMul", "x onnx::MatMul_7", "h", name="MatMul_3" if named else ""),
             node("MatMul", "h onnx::MatMul_8", "y", name="MatMul_5" if named else "")]  # fmt: skip
    arrays = [array("onnx::MatMul_7", learned(12, 6)), array("onnx::MatMul_8", learned(6, 2))]
    loaded = load_onnx(save(nodes, arrays, inputs=[info("x", "batch", 12)]))
    numbers = (3, 5) if named else (0, 1)
    assert loaded.parameters == tuple(f"MatMul_{k}.weight" for k in numbers)


COUNTING = {
    "sum": np.ones((4, 1)),
    "sums": np.ones((4, 4)),
    "mean": np.full((4, 2), 0.25),
    "difference": np.full((4, 1), -1.0),
    "identity": np.eye(4),
    "halves": np.kron(np.eye(2), np.full((2, 1), 0.5)),
    "running sum": np.triu(np.ones((4, 4))),
}


@pytest.mark.parametrize("name", ["ones", "onnx::MatMul_9", "val_3", "sum/ReadVariableOp:0"])
@pytest.mark.parametrize("kind", COUNTING)
def test_matrices_that_only_sum_or_pick_are_not_trained_and_said(kind, name, save, capsys):
    matrix = COUNTING[kind]
    nodes = [node("MatMul", "x w", "h"), node("MatMul", f"h {name}", "y")]
    held = [array("w", learned(3, 4)), array(name, matrix)]
    given = {"inputs": [info("x", "N", 3)], "outputs": [info("y", "N", matrix.shape[1])]}
    path = save(nodes, held, **given)
    loaded = load_onnx(path)
    assert (loaded.parameters, dict(loaded.operands)) == (("w",), {name: "MatMul"})
    x, y = learned(2, 3), learned(2, matrix.shape[1])
    assert {*et.loss_and_gradients(loaded, {"x": x}, y, loss="mse")[1]} == {"w"}
    asked = et.loss_and_gradients(loaded, {"x": x}, y, loss="mse", train_constants=[name])
    assert len(asked[1]) == 2
    if name == "ones":
        assert main(["plan", str(path), "--loss", "mse", "--minibatch", "2"]) == 0
        assert "ones (operand of MatMul)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "matrix"),
    [
        ("w", np.ones((4, 2))),
        ("fc.weight", np.ones((4, 2))),
        ("fc/kernel:0", np.eye(4)),
        ("a", np.zeros((4, 2))),  # adapters and last layers may start as zeros
        ("onnx::MatMul_9", np.zeros((4, 2))),
        ("a", np.array([[1.0], [-1.0], [1.0], [1.0]])),  # a net of signs
        ("onnx::MatMul_9", learned(4, 2)),
    ],
)
def test_matrices_that_may_be_learned_stay_weights(name, matrix, save):
    nodes = [node("MatMul", "x v", "h"), node("MatMul", f"h {name}", "y")]
    held = [array("v", learned(3, 4)), array(name, matrix)]
    given = {"inputs": [info("x", "N", 3)], "outputs": [info("y", "N", matrix.shape[1])]}
    assert len(load_onnx(save(nodes, held, **given)).parameters) == 2


def test_biases_and_scales_of_one_number_stay_weights(save):
    nodes = [node("Conv", "x k b", "h"), node("BatchNormalization", "h s t m v", "y")]
    held = [
        array("k", learned(3, 1, 3, 3)), array("b", np.full(3, -4.6)), array("s", np.ones(3)),
        array("t", np.zeros(3)), array("m", np.zeros(3)), array("v", np.ones(3)),
    ]  # fmt: skip
    given = {"inputs": [info("x", "N", 1, 5, 5)], "outputs": [info("y", "N", 3, 3, 3)]}
    assert {*load_onnx(save(nodes, held, **given)).parameters} == {"k", "b", "s", "t"}


def test_values_of_one_hot_rows_are_no_weights(save):
    ids = info("ids", "N", kind=onnx.TensorProto.INT64)
    nodes = [node("OneHot", "ids depth onoff", "h"), node("MatMul", "h w", "y")]
    held = [array("w", learned(4, 2)), array("onoff", [0.0, 1.0])]
    held.append(numpy_helper.from_array(np.array(4), "depth"))
    path = save(nodes, held, inputs=[ids], outputs=[info("y", "N", 2)])
    assert load_onnx(path).parameters == ("w",)
