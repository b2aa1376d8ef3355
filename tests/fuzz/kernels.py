"""Kernels on integers that a checker accepted: no byte outside the declared extents is touched.

    python -m tests.fuzz.kernels

sets every number of every call of every net to every extreme, one at a time, and prints for each
net how many of these calls were tried, refused by the checker, and run, and what went wrong.

Every operand lies between pages that may not be touched, at their end or at their start, so that
one element too far is a signal. A case is an honest call of a kernel with some integers changed;
what the checker refuses is not run.
"""

import argparse
import ctypes
import itertools
import mmap
import random
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from edgetrain.errors import ProgramError
from edgetrain.formats import FORMATS, csr
from edgetrain.kernels import control, registry
from edgetrain.kernels.cache import jit
from edgetrain.kernels.cache.addresses import addresses
from edgetrain.kernels.declaration.spec import Operand
from edgetrain.kernels.registry import Kernel
from edgetrain.kernels.tapes.decode import bound, decode
from edgetrain.program import Program
from edgetrain.runtime.loading.patterns import REWIRING

from . import children
from .nets import ALL, BY_HAND, compiled, parts

PAGE = mmap.PAGESIZE
MOST_WORK = 10**8
MOST_NBYTES = 2**22  # per operand
MOST_ALIKE = 6  # calls tried per net, kernel and set of storages
_ENTRY = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)
_LIBC = ctypes.CDLL(None)


@dataclass(frozen=True)
class Call:
    """A kernel call: integers, float bits, and 0 (present) or -1 (absent) for references."""

    kernel: Kernel
    storages: Mapping[str, str]
    values: Mapping[str, int]


