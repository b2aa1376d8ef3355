"""Mistakes of a new user: each gives a one-line error that says what was meant, or what to do.

Working uses are in test_new_user.
"""

import copy
import inspect
import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import edgetrain as et
from edgetrain.cli import main
from edgetrain.exporters import export_torch
from edgetrain.program import Program
from edgetrain.runtime.run.folder import PROGRAM_FILE
from tests.runtime.online_net import Net, compiled, drawn, exported

X, Y = drawn(48)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(tmp_path_factory.mktemp("slips"))[1]


@pytest.fixture(scope="module")
def program(path: Path) -> Program:
    return compiled(path)


def _closed(program: Program) -> et.Trainer:
    trainer = et.Trainer(program, (X, Y))
    trainer.close()
    return trainer


def _with(program: Program, act: Callable[[et.Trainer], Any], *args: Any, **options: Any) -> Any:
    with et.Trainer(program, *args, **options) as trainer:
        return act(trainer)


def _spoilt(value: float) -> np.ndarray:
    x = X.copy()
    x[7, 2] = value
    return x


def _fitted(trainer: et.Trainer) -> Any:
    return trainer.fit(1)


def _steps(trainer: et.Trainer, result: et.StepResult) -> None:
    trainer.step(X[0], Y[0])


def _fits(trainer: et.Trainer, event: dict[str, Any]) -> None:
    trainer.fit(9)


def _empty(name: str) -> Path:
    path = Path(tempfile.mkdtemp()) / name
    path.parent.mkdir(exist_ok=True)
    path.touch()
    return path


