"""A Program as a WebAssembly module, with JavaScript that runs it in web pages and Node.js."""

import gzip
import json
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .. import __version__
from ..errors import UsageError
from ..kernels.device.layout import FIRST_SCHEDULES
from ..losses.terms import terms_of_recipe
from ..optim import SCHEDULES
from ..program import TARGET, Program, Slot
from ..program.metadata import labels_of
from ..program.samples import elements, limit_of
from . import page
from .functions import Function
from .image import Image
from .lengths import facts_of_lengths
from .losses import losses_of, targets_of
from .names import TEMPLATES
from .rom import initial_nbytes, plane_count
from .texts import fields_of

PREFIX = "net"  # of the module's own names; it contains nothing else
IMPORTS = {"fill": "i32 (ptr, i32, i64, ptr, ptr)", "erase": "i32 (ptr, i32)"} | dict.fromkeys(
    ("write", "read"), "i32 (ptr, i32, i32, ptr, i32)"
)
_FACTS = "const NET = null; /* facts of this network */"
# Where net.d.ts lists schedules, and the fields of those that net.h does not describe itself.
_KINDS, _NEWER = "string; // kinds", " // newer kinds"
# Parts of net.js that net_lengths.js replaces in modules with several lengths.
_PART = re.compile(r"(?ms)^/\* begin ([\w ]+) \*/\n(.*?)^/\* end \1 \*/\n")
_IDLE = re.compile(r"(?s)(?<=\n)\s*(?:/\*\*.*?\*/\s*)*")  # comments (as in the types), indents
_LATE = re.compile(r"(?m)(?<=[;,{(]) +// .*$")  # comments after code
_STRING = r'"[^"]*"|`(?:[^`$]|\$(?!\{)|\$\{(?:[^`{}]|`[^`]*`)*\})*`'
_BROKEN = re.compile(r"(?<=[{(,;])\n|;?\n(?=\})")  # ends of lines that can be removed
# Strings, or punctuation whose surrounding blanks can be removed.
_PLAIN = re.compile(rf"({_STRING})| *([=,;:(){{}}<>*&|?!%^\[\]]) *| ?([-+/]=?) (?=[\w(])")
_OTHER = re.compile(r"^//|/\*|[`']")  # after removing strings: a line that stays as it is
_ALIGN = 64  # bytes: of slots, and the unit of regions
_SCRATCH = 256  # bytes for reports and schedules
_SLACK = 1024  # bytes of stack beyond the deepest call chain
# Debian appends LLVM's version to the name.
_LINKERS = ("wasm-ld", *(f"wasm-ld-{k}" for k in range(30, 13, -1)))


def exports(found: Sequence[Function]) -> list[str]:
    """Names that the module exports."""
    names = "start", "links", "scratch", *(f.name for f in found)
    return [f"{PREFIX}_{name}" for name in names]


def llvm_text(image: Image, nbytes: int) -> str:
    """LLVM text of the module's own memory and of the functions imported from JavaScript.

    Args:
      nbytes: size of the memory to train in.
    """
    declared = [
        f"declare {kind.replace('(', f'@{name}(', 1)} "
        f'"wasm-import-module"="env" "wasm-import-name"="{name}"'
        for name, kind in IMPORTS.items()
    ]
    links = ", ".join(
        ["ptr null", *(f"ptr @{name}" for name in ("erase", "write", "read", "fill", "weights"))]
    )
    return "\n".join(
        [
            *declared,
            f"@{PREFIX}_links = constant [6 x ptr] [{links}], align 8",
            f"@{PREFIX}_scratch = global [{_SCRATCH} x i8] zeroinitializer, align 16",
            f"@memory = internal global [{nbytes} x i8] zeroinitializer, align {image.align}",
            f"define ptr @{PREFIX}_start() {{",
            f"  %net = call ptr @{PREFIX}_init(ptr @memory, i32 {nbytes})",
            "  ret ptr %net\n}\n",
        ]
    )


