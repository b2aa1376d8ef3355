"""A run and its data: mismatches are refused before anything is written or run."""

from pathlib import Path

import numpy as np
import pytest

import edgetrain as et
from edgetrain.cli import main
from edgetrain.errors import CheckpointError, DataError, UsageError
from edgetrain.ops.model import Model
from edgetrain.program import Program
from edgetrain.runtime.session import Session

from .models import write_rows

N = 60
X = np.random.default_rng(0).normal(size=(N, 3, 8)).astype(np.float32)
Y = np.arange(N) % 10


def with_label(label: int) -> np.ndarray:
    y = Y.copy()
    y[-1] = label
    return y


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return et.load_onnx(write_rows(tmp_path_factory.mktemp("rows") / "rows.onnx"))


@pytest.fixture(scope="module")
def program(model: Model) -> Program:
    return et.compile(model, minibatch=4, microbatch=4)


@pytest.fixture(scope="module")
def edge(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return program.save(tmp_path_factory.mktemp("rows") / "rows.edge")


@pytest.fixture
def trainer(program: Program):
    made = []

    def make(*args, **options) -> et.Trainer:
        made.append(et.Trainer(program, *args, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


WRONG = [
    (X.transpose(0, 2, 1), Y, r"\[8, 3\] .* \[3, 8\].* Transpose .* \(0, 2, 1\)"),
    (X.reshape(N, 24), Y, r"\[24\] .* \[3, 8\]"),
    (X.reshape(N, 6, 4), Y, r"\[6, 4\] .* \[3, 8\]"),
    (X[:, :1], Y, r"\[1, 8\] .* \[3, 8\]"),
    (X, Y[:, None] * [1, 1], r"field 'y' has shape \[2\]"),
    (X, with_label(10), "sample 59: .*value 10.* from 0 to 9"),
    (X, with_label(-1), "sample 59: .*value -1.* from 0 to 9"),
    (X, with_label(3) + 0.5, "sample 0: .*value 0.5.* whole number"),
]


@pytest.mark.parametrize(("x", "y", "match"), WRONG)
def test_trainer_refuses_wrong_data_before_it_writes(trainer, tmp_path, x, y, match) -> None:
    out = tmp_path / "run"
    with pytest.raises(DataError, match=match):
        trainer((x, y), out)
    with pytest.raises(DataError, match=match):
        trainer((X, Y), out, validation=(x, y))
    with pytest.raises(DataError, match=match):
        trainer((X, Y)).evaluate((x, y))
    splits = {"x_train": X, "y_train": Y, "x_test": x, "y_test": y}
    with pytest.raises(DataError, match=match):
        trainer(splits).fit(steps=1, evaluate=True)
    assert not out.exists()


@pytest.mark.parametrize(("x", "y", "match"), [WRONG[k] for k in (0, 5)])
def test_commands_refuse_wrong_data_before_they_write(
    edge, tmp_path, capsys, monkeypatch, x, y, match
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("wrong.npz", x=x, y=y)
    np.savez("good.npz", x=X, y=Y)
    np.savez("test.npz", x_train=X, y_train=Y, x_test=x, y_test=y)
    train = ("train", str(edge), "--steps", "1", "--data")
    for command in (
        (*train, "npz:wrong.npz"),
        (*train, "npz:wrong.npz", "--out", "out/run"),
        (*train, "npz:good.npz", "--validation", "npz:wrong.npz"),
        (*train, "npz:test.npz", "--out", "out"),
        ("eval", str(edge), "--data", "npz:wrong.npz"),
    ):
        assert main(command) == 4
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and np.char.find(said, "error: ") > 0
        with pytest.raises(DataError, match=match):
            raise DataError(said.strip())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["good.npz", "test.npz", "wrong.npz"]


def test_axes_of_size_1_may_differ(trainer) -> None:
    plain, wider = trainer((X, Y)), trainer((X[:, :, None, :, None], Y[:, None]))
    assert plain.evaluate((X, Y)) == wider.evaluate((X[:, None], Y[:, None]))


def test_trainer_trains_on_all_unless_it_is_asked_to_hold_out(trainer) -> None:
    events: list[dict] = []
    trainer((X, Y), on_event=events.append).fit(epochs=1, evaluate=True)
    kinds = [event["event"] for event in events]
    assert kinds.count("step") == N // 4 and "eval" not in kinds
    assert (events[0]["samples"], events[0]["held_out"]) == (N, 0)
    assert "there is nothing to evaluate on" in events[0]["message"]
    with pytest.raises(UsageError, match="evaluate: arrays has no test split"):
        trainer((X, Y)).evaluate()

    events.clear()
    trainer((X, Y), validation=0.2, on_event=events.append).fit(epochs=1, evaluate=True)
    kinds = [event["event"] for event in events]
    assert kinds.count("step") == 48 // 4
    assert events[kinds.index("eval")]["samples"] == 12
    assert "held out 12 of 60 samples (20 %)" in events[0]["message"]


def test_evaluate_looks_at_all_that_it_is_given(trainer) -> None:
    one = trainer((X, Y))
    assert one.evaluate((X, Y))["samples"] == N
    assert one.evaluate(et.open_data((X[:7], Y[:7])))["samples"] == 7


def test_one_sample_is_enough(model) -> None:
    single = et.Trainer(et.compile(model, minibatch=1), (X[:1], Y[:1]))
    try:
        single.fit(epochs=3)
        assert single.steps == 3 and single.evaluate((X[:1], Y[:1]))["samples"] == 1
    finally:
        single.close()


def test_resume_asks_for_the_same_division(trainer, tmp_path) -> None:
    trainer((X, Y), tmp_path, validation=0.2).fit(steps=2)
    for data, validation in (((X, Y), None), ((X, Y), 0.5), ((X[:48], Y[:48]), None)):
        with pytest.raises(CheckpointError, match=r"48 training .* 12 held-out .* and validation"):
            trainer(data, validation=validation).resume(tmp_path)
    assert trainer((X, Y), validation=0.2).resume(tmp_path)


def test_commands_say_what_is_held_out(edge, tmp_path, capsys) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=X, y=Y)
    train = ("train", str(edge), "--data", f"npz:{path}", "--epochs", "1", "--out")
    assert main((*train, str(tmp_path / "all"))) == 0
    said = capsys.readouterr().err
    assert "no test split and nothing is held out: all 60" in said and "accuracy" not in said
    assert main((*train, str(tmp_path / "part"), "--validation", "0.2")) == 0
    said = capsys.readouterr().err
    assert "held out 12 of 60 samples (20 %) for evaluation" in said and "accuracy" in said
    assert main((*train, str(tmp_path / "none"), "--validation", "0", "--no-eval")) == 0
    assert "held out" not in capsys.readouterr().err
    for wrong in ("2", "nan", "-0.5"):
        assert main((*train, str(tmp_path / "wrong"), "--validation", wrong)) == 2
        assert "expected a fraction" in capsys.readouterr().err
    resume = ("train", "--resume", str(tmp_path / "part"), "--data", f"npz:{path}", "--epochs", "2")
    assert main(resume) == 4 and "and validation" in capsys.readouterr().err
    assert main((*resume, "--validation", "0.2")) == 0
    capsys.readouterr()
    assert main(("eval", str(tmp_path / "part"), "--data", f"npz:{path}")) == 0
    shown = capsys.readouterr()
    assert "60 samples" in shown.out and "no test split; all 60 samples are evaluated" in shown.err


def test_predict_and_gradients_take_no_other_layout(program, model) -> None:
    session = Session(program)
    try:
        whole = session.predict({"x": X})
        np.testing.assert_array_equal(session.predict({"x": X[:, :, None]}), whole)
        for inputs in (
            {"x": X.transpose(0, 2, 1)}, {"x": X[:, :, :1]}, {"x": X[:, :1]}, {"x": X[0]},
            {"x": X[:0]}, {"x": np.full((4, 3, 8), "a")}, {"x": np.float32(1)}, {"z": X}, {},
        ):  # fmt: skip
            with pytest.raises(DataError):
                session.predict(inputs)
    finally:
        session.close()
    for x, y in (
        (X[:4].transpose(0, 2, 1), Y[:4]), (X[:4, :, :1], Y[:4]), (X[:4, :1], Y[:4]),
        (X[:4], Y[:4] + 10), (X[:4], Y[:4] + 0.5),
    ):  # fmt: skip
        with pytest.raises(DataError):
            et.loss_and_gradients(model, {"x": x}, y)
    with pytest.raises(DataError, match="input 'x' is missing"):
        et.loss_and_gradients(model, {"z": X[:4]}, Y[:4])
    with pytest.raises(DataError, match=r"Transpose .* \(0, 2, 1\)"):
        et.forward(model, {"x": X.transpose(0, 2, 1)})


def test_steps_make_nothing_anew_that_the_program_says(trainer, monkeypatch) -> None:
    """The recipe's loss is built once: every step, it would take most of a small net's time."""
    made: list[object] = []
    of_json = et.Loss.of_json
    monkeypatch.setattr(et.Loss, "of_json", lambda record: made.append(record) or of_json(record))
    for steps in (2, 20):
        made.clear()
        trainer((X, Y)).fit(steps=steps)
        if steps == 2:
            few = len(made)
    assert len(made) == few


BAD = X.copy()
BAD[57, 1, 2] = np.nan


def _npy(place: Path) -> str:
    np.save(place / "x.npy", BAD)
    np.save(place / "y.npy", Y)
    return f"npy:{place}"


def _folders(place: Path) -> str:
    for index, label in enumerate(Y):
        (place / f"{label}").mkdir(exist_ok=True)
        np.save(place / f"{label}" / f"{index}.npy", BAD[index])
    return f"dir:{place}"


def _npz(place: Path, **arrays: np.ndarray) -> str:
    np.savez(place / "a.npz", **(arrays or {"x": BAD, "y": Y}))
    return f"npz:{place / 'a.npz'}"


@pytest.mark.parametrize(
    ("data", "sample"),
    [
        (lambda place: (BAD, Y), "sample 57"),
        (lambda place: (BAD.astype(np.float64), Y), "sample 57"),
        (lambda place: (BAD.astype(">f4"), Y), "sample 57"),
        (lambda place: {"x": BAD, "y": Y}, "sample 57"),
        (lambda place: et.open_data((BAD, Y), test_fraction=0.2), "sample 57"),
        (lambda place: et.open_data((BAD, Y), augment="noise=0.1"), "sample 57"),
        (_npz, "a.npz: sample 57"),
        (_npy, "sample 57"),
        (_folders, r"sample 46 \(.*7/57.npy\)"),
    ],
    ids=["arrays", "float64", "big", "dict", "held out", "augmented", "npz", "npy", "folders"],
)
def test_nan_is_found_before_anything_is_trained(trainer, tmp_path, data, sample) -> None:
    place = tmp_path / "data"
    place.mkdir()
    with pytest.raises(DataError, match=f"{sample}: field 'x': value nan; expected a finite"):
        trainer(data(place), tmp_path / "run").fit(epochs=1)
    assert not (tmp_path / "run").exists()


def test_nan_is_found_in_a_test_split_and_passed_on_request(trainer, tmp_path) -> None:
    arrays = {"x_train": X, "y_train": Y, "x_test": BAD, "y_test": Y}
    with pytest.raises(DataError, match="sample 57: field 'x': value nan"):
        trainer(_npz(tmp_path, **arrays)).evaluate()
    assert trainer(et.open_data((BAD, Y), allow_nonfinite=True)).fit(steps=2)["loss"]


def test_data_command_finds_nan(edge, tmp_path, capsys) -> None:
    assert main(["data", _npz(tmp_path), str(edge)]) != 0
    said = "".join(capsys.readouterr())
    assert "sample 57: field 'x': value nan" in said


BYTES = np.random.default_rng(1).integers(0, 256, (N, 3, 8), np.uint8)
SCALED = (BYTES / 255).astype(np.float32)
FORMS = {
    "arrays": lambda x: (x, Y),
    "samples": lambda x: [*zip(x, Y, strict=True)],
    "batches": lambda x: iter([(x[k : k + 4], Y[k : k + 4]) for k in range(0, N, 4)]),
    "single samples": lambda x: iter([*zip(x, Y, strict=True)]),
}


@pytest.mark.parametrize("form", FORMS)
def test_bytes_are_scaled_alike_in_every_form_of_data(trainer, form) -> None:
    one, make = trainer(), FORMS[form]
    assert one.evaluate(make(BYTES))["loss"] == pytest.approx(one.evaluate((SCALED, Y))["loss"])


def test_a_step_and_a_prediction_scale_bytes_as_data_does(trainer) -> None:
    one, other = trainer(), trainer()
    np.testing.assert_allclose(one.predict(BYTES), one.predict(SCALED), rtol=1e-5, atol=1e-6)
    assert one.step(BYTES[:4], Y[:4]).loss == pytest.approx(other.step(SCALED[:4], Y[:4]).loss)


@pytest.mark.parametrize("make", [list, iter], ids=["list", "generator"])
@pytest.mark.parametrize("parts", [(BYTES, SCALED), (SCALED, BYTES)], ids=["bytes", "floats"])
def test_samples_of_which_only_some_are_bytes_are_refused(trainer, make, parts) -> None:
    rows = [*parts[0][:3], *parts[1][:5]]
    with pytest.raises(DataError, match="x is .*, others .* uint8"):
        trainer().fit(make([*zip(rows, Y, strict=False)]), epochs=1)


def test_data_that_is_refused_leaves_the_trainer_as_it_was(trainer) -> None:
    one, bad = trainer(), X.copy()
    bad[7, 1, 2] = np.nan
    with pytest.raises(DataError):
        one.fit((bad, np.array(["a", "b", "c"] * 20)), epochs=1)
    assert (one.source, one.labels) == (None, None)
    one.fit((X, Y), epochs=1)
    assert one.steps == N // 4