# Action on a Program -> what its error line contains.
RUN: dict[str, tuple[Callable[[Program], Any], str]] = {
    # Arguments.
    "fit(batch_size=)": (
        lambda p: _with(p, lambda t: t.fit(1, batch_size=8)),  # type: ignore[call-arg]
        "fit: batch_size: .*minibatch=.. to compile",
    ),
    "fit(num_epochs=)": (
        lambda p: _with(p, lambda t: t.fit(num_epochs=8), (X, Y)),  # type: ignore[call-arg]
        "Did you mean epochs",
    ),
    "fit(1, 2)": (
        lambda p: _with(p, lambda t: t.fit(1, 2), (X, Y)),  # type: ignore[misc]
        "expected data, not a number",
    ),
    "fit()": (lambda p: _with(p, lambda t: t.fit(), (X, Y)), "fit: .*epochs or steps"),
    "fit('3')": (lambda p: _with(p, lambda t: t.fit("3"), (X, Y)), "this Trainer has data"),  # type: ignore[arg-type]
    "fit(0)": (lambda p: _with(p, lambda t: t.fit(0), (X, Y)), "expected more than 0"),
    "fit(lr=)": (
        lambda p: _with(p, lambda t: t.fit(1, lr=0.1), (X, Y)),  # type: ignore[call-arg]
        "fit: lr: no such argument.* lr=.. to Trainer",
    ),
    "step()": (lambda p: _with(p, lambda t: t.step()), "step: x: missing"),  # type: ignore[call-arg]
    "evaluate(metric=)": (
        lambda p: _with(p, lambda t: t.evaluate((X, Y), metric="f1")),  # type: ignore[call-arg]
        "Did you mean metrics",
    ),
    "Trainer()": (lambda p: et.Trainer(), "Trainer: program: missing"),  # type: ignore[call-arg]
    "Trainer(batch_size=)": (lambda p: et.Trainer(p, batch_size=8), "batch_size: no such setting"),
    "load_state_dict(strict=)": (
        lambda p: _with(p, lambda t: t.load_state_dict({}, strict=False)),  # type: ignore[call-arg]
        "strict: ",
    ),
    "save('x')": (
        lambda p: _with(p, lambda t: t.save("x.ckpt")),  # type: ignore[call-arg]
        "save: 1 positional arguments; expected none",
    ),
    # Data.
    "x without y": (lambda p: et.Trainer(p, X), r"expected .*\(x, y\)"),
    "fewer labels": (lambda p: et.Trainer(p, (X, Y[:9])), "x 48, y 9; "),
    "labels from 1": (lambda p: et.Trainer(p, (X, Y + 1)), "value 3; expected .* from 0 to 2"),
    "one-hot labels": (lambda p: et.Trainer(p, (X, np.eye(3)[Y])), r"'y' has shape \[3\]"),
    "fractions as labels": (lambda p: et.Trainer(p, (X, Y + 0.5)), "expected a whole number"),
    "no samples": (lambda p: et.Trainer(p, (X[:0], Y[:0])), "x 0, y 0; .* above 0"),
    "one sample": (lambda p: et.Trainer(p, (X[:1], Y[:1])), "at most 1 "),
    "too few features": (lambda p: et.Trainer(p, (X[:, :4], Y)), r"the model expects \[6\]"),
    "features first": (lambda p: et.Trainer(p, (X.T, Y)), "x 6, y 48; "),
    "NaN": (
        lambda p: _with(p, lambda t: t.fit(1), (_spoilt(np.nan), Y)),
        "sample 7: field 'x': value nan",
    ),
    "infinity": (
        lambda p: _with(p, lambda t: t.fit(1), list(zip(_spoilt(np.inf), Y, strict=True))),
        "sample 7: field 'x': value inf",
    ),
    "objects": (lambda p: et.Trainer(p, (X.astype(object), Y)), "is object"),
    "masked values": (
        lambda p: et.Trainer(p, (np.ma.masked_greater(X, 1.0), Y)),
        "array 'x': .* values are masked. Fill them in",
    ),
    "a masked sample": (
        lambda p: _with(p, lambda t: t.step(np.ma.masked_less(X[:4], 0.0), Y[:4])),
        "values are masked",
    ),
    "columns with names": (
        lambda p: et.Trainer(p, (np.zeros(48, [("a", "f4"), ("b", "f4")]), Y)),
        "expected numbers",
    ),
    "inputs and targets swapped": (
        lambda p: _with(p, lambda t: t.step(Y[:4], X[:4])),
        r"input 'x' has shape \[4\]",
    ),
    "predict nothing": (
        lambda p: _with(p, lambda t: t.predict(X[:0])),
        "predict: samples per input: x 0; expected",
    ),
    "NaN as a label": (
        lambda p: et.Trainer(p, (X, np.where(Y == 1, np.nan, Y))),
        "value nan; expected a whole number",
    ),
    "export into no folder": (
        lambda p: _with(p, lambda t: t.export_onnx("no/such/x.onnx")),
        "Create the directory first",
    ),
    "complex numbers": (lambda p: et.Trainer(p, (X * 1j, Y)), "is complex"),
    "ragged lists": (lambda p: et.Trainer(p, ([[1, 2], [3]], [0, 1])), "arrays: "),
    "a path": (lambda p: et.Trainer(p, Path("a.npz")), "Did you mean npz:a.npz"),
    "a path as text": (lambda p: et.Trainer(p, "a.csv"), "Did you mean csv:a.csv"),
    "a kind misspelt": (lambda p: et.Trainer(p, "cvs:a.csv"), "Did you mean csv:a.csv"),
    "a file that is not there": (lambda p: et.Trainer(p, "npz:a.npz"), "No such file"),
    "other names": (lambda p: et.Trainer(p, {"a": X, "b": Y}), "found fields a, b"),
    "numbers": (lambda p: et.Trainer(p, [1, 2, 3]), "an item of the data is of type int"),
    "batches too large": (
        lambda p: _with(p, lambda t: t.fit(1), [(X, Y)]),
        "compile with minibatch=48",
    ),
    "a generator twice": (
        lambda p: _with(p, lambda t: t.fit(2), iter([(X[:9], Y[:9])])),
        "generator can.t restart",
    ),
    "more validation than data": (
        lambda p: et.Trainer(p, (X, Y), validation=2),
        "validation 2: expected a fraction",
    ),
    # Rates.
    "a negative rate": (lambda p: et.Trainer(p, (X, Y), lr=-0.1), "lr -0.1: expected a finite"),
    "a rate that is none": (lambda p: et.Trainer(p, (X, Y), lr=float("nan")), "lr nan"),
    "a rate as text": (lambda p: et.Trainer(p, (X, Y), lr="0.1"), "lr '0.1'"),
    "a schedule's name": (
        lambda p: et.Trainer(p, (X, Y), schedule="cosine"),
        r"such as et.Schedule\('cosine'\)",
    ),
    # Weights and state.
    "weights of another model": (
        lambda p: _with(p, lambda t: t.load_state_dict({"conv.weight": X})),
        "state: missing fc1.bias",
    ),
    "weights of other shapes": (
        lambda p: _with(
            p, lambda t: t.load_state_dict({k: v.T[..., None] for k, v in t.parameters.items()})
        ),
        r"shape \[.*expected \[",
    ),
    "a module as state": (
        lambda p: _with(p, lambda t: t.load_state_dict(Net())),
        "expected arrays by name",
    ),
    "resume from nowhere": (
        lambda p: _with(p, lambda t: t.resume()),
        "resume: there is no directory",
    ),
    "resume(5)": (lambda p: _with(p, lambda t: t.resume(5)), "resume 5: expected a directory"),  # type: ignore[arg-type]
    "the best of nothing": (
        lambda p: _with(p, lambda t: t.restore_best()),
        "no best state yet",
    ),
    "fit without data": (lambda p: _with(p, lambda t: t.fit(1)), "has no data"),
    "evaluate without any": (lambda p: _with(p, lambda t: t.evaluate(), (X, Y)), "nothing is held"),
    "a pair for x": (lambda p: _with(p, lambda t: t.step((X[:4], Y[:4]))), r"step\(x, y\)"),
    "one label, one-hot": (lambda p: _with(p, lambda t: t.step(X[0], [0, 0, 1])), r"y.argmax\(\)"),
    "step in on_step": (
        lambda p: _with(p, _fitted, (X, Y), callbacks=[et.Callback(on_step=_steps)]),
        "step: .* on_step",
    ),
    "fit in on_epoch_end": (
        lambda p: _with(p, _fitted, (X, Y), callbacks=[et.Callback(on_epoch_end=_fits)]),
        "fit: .* on_epoch_end",
    ),
    "a callback of one argument": (
        lambda p: _with(p, _fitted, (X, Y), callbacks=[et.Callback(on_step=len)]),
        "callback on_step: .* 2 arguments: Trainer, StepResult",
    ),
    "val_loss": (
        lambda p: _with(p, _fitted, (X, Y), callbacks=[et.EarlyStopping("val_loss")]),
        "Did you mean loss",
    ),
    "accurcy": (
        lambda p: _with(p, lambda t: t.evaluate((X, Y), metrics="accurcy")),
        "Did you mean accuracy",
    ),
    "evaluate(x, y)": (
        lambda p: _with(p, lambda t: t.evaluate(X, Y)),
        r"data as one argument: evaluate\(\(x, y\)\)",
    ),
    "a fraction as text": (lambda p: et.Trainer(p, (X, Y), validation="0.2"), "Pass 0.2"),
    "a class as data": (lambda p: et.Trainer(p, dict), "data: the class dict"),
    "more classes than outputs": (
        lambda p: et.Trainer(p, (X, np.array([*"abcd"])[np.arange(48) % 4])),
        "4 classes, a, b, c, d; the model has 3",
    ),
    "labels of bytes": (lambda p: et.Trainer(p, (X, np.array([b"a", b"b"])[Y % 2])), "astype.str"),
    "a parameter misspelt": (
        lambda p: _with(p, lambda t: t.parameters["fc1.weigth"]),
        "Did you mean fc1.weight",
    ),
    "weights in a path": (
        lambda p: _with(p, lambda t: t.load_state_dict("a.pt")),
        "Load the file first",
    ),
    "weights within a checkpoint": (
        lambda p: _with(p, lambda t: t.load_state_dict({"model": t.state_dict(), "epoch": 3})),
        r"Pass state\['model'\]",
    ),
    "weights of DataParallel": (
        lambda p: _with(
            p, lambda t: t.load_state_dict({f"module.{k}": v for k, v in t.state_dict().items()})
        ),
        "prefix 'module.'",
    ),
    "resume a checkpoint": (
        lambda p: _with(p, lambda t: t.resume(_empty("run/step-00000001.ckpt"))),
        "a checkpoint of a run; expected ",
    ),
    "resume a Program": (
        lambda p: _with(p, lambda t: t.resume(_empty("own.edge"))),
        "a Program; expected ",
    ),
    # Lifetime and copies.
    "step after close": (lambda p: _closed(p).step(X[0], Y[0]), "it is closed"),
    "fit after close": (lambda p: _closed(p).fit(1), "it is closed"),
    "predict a pair": (lambda p: _with(p, lambda t: t.predict((X, Y))), "found a pair; .*predict"),
    "predict a list of unequal arrays": (
        lambda p: _with(p, lambda t: t.predict([X, Y])),
        "input 'x': a list of 2 arrays with shapes .*; expected one array",
    ),
    "predict after close": (lambda p: _closed(p).predict(X), "it is closed"),
    "pickle a Trainer": (lambda p: _with(p, pickle.dumps), "pickled"),
    "deepcopy a Trainer": (lambda p: _with(p, copy.deepcopy), "pickled"),
    "copy a Trainer": (lambda p: _with(p, copy.copy), "pickled"),
    "pickle parameters": (
        lambda p: _with(p, lambda t: pickle.dumps(t.parameters)),
        r"dict\(parameters\)",
    ),
    # Places.
    "out is a file": (lambda p: et.Trainer(p, (X, Y), __file__), "a directory"),
    "out cannot be written": (lambda p: et.Trainer(p, (X, Y), "/proc/no/run"), "cannot be written"),
    "export into a folder": (lambda p: _with(p, lambda t: t.export_onnx("/tmp")), "not a regular"),
    "export to another kind": (
        lambda p: _with(p, lambda t: t.export_onnx("x.txt")),
        r"x\.txt: ends in \.txt.*\.onnx",
    ),
    "export to a number": (lambda p: _with(p, lambda t: t.export_onnx(3)), "export_onnx 3"),  # type: ignore[arg-type]
    "more threads than planned": (lambda p: et.Trainer(p, threads=99), "threads 99: .* threads=99"),
}


