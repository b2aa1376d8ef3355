"""`parity`, `inspect` and `ops`: commands that change nothing."""

import importlib.util
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import InputFileError, ParityError, UnsupportedOpError, UsageError
from ...formats import coded, of_dtype
from ...formats.csr import POOL, layers_of
from ...ops.model import InputSpec
from ...optim import Optimizer
from ...program import TapeSet
from ...screen.tables import account_lines, table, to_json
from ...units import format_bytes
from ...units.wording import counted
from ..parser.choices import compile_arguments
from ..parser.namespace import Namespace
from ..parser.plan_options import check_compiled
from ..parser.plugins import owners

_COLUMNS = 6  # columns of op names


def parity(arguments: Namespace) -> int:
    """Compare with torch; raises ParityError (status 1) on any difference."""
    if importlib.util.find_spec("torch") is None:
        raise UsageError("parity needs torch, which is not installed. Run: pip install torch.")
    from edgetrain.exporters.parity import parity as compare

    options = compile_arguments(arguments)
    if not {"optimizer", *owners(Optimizer)} & set(vars(arguments)):
        options.pop("optimizer")
    report = compare(
        arguments.model,
        device=arguments.device,
        reference=arguments.reference,
        steps=arguments.steps,
        **options,
    )
    if arguments.json:
        print(to_json(report.to_json()), flush=True)
    else:
        report.print()
    if not report.ok:
        raise ParityError(report.summary())
    return 0


def ops(arguments: Namespace) -> int:
    """List the ONNX op types that can be trained."""
    from ...ops.onnx_ops import onnx_names

    names = onnx_names()
    if arguments.json:
        print(to_json({"ops": names}))
        return 0
    rows = [names[k : k + _COLUMNS] for k in range(0, len(names), _COLUMNS)]
    rows[-1] = [*rows[-1], *[""] * (_COLUMNS - len(rows[-1]))]
    print("\n".join(table(rows, "l" * _COLUMNS)))
    return 0


def inspect(arguments: Namespace) -> int:
    """Print what a file contains, according to its suffix."""
    path = Path(arguments.file)
    readers = {
        ".onnx": lambda file: _model(file, arguments),
        ".edge": _program,
        ".ckpt": _checkpoint,
    }
    suffix = path.suffix if path.suffix != ".previous" else path.with_suffix("").suffix
    if os.path.isdir(path):
        raise InputFileError(f"{path}: a directory; expected a file ({', '.join(readers)}) in it.")
    if suffix not in readers:
        raise InputFileError(f"{path}: expected a name ending in {', '.join(readers)}.")
    if suffix != ".onnx":
        check_compiled(arguments, path, "Leave the option out.")
    facts, lines = readers[suffix](path)
    if "verify" in arguments:
        if suffix != ".edge":
            raise UsageError(f"--verify: {path} is not a Program; expected a .edge file.")
        facts |= _verified(path)
        lines.append(f"  verified: {facts['verified']} instructions compute what the model says")
    print(to_json({"path": str(path), **facts}) if arguments.json else "\n".join(lines))
    return 0


def _verified(path: Path) -> dict[str, Any]:
    """The number of instructions proved to compute what the model says."""
    from ...api import verify
    from ...kernels.tapes.decode import bound, decode
    from ...runtime.loading.program import load_program

    program = load_program(path)
    verify(program)
    count = 0
    for item in program.sets:
        kernels = bound(item.kernels, program.revisions)
        count += sum(len(list(decode(t.tolist(), kernels))) for t in item.tapes.values())
    return {"verified": count}


Found = tuple[dict[str, Any], list[str]]


def _model(path: Path, arguments: Namespace) -> Found:
    from ...api import make_options
    from ...compiler.compilation import Compilation
    from ...compiler.model.weights import constant_notes
    from ...compiler.plan.frontier import obstacle
    from ...importer import load_onnx
    from ...program.metadata import labels_of

    given = compile_arguments(arguments)
    given.pop("budget", None)
    options = make_options(**given)
    compilation = Compilation(load_onnx(path), options)
    problem = obstacle(compilation)
    model = compilation.model if problem is not None else compilation.prepared.laid_out
    unsupported = problem.ops if isinstance(problem, UnsupportedOpError) else ()
    counts = Counter(node.op_type for node in model.nodes)
    arrays, labels = model.initializers, labels_of(model.weightless)
    weights = sum(arrays[name].size for name in model.parameters)
    notes = (*model.warnings, *constant_notes(model, compilation.prepared.options))
    facts = {
        "kind": "model", "name": model.name, "opset": model.opset,
        "inputs": [
            {"name": i.name, "dims": i.dims, "dtype": i.dtype, "batch": i.batch}
            for i in model.inputs
        ],
        "outputs": model.outputs, "nodes": len(model.nodes), "ops": dict(sorted(counts.items())),
        "trainable": problem is None, "problem": None if problem is None else str(problem),
        "unsupported": unsupported, "parameters": len(model.parameters), "weights": weights,
        "constants": model.untrained, "buffers": len(model.buffers),
        "aliases": dict(model.aliases), "warnings": notes, "labels": labels,
    }  # fmt: skip
    lines = [
        f"{path}: ONNX model {model.name!r}, opset {model.opset}, "
        f"{counted(len(model.nodes), 'node')}",
        *(f"  input {i.name}: {i.dtype} {_dims(i)}" for i in model.inputs),
        f"  outputs {', '.join(model.outputs)}",
        *([f"  classes {', '.join(labels)}"] if labels else []),
        f"  {counted(len(model.parameters), 'parameter')}: {weights:,} numbers; "
        f"{counted(len(model.buffers), 'buffer')}",
        *table([(name, str(count)) for name, count in counts.most_common()], "lr"),
        "  can be trained" if problem is None else f"  cannot be trained: {problem}",
        *(f"  note: {note}" for note in notes),
    ]
    return facts, lines


