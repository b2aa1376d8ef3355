"""The table of docs/models.md: every stock model of the list, compared and trained a step.

    python -m benchmarks.stock [LIBRARY/NAME ...] [--limit SECONDS] [--write]

Each figure is measured in a process of its own with a time limit. docs/models.json keeps the
measurements, with digests of kernels and compiler. Models never measured come first, then those
whose digests have changed, so the table can be made in pieces. A model is not measured again if the
compiler makes the same plans of the same file, and the kernels are the same or leave the same state
after a step. --write only writes the document from what is kept; nothing is measured.
"""

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks import marks
from edgetrain.units import format_bytes

from . import kept, processes
from .listed import MINIBATCH, Listed, listed

DOCUMENT = marks.ROOT / "docs" / "models.md"
LIMIT = 600  # seconds for one measurement
HEAD = f"""\
# Stock models

Do models from torchvision, timm and transformers train unchanged? The list and its rules
(`benchmarks/stock/listed.py`) were written before any model was tried; weights are random. Each
model is:

1. exported with `export_torch`;
2. planned with `--effort quick`, and trained for one step of {MINIBATCH} samples with SGD and
   momentum in the smallest plan;
3. compared: the forward pass of the file with onnxruntime; loss, every gradient and an update with
   torch in float64.

"smallest arena" is all memory of that step, "torch" the growth of torch's process for the same
step. "forward" and "gradient" are the largest departure in a tensor, relative to its size;
"torch's float32" is how far torch in float32 is from float64 in the same gradient: of several runs,
with weights moved in their last digits, the furthest, where `parity` needs them. With 2 samples,
rounding can move an activation across the kink of a ReLU and change gradients by up to 4e-2, in
torch as in edgetrain: torch's float32 is off by 8.7e-3 in one of three draws of ResNet-18. With
SiLU and mean pooling instead, it is off by 3.7e-6, and edgetrain by 8.7e-6. CPU seconds are on two
cores of an x86 server beside other work, of a process that starts with an empty kernel cache.

"made at" is the commit whose compiler made these plans, which are for AVX-512. A model is measured
again when its file, its smallest or largest plan, or a bit of what a step in one of them computes
changes.

Wav2Vec2 and HuBERT leave out layers at random in training, which one file can't do, and draw masks
with numpy. With `layerdrop=0.0, apply_spec_augment=False` in their configuration they are exported,
and small ones match torch.

    python -m benchmarks.stock

"""
COLUMNS = (
    "family", "model", "verdict", "smallest arena", "torch", "weights", "forward", "gradient",
    "torch's float32", "plan, s", "first step, s", "made at",
)  # fmt: skip


def main() -> None:
    """Measure what is missing or outdated, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*")
    parser.add_argument("--limit", type=int, default=LIMIT)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    found = kept.read()
    rows = [row for row in kept.waiting() if not asked.models or row.label in asked.models]
    for row in [] if asked.write else rows:
        facts = measured(row, asked.limit, found.get(row.label, {}))
        found[row.label] = facts | kept.stamp(row)
        kept.write(found)
        print(row.label, verdict(facts), flush=True)
        DOCUMENT.write_text(document(found))
    DOCUMENT.write_text(document(found))


def measured(row: Listed, limit: int, before: Mapping[str, Any]) -> dict[str, Any]:
    """Measure a model until a step is refused; a failed parity check does not stop it.

    Args:
      before: what was measured; returned if the file and its plans are the same, and the kernels
        or what they compute.
    """
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        for what in ("export", "step", "parity", "torch"):
            if what == "step" and _is_as_before(row, path, limit, before):
                return dict(before)
            part = processes.measure(what, row, path, Path(folder) / "kernels", limit)
            refused = part.pop("refused", None)
            found |= part
            if refused is not None and what == "parity":
                found["uncompared"] = refused
            elif refused is not None:
                found["refused"] = f"{what}: {refused}"
                break
    return found


def _is_as_before(row: Listed, path: Path, limit: float, before: Mapping[str, Any]) -> bool:
    """Whether measuring would find the same: see the document's head."""
    same_kernels, key = kept.has_same_kernels(before), before.get("key", "")
    if not key or not (same_kernels or before.get("bits")):
        return False
    part = processes.measure("step", row, path, None, limit, key if same_kernels else "")
    return part.get("key") == key and (same_kernels or part.get("bits") == before["bits"])


def document(found: dict[str, dict]) -> str:
    """Return the text of docs/models.md."""
    rows = [row for row in listed() if row.label in found]
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    lines += [f"| {' | '.join(_cells(row, found[row.label]))} |" for row in rows]
    return HEAD + "\n".join([*lines, "", *_counts([found[row.label] for row in rows])]) + "\n"


def verdict(found: dict[str, Any]) -> str:
    """Whether it trains, and whether torch agrees."""
    if "refused" in found:
        return f"refused, {found['refused']}".replace("|", "/")
    if "uncompared" in found:
        return f"trains, not compared with torch: {found['uncompared']}"
    return "trains" if found["parity"] else f"departs: {found['why']}"


def _cells(row: Listed, found: dict[str, Any]) -> Iterator[str]:
    def number(name: str, form: str) -> str:
        return format(found[name], form) if found.get(name) is not None else ""

    yield from (row.family, f"{row.label} {row.text}".strip(), verdict(found))
    for name in ("arena", "torch"):
        yield format_bytes(found[name]) if name in found else ""
    yield f"{found['weights_mb']} MB" if "weights_mb" in found else ""
    for name in ("forward", "gradient", "torch_gradient"):
        yield number(name, ".1e")
    yield from (number("plan_cpu", ".1f"), number("step_cpu", ".1f"), found["commit"])


def _counts(found: list[dict]) -> Iterator[str]:
    trained = [each for each in found if "refused" not in each]
    soon = sum(each["plan_cpu"] + each["step_cpu"] <= 60 for each in trained)
    runtimes = Counter(each["runtime"] for each in trained if each.get("runtime"))
    compared = [each["parity"] for each in trained if "parity" in each]
    yield (
        f"{len(trained)} of {len(found)} models trained; {len(compared)} were compared with torch, "
        f"{sum(compared)} match it within tolerance. {soon} needed at most 60 CPU seconds for "
        f"planning and the first step. The forward pass was compared with "
        f"{', '.join(f'{name} ({count} models)' for name, count in runtimes.items())}. "
        f"{len(listed()) - len(found)} models of the list are not measured yet."
    )


if __name__ == "__main__":
    main()
