"""Translates LLVM functions that intrinsics emit to Python functions of numpy numbers.

An intrinsic has one meaning: the instructions that it emits. LLVM compiles them to machine code;
here each becomes a line of a Python function, so a new intrinsic needs no other support. A function
of several blocks becomes a loop over them. Numbers and lanes may be undefined (lanes.py).
"""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from llvmlite import ir
from llvmlite.ir import instructions

from . import arithmetic, lanes
from .memory import Memory, Region

_FLOATS = {ir.HalfType: np.float16, ir.FloatType: np.float32, ir.DoubleType: np.float64}
_CASTS = {"trunc", "zext", "sext", "fptrunc", "fpext", "fptosi", "fptoui", "sitofp", "uitofp"}
_NOTHING = {"fence"}  # threads of an interpreted kernel run one after the other
_IGNORED = ("llvm.prefetch", "llvm.assume", "llvm.lifetime")


class Machine(Protocol):
    """The machine that a function runs on."""

    memory: Memory

    def local(self, site: object, nbytes: int, item: int) -> Region:
        """The buffer of an alloca in the kernel's function that is running."""

    def call(self, address: int, values: tuple) -> Any:
        """Call the function at an address."""


def dtype_of(kind: ir.Type) -> np.dtype:
    """numpy's type of a number or of a vector's lanes."""
    kind = getattr(kind, "element", kind) if isinstance(kind, ir.VectorType) else kind
    if isinstance(kind, ir.IntType):
        return np.dtype(np.bool_ if kind.width == 1 else f"i{kind.width // 8}")
    if isinstance(kind, ir.PointerType):
        return np.dtype(np.int64)
    return np.dtype(_FLOATS[type(kind)])


def nbytes_of(kind: ir.Type) -> int:
    """Size of a value in memory, in bytes."""
    if isinstance(kind, ir.ArrayType | ir.VectorType):
        return kind.count * nbytes_of(kind.element)
    return dtype_of(kind).itemsize


def constant(value: ir.Constant) -> Any:
    """A constant's number, array of lanes or tuple; 0 if it is undefined."""
    kind, number = value.type, value.constant
    if isinstance(kind, ir.VectorType):
        out = np.zeros(kind.count, dtype_of(kind))
        if isinstance(number, list | tuple):
            out[:] = [constant(lane) for lane in number]
        return out
    if isinstance(kind, ir.LiteralStructType | ir.ArrayType):
        elements = kind.elements if isinstance(kind, ir.LiteralStructType) else [kind.element]
        elements = elements * (kind.count if isinstance(kind, ir.ArrayType) else 1)
        numbers = number if isinstance(number, list | tuple) else [None] * len(elements)
        return tuple(
            constant(part if isinstance(part, ir.Constant) else ir.Constant(element, part))
            for part, element in zip(numbers, elements, strict=True)
        )
    dtype = dtype_of(kind)
    if number is None or number is ir.Undefined:
        return dtype.type(0)
    if dtype.kind == "i":
        bits = int(number) & (1 << 8 * dtype.itemsize) - 1
        return np.array(bits, f"u{dtype.itemsize}").view(dtype)[()]
    return dtype.type(number)


def _bitcast(value: ir.Instruction) -> Callable:
    """The same bits as another type. A mask becomes an integer, with lane 0 as its lowest bit."""
    (source,), target = value.operands, value.type
    if isinstance(target, ir.PointerType):
        return lambda pointer: pointer
    dtype, wide = dtype_of(target), isinstance(target, ir.VectorType)
    if getattr(source.type, "count", 0) == getattr(target, "count", 0):
        return lanes.lanewise(lambda bits: bits.view(dtype))

    def bytes_of(bits: Any) -> np.ndarray:
        bits = np.atleast_1d(bits)
        return np.packbits(bits, bitorder="little") if bits.dtype == np.bool_ else bits

    def change(value: Any) -> Any:
        bits, undefined, origin = lanes.parts(value)
        plain = bytes_of(bits).view(np.uint8)
        if wide and dtype == np.bool_:
            out = np.unpackbits(plain, bitorder="little").astype(bool)
        else:
            out = plain.view(dtype) if wide else plain.view(dtype)[0]
        return lanes.made(out, np.broadcast_to(undefined.any(), np.shape(out)), origin)

    return change


def _inserted(aggregate: tuple, value: Any, indices: tuple[int, ...]) -> tuple:
    first, *rest = indices
    inner = _inserted(aggregate[first], value, tuple(rest)) if rest else value
    return (*aggregate[:first], inner, *aggregate[first + 1 :])


