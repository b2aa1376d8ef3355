"""Runs that earlier versions left unfinished continue bit for bit, or by `migrate`."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgetrain as et
from edgetrain import migration
from edgetrain.cli import main
from edgetrain.compiler.options import Options
from edgetrain.errors import (
    CheckpointError,
    EdgetrainError,
    OutdatedError,
    ProgramError,
    RunError,
    UsageError,
)
from edgetrain.program import KIND, VERSION, atomic
from edgetrain.program.container import read_container, write_container
from edgetrain.program.program import VERSIONS
from edgetrain.runtime.loading.program import load_program
from edgetrain.runtime.run.checkpoint import latest
from edgetrain.runtime.run.folder import RunFolder
from tests.digests import digest
from tests.quick import slow_between

from .kinds import KINDS, STOPPED, WHOLE, samples
from .make import EXPECTED, FOLDER, MODEL, RUN, reached, read_set

SETS = {path.name.partition(".")[0]: read_set(path) for path in sorted(FOLDER.glob("*.tar.xz"))}
# Each has a storage, an optimizer or a kind of state of its own; the others are slow.
SOME = ("fp16", "int8 adam", "sparse dsr", "lora int4", "segments", "watched")
# A kind whose kernels have given the same bits since the oldest set.
SAME = "lstm"
RUNS = [(name, kind) for name in SETS for kind in json.loads(SETS[name][EXPECTED])]


def unpacked(name: str, kind: str, place: Path) -> Path:
    """Write a set's run directory to `place`."""
    for path, data in SETS[name].items():
        if path.startswith(f"{kind}/"):
            file = place / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
    return place / kind / RUN


def expected(name: str, kind: str) -> dict[str, Any]:
    return json.loads(SETS[name][EXPECTED])[kind]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of the oldest set."""
    return unpacked(next(iter(SETS)), SAME, tmp_path)


def outdate(folder: Path, **changed: Any) -> None:
    """Change fields of a run's Program so that this build cannot run it."""
    path = folder / "program.edge"
    tensors, meta = read_container(path, kind=KIND, versions=VERSIONS)
    fields = {**json.loads(meta["program"]), **changed}
    tensors = {name: np.array(array) for name, array in tensors.items()}
    write_container(path, tensors, {"program": json.dumps(fields)}, kind=KIND, version=VERSION)


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name != "run.lock"}


def check_carried(before: Path, after: Path) -> None:
    """Check that every tensor and field of the checkpoint is unchanged."""
    old, new = latest(before), latest(after)
    assert old is not None and new is not None
    assert old.tensors.keys() == new.tensors.keys()
    for name, array in old.tensors.items():
        found = new.tensors[name]
        assert (found.dtype, found.shape) == (array.dtype, array.shape), name
        assert found.tobytes() == array.tobytes(), name
    assert {**old.meta, "recipe": ""} == {**new.meta, "recipe": ""}
    assert old.meta["step"] == STOPPED


@pytest.mark.parametrize("name, kind", slow_between(RUNS, 3))
def test_a_run_of_an_earlier_version_goes_on(name: str, kind: str, tmp_path: Path) -> None:
    """With the same bits if kernels have the same revisions; otherwise migrated, with its state."""
    folder, wanted = unpacked(name, kind, tmp_path), expected(name, kind)
    try:
        assert reached(KINDS[kind], folder, folder) == wanted
    except OutdatedError:
        found = et.migrate(folder)
        assert found.departures or found.begun or found.dropped or found.converted
        if not (found.begun or found.dropped or found.converted):
            check_carried(found.before, folder)
        end = reached(KINDS[kind], folder, folder)
        # Six more steps of a small net: another summation order changes the loss by far less.
        assert end["loss"] == pytest.approx(wanted["loss"], rel=0.02, abs=0.02)


def test_every_kind_is_in_the_sets() -> None:
    assert {kind for _, kind in RUNS} == KINDS.keys()


@pytest.mark.parametrize(
    "name, kind",
    [pytest.param(*one, marks=() if one[1] in SOME else pytest.mark.slow) for one in RUNS],
)
def test_migrate_carries_every_tensor_and_counter(name: str, kind: str, tmp_path: Path) -> None:
    folder, out = unpacked(name, kind, tmp_path), tmp_path / "new"
    before = contents(folder)
    found = et.migrate(folder, out=out)
    assert contents(folder) == before
    assert (found.path, found.before, found.step) == (out, None, STOPPED)
    if not (found.begun or found.dropped or found.converted):
        check_carried(folder, out)
    assert (out / "best.ckpt").exists() == (folder / "best.ckpt").exists()
    end, wanted = reached(KINDS[kind], out, out), expected(name, kind)
    if not found.departures:
        assert end == wanted
    assert end["loss"] == pytest.approx(wanted["loss"], rel=0.02, abs=0.02)


