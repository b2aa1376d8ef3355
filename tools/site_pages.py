"""Writes the pages of docs/ that are made from the code: the op table and the error index.

    python -m tools.site_pages

A test compares them with what the code says, so run this where it fails.
"""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

from edgetrain import errors
from edgetrain.ops import registry

DOCS = Path(__file__).resolve().parents[1] / "docs"
# Class -> (an example of its line, what to do).
_DIVERGED = """\
If the disk is full, free it and resume. If the run diverged, resume it with a lower learning rate:
it goes on from the newest state from before it diverged, or from the initial weights if there is
none. Here `--lr 1e30` makes a run diverge at once (the command ends with status 1):

```console
$ edgetrain train examples/digits/model.onnx --data digits --epochs 2 --lr 1e30 --out runs/b # exits 1
$ edgetrain train --resume runs/b --data digits --epochs 2 --lr 0.05
```

`--max-grad-norm 1` clips the gradients instead, and in fp16 `--loss-scale 128` lowers the loss
scale. In Python, `et.Trainer(program, data, out="runs/b", resume=True, lr=0.05)` does the
same; `max_grad_norm` and `loss_scale` may be given beside it."""  # noqa: E501 - a line of the shell

EXAMPLES: dict[str, tuple[str, str]] = {
    "UsageError": (
        "microbatch 3: expected a divisor of the minibatch (8).",
        "Change the option that the line names; `edgetrain COMMAND --help` has them all.",
    ),
    "NotInstalledError": (
        "torch is needed for this and not installed. Run: pip install 'edgetrain[torch]'",
        "Run the command that the line gives.",
    ),
    "BudgetError": (
        "training needs 144448 bytes (141.1 KiB), budget 65536 (64.0 KiB); peak at step 36 "
        "(conv1.weight.grad.conv_dw), largest live: conv2d.grad 16.0 KiB, x 2.0 KiB. Try a smaller "
        "--microbatch or --precision fp16.",
        "Take what the line proposes, give the bytes it names, or ask `edgetrain advise` which "
        "ways to train fit. In Python the number is `error.min_budget_nbytes`.",
    ),
    "InputFileError": (
        "model.txt: expected a name that ends in .onnx, .edge, .ckpt.",
        "The line says which file and what it should be; the kinds below say more.",
    ),
    "ModelError": (
        "node 'pool/AveragePool': ...; expected ...",
        "Export the model again: [your torch model](torch.md). `edgetrain inspect MODEL.onnx` says "
        "what is in it.",
    ),
    "UnsupportedOpError": (
        "node 'block3/Gelu_7': ONNX op ... has no edgetrain op. See 'edgetrain ops'.",
        "All such ops are in the line (and in `error.ops`). Replace them by those of the "
        "[op table](ops.md), or freeze and cut off that part of the model.",
    ),
    "DataError": (
        "s.csv: line 13: field 'y': value 7, expected a whole number from 0 to 4. Correct the data "
        "or leave it out.",
        "`edgetrain data SPEC MODEL` shows what the data holds beside what the model takes.",
    ),
    "CheckpointError": (
        "runs/a: the run was started for 660 steps, now 900; its cosine schedule depends on it.",
        "Resume with the options of the run; `edgetrain inspect FILE.ckpt` shows what is in it. A "
        "damaged one is passed over for the one before it.",
    ),
    "ProgramError": (
        "model.edge: cut short: 500 bytes, expected 21487. Take another copy of it.",
        "Compile the model again, with this version of edgetrain.",
    ),
    "OutdatedError": (
        "kernel sgd.plain: compiled for revision 1; this build has revision 2, which computes "
        "something else. Compile the model again; a run goes on after 'edgetrain migrate DIR'.",
        "`edgetrain migrate DIR` brings a run to this version, with its state: "
        "[upgrades](resume.md#upgrades).",
    ),
    "RunError": (
        "step 40: 25 steps in a row did not move the weights: in 25 of them gradients or "
        "statistics are not finite; lower the learning rate; the last good state is ...",
        _DIVERGED,
    ),
    "ParityError": (
        "loss departs ...",
        "The first tensor that departs from torch is printed above the line. Please report it.",
    ),
}  # fmt: skip


def ops_page() -> str:
    """Every ONNX op by family, and what the family says of itself."""
    families: dict[str, list[str]] = {}
    for name in registry.onnx_names():
        rule = registry.rule(name)
        assert rule is not None
        families.setdefault(inspect.unwrap(rule).__module__, []).append(name)
    count = sum(map(len, families.values()))
    lines = [
        "# Op table", "",
        f"The {count} ONNX ops that a model may use, by the family that trains them. A model with "
        "others is refused, all of them named. `edgetrain ops` prints the names, "
        "`edgetrain inspect MODEL.onnx` says whether a model can be trained.", "",
        "| family | ops | what it keeps and does |", "|---|---|---|",
    ]  # fmt: skip
    for module, names in sorted(families.items()):
        found = sys.modules[module]
        first = " ".join((inspect.getdoc(found) or "").split("\n\n")[0].split())
        ops = ", ".join(f"`{name}`" for name in sorted(names))
        lines.append(f"| {module.rpartition('.')[2]} | {ops} | {_cell(first)} |")
    return "\n".join([*lines, "", _BY_SCRIPT, ""])


_BY_SCRIPT = "This page is made from the code by `python -m tools.site_pages`."


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def error_classes() -> Iterator[type[errors.EdgetrainError]]:
    """Every class of error, bases first."""
    pending = [errors.EdgetrainError]
    while pending:
        found = pending.pop(0)
        yield found
        pending += sorted(found.__subclasses__(), key=lambda c: (c.exit_status, c.__name__))


def errors_page() -> str:
    """Every error: what it means, an example of its line, what to do."""
    lines = [
        "# Error index", "",
        "An error is one line: the object, what was found, what was expected, the next move. In "
        "Python it is an exception below `edgetrain.EdgetrainError`; on the command line the exit "
        "status says which kind it was.", "",
    ]  # fmt: skip
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
