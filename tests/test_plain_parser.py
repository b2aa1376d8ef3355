"""A device's commands are parsed without argparse, by argparse's rules."""

import subprocess
import sys

import pytest

from edgetrain.cli.parser import arguments, host_commands
from edgetrain.cli.parser.namespace import Namespace

# Lines that are parsed this way, and (False) lines that are left to argparse.
LINES = {
    "train m.edge --data digits --steps 3": True,
    "train --data=digits m.edge --epochs 2.5 --lr 0.05 --out runs/a --threads 1": True,
    "train m.onnx --data csv:a.csv --label y --steps 3 --budget 256KiB --microbatch 8": True,
    "train --resume runs/a --data digits --steps 5 --no-eval --json --debug": True,
    "train m.edge --data digits --steps 3 --steps 4 --save-seconds 0.5 --keep-last": True,
    "train m.edge --data digits --steps 3 --validation= --metrics f1,top5": True,
    "eval runs/a --data digits --metrics class=f1,auc --metrics mae": True,
    "train m.onnx --data digits --steps 3 --target cortex-m7": True,
    "train m.onnx --data digits --steps 3 --target x": True,
    "eval runs/a --data digits --split train --best": True,
    "eval m.edge --data npz:a.npz --threads 2 --json": True,
    "export runs/a -o a.onnx": True,
    "export runs/a --out=a.onnx --best": True,
    "train m.edge --data digits --steps 3 --momentum 0.9": False,
    "train m.edge --data digits --steps 3 --lr-schedule cosine": False,
    "train m.edge --data digits --steps 3 --freeze-bn": False,
    "train m.edge --data digits --steps 3 --train head.*": True,
    "train m.edge --data digits": False,
    "train m.edge --data digits --steps 3 --epochs 2": False,
    "train m.edge --steps 3": False,
    "train m.edge n.edge --data digits --steps 3": False,
    "train m.edge --data digits --steps 0": False,
    "train m.edge --data digits --steps 3 --lr -1": False,
    "train m.edge --data digits --steps 3 --precision fp64": False,
    "train m.edge --data digits --steps": False,
    "train m.edge --data digits --steps 3 --json=1": False,
    "train m.edge --data digits --steps 3 --not-there": False,
    "train m.edge --data digits --steps 3 --out -- -a": False,
    "train --help": False,
    "eval --data digits": False,
    "eval runs/a --data digits --split half": False,
    "export runs/a": False,
    "export runs/a -oa.onnx": False,
    "plan m.onnx": False,
    "--version": False,
    "": False,
}


@pytest.mark.parametrize("line", LINES)
def test_a_plain_line_is_read_as_argparse_reads_it(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = line.split()
    found = arguments._plainly(words)
    assert (found is not None) == LINES[line]
    if found is not None:
        parser, _ = host_commands.parser_for(words[0])
        assert vars(found) == vars(parser.parse_args(words, Namespace()))


def test_a_plain_line_needs_neither_argparse_nor_every_plugin() -> None:
    script = (
        "import sys\nfrom edgetrain.cli.commands import train\n"
        "from edgetrain.cli.parser.arguments import parse\n"
        "assert parse(['train', 'm.edge', '--data', 'digits', '--steps', '3']).steps == 3\n"
        "members = ('edgetrain.optim.', 'edgetrain.losses.')\n"
        "print([m for m in sys.modules if m.startswith(members) or m == 'argparse'])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    loaded = ["base", "loss_scale", "schedules", "schedules.base"]
    expected = [f"edgetrain.optim.{name}" for name in loaded]
    expected += ["edgetrain.losses.base", "edgetrain.losses.terms"]
    constant = "edgetrain.optim.schedules.constant"
    assert set(eval(done.stdout)) - {constant} == set(expected), done.stderr