@pytest.mark.parametrize("name, kind", RUNS)
def test_options_come_back_from_a_recipe(name: str, kind: str, tmp_path: Path) -> None:
    recipe = dict(load_program(unpacked(name, kind, tmp_path) / "program.edge").recipe)
    again = json.loads(json.dumps(Options.of_recipe(recipe).recipe()))
    for made in ("sparse_layers", "output_shape"):  # of the model
        recipe.pop(made, None)
    if "lora" in recipe:
        recipe["lora"] = {k: v for k, v in recipe["lora"].items() if k != "layers"}
    # Programs from before this option have direct convolutions, and keep them.
    assert again == {"convolutions": "direct"} | recipe


@pytest.mark.parametrize(
    "changed, said",
    [
        ({"revisions": {"sgd.plain": 7}}, "kernel sgd.plain: compiled for revision 7; this build"),
        ({"revisions": {"drive_train.plain": 2}}, "kernel drive_train.plain: compiled for"),
        ({"kernels": "gone"}, "kernel un_gone.plain for .*: not available"),
        ({"work": {}}, "more than 4 times"),
    ],
    ids=["revision", "drive", "kernel", "work"],
)
def test_an_outdated_run_says_to_migrate_and_goes_on_after_it(
    changed: dict[str, Any], said: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = load_program(run / "program.edge")
    if "kernels" in changed:
        changed = {"kernels": [["un_gone", "plain", ["f32"]], *map(list, program.kernels[1:])]}
    elif "sgd.plain" in changed.get("revisions", ()):
        label = next(f"{n}.{v}" for n, v, _ in program.kernels if "sgd" in n)
        changed, said = {"revisions": {label: 7}}, said.replace("sgd.plain", label)
    outdate(run, **changed)
    x, y = samples(KINDS[SAME].net)
    data = run.parent / "data.npz"
    np.savez(data, x=x, y=y)
    given = ("--data", f"npz:{data}", "--steps", str(WHOLE), "--no-eval")
    assert main(["train", "--resume", str(run), *given]) == 4
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert f": edgetrain migrate {run}" in line
    assert "ompile the model again" not in line
    with pytest.raises(OutdatedError, match=said):
        et.Trainer(run / "program.edge", (x, y))
    assert main(["eval", str(run), "--data", f"npz:{data}"]) == 4
    assert f"edgetrain migrate {run}" in capsys.readouterr().err
    assert main(["export", str(run), "-o", str(run.parent / "trained.onnx")]) == 0
    assert main(["migrate", str(run)]) == 0
    out = capsys.readouterr().out
    assert f"step {STOPPED}:" in out
    assert ("may differ" in out) == ("revisions" in changed or "kernels" in changed)
    revised = "revision 7 is now" in out or "revision 2 is now" in out
    assert revised == ("revisions" in changed)
    assert main(["train", "--resume", str(run), *given]) == 0
    last = latest(run)
    assert last is not None
    assert digest(last.tensors) == expected(next(iter(SETS)), SAME)["digest"]


def test_a_bundle_of_an_outdated_program_is_refused(run: Path) -> None:
    outdate(run, revisions={"drive_train.plain": 2})
    with pytest.raises(OutdatedError, match="compiled for revision 2"):
        et.bundle(run / "program.edge", run.parent / "bundle")


def test_a_newer_format_asks_for_an_upgrade(run: Path) -> None:
    path = run / "program.edge"
    tensors, meta = read_container(path, kind=KIND, versions=VERSIONS)
    tensors = {name: np.array(array) for name, array in tensors.items()}
    write_container(path, tensors, meta, kind=KIND, version=VERSION + 1)
    with pytest.raises(ProgramError, match="this build reads 3-5. Upgrade edgetrain"):
        et.migrate(run)


@pytest.mark.parametrize("given", [".", "links/run"])
def test_migrate_names_the_place_of_the_old_run(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch,
    given: str,
) -> None:  # fmt: skip
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "run").symlink_to(run)
    monkeypatch.chdir(run if given == "." else tmp_path)
    assert main(["migrate", given]) == 0
    before = run.with_name(f"{run.name}.before-migrate")
    old, new = (before, run) if given == "." else (before.relative_to(tmp_path), given)
    said = capsys.readouterr().out
    assert before.is_dir() and f"the old run is in {old}\n" in said
    assert f"train --resume {new} " in said


