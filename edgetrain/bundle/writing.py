"""`edgetrain bundle`: writes the files of a bundle and reports their sizes."""

import dataclasses
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import UsageError
from ..kernels import targets
from ..kernels.emission import program as emit
from ..kernels.emission.tape import Table, table_of
from ..kernels.linking.reading import filled, sections
from ..kernels.targets import Target
from ..program import Program
from ..program.atomic import check_directory, unwritable, write_atomically
from ..program.samples import elements
from . import functions, module, rom, texts
from .archive import archive
from .image import Image, image_of, mapped_bytes, mapped_nbytes
from .lengths import lengths_of, tapes_of
from .losses import losses_of, targets_of
from .names import check_name, check_prefix

CHECKED_STEPS = 5
_MAPPED = 2**30  # bytes of constants within reach of 32-bit offsets, with room for the rest

_ADDRESSED = 2**32  # bytes within reach of a bundle's tables, whose offsets have 32 bits


def write_bundle(
    program: Program,
    directory: str | Path,
    *,
    name: str = "net",
    target: str | None = None,
    size: bool = False,
    cc: str | None = None,
    digest: Callable[[Program, int], int],
    accuracy: bool = True,
    sets: Sequence[Program] = (),
) -> dict[str, Any]:
    """Write a C library that trains a Program, with an example that uses it, to `directory`.

    For WebAssembly: NAME.wasm, NAME.js with its types, package.json and MANIFEST.json. Otherwise:
    libNAME.a, NAME.h, main.c, Makefile and MANIFEST.json; with an operating system also
    NAME.weights, which main reads; with `cc` also the executable.

    Args:
      name: prefix of all symbols, such as `digits`; for WebAssembly the name of the files.
      target: target name from kernels/targets.py; None: the Program's own.
      size: optimise for size instead of speed.
      cc: C compiler that builds the executable; "zig": the one in the `ziglang` package.
      digest: digest of the state after this many steps on generated samples, as computed by the
        bundle's `check` (runtime/samples/check.py). Called in its own thread.
      accuracy: whether the loss counts correct predictions, for main to print.
      sets: the Program at each of its lengths (`lengths.sets_of`); () if it has only one.
    Returns:
      Contents of MANIFEST.json.
    Raises:
      UsageError: the target, name or compiler can't be used, or the Program is for another target.
      RunError: a file can't be written.
    """
    where, processor = Path(directory), _target(program, target)
    (check_name if processor.module else check_prefix)(name)
    check_directory(where, "-o")
    _check_addressed(program, max(item.arena_nbytes for item in (program, *sets)))
    image = image_for(program, 64 if processor.lanes > 1 else 8, sets)
    _check_mapped(image)
    _check_addressed(program, image.nbytes)
    compiler = _compiler(cc, processor) if cc is not None else None
    digest(program, 0)  # compiles kernels before LLVM starts on the target
    checked = _begun(lambda: digest(program, CHECKED_STEPS))
    if processor.module:
        manifest, files = _module(image, name, processor, size, checked, accuracy)
    else:
        manifest, files = _library(image, name, processor, size, checked)
        files["main.c"] = texts.main(name, image, processor, accuracy).encode()
        files["Makefile"] = texts.makefile(name, program, processor, cc).encode()
    _write_all(where, files)
    if compiler is not None:
        _build(where, compiler)
    return manifest


