"""Arguments of a wrong type or value: each is refused in one line, never by Python or numpy."""

import copy
import io
import os
import pickle
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgetrain as et
from edgetrain.cli import main
from edgetrain.data.source import Source
from edgetrain.data.sources.row_source import RowsSource
from edgetrain.program import Program
from edgetrain.units.wording import quoted
from tests.runtime.online_net import compiled, drawn, exported

X, Y = drawn(48)
HUGE, LONG, SURROGATE = 10**400, "x" * 300, "\ud800"
NUMBER, PAIR, TEXT = np.array(1), np.array([1.0, 2.0]), np.array("x")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(tmp_path_factory.mktemp("wrong"))[1]


@pytest.fixture(scope="module")
def program(path: Path) -> Program:
    return compiled(path)


class Case:
    """What a call is given: a model, its Program, a Trainer of it, and data."""

    def __init__(self, path: Path, program: Program) -> None:
        self.path, self.program = path, program

    def plan(self, **options: Any) -> Any:
        return et.plan(self.path, **options)

    def trainer(self, **settings: Any) -> et.Trainer:
        return et.Trainer(self.program, **{"verbose": False, **settings})

    def fit(self, **options: Any) -> Any:
        return self.trainer(data=(X, Y)).fit(steps=1, **options)

    def bundle(self, **options: Any) -> Any:
        return et.bundle(self.program, "made", **options)

    def source(self) -> Source:
        return et.open_data((X, Y))


Call = Callable[[Case], Any]
# Name -> (call, what its error line contains).
CASES: dict[str, tuple[Call, str]] = {
    # Bundles, refused before anything is built.
    "bundle(data='digit')": (lambda c: c.bundle(data="digit"), "data 'digit': unknown kind"),
    "bundle(data=True)": (lambda c: c.bundle(data=True), "data of type bool: expected"),
    **{
        f"bundle({name}={value!r})": (
            lambda c, n=name, v=value: c.bundle(**{n: v}),
            f"bundle: {name} {value!r}: expected {wanted}",
        )
        for name, wanted, values in (
            ("name", "a string", (None, True, 0)),
            ("target", "a string or None", (0, False)),
            ("cc", "a string or None", (True, False)),
            ("size", "true or false", (None, 1)),
            ("length", "a whole number or None", (True, "8")),
        )
        for value in values
    },
    "bundle(target='')": (lambda c: c.bundle(target=""), "target '': expected one of"),
    "bundle(name='1x')": (lambda c: c.bundle(name="1x"), r"--name \(in Python name\)"),
    # Names of files.
    **{
        f"{name}(LONG)": (call, "File name too long")
        for name, call in dict[str, Call](
            load_program=lambda c: et.load_program(LONG),
            Trainer=lambda c: et.Trainer(LONG, verbose=False),
            find_lr=lambda c: et.find_lr(LONG, (X, Y)),
            migrate=lambda c: et.migrate(LONG),
            save_stored=lambda c: c.trainer().save_stored("a.bin", LONG),
            load_onnx=lambda c: et.load_onnx(LONG),
        ).items()
    },
    **{
        f"{name}(SURROGATE)": (call, r"'\\ud800': expected")
        for name, call in dict[str, Call](
            export_onnx=lambda c: c.trainer().export_onnx(SURROGATE),
            save_stored=lambda c: c.trainer().save_stored(SURROGATE),
            save=lambda c: c.program.save(SURROGATE),
            resume=lambda c: c.trainer().resume(SURROGATE),
            migrate=lambda c: et.migrate(SURROGATE),
            out=lambda c: c.trainer(out=SURROGATE),
            bundle=lambda c: et.bundle(c.program, SURROGATE),
        ).items()
    },
    "load_program(SURROGATE)": (lambda c: et.load_program(SURROGATE), "cannot store"),
    # Data.
    "find_lr(set())": (lambda c: et.find_lr(c.program, set()), "returned no batches"),
    "find_lr(function)": (lambda c: et.find_lr(c.program, lambda: []), "returned no batches"),
    "pickle(source)": (lambda c: pickle.dumps(c.source()), "can't be copied.*open_data"),
    "deepcopy(source)": (lambda c: copy.deepcopy(c.source()), "can't be copied.*open_data"),
    "fill, too large": (lambda c: _filled(c, [48]), "sample 48; expected a number from 0 to 47"),
    "fill, negative": (lambda c: _filled(c, [-1]), "sample -1; expected"),
    "fill, fractions": (lambda c: _filled(c, [0.5]), "expected whole numbers"),
    "fill, two axes": (lambda c: _filled(c, [[0]]), "expected whole numbers"),
    "fill, rows": (lambda c: _filled(c, [0, 1]), "expected one row for each of 2 samples"),
    "step(file)": (lambda c: c.trainer().step(io.BytesIO(), Y[:1]), "expected numbers"),
    "Trainer(file)": (lambda c: c.trainer(data=(io.BytesIO(), Y)), "expected numbers"),
    # Settings of a call.
    **{
        f"{name}({value!r})": (lambda c, f=call, v=value: f(c, v), words)
        for name, call, words in (
            ("fit, evaluate", lambda c, v: c.fit(evaluate=v), "fit: evaluate .*true or false"),
            ("fit, verbose", lambda c, v: c.fit(verbose=v), "verbose .*true or false"),
            ("evaluate, verbose", lambda c, v: c.trainer().evaluate((X, Y), verbose=v), "verbose"),
        )
        for value in ("0", 1, PAIR, np.array([]))
    },
    # Numbers beyond those of a float.
    "SGD(lr=HUGE)": (lambda c: et.SGD(lr=HUGE), "lr 1000.*: expected a finite number"),
    "Loss(delta=HUGE)": (lambda c: et.Loss("huber", delta=HUGE), "expected a finite number"),
    "density=HUGE": (lambda c: c.plan(density=HUGE), "density 1000.*expected a finite number"),
    "max_grad_norm=HUGE": (lambda c: c.trainer(max_grad_norm=HUGE), "expected a finite number"),
    # Arrays.
    **{
        f"{name}={value!r}": (lambda c, n=name, v=value: c.plan(**{n: v}), f"{name} array.*a list")
        for name in ("train", "freeze", "allow", "train_constants", "lengths")
        for value in (NUMBER, TEXT)
    },
    "callbacks=0-d": (lambda c: c.trainer(callbacks=NUMBER), "callbacks: array"),
    "class_weights=0-d": (lambda c: et.Loss("cross_entropy", class_weights=NUMBER), "class_weight"),
    "milestones=0-d": (lambda c: et.Schedule("multistep", milestones=np.int64(3)), "milestones"),
    "mode=array": (lambda c: et.EarlyStopping("f1", mode=PAIR), "mode array.*expected 'min'"),
    "save_freq=array": (
        lambda c: et.callbacks.ModelCheckpoint("a.onnx", save_freq=PAIR),
        "save_freq array.*expected 'epoch'",
    ),
    "parameters[array]": (lambda c: c.trainer().parameters[PAIR], "no such name"),
    "loss_weights[list]": (lambda c: c.trainer().loss_weights.__setitem__([1], 1), "loss_weights:"),
    # Empty values of a wrong type.
    **{
        f"losses={value!r}": (lambda c, v=value: c.plan(losses=v), "losses .*by output")
        for value in (0, False, "", b"", set())
    },
    **{
        f"metrics={value!r}": (lambda c, v=value: c.trainer(metrics=v), "metrics .*names or func")
        for value in (0, False, "", b"", set())
    },
    "evaluate(metrics=0)": (lambda c: c.trainer().evaluate((X, Y), 0), "metrics 0: expected"),
    "lengths={}": (lambda c: c.plan(lengths={}), "lengths: dimensions none; expected one"),
    "lengths=b''": (lambda c: c.plan(lengths=b""), "lengths b'': expected a list"),
    **{
        f"{name}={value!r}": (lambda c, n=name, v=value: c.plan(**{n: v}), f"{name} .*a list")
        for name in ("train", "freeze", "allow")
        for value in (b"", {})
    },
    "train=iterator": (lambda c: c.plan(train=iter(["x"])), "train .*a list"),
    # Advice for Python as well.
    "batch_axis": (
        lambda c: c.plan(batch_axis={"x": 1}),
        r"--dim .*in Python dims=\{'\w+': SIZE\} or batch_axis=\{'x': 0\}",
    ),
    "train_constants": (
        lambda c: c.plan(train_constants=["x"]), r"\(in Python train_constants\) 'x': no match",
    ),
}  # fmt: skip