def _dims(spec: InputSpec) -> str:
    dims = ", ".join("?" if dim is None else str(dim) for dim in spec.dims)
    return f"[{dims}]" + (f", samples along axis {spec.batch}" if spec.batch else "")


def _program(path: Path) -> Found:
    from ...runtime.loading.program import load_program

    program = load_program(path)
    words = {name: len(tape) for name, tape in program.tapes.items()}
    recipe = program.recipe
    facts = {
        "kind": "program",
        "model": program.model_name,
        **program.account,
        "recipe": recipe,
        "tape_words": words,
        "sets": [_set_facts(item) for item in program.sets],
        "kernels": [".".join((n, v, *s)) for n, v, s in program.kernels],
        "parameters": [
            *(s.name for s in program.persistent if s.role == "parameter" and s.name != POOL),
            *(layer.name for layer in layers_of(recipe)),
        ],
    }
    lines = [
        f"{path}: Program of model {program.model_name!r}",
        *account_lines(program.account),
        f"loss {_losses(recipe)}, optimizer {_named(recipe['optimizer'])}, "
        f"{recipe['precision']} storage, seed {recipe['seed']}",
        *_sparse_lines(recipe),
        f"tapes {', '.join(f'{name} {count} words' for name, count in words.items())}; "
        f"{counted(len(program.kernels), 'kernel')}",
    ]
    if program.others:
        lines.append(f"{len(program.sets)} sets of tapes, the default first:")
        lines += table([_set_row(item) for item in program.sets], "lrrr")
    return facts, lines


def _set_facts(found: TapeSet) -> dict[str, Any]:
    """The facts that tell tape sets apart."""
    told = ("arena_nbytes", "minibatch", "microbatch", "extra_forward_flops", "steps")
    own = {name: found.account[name] for name in told}
    return {"dims": found.dims, **own, "tape_nbytes": found.tape_nbytes}


def _set_row(found: TapeSet) -> tuple[str, ...]:
    return (
        found.label,
        f"microbatch {found.microbatch} of {found.minibatch}",
        f"{found.account['extra_forward_flops']:.2f} forward passes recomputed",
        f"{found.tape_nbytes:,} bytes of tapes",
    )


def _sparse_lines(recipe: Mapping[str, Any]) -> list[str]:
    layers = layers_of(recipe)
    if not layers:
        return []
    share, size = sum(x.share for x in layers), sum(x.size for x in layers)
    names = ", ".join(layer.name for layer in layers[:3]) + (", .." if len(layers) > 3 else "")
    moved = _named(recipe["rewiring"]) if recipe.get("rewiring") else "none"
    return [
        f"{len(layers)} sparse weights ({names}): {share} nonzeros of {size}, density "
        f"{share / size:.3f}; rewiring {moved}"
    ]


def _losses(recipe: Mapping[str, Any]) -> str:
    """The loss, or each with its output."""
    each = [f"{output}: {_named(own)}" for output, own in recipe.get("losses", [])]
    return " + ".join(each) or _named(recipe["loss"])


def _named(options: dict[str, Any]) -> str:
    others = ", ".join(f"{k} {v}" for k, v in options.items() if k != "name")
    return f"{options['name']} ({others})" if others else options["name"]


def _checkpoint(path: Path) -> Found:
    from ...runtime.run.checkpoint import load_checkpoint
    from ...runtime.run.fields import check_best, check_run
    from ...runtime.run.folder import BEST_FILE

    loaded = load_checkpoint(path)
    is_best = path.name == BEST_FILE
    check_best(loaded, loaded.meta.get("recipe", "")) if is_best else check_run(loaded)
    tensors, meta, used, warning = loaded
    nbytes = sum(tensor.nbytes for tensor in tensors.values())
    facts = {
        "kind": "checkpoint",
        "read": str(used),
        "warning": warning,
        "nbytes": nbytes,
        "meta": meta,
        "tensors": {n: {"dtype": _numbers(t), "shape": t.shape} for n, t in tensors.items()},
    }
    total = "" if is_best else f" of {meta['total_steps']}"
    kind = "best state, from" if is_best else "checkpoint at"
    lines = [
        f"{used}: {kind} step {meta['step']}{total}, {counted(len(tensors), 'tensor')}, "
        f"{format_bytes(nbytes)}",
        *table([(n, _numbers(t), str(list(t.shape))) for n, t in tensors.items()], "lll"),
    ]
    return facts, lines if warning is None else [f"warning: {warning}", *lines]


def _numbers(tensor: np.ndarray) -> str:
    """Storage type of a tensor: numpy's dtype, or a format that numpy lacks."""
    return of_dtype(tensor.dtype).name if coded(tensor) else str(tensor.dtype)
