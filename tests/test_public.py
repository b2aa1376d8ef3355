"""The public names are typed, and have a short repr."""

import dataclasses
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import edgetrain as et
from edgetrain import exporters
from edgetrain.compiler import Options, options
from edgetrain.runtime.training import keywords as of_trainer
from edgetrain.runtime.training.settings import Settings
from tests.digits_runs import MODEL


def functions() -> Iterator[tuple[str, Any]]:
    for name in et.__all__:
        found = getattr(et, name)
        if inspect.isfunction(found):
            yield name, found
        for key, value in vars(found).items() if inspect.isclass(found) else ():
            inner = value.fget if isinstance(value, property) else value
            if inspect.isfunction(inner) and (key == "__init__" or key[0] != "_"):
                yield f"{name}.{key}", inner
    yield "export_torch", exporters.export_torch


def test_public_functions_are_typed() -> None:
    for name, function in functions():
        signature = inspect.signature(function)
        bare = [p.name for p in signature.parameters.values() if p.annotation is p.empty]
        assert set(bare) <= {"self", "cls"}, name
        assert signature.return_annotation is not signature.empty or "__init__" in name, name


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(et.__file__).parent / "py.typed").exists()


def test_large_objects_are_shown_in_a_line(digits: et.Program) -> None:
    model = et.load_onnx(MODEL)
    source = et.open_data("digits")
    trainer = et.Trainer(digits, source)
    try:
        for shown, start in (
            (digits, "Program('"),
            (model, "Model('"),
            (source, "RowsSource('digits"),
            (trainer, "Trainer(Program('"),
            (trainer.session, "Session(Program('"),
        ):
            assert repr(shown).startswith(start), repr(shown)
            assert len(repr(shown)) < 300 and "\n" not in repr(shown)
    finally:
        trainer.close()


def test_a_room_does_not_hide_the_function_of_its_name() -> None:
    importlib.import_module("edgetrain.bundle.archive")
    assert et.bundle is importlib.import_module("edgetrain.api").bundle


@pytest.mark.parametrize(
    ("called", "table", "keywords"),
    [(et.compile, Options, options.Keywords), (et.plan, Options, options.Keywords),
     (et.Trainer.__init__, Settings, of_trainer.Keywords)],
)  # fmt: skip
def test_keywords_are_listed_with_types_and_defaults(called, table, keywords) -> None:
    """In `help`, in shells, and in editors, which read the TypedDict."""
    fields = {field.name: field for field in dataclasses.fields(table)}
    assert keywords.__annotations__.keys() == fields.keys()
    found = inspect.signature(called).parameters
    for name, field in fields.items():
        usual = (
            field.default if field.default is not dataclasses.MISSING else field.default_factory()
        )
        assert (found[name].default, found[name].kind) == (usual, inspect.Parameter.KEYWORD_ONLY)
        assert found[name].annotation is not inspect.Parameter.empty


def test_classes_of_options_have_real_signatures_and_describe_them() -> None:
    for name in et.__all__:
        found = getattr(et, name)
        assert inspect.getdoc(found), name
        parameters = inspect.signature(found).parameters.values() if callable(found) else ()
        if inspect.isclass(found) and dataclasses.is_dataclass(found) and name != "Program":
            assert not any(p.kind is p.VAR_KEYWORD for p in parameters), name
    signature = inspect.signature(et.SGD)
    assert [*signature.parameters][:3] == ["lr", "weight_decay", "momentum"]
    assert signature.bind(lr=0.5).arguments == {"lr": 0.5}
    assert "  momentum: " in (inspect.getdoc(et.SGD) or "")
    assert "label_smoothing" in inspect.signature(et.Loss).parameters


def test_dir_lists_public_names_only() -> None:
    assert dir(et) == sorted(et.__all__) and not any(name.startswith("_") for name in dir(et))