def check(act: Callable[[], Any], message: str) -> None:
    with pytest.raises(et.EdgetrainError, match=message) as found:
        act()
    assert "\n" not in str(found.value) and len(str(found.value)) < 500


@pytest.mark.parametrize("slip", RUN)
def test_slips_of_a_run_are_one_line(program: Program, slip: str) -> None:
    act, message = RUN[slip]
    check(partial(act, program), message)


# Likewise for a model's path.
MADE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "compile()": (lambda m: et.compile(), "compile: model: missing"),  # type: ignore[call-arg]
    "compile a loss": (
        lambda m: et.compile(m, "mse"),  # type: ignore[misc]
        "2 positional arguments; expected model",
    ),
    "compile a module": (lambda m: et.compile(Net()), "Net: .*export_torch"),  # type: ignore[arg-type]
    "compile a program": (lambda m: et.compile(compiled(m).save(m.with_suffix(".edge"))), "edge"),
    "compile text": (lambda m: et.compile(__file__), "a text file"),
    "compile a folder": (lambda m: et.compile(m.parent), "it is a directory"),
    "batch_size": (lambda m: et.compile(m, batch_size=8), "Did you mean minibatch"),
    "learning_rate": (lambda m: et.compile(m, learning_rate=0.1), r"optimizer=et.SGD\(lr=0.1\)"),
    "SGD(learning_rate=)": (lambda m: et.SGD(learning_rate=0.1), "Did you mean lr"),  # type: ignore[call-arg]
    "SGD(lr=-1)": (lambda m: et.SGD(lr=-1), "lr -1"),
    "Adam(betas=)": (lambda m: et.Adam(betas=(0.9, 0.99)), "Did you mean beta1"),  # type: ignore[call-arg]
    "Loss('CrossEntropyLoss')": (lambda m: et.Loss("CrossEntropyLoss"), "mean cross_entropy"),  # type: ignore[arg-type]
    "torch's loss": (lambda m: et.compile(m, loss=torch.nn.MSELoss()), "<MSELoss>: .*mean mse"),  # type: ignore[arg-type]
    "torch's function": (
        lambda m: et.compile(m, loss=torch.nn.functional.cross_entropy),  # type: ignore[arg-type]
        "<cross_entropy>: expected a name or a Loss. Did you mean cross_entropy",
    ),
    "a dict of options": (
        lambda m: et.compile(m, loss={"kind": "cross_entropy", "smoothing": 0.1}),  # type: ignore[arg-type]
        r"such as CrossEntropy\(option=value\) of edgetrain.losses",
    ),
    "keras' loss": (
        lambda m: et.compile(m, loss="sparse_categorical_crossentropy"),
        "mean cross_entropy",
    ),
    "keras' other loss": (lambda m: et.compile(m, loss="mae"), "Did you mean l1"),
    "keras' metrics": (lambda m: et.compile(m, metrics=["accuracy"]), "Pass metrics=.. to Trainer"),
    "keras' callbacks": (lambda m: et.compile(m, callbacks=[]), "Pass callbacks=.. to Trainer"),
    "torch's optimizer": (
        lambda m: et.compile(m, optimizer=torch.optim.SGD(Net().parameters())),  # type: ignore[arg-type]
        "optimizer SGD .*expected a name or an Optimizer. Did you mean sgd",
    ),
    "an optimizer's class": (
        lambda m: et.compile(m, optimizer=et.SGD),  # type: ignore[arg-type]
        r"<SGD>: .*Pass an object: SGD\(",
    ),
    "lora target=": (lambda m: et.compile(m, lora="r=4,target=fc1"), "'target': no such field"),
    "forward nothing": (lambda m: et.forward(m, X[:0]), "'x'|n > 0"),  # type: ignore[arg-type]
    "a microbatch of 3": (lambda m: et.compile(m, minibatch=16, microbatch=3), "a divisor"),
    "a minibatch of 0": (lambda m: et.compile(m, minibatch=0), "minibatch 0: "),
    "a budget of 10 bytes": (lambda m: compiled(m, budget=10), "budget"),
    "a budget in apples": (
        lambda m: et.compile(m, budget="3 apples"),
        "budget '3 apples': expected",
    ),
    "fp64": (lambda m: et.compile(m, precision="fp64"), "expected one of fp32, fp16"),
    "freeze as text": (lambda m: et.compile(m, freeze="fc1.*"), "expected a list of patterns"),
    "freeze nothing": (lambda m: et.compile(m, freeze=["conv.*"]), "conv"),
    "load_onnx(bytes)": (lambda m: et.load_onnx(m.read_bytes()), "expected the path of an ONNX"),  # type: ignore[arg-type]
    "load_onnx(file=)": (lambda m: et.load_onnx(file=m), "file: "),  # type: ignore[call-arg]
    "load_program(onnx)": (
        lambda m: et.load_program(m),
        r"expected .*Program \(.edge\)|not an edgetrain Program",
    ),
    "load_program(3)": (lambda m: et.load_program(3), "load_program 3"),  # type: ignore[arg-type]
    "Trainer(onnx)": (lambda m: et.Trainer(m), "an ONNX model; expected a compiled"),
    "Trainer(folder)": (lambda m: et.Trainer(m.parent), "a directory; expected a .edge file. "),
    "Trainer(run)": (lambda m: et.Trainer(_empty(PROGRAM_FILE).parent), "such as .*program.edge"),
    "load_program(run)": (
        lambda m: et.load_program(_empty(PROGRAM_FILE).parent),
        "such as .*program.edge. .*--resume",
    ),
    "bundle(onnx)": (
        lambda m: et.bundle(m, m.parent / "lib"),
        "an ONNX model; expected a compiled",
    ),
    "open_data('valid')": (lambda m: et.open_data("digits", split="valid"), "'train' or 'test'"),
    "EarlyStopping(patiance=)": (
        lambda m: et.EarlyStopping(patiance=2),  # type: ignore[call-arg]
        "Did you mean patience",
    ),
    "export_torch(module, path)": (
        lambda m: export_torch(Net(), m),  # type: ignore[arg-type,call-arg]
        "path: missing",
    ),
    "export an array": (
        lambda m: export_torch(Net(), (X,), m.with_name("b.onnx")),  # type: ignore[arg-type]
        "a tensor",
    ),
    "export weights": (
        lambda m: export_torch(Net().state_dict(), (torch.tensor(X),), m.with_name("b.onnx")),  # type: ignore[arg-type]
        "module: OrderedDict; expected a torch.nn.Module. .*load_state_dict",
    ),
    "export a class": (
        lambda m: export_torch(Net, (torch.tensor(X),), m.with_name("b.onnx")),  # type: ignore[arg-type]
        r"the class Net; expected .* Net\(",
    ),
    "export(module, path, inputs)": (
        lambda m: export_torch(Net(), m, (torch.tensor(X),)),  # type: ignore[arg-type]
        "export_torch: path .*expected the path",
    ),
    "forward other shapes": (lambda m: et.forward(m, X[:, :4]), "input"),
    "gradients of no target": (lambda m: et.loss_and_gradients(m, X), "target: missing"),  # type: ignore[arg-type,call-arg]
}