def linker() -> list[str]:
    """Command of a WebAssembly linker.

    Raises:
      UsageError: no linker was found.
    """
    result = next((name for name in _LINKERS if shutil.which(name)), None)
    if result is not None:
        return [result]
    if find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "wasm-ld"]
    raise UsageError(
        "target wasm32: no linker for WebAssembly: neither wasm-ld nor the package ziglang is "
        "installed. pip install edgetrain[zig], or install lld (Debian)."
    )


def linked(objects: Sequence[bytes], shown: Sequence[str], stack: int) -> bytes:
    """Link objects into a module.

    Args:
      shown: symbols to export.
      stack: bytes of the deepest call chain.
    Raises:
      UsageError: there is no linker, or it fails.
    """
    command = linker()
    with tempfile.TemporaryDirectory() as place:
        files = []
        for number, code in enumerate(objects):
            files.append(Path(place, f"{number}.o"))
            files[-1].write_bytes(code)
        out = Path(place, "net.wasm")
        size = -(-(stack + _SLACK) // 16) * 16
        given = ["--no-entry", "--strip-all", "--gc-sections", "--stack-first"]
        given += ["--compress-relocations", "-z", f"stack-size={size}", "--export=__heap_base"]
        given += [f"--export={name}" for name in shown]
        given += ["--allow-undefined", "-o", str(out), *map(str, files)]
        done = subprocess.run([*command, *given], capture_output=True, text=True)
        if done.returncode != 0 or not out.is_file():
            said = (done.stderr.strip().splitlines() or ["nothing said"])[-1]
            raise UsageError(f"target wasm32: {' '.join(command)} refused: {said[:200]}.")
        return out.read_bytes()


def memory_nbytes(module: bytes) -> int:
    """Bytes of a module's initial memory."""
    from ..kernels.linking.wasm import initial_pages

    return 65536 * initial_pages(module)


def files(
    name: str, image: Image, module: bytes, counted: bool, checked: tuple[int, str]
) -> dict[str, bytes]:
    """The files of a bundle, by name.

    Args:
      counted: whether the loss counts correct predictions.
      checked: (steps on generated samples, digest after them).
    """
    known = facts(name, image, counted, checked)
    said = json.dumps(known, separators=(",", ":"), allow_nan=False)
    script = _short(_script(bool(image.sets))).replace(_FACTS, f"const NET = {said};", 1)
    assert said in script
    return {
        f"{name}.wasm": module,
        f"{name}.js": script.encode(),
        f"{name}.d.ts": _types(bool(image.sets)).encode(),
        page.NAME: page.page(name, names=labels_of(image.program.onnx) or ()),
        "package.json": (json.dumps(_package(name, known["model"]), indent=2) + "\n").encode(),
    }


def _script(several: bool) -> str:
    """The JavaScript for a module with one length, or with several."""
    text = _read("net.js")
    own: dict[str, str] = dict(_PART.findall(_read("net_lengths.js"))) if several else {}
    return _PART.sub(lambda part: own.get(str(part[1]), str(part[2])), text)


def _types(several: bool) -> str:
    """Its TypeScript types: the common part, then the part for one or several lengths."""
    kinds = [kind for kind in SCHEDULES.values() if kind.in_bundles()]
    newer = [kind for kind in [*SCHEDULES.values()][FIRST_SCHEDULES:] if kind in kinds]
    said = "".join(f"\n    {kind.name}: {_scripted(fields_of(kind))}" for kind in newer)
    names = textwrap.fill(" | ".join(f'"{kind.name}"' for kind in kinds), 80)
    text = _read("net.d.ts").replace(_KINDS, f"{names};".replace("\n", "\n    "), 1)
    text = text.replace(_NEWER, said.replace("*/", "* /"), 1)
    return text + _read("net_lengths.d.ts" if several else "net_one_length.d.ts")


def _scripted(text: str) -> str:
    """Field names of the C struct as in JavaScript: min_lr is minLr."""
    return re.sub(r"\b([a-z]+)_([a-z])", lambda part: part[1] + part[2].upper(), text)


def _read(template: str) -> str:
    return (TEMPLATES / template).read_text()


def _short(script: str) -> str:
    """The script without comments, indentation and unneeded blanks."""
    lines = _LATE.sub("", _IDLE.sub("", script)).split("\n")
    short = [
        line if _OTHER.search(re.sub(_STRING, "", line)) else _PLAIN.sub(r"\1\2\3", line)
        for line in lines
    ]
    return _BROKEN.sub("", "\n".join(short))


def facts(name: str, image: Image, counted: bool, checked: tuple[int, str]) -> dict[str, Any]:
    """Data about the Program for the JavaScript."""
    program = image.program
    *inputs, target = program.staged("micro").items()
    mixed = "mixed_by" in program.account
    called = {
        target.place: target.output
        for target in targets_of(program)
        if target.output not in program.input_names
    }
    output = 0 if program.unpredicted else elements(program, program.outputs["eval"][0])
    return {
        "name": name,
        "model": program.model_name,
        "version": __version__,
        "minibatch": program.minibatch,
        "lr": program.lr,
        "inputs": [
            _field(program, *item) | ({"name": called[k]} if k in called else {})
            for k, item in enumerate(inputs)
        ],
        "target": _field(program, *target),
        "predicts": len(program.input_names),
        "losses": _losses(program),
        "output": output,
        **({} if output else {"unpredicted": program.unpredicted}),
        "counts": counted,
        "taken": program.microbatch if mixed else 1,
        "arena": image.arena_nbytes,
        "arena_at": image.control_nbytes,
        "stored": image.stored_nbytes + 64,
        "initial": initial_nbytes(image),
        "planes": plane_count(image),
        "values": [
            {"name": slot.name, "shape": list(slot.shape), "size": slot.size}
            for slot in image.values
        ],
        "regions": _regions(program),
        "schedules": list(SCHEDULES),
        **({"lengths": facts_of_lengths(program, image.programs)} if image.sets else {}),
        "check": dict(zip(("steps", "digest"), checked, strict=True)),
    }


def _losses(program: Program) -> list[dict[str, Any]]:
    """The losses; `label` names the results of each loss, `counts` says if it counts hits."""
    terms = terms_of_recipe(program.recipe, TARGET)
    return [
        {name: item[name] for name in ("output", "name", "weight")}
        | {"label": term.label, "counts": bool(term.loss.accuracy)}
        for item, term in zip(losses_of(program), terms, strict=True)
    ]


def _regions(program: Program) -> dict[str, list[int]]:
    """Persistent parts of the arena by role: offset and length of each, in units of 64 bytes."""
    out: dict[str, list[int]] = {}
    for slot in sorted(program.persistent, key=lambda slot: slot.offset):
        parts = out.setdefault(slot.role, [])
        start, end = slot.offset // _ALIGN, -(-(slot.offset + slot.nbytes) // _ALIGN)
        if parts and sum(parts[-2:]) == start:
            parts[-1] = end - parts[-2]
        else:
            parts += [start, end - start]
    return out


def _field(program: Program, name: str, slot: Slot) -> dict[str, Any]:
    return {
        "name": name,
        "elements": elements(program, slot),
        "shape": list(slot.shape[1:]),
        "type": slot.format.raw.name,
        "limit": limit_of(program, name),
    }


def _package(name: str, model: str) -> dict[str, Any]:
    """package.json, for `npm pack`."""
    return {
        "name": name,
        "version": "1.0.0",
        "description": f"Trains {model} where JavaScript runs, within a fixed memory.",
        "type": "module",
        "main": f"{name}.js",
        "types": f"{name}.d.ts",
        "exports": {
            ".": {"types": f"./{name}.d.ts", "default": f"./{name}.js"},
            f"./{name}.wasm": f"./{name}.wasm",
        },
        "files": [f"{name}.wasm", f"{name}.js", f"{name}.d.ts", page.NAME, f"{name}.samples"],
        "sideEffects": False,
        "license": "UNLICENSED",
    }


def sizes(made: dict[str, bytes]) -> dict[str, int]:
    """Bytes of the module and its JavaScript, plain and gzipped."""
    code = [content for file, content in made.items() if file.endswith((".wasm", ".js"))]
    packed = sum(len(gzip.compress(content, mtime=0)) for content in code)
    return {"files": sum(map(len, code)), "gzipped": packed}