def test_migrate_takes_the_model_it_is_given(run: Path, capsys: pytest.CaptureFixture) -> None:
    model, out = run.parent / MODEL, run.parent / "new"
    assert main(["migrate", str(run), str(model), "--out", str(out), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["path"], said["step"], said["before"]) == (str(out), STOPPED, None)
    trained = [
        slot for slot in load_program(run / "program.edge").saved if slot.role == "parameter"
    ]
    assert said["carried"]["parameter"] == len(trained) > 1 and said["same_bits"]
    check_carried(run, out)


def test_migrate_takes_an_older_checkpoint_where_the_newest_is_damaged(
    run: Path, capsys: pytest.CaptureFixture
) -> None:
    (newest,) = run.glob("*.ckpt")
    later = run / "step-00000009.ckpt"
    later.write_bytes(newest.read_bytes()[:-1])
    out = run.parent / "new"
    assert main(["migrate", str(run), "--out", str(out)]) == 0
    assert "Using the older" in capsys.readouterr().err
    assert [path.name for path in out.glob("*.ckpt")] == [newest.name]
    check_carried(run, out)


def test_migrate_plans_for_another_budget(run: Path, capsys: pytest.CaptureFixture) -> None:
    before = contents(run)
    assert main(["migrate", str(run), "--budget", "1000"]) == 3
    assert "budget 1000" in capsys.readouterr().err
    assert contents(run) == before
    assert main(["migrate", str(run), "--budget", "80000"]) == 0
    assert load_program(run / "program.edge").account["budget_nbytes"] == 80000


def test_migrate_refuses_a_model_of_other_parameters(run: Path) -> None:
    before = contents(run)
    other = unpacked(next(iter(SETS)), "fp32", run.parent / "other").parent / MODEL
    with pytest.raises(EdgetrainError, match="the model|expected"):
        et.migrate(run, other)
    assert contents(run) == before
    assert sorted(os.listdir(run.parent)) == [MODEL, "other", RUN]


def test_migrate_brings_a_run_along_that_has_no_checkpoint(run: Path) -> None:
    for path in run.glob("*.ckpt"):
        path.unlink()
    found = et.migrate(run)
    assert (found.step, found.counts) == (None, {})
    assert latest(run) is None and load_program(run / "program.edge").minibatch == 8


def test_migrate_keeps_what_else_lies_in_the_directory(run: Path) -> None:
    (run / "history.json").write_text("{}")
    (run / "pages").mkdir()
    (run / "pages" / "run.html").write_text("<p>")
    (run / "notes").symlink_to("history.json")
    found = et.migrate(run)
    assert found.before == run.with_name("run.before-migrate")
    assert (run / "pages" / "run.html").read_text() == "<p>"
    assert os.readlink(run / "notes") == "history.json"
    assert (found.before / "history.json").exists()


@pytest.mark.parametrize("where", ["save_step", "exchange", "_copy_others"])
def test_a_run_is_whole_when_migrate_fails(
    where: str, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(run)

    def fail(*given: Any, **named: Any) -> None:
        raise RunError("the disk is full")

    monkeypatch.setattr(migration, where, fail)
    with pytest.raises(RunError, match="the disk is full"):
        et.migrate(run)
    assert contents(run) == before
    assert sorted(os.listdir(run.parent)) == [MODEL, RUN]
    end = reached(KINDS[SAME], run, run)
    assert end["digest"] == expected(next(iter(SETS)), SAME)["digest"]


@pytest.mark.parametrize("fails", [False, True])
def test_directories_are_exchanged_where_the_system_has_no_call_for_it(
    fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, old = tmp_path / "new", tmp_path / "old"
    for path in (new, old):
        path.mkdir()
        (path / path.name).touch()
    monkeypatch.setattr(atomic.ctypes, "CDLL", lambda *given, **named: object())
    if fails:
        shutil.rmtree(new)
        with pytest.raises(FileNotFoundError):
            atomic.exchange(new, old)
        assert os.listdir(old) == ["old"]
        return
    atomic.exchange(new, old)
    assert (os.listdir(old), os.listdir(new)) == (["new"], ["old"])
    assert sorted(os.listdir(tmp_path)) == ["new", "old"]


def test_migrate_refuses_a_run_that_is_at_work_and_a_place_that_is_taken(run: Path) -> None:
    with RunFolder(run).held(), pytest.raises(UsageError, match="is training in this directory"):
        et.migrate(run)
    with pytest.raises(UsageError, match="--out .*: already exists"):
        et.migrate(run, out=run.parent)
    with pytest.raises(CheckpointError, match="no such directory"):
        et.migrate(run / "none")
