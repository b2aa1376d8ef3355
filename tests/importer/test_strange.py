"""Every strange file is bound or refused: quickly, in little memory, in one line with its name."""

import pytest

import edgetrain as et
from edgetrain.api import make_options
from edgetrain.compiler.compilation import Compilation
from edgetrain.compiler.pipeline import build_graphs

from ..fuzz.children import fault, run
from .strange import strange

FILES = dict(strange())
LINE = 2000  # maximum characters of a message


def _built(path) -> int:
    options = make_options(loss="mse", minibatch=2, allow_constants=True)
    return len(build_graphs(Compilation(et.load_onnx(path), options), 2).train.nodes)


def test_strange_files_are_many():
    assert len(FILES) >= 200


@pytest.mark.parametrize("name", FILES)
def test_strange_file_is_built_or_refused(name, tmp_path):
    path = tmp_path / "m.onnx"
    made = FILES[name](path)
    path.write_bytes(made if isinstance(made, bytes) else made.SerializeToString())
    ended = run(lambda: _built(path))
    assert not fault(ended)
    if ended.how == "refused":
        assert len(ended.detail) <= LINE and ended.detail.isprintable(), ended.detail