def _library(
    image: Image, name: str, processor: Target, size: bool, checked: Callable[[], int]
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """(manifest, files) of a C library."""
    made, members = _members(image, name, processor, library(image, name, processor, size=size))
    manifest = _manifest(image, name, made, size)
    manifest["check"] = {"steps": CHECKED_STEPS, "digest": f"{checked():08x}"}
    files = {
        f"lib{name}.a": archive(members),
        f"{name}.h": texts.header(name, image, processor).encode(),
        "MANIFEST.json": _json(manifest),
    }
    if processor.hosted:
        files[f"{name}.weights"] = rom.weights_file(image)
    return manifest, files


def image_for(program: Program, align: int, sets: Sequence[Program] = ()) -> Image:
    """The memory of a bundle, aligned to `align`; `sets` as in `write_bundle`."""
    return image_of(program, emit.tape_lengths(tapes_of(program, sets)), 0, align, sets)


def of_length(program: Program, length: int | None) -> Program:
    """The Program with one length's tapes as its default.

    Args:
      length: None: the only or the longest one.
    Raises:
      UsageError: the Program was not compiled for this length.
    """
    known, which = program.lengths, ", ".join(map(str, program.lengths))
    if length is None:
        return program.chosen(dims=known[max(known)].dims) if known else program
    if length not in known:
        move = f"Choose one of {which}." if known else "Leave --length (in Python length) out."
        raise UsageError(
            f"length {length}: Program {program.model_name} was compiled for "
            f"{which or 'one length'}. {move}"
        )
    return program.chosen(dims=known[length].dims)


def _module(
    image: Image,
    name: str,
    processor: Target,
    size: bool,
    checked: Callable[[], int],
    accuracy: bool,
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """(manifest, files) of a WebAssembly module."""
    module.linker()  # fail early
    made = library(image, module.PREFIX, processor, size=size)
    objects = [made.code]
    if mapped_nbytes(image):
        objects.append(mapped(image, module.PREFIX, processor)[0])
    shown = module.exports(functions.functions(image.program, len(image.sets)))
    code = module.linked(objects, shown, made.stack)
    digest = f"{checked():08x}"
    files = module.files(name, image, code, accuracy, (CHECKED_STEPS, digest))
    made = dataclasses.replace(made, sizes=sections(code))
    manifest = _manifest(image, name, made, size)
    manifest["check"] = {"steps": CHECKED_STEPS, "digest": digest}
    manifest["module_nbytes"] = module.sizes(files) | {"memory": module.memory_nbytes(code)}
    return manifest, files | {"MANIFEST.json": _json(manifest)}


def _json(manifest: dict[str, Any]) -> bytes:
    return (json.dumps(manifest, indent=1) + "\n").encode()


def _begun(work: Callable[[], int]) -> Callable[[], int]:
    """Start `work` in a thread; returns a function that waits for its result. (A thread of
    concurrent.futures would delay the exit of an interrupted process.)"""
    result: Future[int] = Future()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return result.result


def _members(
    image: Image, name: str, processor: targets.Target, made: emit.Library
) -> tuple[emit.Library, dict[str, tuple[bytes, list[str]]]]:
    """(library with the sizes of all members, archive members: code and exported symbols)."""
    exported = functions.exports(
        name, functions.functions(image.program, len(image.sets)), processor.hosted
    )
    members = {f"{name[:11]}.o": (made.code, exported)}
    if processor.hosted:
        code, sizes = weights(image, name, processor)
        members[f"{name[:11]}_w.o"] = code, [f"{name}_init"]
        made = _with_more(made, sizes)
    if mapped_nbytes(image):
        code, sizes = mapped(image, name, processor)
        members[f"{name[:11]}_m.o"] = code, [functions.mapped_symbol(name)]
        made = _with_more(made, sizes)
    return made, members


def _write_all(where: Path, files: dict[str, bytes]) -> None:
    try:
        where.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise unwritable(where, "-o", error) from error
    for file, content in files.items():
        _write(where / file, content)


def _check_addressed(program: Program, nbytes: int) -> None:
    """Refuse memory or initial values too large for the tables' addresses."""
    placed = {slot.name: slot.nbytes for slot in program.persistent}
    values = sum(placed.get(name, 0) for name in program.init)
    for what, found in (("memory to train in", nbytes), ("initial values", values)):
        if found >= _ADDRESSED:
            raise UsageError(
                f"Program {program.model_name}: {found:,} bytes of {what}; expected at most "
                f"{_ADDRESSED - 1:,} for a C library. Use --model-memory fp16, a smaller "
                "microbatch or a smaller model."
            )


def _check_mapped(image: Image) -> None:
    program, nbytes = image.program, mapped_nbytes(image)
    if nbytes > _MAPPED:
        raise UsageError(
            f"Program {program.model_name}: {nbytes:,} bytes of frozen weights; "
            f"expected at most {_MAPPED:,} for a C library. Compile with --frozen int8 or int4, or "
            "use a smaller model."
        )


def _write(path: Path, content: bytes) -> None:
    def write(file: BinaryIO) -> None:
        file.write(content)

    write_atomically(path, write, links=False)


def library(image: Image, name: str, target: Target, *, size: bool = False) -> emit.Library:
    """The object of a bundle; its symbols start with `name`. Initial values are included if there
    is no operating system; otherwise they are in the object of `weights`."""
    result, hosted = functions.functions(image.program, len(image.sets)), target.hosted
    imports: tuple[str, ...] = ()
    exports = functions.exports(name, result, hosted)
    text = rom.llvm_text(image, target.pointer_bits) + functions.llvm_text(
        name, result, target.pointer_bits, image.align, image.nbytes, hosted
    )
    if target.module:
        text += rom.planes_text(image)
    elif not hosted:
        text += rom.weights_text(image)
    if target.module:
        text += module.llvm_text(image, texts.memory_nbytes(image))
        imports, exports = tuple(module.IMPORTS), module.exports(result)
    return emit.library(
        tapes_of(image.program, image.programs),
        target,
        step_loop=functions.kernels(result),
        text=text,
        exports=exports,
        size=size,
        mapped=functions.mapped_symbol(name) if mapped_nbytes(image) else "",
        imports=imports,
    )


def weights(image: Image, name: str, target: Target) -> tuple[bytes, dict[str, int]]:
    """(object with NAME_init and the initial values, bytes by section). The linker includes it only
    if NAME_init is called."""
    text = rom.weights_text(image) + functions.init_text(name, target.pointer_bits, "")
    return emit.constants(text, target)


def mapped(image: Image, name: str, target: Target) -> tuple[bytes, dict[str, int]]:
    """(object with the mapped values, bytes by section). A board keeps them in flash; an operating
    system maps them from the executable."""
    values = mapped_bytes(image)
    text = rom.mapped_text(functions.mapped_symbol(name), len(values))
    code, sizes = emit.constants(text, target)
    return filled(code, rom.MAPPED_SECTION, values), sizes


def _with_more(made: emit.Library, sizes: dict[str, int]) -> emit.Library:
    both = dict(made.sizes)
    for section, nbytes in sizes.items():
        both[section] = both.get(section, 0) + nbytes
    return dataclasses.replace(made, sizes=both)


def _target(program: Program, name: str | None) -> Target:
    """The requested target, checked against what the Program was compiled for."""
    own = program.recipe.get("target") or targets.HOST
    target = targets.get(own if name is None else name)
    if target.name == targets.named(targets.HOST):  # use this machine's own C compiler
        target = target._replace(compiler=targets.host().compiler)
    planned = targets.lanes_of(program.recipe)
    if target.lanes < planned:
        raise UsageError(
            f"target {target.name}: it has vectors of {target.lanes} lanes; the Program was "
            f"compiled for {own} with {planned}. Compile with --target {target.name} "
            f"(in Python target={target.name!r})."
        )
    if not target.hosted and program.threads > 1:
        raise UsageError(
            f"target {target.name}: it has no threads; the Program was compiled for "
            f"{program.threads}. Compile with --target {target.name} --threads 1 "
            f"(in Python target={target.name!r}, threads=1)."
        )
    if program.arena_nbytes > target.most_nbytes:
        raise UsageError(
            f"target {target.name}: it can address at most {target.most_nbytes:,} bytes; the arena "
            f"has {program.arena_nbytes:,}. Compile with --target {target.name} --budget "
            f"{target.most_nbytes}."
        )
    return target


def _compiler(cc: str, target: Target) -> list[str]:
    """Command of a C compiler.

    Raises:
      UsageError: it can't be used or found.
    """
    if target.module:
        raise UsageError(f"cc {cc!r}: a WebAssembly module needs no C compiler. Leave cc out.")
    if not target.hosted:
        raise UsageError(
            f"cc {cc!r}: an executable for {target.name} needs files of the board. Leave cc out, "
            "and use the Makefile."
        )
    if cc == "zig":
        if find_spec("ziglang") is None:
            raise UsageError("cc zig: ziglang is not installed. Run: pip install ziglang.")
        triple = "-".join(p for p in target.triple.split("-") if p not in ("unknown", "pc"))
        return [sys.executable, "-m", "ziglang", "cc", "-target", triple]
    if shutil.which(cc) is None:
        raise UsageError(
            f"cc {cc!r}: no such command. Install it ({target.compiler or 'gcc'} on Debian), "
            "choose another with --cc (in Python cc), or leave it out: the library needs no "
            "compiler."
        )
    return [cc]


def _build(where: Path, compiler: list[str]) -> None:
    """Build the executable with make."""
    done = subprocess.run(
        ["make", "-C", str(where), f"CC={' '.join(compiler)}"], capture_output=True, text=True
    )
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise UsageError(
            f"cc {compiler[0]!r}: building {where} failed: {said[:200]}. Use another --cc "
            "(in Python cc), or leave it out."
        )


def _manifest(image: Image, name: str, made: emit.Library, size: bool) -> dict[str, Any]:
    program = image.program
    initial = rom.initial_nbytes(image)
    flash = sum(n for section, n in made.sizes.items() if _in_flash(section))
    tapes = sum(made.lengths.values())
    return {
        "name": name,
        "model": program.model_name,
        "target": {
            "name": made.target.name,
            "triple": made.target.triple,
            "cpu": made.target.cpu,
            "lanes": targets.lanes_of(program.recipe),
            "floats": made.target.abi,
        },
        "optimised_for": "size" if size else "speed",
        "targets": [
            {
                "output": target.output,
                "values": elements(program, target.slot),
                "type": target.slot.format.raw.name,
                "at": "y" if target.place is None else f"x[{target.place}]",
            }
            for target in targets_of(program)
        ],
        "losses": losses_of(program),
        "tapes": {"set": program.label, "left_out": _left_out(image)},
        **({"lengths": lengths_of(image.program, image.programs)} if image.sets else {}),
        "float64": _float64(program, made.target),
        "ram_nbytes": {
            "memory": texts.memory_nbytes(image),
            "arena": image.arena_nbytes,
            "plan": image.control_nbytes,
            "written_globals": _written(made),
        },
        "stack_nbytes": {
            "deepest_calls": made.stack,
            "note": "computed: stack frames of the deepest call chain in the library, per thread, "
            "without your callbacks and vector alignment",
        },
        "flash_nbytes": {
            "all": flash,
            "initial_values": initial,
            "frozen": mapped_nbytes(image),
            "tapes": tapes,
            "code_and_tables": flash - initial - mapped_nbytes(image) - tapes,
        },
        "stored_state_nbytes": image.stored_nbytes + 64,
        "threads": program.threads,
        "longest_piece_of_poll": _longest(table_of(tapes_of(program, image.programs))),
        "licences": {
            "code": "Apache-2.0: only edgetrain's kernels",
            "weights_and_model": "as for the model they come from",
        },
    }


def _left_out(image: Image) -> list[str]:
    """Labels of tape sets that the library doesn't include."""
    kept = {item.key for item in image.programs or (image.program,)}
    return [item.label for item in image.program.sets if item.key not in kept]


def _float64(program: Program, target: Target) -> str:
    """How float64 in kernels is computed on the target."""
    if targets.PAIRS in targets.rewrites(program.recipe):
        return "pairs of float32; see edgetrain/kernels/emission/pair_functions.py for their errors"
    if target.fp64:
        return "in hardware"
    planned = program.recipe.get("target") or targets.HOST
    return f"in software: the Program was planned for {planned}, which has hardware for it"


def _in_flash(section: str) -> bool:
    return not section.startswith((".bss", ".eh_frame", ".symtab"))


def _written(made: emit.Library) -> int:
    return sum(
        n
        for section, n in made.sizes.items()
        if section.startswith((".bss", ".data")) and not section.startswith(".data.rel.ro")
    )


_PARTS = 8  # parts of an instruction that the manifest also reports


def _longest(table: Table) -> dict[str, Any]:
    """The longest uninterrupted work of poll, in declared iterations of innermost loops."""

    def said(parts: int) -> dict[str, Any]:
        tape, group, turns = table.longest(parts)
        kernels = [table.kernels[table.instructions[k].kernel][0] for k in group]
        names = ", ".join(dict.fromkeys(f"{k.name}.{k.variant}" for k in kernels))
        return {"instruction": f"{tape}: {names}", "turns_of_the_innermost_loop": turns}

    return {
        **said(1),
        f"with_split_{_PARTS}": said(_PARTS),
        "note": "split(net, n) cuts an instruction into at most n parts, except groups of small "
        "instructions and steps in which threads exchange results; your fill callback runs once "
        "between two polls",
    }
