"""Calls without the places of their operands: what two calls must share to compute the same."""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from ..ir import Call, Value
from ..kernels import registry
from ..kernels.registry import Kernel
from ..kernels.tapes.decode import Bound

_NAME = re.compile(r"[A-Za-z_]\w*")
_ABSENT = -1


class Form(NamedTuple):
    """Everything about a call except where its operands are.

    Attributes:
      numbers: integers and the bits of floats, in the order of the declaration.
      present: whether each reference is present, in that order.
    """

    kernel: str
    variant: str
    storages: tuple[str, ...]
    numbers: tuple[int, ...]
    present: tuple[bool, ...]


class Reference(NamedTuple):
    """A present reference: the `nth` of the kernel's references; mode r, w or m."""

    nth: int
    name: str
    mode: str
    nbytes: int


class Forms:
    """Forms of calls, for a given number of threads and lanes."""

    def __init__(self, threads: int, lanes: int) -> None:
        self._threads, self._lanes = threads, lanes
        self._shapes: dict[tuple, tuple[Kernel, tuple[Reference, ...]]] = {}

    def of(self, call: Call, values: Mapping[str, Value]) -> tuple[Form, tuple[Reference, ...]]:
        """The form of a call, in the variant that its numbers select, and its references."""
        family = _family(call.kernel)
        args, spec = family.spec.flat(call.args), family.spec
        numbers = {name: _bits(args[name]) for name in family.floats}
        numbers |= {name: int(args[name]) for name in family.integers}
        held = [args.get(name) for name in family.references]
        storages = dict.fromkeys(spec.variables, "f32")  # of absent operands: any storage
        for variable, arg in zip(family.storages, held, strict=True):
            if arg is not None and variable in storages:
                storages[variable] = values[arg].dtype
        present = tuple(arg is not None for arg in held)
        shape = (call.kernel, *storages.values(), present, *(numbers[n] for n in family.mentioned))
        known = self._shapes.get(shape)
        if known is None:
            known = self._shapes[shape] = self._shape(family, storages, numbers, present)
        kernel, references = known
        words = tuple(numbers[name] for name in family.numbers)
        return Form(kernel.name, kernel.variant, (*storages.values(),), words, present), references

    def _shape(
        self,
        family: "_Family",
        storages: Mapping[str, str],
        numbers: Mapping[str, int],
        present: Sequence[bool],
    ) -> tuple[Kernel, tuple[Reference, ...]]:
        places = {n: 0 if p else _ABSENT for n, p in zip(family.references, present, strict=True)}
        words = {**numbers, **places}
        variants = registry.variants(family.name)
        kernel = next(item for item in variants if item.suits(words, storages, self._lanes))
        extents = kernel.spec.extents(words, storages, self._threads, self._lanes)
        modes = {operand.name: operand.mode for operand in kernel.spec.operands}
        references = tuple(
            Reference(index, name, modes[name], extents[name])
            for index, name in enumerate(family.references)
            if name in extents
        )
        return kernel, references


class _Family:
    """What all variants of a kernel share."""

    def __init__(self, name: str) -> None:
        variants = registry.variants(name)
        self.name, self.spec = name, variants[0].spec
        operands = [operand for operand in self.spec.operands if operand.mode != "t"]
        self.references = [o.name for o in operands if o.is_reference]
        self.storages = [o.storage for o in operands if o.is_reference]
        self.floats = [o.name for o in operands if o.mode == "f"]
        self.integers = [o.name for o in operands if o.mode == "i"]
        self.numbers = [o.name for o in operands if not o.is_reference]
        self.mentioned = _mentioned(variants, self.integers)


@functools.cache
def _family(name: str) -> _Family:
    return _Family(name)


def _mentioned(variants: Sequence[Kernel], integers: Sequence[str]) -> list[str]:
    """Integers that the variant or the extents may depend on: those that an expression names."""
    texts: list[Any] = [kernel.when for kernel in variants]
    for kernel in variants:
        texts += [*kernel.spec.checks, *(o.extent for o in kernel.spec.operands)]
    words = {word for text in texts if text for word in _NAME.findall(text.text)}
    fields = [field for field in variants[0].spec.fields if field[0] in words]
    for group, count in fields:
        words.update(f"{group}{k}" for k in range(count))
    return [name for name in integers if name in words]


class Row:
    """A row of a Program's table of kernels: how to read the words of its instructions.

    Attributes:
      words: number of words of an instruction, without its first two.
    """

    def __init__(self, bound: Bound) -> None:
        kernel, storages = bound
        self.kernel, self.words = kernel, kernel.spec.words
        references: list[int] = []
        numbers: list[int] = []
        index = 0
        self.scratch: int | None = None  # index of the word with the first thread's offset
        for operand in kernel.spec.operands:
            if operand.mode == "t":
                self.scratch = index if self.scratch is None else self.scratch
                index += 1
            else:
                (references if operand.is_reference else numbers).append(index)
            index += 1
        self._storages = tuple(storages.values())
        self._places, self._numbers = _getter(references), _getter(numbers)

    def read(self, words: Sequence[int]) -> tuple[Form, tuple[int, ...]]:
        """An instruction's form, and the places of its references."""
        places = self._places(words)
        present = tuple(place >= 0 for place in places)
        kernel = self.kernel
        form = Form(kernel.name, kernel.variant, self._storages, self._numbers(words), present)
        return form, places


def _getter(places: Sequence[int]) -> Callable[[Sequence[int]], tuple[int, ...]]:
    """A function that returns these items of a sequence as a tuple."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda words: tuple(words[index] for index in places)


@functools.cache
def _bits(number: Any) -> int:
    return int(np.float32(number).view(np.uint32))
