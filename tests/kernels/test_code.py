"""A kernel's cache key covers its code, but not comments, docstrings or source locations."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edgetrain.kernels import registry
from edgetrain.kernels.emission.code import key_of
from edgetrain.kernels.linking.choices import choices

ROOT = Path(__file__).resolve().parents[2]
SOURCE = '''
import numpy as np
from edgetrain.kernels.language.inlining import inline
from edgetrain.kernels.language.number import lanewise

TWO = np.float32(2)

def _emit(builder, value):
    return builder.fneg(value)

turned = lanewise(1, _emit)

class Table:
    def __init__(self, size):
        self.size = size
    def area(self):
        return self.size * self.size

@inline
def helper(x):
    """Text."""
    return turned(x) * TWO

def make(table, scale=3):
    def run(thread, nthreads, k):
        # a comment
        return helper(k.x) + table.size + scale
    return run
'''


def key(source: str = SOURCE, size: int = 4) -> str:
    """Return the key of `run`, defined in a module of this package."""
    scope = {"__name__": "edgetrain.made_by_a_test"}
    exec(compile(source, "made by a test", "exec"), scope)
    return key_of(scope["make"](scope["Table"](size)))


@pytest.mark.parametrize(
    ("before", "after"),
    [("# a comment", "# another one\n"), ('"""Text."""', '"""Other text,\n    of two lines."""'),
     ("import numpy as np", "import numpy as np\n\n"), ("TWO = ", "UNUSED = 5\nTWO = "),
     ("\n    return turned", "\n\n\n    return turned")],
)  # fmt: skip
def test_what_says_nothing_about_code_changes_no_key(before: str, after: str) -> None:
    assert before in SOURCE
    assert key(SOURCE.replace(before, after)) == key() != ""


@pytest.mark.parametrize(
    ("before", "after"),
    [("np.float32(2)", "np.float32(3)"), ("np.float32(2)", "np.float64(2)"),
     ("turned(x) * TWO", "turned(x) + TWO"), ("fneg(value)", "fadd(value, value)"),
     ("lanewise(1", "lanewise(2"), ("scale=3", "scale=4"), ("+ scale", "- scale"),
     ("@inline\ndef helper", "def helper"), ("self.size * self.size", "self.size")],
)  # fmt: skip
def test_what_is_compiled_changes_the_key(before: str, after: str) -> None:
    assert before in SOURCE
    assert key(SOURCE.replace(before, after)) != key()


def test_what_a_closure_holds_changes_the_key() -> None:
    assert key(size=5) != key(size=4)


def test_every_kernel_has_a_key() -> None:
    for name in registry.names():
        for kernel in registry.variants(name):
            storages = next(choices(kernel), None)
            assert storages is None or key_of(kernel.function(storages)), kernel.label


COUNT = """
import sys
from edgetrain.kernels import registry
from edgetrain.kernels.cache import jit
from edgetrain.kernels.emission import lowering
made, lower = [], lowering.llvm_text
lowering.llvm_text = lambda symbol, *args: made.append(symbol) or lower(symbol, *args)
for name in ("un_relu", "un_gelu", "un_tanh", "adagrad"):
    for kernel in registry.variants(name):
        kernel.object(dict.fromkeys(kernel.spec.variables, "f32"), jit.host())
print(" ".join(made))
"""


def compiled(folder: Path) -> list[str]:
    """Return the kernels that the tree in `folder` had to compile."""
    given = os.environ | {"PYTHONPATH": str(folder), "EDGETRAIN_CACHE": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", COUNT], env=given, cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_comment_compiles_nothing_and_a_formula_its_own_kernels(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    shutil.copytree(
        ROOT / "edgetrain", tmp_path / "edgetrain", symlinks=False,
        ignore=shutil.ignore_patterns("__pycache__", "exporters"),
    )  # fmt: skip
    whole = {f"et_un_{name}__plain__f32" for name in ("relu", "gelu", "tanh")}
    updates = {f"et_adagrad__{variant}__f32__f32__f32" for variant in ("plain", "wide")}
    assert set(compiled(tmp_path)) == whole | updates
    words = tmp_path / "edgetrain" / "kernels" / "language" / "mathf.py"
    words.write_text(words.read_text().replace("at most 1 ulp.", "1 ulp.") + "# a comment\n")
    assert compiled(tmp_path) == []
    formulas = tmp_path / "edgetrain" / "kernels" / "elementwise" / "formulas.py"
    changed = formulas.read_text().replace(
        "return HALF * x * (ONE + erf(", "return x * HALF * (ONE + erf("
    )
    formulas.write_text(changed)
    assert compiled(tmp_path) == ["et_un_gelu__plain__f32"]
    rule = tmp_path / "edgetrain" / "optim" / "adagrad.py"
    rule.write_text(rule.read_text().replace("states[0] + g * g", "g * g + states[0]"))
    assert set(compiled(tmp_path)) == updates


def test_objects_are_emitted_in_one_file() -> None:
    """Only these files run LLVM passes and code generation; everything else passes a recipe."""
    room = ROOT / "edgetrain" / "kernels" / "emission"
    asks = ("create_pass_builder", "machine.emit_object(", ").emit_object(")
    found = {p.name for p in room.glob("*.py") if any(one in p.read_text() for one in asks)}
    assert found == {"objects.py", "frames.py"}  # frames.py reads LLVM's output while it emits
