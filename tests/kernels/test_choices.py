"""A library of all kernels (`choices.every`) contains every kernel that Programs call."""

import functools

import pytest

import edgetrain as et
from edgetrain.kernels.linking.choices import every
from tests.digits_runs import MODEL
from tests.quick import slow_unless

OPTIMIZERS = (
    et.SGD(lr=0.1), et.SGD(lr=0.1, momentum=0.9), et.Adam(lr=0.1), et.AdamW(lr=0.1),
    et.RMSprop(lr=0.1), et.RMSprop(lr=0.1, centered=True), et.RMSprop(lr=0.1, momentum=0.9),
    et.RMSprop(lr=0.1, momentum=0.9, centered=True), et.Adagrad(lr=0.1), et.Lion(lr=0.1),
    et.Adafactor(lr=0.1),
)  # fmt: skip
SETTINGS = (
    {}, {"precision": "fp16"}, {"precision": "fp16", "state": "fp32"},
    {"precision": "fp16", "grads": "fp32"}, {"precision": "fp16", "weights": "fp32"},
    {"model_memory": "fp16"}, {"precision": "fp16", "density": 0.3},
    {"precision": "fp16", "model_memory": "int8"}, {"precision": "fp32", "state": "int8"},
    {"precision": "fp16", "weights": "int8"}, {"precision": "fp16", "saved": "int8"},
)  # fmt: skip


@functools.cache
def _names() -> frozenset[tuple]:
    return frozenset((k.name, k.variant, *storages.values()) for k, storages in every())


@pytest.mark.parametrize(
    "optimizer", slow_unless(OPTIMIZERS, lambda one: type(one) in (et.SGD, et.Adafactor)), ids=repr
)
def test_optimizers_of_every_storage_are_in_a_library(optimizer):
    model, missing = et.load_onnx(MODEL), {}
    for number, options in enumerate(SETTINGS):
        program = et.compile(model, optimizer=optimizer, minibatch=8, **options)
        rows = {(name, variant, *storages) for name, variant, storages in program.kernels}
        if rows - _names():
            missing[number] = rows - _names()
    assert missing == {}


def test_variants_for_numbers_alone_are_in_a_library_for_numbers_alone():
    """These variants cannot be compiled for block formats."""
    names = {name for name in _names() if name[1] == "wide" and name[0] in ("sgd", "adam", "lamb")}
    assert {name[0] for name in names} == {"sgd", "adam", "lamb"}
    assert {storage for name in names for storage in name[2:]} == {"f32", "f16"}
