"""Splits fused multiply-adds, for Programs planned for processors that have none.

On such processors, a * b + c rounded once takes a dozen instructions, or a call. The text of a
kernel is rewritten: each fused multiply-add of numbers or vectors becomes a product, which is
rounded, and a sum. Only those of `fma_always` stay (remainders, angles), because they rely on
cancellation.

The input is a module's text after `text.SIMPLIFY`. LLVM never fuses instructions again unless a
flag allows it.
"""

import re

from ..language.number import ALWAYS

_KIND = r"(?:float|double|<\d+ x (?:float|double)>)"
_CALL = re.compile(
    rf"^  (%\S+|%\"[^\"]+\") = (?:tail )?call ((?:\w+ )*?)({_KIND}) @llvm\.fma\.\w+\((.*)\)(.*)$",
    re.M,
)


def separated(text: str) -> str:
    """The module's text with products and sums rounded separately.

    Raises:
      ValueError: a fused multiply-add has no rule here.
    """
    result = _CALL.sub(_two, text)
    if left := [line for line in result.splitlines() if _is_fused(line)]:
        raise ValueError(f"no rule for: {left[0]}")
    return result


def _is_fused(line: str) -> bool:
    return "@llvm.fma" in line and not line.startswith("declare ") and f" {ALWAYS} " not in line


def _two(call: re.Match) -> str:
    name, flags, kind, given, _ = call.groups()
    if ALWAYS in flags.split():
        return call[0]
    a, b, c = re.split(rf"(?:^|, ){re.escape(kind)} (?:noundef )?", given)[1:]
    product = f'%"{name[1:].strip(chr(34))}.product"'
    return f"  {product} = fmul {kind} {a}, {b}\n  {name} = fadd {kind} {product}, {c}"
