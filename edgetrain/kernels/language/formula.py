"""Formulas of formats (formats/coded.py) as instructions: bits with the operators of numbers."""

import struct
from typing import Any

from .number import F32, I32, like, of


class Bits:
    """A 32-bit integer, or a vector of them, while instructions are built."""

    __slots__ = ("builder", "value")

    def __init__(self, builder, value) -> None:
        self.builder, self.value = builder, value

    def _with(self, name: str, other) -> "Bits":
        return Bits(self.builder, getattr(self.builder, name)(self.value, self.like(other)))

    def like(self, other):
        """The value of another `Bits`, or of a constant number."""
        return other.value if isinstance(other, Bits) else like(self.value, other)

    def _from(self, name: str, other) -> "Bits":
        """Apply an operation with `other` as the first operand."""
        return Bits(self.builder, getattr(self.builder, name)(self.like(other), self.value))

    def _compared(self, how: str, other) -> "Bits":
        value = self.builder.icmp_unsigned(how, self.value, self.like(other))
        return Bits(self.builder, value)

    def __add__(self, other):
        return self._with("add", other)

    def __sub__(self, other):
        return self._with("sub", other)

    def __and__(self, other):
        return self._with("and_", other)

    def __or__(self, other):
        return self._with("or_", other)

    def __lshift__(self, other):
        return self._with("shl", other)

    def __rshift__(self, other):
        return self._with("lshr", other)

    def __rsub__(self, other):
        return self._from("sub", other)

    def __rlshift__(self, other):
        return self._from("shl", other)

    def __lt__(self, other):
        return self._compared("<", other)

    def __le__(self, other):
        return self._compared("<=", other)

    def __gt__(self, other):
        return self._compared(">", other)

    def __ge__(self, other):
        return self._compared(">=", other)

    __radd__, __rand__, __ror__ = __add__, __and__, __or__


class Real(Bits):
    """A float32; formulas add, subtract and multiply it."""

    __slots__ = ()

    def __add__(self, other):
        return Real(self.builder, self.builder.fadd(self.value, self.like(other)))

    def __sub__(self, other):
        return Real(self.builder, self.builder.fsub(self.value, self.like(other)))

    def __rsub__(self, other):
        return Real(self.builder, self.builder.fsub(self.like(other), self.value))

    def __mul__(self, other):
        return Real(self.builder, self.builder.fmul(self.value, self.like(other)))

    __radd__, __rmul__ = __add__, __mul__


class Intrinsics:
    """Operations without an operator."""

    @staticmethod
    def where(condition: Bits, yes: Any, no: Any) -> Bits:
        builder = condition.builder
        known = next((side for side in (yes, no) if isinstance(side, Bits)), None)
        if known is None:  # two plain numbers
            value = condition.value
            known = Bits(builder, builder.zext(value, of(value, I32)))
        chosen = builder.select(condition.value, known.like(yes), known.like(no))
        return type(known)(builder, chosen)

    @staticmethod
    def real(bits: Any) -> Any:
        """Of known bits, a constant."""
        if isinstance(bits, int):
            return struct.unpack("<f", struct.pack("<I", bits))[0]
        return Real(bits.builder, bits.builder.bitcast(bits.value, of(bits.value, F32)))

    @staticmethod
    def bits(number: Real) -> Bits:
        builder, value = number.builder, number.value
        return Bits(builder, builder.bitcast(value, of(value, I32)))

    @staticmethod
    def whole(number: Real) -> Bits:
        return Bits(number.builder, number.builder.fptosi(number.value, of(number.value, I32)))


def widening(format):
    """(builder, stored) -> float32, for a number or vector in a format with formulas."""

    def widen(builder, stored):
        bits = Bits(builder, builder.zext(stored, of(stored, I32)))
        return Intrinsics.real(format.widen(Intrinsics, bits)).value

    return widen


def narrowing(format, kind):
    """(builder, float32) -> the stored value, of LLVM type `kind`, rounded to nearest."""

    def narrow(builder, value):
        bits = Bits(builder, builder.bitcast(value, of(value, I32)))
        return builder.trunc(format.narrow(Intrinsics, bits).value, of(value, kind))

    return narrow


def cutting(format):
    """(builder, float32, 32 random bits) -> a float32 that the format can represent."""

    def cut(builder, value, random):
        bits = Bits(builder, builder.bitcast(value, random.type))
        return Intrinsics.real(format.cut(Intrinsics, bits, Bits(builder, random))).value

    return cut


def rounding(format, kind):
    """(builder, float32, 32 random bits) -> the stored bits, as integers of type `kind`."""

    def rounded(builder, value, random):
        bits = Bits(builder, builder.bitcast(value, random.type))
        return builder.trunc(
            format.rounded(Intrinsics, bits, Bits(builder, random)).value, of(value, kind)
        )

    return rounded
