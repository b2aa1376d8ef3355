"""Stack use of emitted code: the frames that LLVM gives functions, along the deepest call chain."""

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping

import llvmlite.binding as llvm

MARK = '"warn-stack-size"="0"'  # an attribute: LLVM reports the size of the function's frame
_SAID = re.compile(rb"stack frame size \((\d+)\).* in function '(.+)'")
_NAME = r'"[^"]+"|[\w.$-]+'
_CALL = re.compile(rf"\b(?:call|invoke)\b[^@%]*?(?:@({_NAME})|%(?:{_NAME}))\(")
_TAKEN = re.compile(rf"@({_NAME})(?![\w.$(-])")


def emitted(machine: llvm.TargetMachine, module: llvm.ModuleRef) -> tuple[bytes, dict[str, int]]:
    """The object, and the frame sizes of its functions in bytes, without functions that have no
    frame or no MARK.

    The module is not changed, because LLVM's code generation gets a clone. Code generation changes
    its input: StackColoring merges two buffers into one slot and writes that into the module, where
    the end of one buffer's lifetime then also ends the other's. In an object emitted from such a
    module, live buffers would overlap.
    """
    with _heard() as lines:
        code = machine.emit_object(module.clone())
    result = (_SAID.search(line) for line in lines)
    return code, {item[2].decode(): int(item[1]) for item in result if item}


def deepest(text: str, frames: Mapping[str, int], call_nbytes: int) -> int:
    """Bytes of stack that the deepest call chain in a module takes, from any starting function.

    A call through an address may reach any function whose address the module takes.

    Args:
      text: of the module as it was emitted, LLVM's assembly.
      call_nbytes: stack that the call itself takes.
    """
    called, taken = _calls(text)
    depths: dict[str | None, int] = {}

    def depth(name: str | None, above: frozenset[str | None]) -> int:
        if name not in depths:
            others = (taken if name is None else called[name]) - above
            most = max((depth(other, above | {name}) for other in others), default=0)
            depths[name] = most + (0 if name is None else frames.get(name, 0) + call_nbytes)
        return depths[name]

    return max((depth(name, frozenset()) for name in called), default=0)


def _calls(text: str) -> tuple[dict[str, set[str | None]], set[str | None]]:
    """Function -> the functions it calls, None for a call through an address; and the functions
    whose address is taken."""
    called: dict[str, set[str | None]] = {}
    named: set[str] = set()
    callees: set[str | None] = set()
    for line in text.splitlines():
        if line.startswith("define "):
            match = re.search(rf"@({_NAME})\(", line)
            assert match is not None
            callees = called.setdefault(match[1].strip('"'), set())
        elif not line.startswith("declare "):
            callees |= {item[1] and item[1].strip('"') for item in _CALL.finditer(line)}
            named |= {item[1].strip('"') for item in _TAKEN.finditer(line)}
    here = called.keys()
    return {
        name: {item for item in others if item is None or item in here}
        for name, others in called.items()
    }, {*(named & here)}


@contextlib.contextmanager
def _heard() -> Iterator[list[bytes]]:
    """Capture lines that libraries write to descriptor 2. Afterwards, lines that are not about
    frames are passed on to it."""
    lines: list[bytes] = []
    sys.stderr.flush()
    try:
        kept = os.dup(2)
    except OSError:  # closed: nothing to capture
        yield lines
        return
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield lines
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            said = file.readlines()
            lines += [line for line in said if _SAID.search(line)]
            os.write(2, b"".join(line for line in said if not _SAID.search(line)))