@pytest.mark.parametrize("slip", MADE)
def test_slips_of_what_is_made_are_one_line(path: Path, slip: str) -> None:
    act, message = MADE[slip]
    check(partial(act, path), message)


# Arguments of `edgetrain`, with MODEL for the model, and what the error line contains.
TYPED = {
    "train MODEL --data d:x --epochs 1 --batch-size 8": "Did you mean --minibatch",
    "compile MODEL -o m.edge --epochs 1": "Commands that take --epochs: .*train",
    "plan MODEL --lr-schedule=cosine": "Commands that take --lr-schedule: train. ",
    "train MODEL --data npz:no.npz --epochs 1": "No such file",
    "train MODEL --data no.npz --epochs 1": "Did you mean npz:no.npz",
    "train MODEL --data digits --epochs 1": "the model expects",
    "train MODEL --data digits --epochs 1 --lr -1": "lr",
    "train MODEL --data digits --epochs 1 --lr nan": "lr",
    "train MODEL --data digits --epochs -1": "epochs",
    "train MODEL --data digits --epochs one": "one",
    "train MODEL --epochs 1": "--data",
    "train no.onnx --data digits --epochs 1": "No such file",
    "train MODEL --data own.npz --epochs 1 --out own.npz": "own.npz",
    "train MODEL --data npz:own.npz --epochs 1 --out own.npz": "a directory",
    "plan MODEL --budget 3": "training needs",
    "plan": "MODEL.onnx",
    "eval no --data digits": "no",
    "eval MODEL --data digits": ".onnx: ",
    "export MODEL -o x.onnx": "a file, not a directory; expected a run directory",
    "export done -o x.onnx": "done: a directory without a run; .* Pass done/b.",
    "train --resume done --data npz:own.npz --epochs 1": "done: a .* Pass done/b.",
    "train --resume done/b/program.edge --data npz:own.npz --epochs 1": "Pass done/b.",
    "eval done --data npz:own.npz": "done: a directory without a run; .* Pass done/b.",
    "migrate done": "Pass done/b.",
    "export runs -o x.onnx": "runs: a directory without a run; .* Check the path.",
    "train --resume done/b --data npz:own.npz --epochs 1 --minibatch 4": "Leave the option out, or",
    "train --resume own.npz --data digits --epochs 1": "a file, not a directory",
    "train runs --data npz:own.npz --epochs 1": "edgetrain train --resume runs",
    "inspect runs": "a directory; ",
    "bundle runs --name a -o b": "a directory; expected a .edge file",
    "train MODEL --data npz:own.npz --epochs 1 --patience 1 --monitor f1": "f1",
    "train MODEL --data npz:own.npz --epochs 1 --loss mse": "such as cross_entropy",
    "data http://a.com/own.npz": "ownload the data first",
    "data MODEL": "It is a model; name the data first",
    "export no": "-o/--out",
    "resume": "resume",
    "tran MODEL": "Did you mean train",
    "evaluate done/b --data npz:own.npz": "Did you mean eval",
    "train MODEL --data npz:own.npz --epochs 1 --optimizer Adam": "Did you mean adam",
    "train MODEL --data npz:own.npz --epochs 1 --lr-schedule cosin": "Did you mean cosine",
    "plan no.onnx": "No such file or directory; expected an ONNX file. Check",
}


