"""Names from files are escaped on terminals, pages and in headers, and errors name their file."""

import json
import unicodedata
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import edgetrain as et
from edgetrain.cli import main
from edgetrain.errors import ModelError, UnsupportedOpError, printable
from edgetrain.importer.names import MOST_NAME
from tests.quick import slow_except

BAD = {
    "escape": "\x1b[31m", "carriage return": "\r", "newline": "\n", "bidi": "\u202e",
    "isolate": "\u2066", "bell": "\x07", "line": "\u2028", "csi": "\x9b", "joiner": "\u200d",
}  # fmt: skip
KEPT = "\n\t"


def net(path: Path, mark: str = "", op: str = "Relu", weight: str = "fc.weight") -> Path:
    """A layer with `mark` in all its names."""
    named = {name: name[:2] + mark + name[2:] for name in ("input", "hidden", "output", weight)}
    w = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", [named["input"], named[weight]], ["mm" + mark], "a" + mark),
        helper.make_node(op, ["mm" + mark], [named["output"]], "b" + mark),
    ]
    ends = [
        helper.make_tensor_value_info(named[name], TensorProto.FLOAT, ["N", size])
        for name, size in (("input", 4), ("output", 3))
    ]
    table = onnx.numpy_helper.from_array(w, named[weight])
    graph = helper.make_graph(nodes, "net" + mark, ends[:1], ends[1:], [table])
    opset = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)
    return path


def check(text: str) -> None:
    bad = {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp", "Cs")} - {*KEPT}
    assert not bad, [hex(ord(c)) for c in bad]


@pytest.mark.parametrize("name", slow_except(BAD, "escape", "newline", "bidi"))
def test_names_do_nothing_to_what_shows_them(tmp_path: Path, capfd, name: str) -> None:
    mark = BAD[name]
    path, page, run = net(tmp_path / "net.onnx", mark), tmp_path / "page.html", tmp_path / "run"
    given = ("--minibatch", "4", "--threads", "1")
    with np.errstate(all="ignore"):
        np.savez(tmp_path / "d.npz", x=np.ones((8, 4), np.float32), y=np.arange(8) % 3)
    data, edge = f"npz:{tmp_path / 'd.npz'}", tmp_path / "net.edge"
    report = ("--report", str(page))
    for argv in (
        ("inspect", str(path)),
        ("plan", str(path), *given, *report, "--explain"),
        ("plan", str(path), *given, "--picture", str(tmp_path / "plan.svg")),
        ("plan", str(path), *given, "--budget", "10"),
        ("plan", str(path), *given, "--freeze", "*"),
        ("parity", str(path), "--steps", "1"),
        ("compile", str(path), *given, "-o", str(edge)),
        ("inspect", str(edge)),
        ("data", data, str(path)),
        ("train", str(edge), "--data", data, "--epochs", "1", "--out", str(run), *report),
        ("bundle", str(edge), "-o", str(tmp_path / "c")),
    ):
        main(list(argv))
        out, err = capfd.readouterr()
        check(out + err)
        if page.exists():
            check(page.read_text())
    headers = [*(tmp_path / "c").glob("*.[ch]"), tmp_path / "plan.svg"]
    assert len(headers) > 2
    for header in headers:
        check(header.read_text())


def test_json_has_names_as_they_are(tmp_path: Path, capsys) -> None:
    path = net(tmp_path / "net.onnx", "\u202e\x1b")
    assert main(["plan", str(path), "--minibatch", "4", "--json"]) == 0
    out = capsys.readouterr().out
    check(out)
    assert "fc\u202e\x1b.weight" in json.dumps(json.loads(out), ensure_ascii=False) or any(
        "\u202e\x1b" in name for name in json.loads(out)["training"]["trained"]["names"]
    )


def test_printable_keeps_what_is() -> None:
    assert printable("w\u00e9ight/\u6743.1 x") == "w\u00e9ight/\u6743.1 x"
    assert printable("a\x1b\u202e\r\n", kept="\n") == "a\\x1b\\u202e\\r\n"


@pytest.mark.parametrize(("length", "fits"), [(MOST_NAME, True), (MOST_NAME + 1, False)])
@pytest.mark.parametrize("letter", ["w", "\u00e9"])
def test_names_of_parameters_are_of_bounded_bytes(
    tmp_path: Path, letter: str, length: int, fits: bool
) -> None:
    size = len(letter.encode())
    weight = letter * (length // size) + "x" * (length % size)
    path = net(tmp_path / "net.onnx", weight=weight)
    (name,) = et.load_onnx(path).parameters
    assert (name == weight) is fits  # a longer one has a short alias here
    assert len(name.encode()) <= MOST_NAME


USES = {
    "compile": lambda model: et.compile(model, minibatch=4),
    "plan": lambda model: et.plan(model, minibatch=4),
    "forward": lambda model: et.forward(model, {"input": np.ones((2, 4), np.float32)}),
    "loss_and_gradients": lambda model: et.loss_and_gradients(
        model, {"input": np.ones((2, 4), np.float32)}, np.zeros(2, np.int64)
    ),
}


@pytest.mark.parametrize("use", USES)
def test_errors_after_loading_name_the_file(tmp_path: Path, use: str) -> None:
    path = net(tmp_path / "net.onnx", op="Det")
    try:
        model = et.load_onnx(path)
    except UnsupportedOpError as error:
        assert str(path) in str(error) and error.ops == ("Det",)
        return
    with pytest.raises(ModelError) as found:
        USES[use](model)
    assert str(path) in str(found.value)
    if isinstance(found.value, UnsupportedOpError):
        assert found.value.ops == ("Det",)
