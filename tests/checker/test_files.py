"""`inspect --verify`: a Program file is checked against the model and recipe stored in it."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

import edgetrain as et
from edgetrain.api import verify
from edgetrain.cli import main
from edgetrain.errors import ProgramError
from edgetrain.exporters import export_torch
from tests.digits_runs import digits_program
from tests.quick import slow_between

CASES = {
    "plain": {},
    "small": {"microbatch": 4},
    "fp16": {"precision": "fp16"},
    "int8": {"model_memory": "int8", "saved": "int8"},
    "sparse": {"density": 0.3},
    "fused": {"fused_update": True, "microbatch": 16},
    "frozen": {"train": ("head.*",), "frozen": "int8"},
    "lora": {"lora": "r=2,targets=head"},
    "adan": {"optimizer": et.Adan()},
    "lamb": {"optimizer": et.Lamb(), "precision": "fp16"},
    "board": {"target": "cortex-m7"},
}


@pytest.mark.parametrize("case", slow_between(CASES, 3))
def test_a_file_is_proved_against_its_own_model(case: str, tmp_path: Path, capsys) -> None:
    path = tmp_path / "digits.edge"
    program = digits_program(**CASES[case])
    least = digits_program(program.account["min_budget_nbytes"], **CASES[case])
    for one in (program, least):
        one.save(path)
        assert main(["inspect", str(path), "--verify", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["verified"] > 20


@pytest.mark.slow
def test_recurrent_and_attention_nets_are_proved(tmp_path: Path) -> None:
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = torch.nn.LSTM(8, 12, batch_first=True)
            self.attention = torch.nn.MultiheadAttention(12, 2, batch_first=True)
            self.norm = torch.nn.LayerNorm(12)
            self.out = torch.nn.Linear(12, 3)

        def forward(self, x):
            x, _ = self.lstm(x)
            return self.out(self.norm(x + self.attention(x, x, x)[0]).mean(1))

    path = export_torch(Net(), torch.randn(2, 40, 8), tmp_path / "net.onnx")
    for options in ({}, {"segments": 10}, {"allow": ("attention",), "precision": "fp16"}):
        program = et.compile(path, minibatch=4, **options)
        small = et.compile(
            path, minibatch=4, budget=program.account["min_budget_nbytes"], **options
        )
        for one in (program, small):
            one.save(tmp_path / "net.edge")
            verify(et.load_program(tmp_path / "net.edge"))


def test_a_file_whose_tape_reads_another_value_is_refused(tmp_path: Path, capsys) -> None:
    program = digits_program()
    words = program.tapes["micro"].copy()
    places = [slot.offset for slot in program.persistent if slot.role == "parameter"]
    at = np.flatnonzero(words == places[0])[0]
    words[at] = places[1]
    wrong = dataclasses.replace(program, tapes={**program.tapes, "micro": words})
    with pytest.raises(ProgramError):
        verify(wrong)


def test_only_programs_are_verified(tmp_path: Path, capsys) -> None:
    path = tmp_path / "x.onnx"
    path.write_bytes(b"")
    assert main(["inspect", str(path), "--verify"]) != 0
    assert len(capsys.readouterr().err.splitlines()) == 1
