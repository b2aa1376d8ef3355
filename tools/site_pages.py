"""Writes the generated pages of docs/: the op table and the error index.

    python -m tools.site_pages

A test compares them with the code; run this when it fails.
"""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

from edgetrain import errors
from edgetrain.ops.onnx_ops import onnx_names, onnx_op

DOCS = Path(__file__).resolve().parents[1] / "docs"
# Class -> (an example of its line, what to do).
_DIVERGED = """\
If the disk is full, free it and resume. If the run diverged, resume it with a lower learning rate:
it continues from the newest state before the divergence, or from the initial weights if there is
none. Here `--lr 1e30` makes a run diverge at once (the command ends with status 1):

```console
$ edgetrain train examples/digits/model.onnx --data digits --epochs 2 --lr 1e30 --out runs/b # exits 1
$ edgetrain train --resume runs/b --data digits --epochs 2 --lr 0.05
```

`--max-grad-norm 1` clips the gradients instead, and in fp16 `--loss-scale 128` lowers the loss
scale. In Python, `et.Trainer(program, data, out="runs/b", resume=True, lr=0.05)` does the
same; you can pass `max_grad_norm` and `loss_scale` too."""  # noqa: E501 - a line of the shell

EXAMPLES: dict[str, tuple[str, str]] = {
    "UsageError": (
        "microbatch 3: expected a divisor of the minibatch (8).",
        "Change the option that the message names. `edgetrain COMMAND --help-all` lists all.",
    ),
    "NotInstalledError": (
        "kernel sgd.plain: no library of kernels is installed for this processor, and it cannot "
        "be compiled here. Run: ...",
        "Compiled kernels are missing, and this machine cannot compile them. Run the command in "
        "the message.",
    ),
    "BudgetError": (
        "training needs 144448 bytes (141.1 KiB), budget 65536 (64.0 KiB); peak at step 36 "
        "(conv1.weight.grad.conv_dw), largest live: conv2d.grad 16.0 KiB, x 2.0 KiB. Try a smaller "
        "--microbatch or --precision fp16.",
        "Raise the budget to the bytes in the message, follow its proposal, or run `edgetrain "
        "advise`, which shows what fits. In Python: `error.min_budget_nbytes`. "
        "[Save memory](budgets.md) explains the options.",
    ),
    "InputFileError": (
        "model.txt: expected a name ending in .onnx, .edge, .ckpt.",
        "The message names the file and what was expected. The errors below are more specific.",
    ),
    "ModelError": (
        "node 'pool/AveragePool': ...; expected ...",
        "Export the model again ([your torch model](torch.md)). `edgetrain inspect MODEL.onnx` "
        "shows what is in the file.",
    ),
    "UnsupportedOpError": (
        "node 'boxes/NonMaxSuppression_7': ONNX NonMaxSuppression (opset 11): not supported. "
        "'edgetrain ops' lists supported ops.",
        "Replace these ops with ones from the [op table](ops.md), or cut that part off the model. "
        "In Python: `error.ops`.",
    ),
    "DataError": (
        "s.csv: line 13: field 'y': value 7; expected a whole number from 0 to 4. Correct it, "
        "or leave the sample out.",
        "`edgetrain data SPEC MODEL` shows the data next to what the model expects.",
    ),
    "CheckpointError": (
        "runs/a: found 900 steps; the run was started for 660, and its cosine schedule depends on "
        "them.",
        "Resume with the options of the run: `edgetrain inspect DIR/program.edge` shows how its "
        "Program was compiled, `edgetrain inspect FILE.ckpt --json` its schedule and number of "
        "steps. If a checkpoint is damaged, edgetrain uses the one before.",
    ),
    "ProgramError": (
        "model.edge: truncated: 500 bytes; expected 21487. Use another copy.",
        "Compile the model again with this version of edgetrain.",
    ),
    "OutdatedError": (
        "kernel sgd.plain: compiled for revision 1; this build has revision 2, whose results "
        "differ. Compile the model again, or convert a run with 'edgetrain migrate DIR'.",
        "`edgetrain migrate DIR` converts a run and its state: [upgrades](resume.md#upgrades).",
    ),
    "RunError": (
        "step 40: 25 steps in a row did not update the weights: in 25 of them gradients or "
        "statistics are not finite; lower the learning rate; the last good state is ...",
        _DIVERGED,
    ),
    "ParityError": (
        "loss departs ...",
        "The first tensor that differs from torch is printed above the message. Please report it.",
    ),
}


_COUNTS = ("<!-- begin node-tests -->", "<!-- end node-tests -->")


def _counts() -> list[str]:
    """The counts that `python -m benchmarks.docs node-tests` wrote into the page."""
    lines = (DOCS / "ops.md").read_text().splitlines()
    begin, end = (lines.index(mark) if mark in lines else 0 for mark in _COUNTS)
    return lines[begin + 1 : end]


def ops_page() -> str:
    """The ONNX ops by family, each with its docstring's first paragraph, and node test counts."""
    families: dict[str, list[str]] = {}
    for name in onnx_names():
        rule = onnx_op(name).rule
        assert rule is not None
        families.setdefault(inspect.unwrap(rule).__module__, []).append(name)
    count = sum(map(len, families.values()))
    lines = [
        "# Op table",
        "",
        f"edgetrain can train {count} ONNX ops. A model with other ops is refused; the error lists "
        "them. `edgetrain inspect MODEL.onnx` checks a model, `edgetrain ops` prints this list. "
        "The last column is for readers of the code.",
        "",
        "| family | ops | how it works |",
        "|---|---|---|",
    ]
    for module, names in sorted(families.items()):
        found = sys.modules[module]
        first = " ".join((inspect.getdoc(found) or "").split("\n\n")[0].split())
        ops = ", ".join(f"`{name}`" for name in sorted(names))
        lines.append(f"| {module.rpartition('.')[2]} | {ops} | {_cell(first)} |")
    lines += ["", "## Node tests of the onnx package", "", _COUNTS[0], *_counts(), _COUNTS[1]]
    return "\n".join([*lines, "", _BY_SCRIPT, ""])


_BY_SCRIPT = "`python -m tools.site_pages` writes this page from the code."


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def error_classes() -> Iterator[type[errors.EdgetrainError]]:
    """All error classes, base classes first."""
    pending = [errors.EdgetrainError]
    while pending:
        found = pending.pop(0)
        yield found
        pending += sorted(found.__subclasses__(), key=lambda c: (c.exit_status, c.__name__))


def errors_page() -> str:
    """All errors with meaning, example and remedy."""
    lines = [
        "# Errors",
        "",
        "An error names the object, what was found, what was expected and what to do. In Python it "
        "is a subclass of `edgetrain.EdgetrainError`; on the command line, the exit status says "
        "which kind it is.",
        "",
    ]
    for found in error_classes():
        if found is errors.EdgetrainError or found.__module__ != errors.__name__:
            continue
        doc = (inspect.getdoc(found) or "").split("\n\n")[0].replace("\n", " ")
        base = found.__bases__[0].__name__
        example, advice = EXAMPLES[found.__name__]
        lines += [
            f"## {found.__name__}", "",
            f"Exit status {found.exit_status}, a kind of `{base}`. {doc}", "",
            f"    {example}", "", advice, "",
        ]  # fmt: skip
    return "\n".join([*lines, _BY_SCRIPT, ""])


PAGES = {"ops.md": ops_page, "errors.md": errors_page}


def main() -> None:
    """Write them."""
    for name, make in PAGES.items():
        (DOCS / name).write_text(make())


if __name__ == "__main__":
    main()