@pytest.mark.parametrize("typed", TYPED)
def test_slips_of_commands_are_one_line(
    path: Path, tmp_path: Path, typed: str, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("own.npz", x=X, y=Y)
    os.mkdir("runs")
    os.makedirs("done/b")
    Path("done/b/program.edge").touch()
    words = [str(path) if word == "MODEL" else word for word in typed.split()]
    assert main(words) in (2, 3, 4)
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and re.search(TYPED[typed], err), err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_one_line(program: Program, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    check(lambda: et.Trainer(program, (X, Y), tmp_path / "run"), "cannot be written")


def test_whoever_calls_with_an_argument_that_is_none_is_told() -> None:
    """All public functions, and all methods of objects that users create."""
    made = [et.Trainer, et.Session, et.Program, et.Callback, et.EarlyStopping, et.KeepBest]
    found = [getattr(et, name) for name in et.__all__]
    found = [f for f in found if inspect.isfunction(f)] + [export_torch]
    for base in {b for kind in made for b in kind.__mro__[:2] if b.__name__[0] != "_"} - {object}:
        found += [
            partial(f, object())
            for n, f in vars(base).items()
            if inspect.isfunction(f) and (n == "__init__" or n[0] != "_")
        ]
    assert len(found) > 50
    for function in found:
        with pytest.raises(et.UsageError, match="zzz: no such|callback zzz"):
            function(zzz=1)


def test_a_script_that_fails_ends_with_the_line() -> None:
    script = "import edgetrain as et\net.compile('no.onnx')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1 and last.startswith("edgetrain.errors.ModelError: no.onnx: ")


def test_a_torch_tensor_that_needs_gradients_is_taken(program: Program) -> None:
    x = torch.tensor(X[:4], requires_grad=True)
    assert _with(program, lambda t: t.step(x, torch.tensor(Y[:4])).counted) == 4


def test_names_that_are_not_there_say_what_is() -> None:
    with pytest.raises(AttributeError) as found:
        et.Adamw  # type: ignore[attr-defined]  # noqa: B018
    assert found.value.name == "Adamw" and found.value.obj is et  # for "Did you mean"
    with pytest.raises(AttributeError, match=r"'history'. .*loss.*history\['loss'\]"):
        et.History().history  # type: ignore[attr-defined]  # noqa: B018


def test_a_run_without_a_checkpoint_is_evaluated_untrained(
    program: Program, tmp_path: Path, capsys
) -> None:
    program.save(tmp_path / PROGRAM_FILE)
    np.savez(tmp_path / "own.npz", x=X, y=Y)
    assert main(["eval", str(tmp_path), "--data", f"npz:{tmp_path}/own.npz"]) == 0
    assert f"{tmp_path} has no checkpoint yet" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text, words",
    [("1.5", "expected whole bytes"), ("1.5B", "expected whole bytes"),
     ("1e6", "a whole number of bytes, or"), ("-5", "a whole number of bytes, or")],
)  # fmt: skip
def test_budgets_are_whole_bytes(text: str, words: str, path: Path) -> None:
    with pytest.raises(et.UsageError, match=rf"budget '{text}': .*{words}"):
        et.plan(path, budget=text)


ARRAYS = {
    "class weights": (lambda path: et.Loss("cross_entropy", class_weights=np.ones(4)), None),
    "losses": (lambda path: et.plan(path, losses=np.zeros(3)), "losses .*: expected losses by"),
    "lora": (lambda path: et.plan(path, lora=np.zeros(3)), "lora .*: expected"),
    "rewiring": (lambda path: et.plan(path, rewiring=np.zeros(3)), "rewiring: "),
    "verbose": (lambda path: et.Trainer(compiled(path), verbose=np.zeros(3)), "verbose .*true or"),
    "metrics": (
        lambda path: et.Trainer(compiled(path), metrics=np.array(["nose", "auc"])), "'nose'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ARRAYS)
def test_arrays_as_options_are_taken_or_refused(case: str, path: Path) -> None:
    made, words = ARRAYS[case]
    if words is None:
        assert made(path).class_weights == (1.0, 1.0, 1.0, 1.0)
        return
    with pytest.raises(et.EdgetrainError, match=words):
        made(path)


@pytest.mark.parametrize("name", ["", "a\0b", None, 3])
def test_names_that_are_no_paths_are_refused(name: Any, program: Program) -> None:
    trainer = et.Trainer(program, verbose=False)
    calls = {
        "save_stored": trainer.save_stored, "export_onnx": trainer.export_onnx,
        "save": program.save, "load": et.load_onnx,
    }  # fmt: skip
    if isinstance(name, str):
        calls |= {"resume": trainer.resume, "out": lambda out: et.Trainer(program, out=out)}
    for call in calls.values():
        with pytest.raises(et.EdgetrainError, match="expected"):
            call(name)


@pytest.mark.parametrize("where", ["file", "file/below"])
def test_a_bundle_is_refused_before_the_work(where, tmp_path, program, monkeypatch) -> None:
    from edgetrain.bundle import writing

    monkeypatch.setattr(writing, "image_for", lambda *given: pytest.fail("it began"))
    (tmp_path / "file").write_text("mine")
    with pytest.raises(et.UsageError, match="-o .*: cannot be written: Not a directory"):
        et.bundle(program, tmp_path / where)
    with pytest.raises(et.UsageError, match="name 'a b': expected a letter and at most"):
        et.bundle(program, tmp_path / "new", name="a b")
    assert not (tmp_path / "new").exists()