def _filled(case: Case, indices: Any) -> None:
    case.source().fill(indices, {"x": np.empty((1, 6), np.float32)})


@pytest.mark.parametrize("name", CASES)
def test_wrong_arguments_are_refused_in_one_line(
    name: str, path: Path, program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from edgetrain.bundle import writing

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(writing, "image_for", lambda *given: pytest.fail("it began"))
    call, words = CASES[name]
    with pytest.raises(et.EdgetrainError, match=words) as caught:
        call(Case(path, program))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("empty", [[], (), {}, None])
def test_nothing_is_asked_for_by_usual_empty_values(empty: Any, path: Path, program: Program):
    case = Case(path, program)
    assert case.plan(losses=empty)["arena_nbytes"] == case.plan()["arena_nbytes"]
    assert set(case.trainer().evaluate((X, Y), empty)) == set(case.trainer().evaluate((X, Y)))
    case.trainer(metrics=empty)


def test_a_bundle_opens_its_data_as_a_trainer_does(program: Program, tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", x=X, y=Y)
    for data in ((X, Y), f"npz:{tmp_path / 'own.npz'}"):
        et.bundle(program, tmp_path / "made", data=data)
        assert (tmp_path / "made/net.samples").stat().st_size > X.nbytes
        (tmp_path / "made/net.samples").unlink()


def test_sources_that_open_nothing_can_be_copied() -> None:
    source = et.open_data((X, Y))
    assert copy.copy(source).n == source.n
    source.reopen = None
    own = pickle.loads(pickle.dumps(source))
    assert isinstance(own, RowsSource) and own.n == source.n


@pytest.mark.parametrize(
    "typed",
    [
        "export LONG -o x.onnx", "eval LONG --data digits", "migrate LONG", "inspect LONG",
        "inspect LONG.edge", "train --resume LONG --data digits --epochs 1", "bundle LONG -o b",
        "plan MODEL --dump LONG", "find-lr LONG --data digits", "data images:LONG", "serve LONG",
    ],
)  # fmt: skip
def test_names_too_long_for_a_file_are_one_line(
    typed: str, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [word.replace("LONG", LONG).replace("MODEL", str(path)) for word in typed.split()]
    assert main(words) in (2, 3, 4)
    err = capsys.readouterr().err.splitlines()[-1]
    assert "This is a bug" not in err and re.search("too long|expected a name ending", err), err


@pytest.mark.parametrize(
    "name", [b"plain", b"a b", b"it's", b"l\xc3\xb6", b"b\xff1", b"a\nb", b"\xc3\xb6\\'\xff"]
)
def test_commands_name_the_path_that_exists(name: bytes) -> None:
    word = quoted(os.fsdecode(name))
    done = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True)
    assert done.stdout == name and word.isprintable()
    in_c_locale = name.decode("ascii", "surrogateescape")
    assert quoted(in_c_locale).isprintable()
