"""Integers of a tape from a file that would lead a kernel outside of its operands."""

import pytest

from edgetrain.errors import ProgramError
from edgetrain.kernels import registry

STRIDES = "qz qh qr kz kh kr vz vh vr yz yh yr mz mh mr mc bz bh br bc"
BELOW = {
    "attention": STRIDES,
    "attention_dq": STRIDES,
    "attention_dkv": STRIDES,
    "attention_delta": "yz yh yr",
    "ce_slice": "start",
    "ce_slice_bwd": "start",
    "ce_slices_loss": "weighted",
}


@pytest.mark.parametrize("name", BELOW)
def test_integers_that_lead_below_an_operand_are_refused(name: str) -> None:
    for kernel in registry.variants(name):
        spec = kernel.spec
        sound = {o.name: 0 if o.is_reference else 1 for o in spec.operands if o.mode != "t"}
        sound |= {"classes": 2}
        storages = dict.fromkeys(spec.variables, "f32")
        spec.extents(sound, storages, 2, 16)
        for number in BELOW[name].split():
            with pytest.raises(ProgramError, match="contradict each other"):
                spec.extents({**sound, number: -1}, storages, 2, 16)
