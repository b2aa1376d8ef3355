"""Stack that emitted code takes: the frames that LLVM gives functions, along the deepest calls."""

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping

import llvmlite.binding as llvm

MARK = '"warn-stack-size"="0"'  # an attribute: LLVM says how large the function's frame is
_SAID = re.compile(rb"stack frame size \((\d+)\).* in function '(.+)'")
_NAME = r'"[^"]+"|[\w.$-]+'
_CALL = re.compile(rf"\b(?:call|invoke)\b[^@%]*?(?:@({_NAME})|%(?:{_NAME}))\(")
_TAKEN = re.compile(rf"@({_NAME})(?![\w.$(-])")


def emitted(machine: llvm.TargetMachine, module: llvm.ModuleRef) -> tuple[bytes, dict[str, int]]:
    """The object, and the frame sizes of its functions in bytes; functions without a frame or
    without MARK are left out.

    The module is not changed, because LLVM's code generation gets a clone. It changes its input:
    StackColoring puts two buffers into one slot and writes that into the text, in which the end of
    one buffer's life then also ends the other's. In an object made from such a text, live buffers
    overlap.
    """
    with _heard() as lines:
        code = machine.emit_object(module.clone())
    result = (_SAID.search(line) for line in lines)
    return code, {item[2].decode(): int(item[1]) for item in result if item}


def deepest(text: str, frames: Mapping[str, int], call_nbytes: int) -> int:
    """Bytes that the deepest chain of calls in a module takes, whoever begins it.

    What is called by address is taken for any function whose address the module holds.

    Args:
      text: of the module as it was emitted, LLVM's assembly.
      call_nbytes: what a call itself takes.
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
    """Function -> what it calls, None for an address; and functions whose address is taken."""
    called: dict[str, set[str | None]] = {}
    named: set[str] = set()
    own: set[str | None] = set()
    for line in text.splitlines():
        if line.startswith("define "):
            match = re.search(rf"@({_NAME})\(", line)
            assert match is not None
            own = called.setdefault(match[1].strip('"'), set())
        elif not line.startswith("declare "):
            own |= {item[1] and item[1].strip('"') for item in _CALL.finditer(line)}
            named |= {item[1].strip('"') for item in _TAKEN.finditer(line)}
    here = called.keys()
    return {
        name: {item for item in others if item is None or item in here}
        for name, others in called.items()
    }, {*(named & here)}


@contextlib.contextmanager
def _heard() -> Iterator[list[bytes]]:
    """Lines that libraries write to descriptor 2; what is not about frames goes on to it after."""
    lines: list[bytes] = []
    sys.stderr.flush()
    try:
        kept = os.dup(2)
    except OSError:  # closed: nothing is heard
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
