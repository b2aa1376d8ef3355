"""When packages are imported: a device needs a subset, and errors name missing ones."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

HOST = {
    "onnx", "scipy", "torch", "rich", "numba", "edgetrain.compiler", "edgetrain.importer",
    "edgetrain.ops", "edgetrain.api", "edgetrain.exporters",
}  # fmt: skip
# Runs a command in a process that cannot find the packages named first.
BLOCKED = """
import json, sys
blocked = json.loads(sys.argv[1])
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Finder())
"""
COMMAND = BLOCKED + "from edgetrain.cli import main; sys.exit(main(sys.argv[2:]))"


def child(code: str, *argv: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, argv)], capture_output=True, text=True, timeout=300
    )


def without(blocked: set[str], *argv: object) -> subprocess.CompletedProcess[str]:
    """Run an edgetrain command without these packages."""
    return child(COMMAND, json.dumps(sorted(blocked)), *argv)


def test_the_trainer_loads_neither_compilers_nor_onnx() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import edgetrain; edgetrain.Trainer"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    wrong = {"numba", "llvmlite", "scipy", "onnx", "edgetrain.compiler", "edgetrain.ops"}
    assert loaded & wrong == set()
    assert "edgetrain.runtime.session" in loaded


def test_training_evaluating_and_exporting_need_no_host(digits_edge: Path, tmp_path: Path) -> None:
    # kernels that only this test needs are compiled here, where numba is available
    for blocked in (set(), HOST):
        out = tmp_path / f"run{len(blocked)}"
        trained = without(
            blocked, "train", digits_edge, "--data", "digits", "--steps", 3, "--out", out
        )
        assert trained.returncode == 0, trained.stderr
        evaluated = without(blocked, "eval", out, "--data", "digits", "--json")
        assert evaluated.returncode == 0, evaluated.stderr
        assert json.loads(evaluated.stdout)["samples"] > 0
        exported = without(blocked, "export", out, "-o", tmp_path / f"{len(blocked)}.onnx")
        assert exported.returncode == 0, exported.stderr
    assert (tmp_path / "0.onnx").read_bytes() == (tmp_path / f"{len(HOST)}.onnx").read_bytes()


_OTHER_WHEEL = r"not part of edgetrain-runtime\. Install edgetrain instead: .*edgetrain-\*\.whl"
MISSING = [
    ({"onnx"}, ("plan", "m.onnx"), "onnx is needed .* pip install onnx"),
    ({"edgetrain.importer"}, ("plan", "m.onnx"), rf"edgetrain.importer: {_OTHER_WHEEL}"),
    ({"edgetrain.ops"}, ("ops",), rf"edgetrain.ops: {_OTHER_WHEEL}"),
    ({"torch"}, ("parity", "m.onnx"), r"torch is needed .* pip install 'edgetrain\[torch\]'"),
]


@pytest.mark.parametrize("blocked, argv, said", MISSING, ids=lambda value: str(value)[:20])
def test_a_missing_package_is_named_with_what_brings_it(blocked, argv, said) -> None:
    done = without(blocked, *argv)
    assert done.returncode == 2 and "bug" not in done.stderr
    assert done.stderr.count("\n") == 1
    assert re.search(rf"{said}$", done.stderr.strip())


def test_a_missing_package_is_named_in_python_too() -> None:
    code = BLOCKED + (
        "import edgetrain\n"
        "try:\n    edgetrain.load_onnx\n"
        "except edgetrain.UsageError as error:\n    print(error)"
    )
    done = child(code, '["onnx"]')
    assert done.stdout.startswith("onnx ") and done.stdout.endswith("Run: pip install onnx\n")
