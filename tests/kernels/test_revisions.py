"""A kernel whose tape words change meaning needs a new revision."""

import dataclasses

import pytest

from edgetrain.errors import OutdatedError
from edgetrain.kernels import registry
from edgetrain.kernels.declaration.spec import Spec
from edgetrain.kernels.tapes import decode

from .revisions import found, recorded, words_of

ADVICE = "raise `revision` in its declaration, then python -m tests.kernels.revisions --write"


def test_operands_change_with_the_revision_alone() -> None:
    """Otherwise words of an older Program's tape would be misread."""
    now, before = found(), recorded()
    assert now.keys() == before.keys(), "python -m tests.kernels.revisions --write"
    wrong = [label for label in now if now[label][1] != before[label][1]]
    same = [label for label in wrong if now[label][0] <= before[label][0]]
    assert not same, f"{same}: {ADVICE}"
    assert now == before, "python -m tests.kernels.revisions --write"


@pytest.mark.parametrize(
    "operands",
    [
        "y:w:S[n] x:r:S[n] n",  # different order
        "x:r:S[n] y:m:S[n] n",
        "x:r:S[n] y:w:f32[n] n",
        "x?:r:S[n] y:w:S[n] n",
        "x:r:S[n] y:w:S[n] n more=size",
        "x:r:S[n] y:w:S[n] ws:t[64] n",
    ],
)
def test_every_change_of_operands_is_seen(operands: str) -> None:
    kernel = registry.variants("copy")[0]
    one = dataclasses.replace(kernel, spec=Spec.parse("x:r:S[n] y:w:S[n] n"))
    assert words_of(one) != words_of(dataclasses.replace(kernel, spec=Spec.parse(operands)))
    # An operand's allowed values may change: a tape is checked against them when loaded.
    longer = dataclasses.replace(kernel, spec=Spec.parse("x:r:S[n+1] y:w:S[n] n", "n >= 2"))
    assert words_of(one) == words_of(longer)


@pytest.mark.parametrize("name", ["adam", "csr_sgd", "adafactor_vector", "sgd"])
def test_an_update_that_rounds_otherwise_refuses_older_programs(name: str) -> None:
    """Programs in float32, and kernels that round nothing, run as before."""
    for kernel in registry.variants(name):
        count = len(kernel.spec.variables)
        exact = [(name, kernel.variant, ("f32",) * count)]
        assert decode.revisions_of(exact) == {}
        assert decode.bound(exact, {})
        table = [*exact, (name, kernel.variant, ("f32",) * (count - 1) + ("f16",))]
        assert decode.revisions_of(table) == {kernel.label: 2}
        assert decode.bound(table, {kernel.label: 2})
        with pytest.raises(OutdatedError, match=f"{kernel.label}: compiled for revision 1; this"):
            decode.bound(table, {})
    (gemm,) = (one for one in registry.variants("gemm") if one.variant == "plain")
    assert decode.bound([("gemm", "plain", ("f16",) * len(gemm.spec.variables))], {})


def test_a_raised_revision_refuses_older_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = registry.variants("copy")[-1]
    table = [(kernel.name, kernel.variant, ("f32",) * len(kernel.spec.variables))]
    assert decode.revisions_of(table) == {}
    assert decode.bound(table, {})
    raised = dataclasses.replace(kernel, revision=2)
    variants = registry.variants

    def found(name: str) -> list[registry.Kernel]:
        return [raised] if name == kernel.name else variants(name)

    monkeypatch.setattr(registry, "variants", found)
    assert decode.revisions_of(table) == {kernel.label: 2}
    assert decode.bound(table, {kernel.label: 2})
    with pytest.raises(OutdatedError, match=f"{kernel.label}: compiled for revision 1; this build"):
        decode.bound(table, {})