def _extracted(aggregate: tuple, indices: tuple[int, ...]) -> Any:
    for index in indices:
        aggregate = aggregate[index]
    return aggregate


def _rmw(operation: str, dtype: np.dtype) -> Callable:
    after = lanes.lanewise(arithmetic.BINARY.get(operation, lambda before, value: value))

    def change(machine, address, value):
        before = machine.memory.load(address, dtype, dtype.itemsize)
        machine.memory.store(after(before, value), address, dtype.itemsize)
        return before

    return change


def _scale(value: instructions.GEPInstr) -> list[int]:
    """Bytes per unit of each index of a getelementptr."""
    kind, out = value.source_etype, []
    for k in range(len(value.indices)):
        if k:
            kind = kind.element
        out.append(nbytes_of(kind))
    return out


class Translation:
    """A function being translated to Python.

    Args:
      function: with its body; functions that it calls are translated at their first call.
      outside: name -> Python function, of declared functions that are part of the kernel's Python.
      top: whether it is the intrinsic itself, whose buffers belong to its caller.
    """

    def __init__(self, function: ir.Function, outside: dict[str, Callable], top: bool) -> None:
        self.function, self.outside, self.top = function, outside, top
        self.scope: dict[str, Any] = {}
        self.names: dict[int, str] = {id(a): f"a{k}" for k, a in enumerate(function.args)}
        self.blocks = {id(block): k for k, block in enumerate(function.blocks)}

    def translated(self) -> Callable:
        """(machine, arguments ...) -> the function's result."""
        arguments = ", ".join(["machine", *self.names.values()])
        several = len(self.function.blocks) > 1
        for block in self.function.blocks:
            for value in block.instructions:
                self.names.setdefault(id(value), f"v{len(self.names)}")
        lines = [f"def run({arguments}):"]
        lines += ["    at, came = 0, -1", "    while True:"] if several else []
        for k, block in enumerate(self.function.blocks):
            indent = "            " if several else "    "
            lines += [f"        if at == {k}:"] if several else []
            lines += [indent + line for line in self._block(k, block)]
        exec("\n".join(lines), self.scope)
        return self.scope["run"]

    def _block(self, number: int, block: ir.Block) -> list[str]:
        phis = [v for v in block.instructions if isinstance(v, instructions.PhiInstr)]
        out = []
        if phis:
            targets = ", ".join(self.names[id(phi)] for phi in phis)
            for k, (_, source) in enumerate(phis[0].incomings):
                values = ", ".join(self._name(self._incoming(phi, source)) for phi in phis)
                word = "if" if k == 0 else "elif"
                out.append(f"{word} came == {self.blocks[id(source)]}: {targets} = {values}")
        for value in block.instructions:
            if not isinstance(value, instructions.PhiInstr):
                out += self._line(number, value)
        return out or ["pass"]

    @staticmethod
    def _incoming(phi: instructions.PhiInstr, source: ir.Block) -> ir.Value:
        return next(value for value, block in phi.incomings if block is source)

    def _name(self, value: ir.Value) -> str:
        if id(value) in self.names:
            return self.names[id(value)]
        return self._bound(constant(value))

    def _bound(self, thing: Any) -> str:
        """A name in the function's scope for a new object."""
        name = f"c{len(self.scope)}"
        self.scope[name] = thing
        return name

    def _line(self, number: int, value: ir.Instruction) -> list[str]:
        operation = value.opname
        if isinstance(value, instructions.Ret):
            return [f"return {self._name(value.operands[0]) if value.operands else None}"]
        if operation == "br" and len(value.operands) == 1:
            return self._jump(number, value.operands[0])
        if operation == "br":
            condition, yes, no = value.operands
            there, else_there = self.blocks[id(yes)], self.blocks[id(no)]
            name = self._name(condition)
            return [f"at, came = {there} if {name} else {else_there}, {number}", "continue"]
        if operation in _NOTHING:
            return []
        text = self._text(value)
        if text is None:
            return []
        void = isinstance(value.type, ir.VoidType)
        return [text if void else f"{self.names[id(value)]} = {text}"]

    def _jump(self, number: int, target: ir.Block) -> list[str]:
        return [f"at, came = {self.blocks[id(target)]}, {number}", "continue"]

    def _text(self, value: ir.Instruction) -> str | None:
        operation = value.opname
        args = [self._name(o) for o in value.operands if not isinstance(o, ir.Function)]
        wide = isinstance(value.type, ir.VectorType)
        if operation == "call":
            return self._call(value, args)
        if operation == "alloca":
            return self._alloca(value)
        if operation == "getelementptr":
            pairs = zip(args[1:], _scale(value), strict=True)
            return " + ".join([args[0], *(f"{index} * {scale}" for index, scale in pairs)])
        if operation in ("inttoptr", "ptrtoint"):
            return args[0]
        plain = self._plain(value)
        if plain is not None:
            return f"{self._bound(lanes.lanewise(plain))}({', '.join(args)})"
        return self._special(value, args, wide)

    def _plain(self, value: ir.Instruction) -> Callable | None:
        """The function of an operation that works lane by lane, or None."""
        operation = value.opname
        if operation in arithmetic.BINARY:
            return arithmetic.BINARY[operation]
        if operation in _CASTS:
            return arithmetic.cast(operation, dtype_of(value.type))
        if operation == "fneg":
            return np.negative
        if isinstance(value, instructions.ICMPInstr):
            return arithmetic.integers(value.op)
        if isinstance(value, instructions.FCMPInstr):
            return arithmetic.floats(value.op)
        return None

    def _special(self, value: ir.Instruction, args: list[str], wide: bool) -> str:
        operation = value.opname
        if operation in ("load", "load atomic"):
            kind = self._bound(dtype_of(value.type))
            align = value.align or nbytes_of(value.type)
            count = f", {value.type.count}" if wide else ""
            method = "load_vector" if wide else "load"
            return f"machine.memory.{method}({args[0]}, {kind}{count}, {align})"
        if operation in ("store", "store atomic"):
            align = value.align or nbytes_of(value.operands[0].type)
            return f"machine.memory.store({args[0]}, {args[1]}, {align})"
        if operation == "atomicrmw":
            change = self._bound(_rmw(value.operation, dtype_of(value.type)))
            return f"{change}(machine, {', '.join(args)})"
        if operation == "bitcast":
            return f"{self._bound(_bitcast(value))}({args[0]})"
        if operation == "select" and not isinstance(value.operands[0].type, ir.VectorType):
            return f"{self._bound(lanes.choose)}({', '.join(args)})"
        if operation == "select":
            return f"{self._bound(lanes.select)}({', '.join(args)})"
        if operation == "shufflevector":
            order = self._bound(constant(value.operands[2]))
            return f"{self._bound(lanes.shuffle)}({args[0]}, {args[1]}, {order})"
        if operation == "extractelement":
            return f"{args[0]}[{args[1]}]"
        if operation == "insertelement":
            return f"{self._bound(lanes.insert)}({', '.join(args)})"
        if operation == "extractvalue":
            return f"{self._bound(_extracted)}({args[0]}, {tuple(value.indices)})"
        if operation == "insertvalue":
            return f"{self._bound(_inserted)}({args[0]}, {args[1]}, {tuple(value.indices)})"
        raise NotImplementedError(
            f"instruction {operation!r} in {self.function.name} is not supported: {value}"
        )

    def _alloca(self, value: instructions.AllocaInstr) -> str:
        kind = value.allocated_type
        item = nbytes_of(kind.element if isinstance(kind, ir.ArrayType) else kind)
        size = f"{nbytes_of(kind)}, {item}"
        if self.top:
            return f"machine.local({self._bound(object())}, {size}).address"
        return f'machine.memory.buffer("stack", {size}).address'

    def _call(self, value: ir.Instruction, args: list[str]) -> str | None:
        callee = value.callee
        if not isinstance(callee, ir.Function):
            rest = "".join(f"{name}, " for name in args[1:])
            return f"machine.call({args[0]}, ({rest}))"
        name = callee.name
        if name.startswith(_IGNORED):
            return None
        if name.startswith("llvm.masked.load"):
            address, align, mask, others = args
            kind = self._bound(dtype_of(value.type))
            return f"machine.memory.load_first({address}, {kind}, {mask}, {align}, {others})"
        if name.startswith("llvm.masked.store"):
            number, address, align, mask = args
            return f"machine.memory.store_first({number}, {address}, {align}, {mask})"
        if name.startswith("llvm."):
            operation = arithmetic.INTRINSICS.get(name.split(".")[1])
            if operation is None:
                raise NotImplementedError(f"LLVM's {name} in {self.function.name} is not supported")
            return f"{self._bound(lanes.lanewise(operation))}({', '.join(args)})"
        if callee.blocks:
            return f"{self._bound(_later(callee, self.outside))}({', '.join(['machine', *args])})"
        return f"{self._bound(self.outside[name])}({', '.join(args)})"


def _later(function: ir.Function, outside: dict[str, Callable]) -> Callable:
    """A function that is translated at its first call, because it may be incomplete before."""
    made: list[Callable] = []

    def call(*values):
        if not made:
            made.append(Translation(function, outside, top=False).translated())
        return made[0](*values)

    return call
