"""The node tests of the onnx package by op: passed, refused by name, left out, wrong.

python -m benchmarks.docs node-tests          (into docs/ops.md)
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import onnx

from edgetrain.ops.onnx_ops import onnx_names
from tests.onnx_node.runner import (
    LEFT_OUT,
    PASSED,
    REFUSED,
    WRONG,
    Verdict,
    every_case,
    run_case,
)

DOCUMENT = Path(__file__).resolve().parents[1] / "docs/ops.md"
NAME = "node-tests"
_OUTCOMES = (PASSED, REFUSED, LEFT_OUT, WRONG)


def lines(verdicts: Iterable[Verdict] | None = None) -> Iterator[str]:
    """Yield the totals, a row per listed op, and the reasons for refusals.

    Args:
      verdicts: one per case; None runs the cases.
    """
    found = list(map(run_case, every_case(onnx_names())) if verdicts is None else verdicts)
    counts = Counter((v.op_type, v.outcome) for v in found)
    whole = Counter(v.outcome for v in found)
    yield (
        f"onnx {onnx.__version__}: {len(found)} node tests have a listed op: "
        + ", ".join(f"{whole[o]} {o}" for o in _OUTCOMES)
        + ". Refused: the error names the node and why. Left out: random numbers, sequences, "
        "training mode."
    )
    yield ""
    yield f"| op | {' | '.join(_OUTCOMES)} |"
    yield "|---|---:|---:|---:|---:|"
    for op in onnx_names():
        numbers = [counts[op, outcome] for outcome in _OUTCOMES]
        if any(numbers):
            yield f"| `{op}` | {' | '.join(map(str, numbers))} |"
    rest = [v for v in found if v.op_type not in set(onnx_names())]
    numbers = [sum(v.outcome == outcome for v in rest) for outcome in _OUTCOMES]
    yield f"| functions of these ops | {' | '.join(map(str, numbers))} |"


def written() -> list[str]:
    """Return the table that the document contains."""
    text = DOCUMENT.read_text().splitlines()
    return text[text.index(f"<!-- begin {NAME} -->") + 1 : text.index(f"<!-- end {NAME} -->")]