def _pages(nbytes: int) -> int:
    return -(-max(nbytes, 1) // PAGE) * PAGE


class _Guarded:
    """Operands between protected pages; with `end`, each ends right before a protected page."""

    def __init__(self, sizes: Mapping[str, int], end: bool) -> None:
        total = sum(_pages(n) + PAGE for n in sizes.values()) + PAGE
        self.map = mmap.mmap(-1, total)
        self.bytes = np.frombuffer(self.map, np.uint8)
        self.base = self.bytes.ctypes.data
        self.at: dict[str, int] = {}
        self._forbid(0)
        place = PAGE
        for name, nbytes in sizes.items():
            pages = _pages(nbytes)
            self.at[name] = place + (pages - nbytes if end else 0)
            place += pages
            self._forbid(place)
            place += PAGE

    def _forbid(self, offset: int) -> None:
        address, size = ctypes.c_void_p(self.base + offset), ctypes.c_size_t(PAGE)
        if _LIBC.mprotect(address, size, ctypes.c_int(0)):
            raise OSError("pages that guard operands cannot be protected")


def changed(values: Mapping[str, int], integers: list[str], draw: random.Random) -> dict[str, int]:
    """Replace one to four integers in `values`."""
    out = dict(values)
    for name in draw.sample(integers, min(len(integers), draw.choice((1, 1, 2, 3, 4)))):
        v = out[name]
        other = out[draw.choice(integers)]
        new = draw.choice([
            v + 1, v - 1, 2 * v, v // 2, 0, 1, 2, 3, -1, other, v + other, draw.randrange(1, 40),
            draw.randrange(1, 40), 1 << draw.randrange(40), 1_000_000, -v, v * other,
        ])  # fmt: skip
        out[name] = max(-(2**63), min(new, 2**63 - 1))  # limits of a tape word
    return out


def _layer(values: Mapping[str, int]) -> csr.Layer | None:
    """Return the layer of a kernel with a sparse pattern."""
    if "c" in values:
        shape = (values["k"], values["c"] // values["g"], values["kh"], values["kw"])
    elif "rows" in values:
        shape = (values["rows"], values["channels"], values["taps"])
    else:
        return None
    size = min(shape) > 0 and int(np.prod(shape, dtype=float))
    return csr.Layer("w", shape, 1, size) if size and size < 2**22 else None


def fill(call: Call, memory: _Guarded, sizes: Mapping[str, int], draw: random.Random) -> bool:
    """Fill the operands; return False if no pattern fits the integers."""
    rng = np.random.default_rng(draw.getrandbits(32))
    for operand in call.kernel.spec.operands:
        name = operand.name
        if not operand.is_reference or name not in sizes:
            continue
        kind = call.storages.get(operand.storage, operand.storage)
        place = memory.bytes[memory.at[name] : memory.at[name] + sizes[name]]
        count = sizes[name] // FORMATS[kind].block_nbytes
        if name == "ctl":
            words = np.zeros(control.WORDS, np.int64)
            words[control.COUNT], words.view(np.float64)[16:24] = draw.randrange(100), 0.5
            place[:] = words.view(np.uint8)
        elif kind in ("f32", "f64", "f16"):
            dtype = {"f32": np.float32, "f64": np.float64, "f16": np.float16}[kind]
            place[:] = rng.standard_normal(count).astype(dtype).view(np.uint8)
        elif kind == "i32":
            place[:] = rng.integers(-3, 40, count).astype(np.int32).view(np.uint8)
        else:
            place[:] = rng.integers(0, 256, sizes[name]).astype(np.uint8)
    values = call.values
    if "pointers" in sizes and "chunk" in values:
        layer = _layer(values)
        if layer is None or layer.chunk != values["chunk"]:
            return False
        caps = (values[name] for name in ("slots", "room", "held") if values.get(name, 0) > 0)
        most = min(layer.size, *caps)
        chosen = rng.choice(layer.size, draw.randrange(most + 1), replace=False)
        columns, pointers = csr.encode(layer, np.sort(chosen), 0)
        dtype = np.uint8 if call.storages["I"] == "u8" else np.uint16
        if columns.size and columns.max() > np.iinfo(dtype).max:
            return False
        at = memory.at["columns"]
        memory.bytes[at : at + columns.size * dtype().itemsize] = columns.astype(dtype).view(
            np.uint8
        )
        at = memory.at["pointers"]
        memory.bytes[at : at + 4 * pointers.size] = pointers.view(np.uint8)
    elif "pointers" in sizes:  # slots of the pool, proved when a Program is loaded
        starts = np.sort(rng.integers(0, values["slots"] + 1, values["groups"] + 1))
        at = memory.at["pointers"]
        memory.bytes[at : at + 4 * starts.size] = starts.astype(np.int32).view(np.uint8)
    return True


def proved(call: Call, threads: int) -> dict[str, int] | None:
    """Return the bytes of each reference and of scratch, or None if the checker refuses."""
    lanes = jit.host().lanes
    spec = call.kernel.spec
    try:
        sizes = spec.extents(call.values, call.storages, threads, lanes)
        sizes |= {"": spec.scratch_nbytes(call.values, threads, lanes)}
    except ProgramError:
        return None
    if min(sizes.values()) < 0 or not call.kernel.suits(call.values, call.storages, lanes):
        return None
    return sizes


def extents(call: Call, threads: int) -> dict[str, int] | None:
    """Like `proved`, but also None if the call is too large to run here."""
    sizes = proved(call, threads)
    if sizes is None or max(sizes.values()) > MOST_NBYTES:
        return None
    plain = registry.variants(call.kernel.name)[-1].spec
    return None if plain.turns(call.values, threads, jit.host().lanes) > MOST_WORK else sizes


def run(call: Call, sizes: Mapping[str, int], threads: int, end: bool, draw: random.Random) -> bool:
    """Run every thread of the call; return False if its operands cannot be filled."""
    stride = _pages(sizes[""]) + PAGE
    places = {name: n for name, n in sizes.items() if name}
    places |= {f" {k}": sizes[""] for k in range(threads)}
    memory = _Guarded(places, end)
    if not fill(call, memory, sizes, draw):
        return False
    words: list[int] = []
    for operand in call.kernel.spec.operands:
        if operand.mode == "t":
            words += [memory.at[" 0"], stride]
        elif operand.is_reference:
            words.append(memory.at.get(operand.name, -1))
        else:
            words.append(call.values[operand.name])
    entry = _ENTRY(*loaded([call]))
    args = np.array(words, np.int64)
    for thread in range(threads):
        entry(memory.base, args.ctypes.data, thread, threads)
    return True


def loaded(calls: Iterable[Call]) -> list[int]:
    """Compile the kernels before children are forked, so that children spend CPU time only on
    running them; return the addresses."""
    return addresses([(call.kernel, dict(call.storages)) for call in calls])


def calls_of(program: Program) -> list[Call]:
    """Return the distinct calls in a Program's tapes.

    Calls of a rewiring are left out: they trust the table that earlier calls filled. Mutants of
    whole tapes cover them.
    """
    found = {}
    for words in program.tapes.values():
        for item in decode(words.tolist(), bound(program.kernels)):
            if item.kernel.name in REWIRING:
                continue
            spec = item.kernel.spec
            references = {o.name for o in spec.operands if o.is_reference}
            values = {k: min(v, 0) if k in references else v for k, v in item.values.items()}
            key = item.kernel.symbol(item.storages), tuple(values.items())
            found[key] = Call(item.kernel, item.storages, values)
    return list(found.values())


def _attempt(calls: Sequence[Call], number: int, seed: int) -> bool:
    """Run one changed call that the checker accepts, out of up to 20 attempts."""
    call = calls[number % len(calls)]
    draw = random.Random(f"{seed} {number}")
    integers = [o.name for o in call.kernel.spec.operands if o.mode == "i"]
    for _ in range(20 if integers else 0):
        other = Call(call.kernel, call.storages, changed(call.values, integers, draw))
        threads = draw.choice((1, 1, 2, 3))
        sizes = extents(other, threads)
        if sizes is not None:
            return run(other, sizes, threads, draw.random() < 0.7, draw)
    return False


def faults(calls: Sequence[Call], each: int, seed: int) -> list[str]:
    """Run `each` changes of every call in forked children; return what went wrong."""
    numbers, wrong = range(each * len(calls)), []
    loaded(calls)
    for start in range(0, len(numbers), 50):
        part = numbers[start : start + 50]
        many = children.run(lambda part=part: [_attempt(calls, n, seed) for n in part])
        for n in part if many.how != "returned" else ():
            one = children.run(lambda n=n: _attempt(calls, n, seed))
            if one.how != "returned":
                wrong.append(f"{calls[n % len(calls)].kernel.name} {seed} {n}: {one.how}")
    return wrong


_ROW = "{:40} {:>9} {:>9} {:>9} {:>9} {:>6}"
_EXTREMES = (-(2**63), -(2**31), -1, 0, 1, 2**31 - 1, 2**31, 2**48, 2**63 - 1)

# Float32 bits: 0, -1, the largest numbers, infinities, NaN.
_FLOATS = (0, 0xBF800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000)


def strained(calls: Iterable[Call]) -> list[Call]:
    """Set each number of each call to every extreme and to values near its limits."""
    out = []
    for call in calls:
        for operand in call.kernel.spec.operands:
            for other in sorted(_others(operand, call.values.get(operand.name, 0))):
                if -(2**63) <= other < 2**63:
                    values = {**call.values, operand.name: other}
                    out.append(Call(call.kernel, call.storages, values))
    return out


def _others(operand: Operand, word: int) -> set[int]:
    """Return the words to try in place of a number."""
    if operand.mode == "f":
        return {*_FLOATS} - {word}
    if operand.range is None:
        return set()
    least, most = operand.range.least, operand.range.most
    near = {word - 1, word + 1, least - 1, least, most, most + 1}
    return near.union(_EXTREMES) - {word}


def alone(name: str) -> Call:
    """Make a call of a plain kernel: every integer is 1, every operand is present and float32."""
    kernel = registry.variants(name)[-1]
    words = {o.name: 0 if o.is_reference else 1 for o in kernel.spec.operands if o.mode != "t"}
    return Call(kernel, dict.fromkeys(kernel.spec.variables, "f32"), words)


def _strain(call: Call, seed: int) -> bool:
    """Run a call that the checker accepts, with operands at the end and the start of pages."""
    draw, ran = random.Random(f"{seed} {call.kernel.label} {sorted(call.values.items())}"), False
    for end in (True, False):
        threads = draw.choice((1, 2, 3))
        sizes = extents(call, threads)
        ran = (sizes is not None and run(call, sizes, threads, end, draw)) or ran
    return ran


@dataclass
class Tally:
    """Counts of calls. `large` are accepted but too large to run here; an arena bounds them,
    because extents are proved against it."""

    tried: int = 0
    refused: int = 0
    large: int = 0
    ran: int = 0
    faults: list[str] = field(default_factory=list)

    def row(self, name: str) -> str:
        counts = (self.tried, self.refused, self.large, self.ran, len(self.faults))
        return _ROW.format(name, *(f"{count:,}" for count in counts))


def strain(calls: Sequence[Call], seed: int) -> Tally:
    """Try calls in forked children."""
    accepted = [call for call in calls if proved(call, 1) is not None]
    small = [call for call in accepted if extents(call, 1) is not None]
    found = Tally(len(calls), len(calls) - len(accepted), len(accepted) - len(small))
    loaded(small)
    for start in range(0, len(small), 50):
        part = small[start : start + 50]
        many = children.run(lambda part=part: [_strain(call, seed) for call in part])
        if many.how == "returned":
            found.ran += sum(many.value)
            continue
        for call in part:
            one = children.run(lambda call=call: _strain(call, seed))
            if one.how == "returned":
                found.ran += one.value
            else:
                told = f"{call.kernel.label} {dict(call.values)}: {one.how} {one.detail}"
                found.faults.append(told)
    return found


def few(calls: Iterable[Call]) -> list[Call]:
    """Keep the first calls of each kernel and storages; segments of time have hundreds alike."""
    out = []
    seen: Counter[tuple] = Counter()
    for call in calls:
        key = call.kernel.label, *call.storages.values()
        seen[key] += 1
        if seen[key] <= MOST_ALIKE:
            out.append(call)
    return out


def extremes(seed: int) -> Iterator[tuple[str, Tally]]:
    """Strain every net, part and kernel called by hand; yield the results of their new calls."""
    known: set[tuple] = set()
    nets = ((name, calls_of(compiled(name))) for name in ALL)
    single = ((name, calls_of(program)) for name, program in parts())
    by_hand = ((f"by hand {name}", [alone(name)]) for name in BY_HAND)
    for name, calls in itertools.chain(nets, single, by_hand):
        new = {}
        for call in (*calls, *strained(few(calls))):
            key = call.kernel.label, *call.storages.values(), *call.values.values()
            if key not in known:
                known.add(key)
                new[key] = call
        yield name, strain([*new.values()], seed)


def main() -> int:
    """Run the command line; return 1 if a call went wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    total = Tally()
    print(_ROW.format("net", "tried", "refused", "too large", "ran", "wrong"))
    for name, found in extremes(parser.parse_args().seed):
        total = Tally(*(getattr(total, f.name) + getattr(found, f.name) for f in fields(Tally)))
        print(found.row(name), *found.faults, sep="\n", flush=True)
    print(total.row("all"))
    return 1 if total.faults else 0


if __name__ == "__main__":
    sys.exit(main())
