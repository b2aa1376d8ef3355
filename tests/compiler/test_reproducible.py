"""A Program depends on model and options only: same bytes in any process and folder."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import edgetrain as et

from ..runtime.models import write_forked, write_mlp

_SPARSE = ("--density", "0.4", "--precision", "fp16", "--freeze", "block0*")


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_forked(tmp_path_factory.mktemp("forked") / "forked.onnx")


def compiled(model: Path, folder: Path, seed: str, options: tuple[str, ...]) -> bytes:
    """Compile a copy of the model in another process and folder; return the Program's bytes."""
    folder.mkdir()
    shutil.copy(model, folder)
    argv = [sys.executable, "-m", "edgetrain", "compile", model.name, "-o", "model.edge", *options]
    root = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": root}
    subprocess.run(argv, cwd=folder, env=environment, check=True, capture_output=True)
    return (folder / "model.edge").read_bytes()


@pytest.mark.parametrize(
    "options", [pytest.param(options, marks=pytest.mark.slow) for options in ((), _SPARSE)]
)
def test_compiling_twice_gives_the_same_bytes(
    forked: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    choices = ("--minibatch", "8", "--microbatch", "8", *options)
    one, two = (compiled(forked, tmp_path / seed, seed, choices) for seed in ("1", "77"))
    assert one == two


def test_compiling_a_small_net_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    model = write_mlp(tmp_path / "mlp.onnx", 6, 8, 4)
    choices = (
        "--minibatch",
        "4",
        "--microbatch",
        "4",
        "--density",
        "0.5",
        "--density-override",
        "one.w=0.5",
    )
    one, two = (compiled(model, tmp_path / seed, seed, choices) for seed in ("1", "77"))
    assert one == two


def test_a_program_says_nothing_of_the_time_it_took(tmp_path: Path) -> None:
    model, options = (
        et.load_onnx(write_mlp(tmp_path / "mlp.onnx", 6, 8, 4)),
        {"minibatch": 4, "microbatch": 4},
    )
    assert "plan_seconds" not in et.compile(model, **options).account
    assert et.plan(model, **options)["plan_seconds"] >= 0
