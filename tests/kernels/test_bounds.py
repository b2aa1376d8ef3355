"""Integers in a tape file that would make a kernel leave its operands are refused."""

from collections.abc import Iterator

import pytest

from edgetrain.errors import ProgramError
from edgetrain.kernels import registry
from edgetrain.kernels.declaration.spec import Spec
from edgetrain.kernels.registry import Kernel

STRIDES = "qz qh qr kz kh kr vz vh vr yz yh yr mz mh mr mc bz bh br bc"
SIGNED = {"signed", "reach", "compared"}  # kinds of tape integers that may be negative
# Kernels whose integers once reached below an operand or selected an unchecked branch.
BELOW = {
    "attention": f"{STRIDES} guard keep how band first",
    "attention_dq": STRIDES,
    "attention_dkv": STRIDES,
    "attention_delta": "yz yh yr",
    "ce_slice": "start",
    "ce_slice_bwd": "start before",
    "ce_slices_loss": "weighted",
    "conv_csr": "room held",
    "winograd_csr": "room held",
    "winograd_csr_dx": "room held",
    "bce_w_loss": "n",
    "adam": "n decoupled",
    "adafactor_vector": "n",
    "gru": "after back",
    "bn_running": "count",
}


def _kernels() -> Iterator[Kernel]:
    for name in registry.names():
        if name != "run_tape" and not name.startswith("drive_"):  # never on a tape: tapes/decode.py
            yield from registry.variants(name)


def _sound(spec: Spec) -> dict[str, int]:
    """Return valid operands: every reference present, every integer within its range."""
    numbers = {o.name: min(max(1, o.range.least), o.range.most) for o in spec.operands if o.range}
    return {o.name: 0 for o in spec.operands if o.mode != "t"} | numbers


@pytest.mark.parametrize("name", BELOW)
def test_integers_that_lead_below_an_operand_are_refused(name: str) -> None:
    for kernel in registry.variants(name):
        spec = kernel.spec
        sound, storages = _sound(spec), dict.fromkeys(spec.variables, "f32")
        for number in BELOW[name].split():
            with pytest.raises(ProgramError, match=f"integer {number} is -1; expected 0 to"):
                spec.extents({**sound, number: -1}, storages, 2, 16)


def test_every_integer_is_refused_on_both_sides_of_its_range() -> None:
    accepted = []
    for kernel in _kernels():
        spec = kernel.spec
        sound, storages = _sound(spec), dict.fromkeys(spec.variables, "f32")
        for operand in spec.operands:
            if operand.mode != "i":
                continue
            assert operand.range is not None
            for word in (operand.range.least - 1, operand.range.most + 1):
                try:
                    spec.extents({**sound, operand.name: word}, storages, 2, 16)
                except ProgramError as error:
                    assert f"integer {operand.name} is {word}; expected" in str(error)
                else:
                    accepted.append((kernel.label, operand.name, word))
    assert accepted == []


def test_integers_that_may_be_negative_are_of_few_kinds() -> None:
    ranges = [o.range for k in _kernels() for o in k.spec.operands if o.range]
    assert {known.kind for known in ranges if known.least < 0} == SIGNED
    assert "host" not in {known.kind for known in ranges}


def test_a_missing_operand_is_refused_by_every_kernel() -> None:
    for kernel in _kernels():
        spec = kernel.spec
        sound, storages = _sound(spec), dict.fromkeys(spec.variables, "f32")
        for operand in spec.operands:
            if operand.is_reference and not operand.optional:
                with pytest.raises(ProgramError, match=f"operand {operand.name} is missing"):
                    spec.extents({**sound, operand.name: -1}, storages, 2, 16)


@pytest.mark.parametrize(
    ("word", "wrong"),
    [
        ("stranger", "its name"),
        ("n=stranger", "'stranger'"),
        ("stranger[6]", "its name"),
        ("acc", "its name"),  # a flag without its kind
    ],
)
def test_an_integer_without_a_range_is_refused_at_registration(word: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=f"kernel declaration: .*{wrong}.*one of size, "):
        registry.kernel("unbounded", f"x:r:f32[1] {word}")(lambda: None)
    assert "unbounded" not in registry.names()


def test_a_declaration_may_name_another_kind() -> None:
    spec = Spec.parse("x:r:f32[n] n after=flag p[2]=flag")
    found = {o.name: (o.range.least, o.range.most) for o in spec.operands[2:] if o.range}
    assert found == dict.fromkeys(("after", "p0", "p1"), (0, 1))
    with pytest.raises(ValueError, match="only integers"):
        Spec.parse("x:r:f32[1]=size")
