"""(kernel, storages, target) -> function, scratch bytes and the extent of each operand.

A family's file registers its kernels by decorating a factory. The factory takes one `Storage` for
each storage variable of the declaration and returns the Python function to compile:

    @kernel("relu", "x:r:S[n] y:w:S[n] n")
    def relu(S):
        def run(thread, nthreads, args):  # args.x, args.y, args.n
            ...
        return run

`args` is a record with a field for each operand: the address of a reference (0 if it is absent) or
of the thread's own scratch, and a tuple for each group of integers.

One name may have several variants. The first whose `when` holds for the integers and the target is
used, so the choice never depends on the plan. The plain variant comes last.

A second start reads all declarations from one file beside the compiled objects, and imports a
family (and numba with it) only if one of its kernels has to be compiled.
"""

import functools
import importlib
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import UnsupportedOpError
from ..formats import FLOATS, FORMATS
from .cache import library, sources
from .cache.processor import Target
from .declaration.expression import Later, later
from .declaration.spec import Spec, refuse_unmeasured


@dataclass(frozen=True)
class Kernel:
    """One registered variant.

    Attributes:
      factory: None if only the declaration has been read.
      when: condition for this variant, None for the plain one.
      module: file that declares it, relative to this package: `gemm.plain`, `.optim.adam`.
      revision: version of its meaning; see `kernel`.
      blocks: storage variables, separated by spaces, that may be block formats.
    """

    name: str
    variant: str
    spec: Spec
    factory: Callable | None
    when: Later | None
    module: str = ""
    blocks: str = ""
    writes: str = ""
    revision: int = 1

    @property
    def label(self) -> str:
        """Name and variant, as in messages and Programs."""
        return f"{self.name}.{self.variant}"

    @property
    def family(self) -> str:
        """The room that its module is in."""
        return self.module.lstrip(".").partition(".")[0]

    def revision_of(self, storages: Mapping[str, str]) -> int:
        """Revision of the results for these storages. For kernels that write accumulated gradients,
        such as updates, it includes the revision of the formats' rounding (`Format.rounding`)."""
        if "accumulator" not in self.writes:
            return self.revision
        return self.revision + max(FORMATS[name].rounding for name in storages.values()) - 1

    def role_of(self, operand: str) -> str:
        """The role of the values that an update may write through an operand; "" for none."""
        pairs = (pair.split("=") for pair in self.writes.split())
        return next((role for name, role in pairs if name == operand), "")

    def suits(self, values: Mapping[str, int], storages: Mapping[str, str], lanes: int) -> bool:
        """Whether this variant handles these integers and storages on vectors of `lanes`."""
        if self.when is None:
            return True
        names = self.spec.names(values, 1, lanes) | storages
        names |= {f"has_{o.name}": values[o.name] >= 0 for o in self.spec.operands if o.optional}
        return bool(self.when(names))

    def symbol(self, storages: Mapping[str, str]) -> str:
        """Symbol in objects and Programs, such as `et_relu__plain__f16`."""
        parts = [self.name, self.variant, *(storages[v] for v in self.spec.variables)]
        return "et_" + "__".join(parts)

    def object(self, storages: Mapping[str, str], target: Target) -> bytes:
        """The compiled object for a target, from the cache if possible."""
        return self.objects(storages, [target])[0]

    def objects(self, storages: Mapping[str, str], targets: Sequence[Target]) -> list[bytes]:
        """Like `object`, for several targets."""
        from .cache import jit  # only needed where no library has the kernel

        def build() -> Callable:
            return self.function(storages)

        symbol, spec = self.symbol(storages), self.spec
        return jit.objects_for(symbol, build, spec.kinds, targets, self.module, spec.fields)

    def function(self, storages: Mapping[str, str]) -> Callable:
        """The Python function to compile."""
        from .language.packed import storage_of

        factory = self.factory
        if factory is None:
            room, _, _ = self.module.rpartition(".")
            home = f"{room}.kernels" if self.module.startswith(".") else self.module
            importlib.import_module(f".{home}", __package__)
            factory = _FACTORIES[self.name, self.variant]
        return factory(*(storage_of(storages[v]) for v in self.spec.variables))


_KERNELS: dict[str, list[Kernel]] = {}
_FACTORIES: dict[tuple[str, str], Callable] = {}
_TEXTS: dict[tuple[str, str], Mapping[str, str]] = {}  # of imported families
_READ: set[str] = set()  # kernels whose line in the file has been read
# Defaults of a declaration.
_USUAL = dict.fromkeys(("when", "check", "work", "blocks", "writes", "storages"), "") | {
    "variant": "plain",
    "revision": "1",
}


def of_numbers(variable: str) -> str:
    """A condition: the storage variable is a format of single numbers, not a block format."""
    return f"({' or '.join(f'{variable} == {name!r}' for name in FLOATS)})"


def in_blocks(variable: str) -> str:
    """The opposite of `of_numbers`."""
    return f"not {of_numbers(variable)}"


def kernel(
    name: str, operands: str, *, variant: str = "plain", **declaration: str
) -> Callable[[Callable], Callable]:
    """Register a kernel's factory under `name`; see declaration/spec.py for the grammar.

    Optional parts of the declaration:
      when: expression of the integers, `lanes`, storage variables (`S == 'f16'`) and `has_x` for
        optional operands; the variant is chosen if it holds.
      check: expressions, separated by `;`, that the integers of a loaded tape must satisfy.
      blocks: storage variables that may be block formats; the kernel stores whole blocks.
      writes: `operand=role` of values that outlive a step, for kernels of updates and rewirings.
      module: the kernel's module, if it is not the factory's.
      revision: a number, 1 at first. Raise it whenever the same words of a tape come to mean
        something else: operands added, removed or reordered, or other bits. A Program that was
        compiled for another revision is not run.
      storages: expression of the storage variables: the combinations that a Program may ask for. A
        library has the kernel for those (linking/choices.py).
      work: iterations of the innermost loop, if they exceed the number of elements of the operands;
        the plain variant's holds for all.
    """

    def register(factory: Callable) -> Callable:
        if (name, variant) in _FACTORIES:
            raise ValueError(f"kernel {name} has two variants {variant!r}")
        module = declaration.get("module") or factory.__module__.removeprefix(f"{__package__}.")
        ranged = _with_activations(operands)
        row = _USUAL | {"name": name, "variant": variant, "operands": ranged, "module": module}
        row |= declaration
        if _known(name, variant) is None:
            refuse_unmeasured(ranged, row["check"], row["work"])
            _declare(row, factory)
        _FACTORIES[name, variant], _TEXTS[name, variant] = factory, row
        return factory

    return register


def _with_activations(operands: str) -> str:
    """Replace the kind "activation" by its range, the codes of the activation functions."""
    if "=activation" not in operands:
        return operands
    from .elementwise.formulas import FUSED

    return re.sub(r"=activation(?!\S)", f"=0..{max(FUSED)}", operands)


def _known(name: str, variant: str) -> Kernel | None:
    return next((kernel for kernel in _KERNELS.get(name, ()) if kernel.variant == variant), None)


def _declare(row: Mapping[str, str], factory: Callable | None = None) -> None:
    name, variant, when = row["name"], row["variant"], row["when"]
    spec = Spec.parse(row["operands"], row["check"], row["work"])
    known = _KERNELS.setdefault(name, [])
    if known and known[0].spec.interface != spec.interface:
        raise ValueError(
            f"kernel {name}: variants {known[0].variant} and {variant} have different interfaces"
        )
    condition = later(when) if when else None
    module = sys.intern(row["module"])
    revision = int(row["revision"])
    blocks, writes = sys.intern(row["blocks"]), sys.intern(row["writes"])
    known.append(Kernel(name, variant, spec, factory, condition, module, blocks, writes, revision))
    known.sort(key=lambda args: args.when is None)


def _lines() -> Iterator[bytes]:
    """Every declaration, one line per kernel as in `declarations`. The file is read each time: on a
    device, keeping them all in memory would take as much as half an arena."""
    place = _declared_in()
    if isinstance(place, bytes):
        yield from place.splitlines(keepends=True)
        return
    with open(place, "rb") as file:
        yield from file


@functools.cache
def _declared_in() -> Path | bytes:
    """The declarations file of this runtime or of an installed library; else the cached one of an
    earlier start, else a new one from the families themselves."""
    declared = sources.declarations()
    if declared is not None:
        return declared
    installed = library.installed()
    if installed is not None and installed.same:
        return installed.declarations
    from .cache import disk

    digest = sources.package_digest()
    name = f"declarations-{digest[:32]}.txt"
    kept = disk.read(name, digest)
    if kept is None:
        kept = declarations().encode()
        disk.write(name, digest, kept)
    return kept


def _rows(name: str) -> list[dict[str, str]]:
    """The recorded declarations of a kernel's variants."""
    start = f"{name}\t".encode(errors="replace")
    result = next((line for line in _lines() if line.startswith(start)), start)
    rows, row = [], _USUAL | {"name": name}
    for changes in json.loads(result[len(start) :] or "[]"):
        rows.append(row := row | changes)
    return rows


def line_of(name: str, rows: Sequence[Mapping[str, str]]) -> str:
    """A kernel's line in the file: its name, a tab, and its variants as JSON. Each variant has only
    what differs from the one before; the first, what differs from the defaults."""
    short, before = [], _USUAL | {"name": name}
    for row in rows:
        short.append({key: value for key, value in row.items() if before.get(key) != value})
        before = before | row
    return f"{name}\t{json.dumps(short, separators=(',', ':'))}\n"


def declarations() -> str:
    """All declarations of this package, one line per kernel; imports every family."""
    import pkgutil  # only needed with sources

    for room in (f".{__package__.rpartition('.')[2]}", *sources.DECLARING):
        package = importlib.import_module(f".{room}", __package__)
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    by_name: dict[str, list[Mapping[str, str]]] = {}
    for row in _TEXTS.values():
        if not sources.path_of(row["module"]).is_file():
            continue  # from an external plug-in that this process happened to import
        by_name.setdefault(row["name"], []).append(row)
    return "".join(line_of(name, rows) for name, rows in sorted(by_name.items()))


def variants(name: str) -> list[Kernel]:
    """A kernel's variants in order of preference.

    Raises:
      UnsupportedOpError: no kernel has this name.
    """
    if name not in _READ:
        for row in _rows(name):
            if _known(name, row["variant"]) is None:
                _declare(row)
        if name not in _KERNELS:
            raise UnsupportedOpError(f"kernel {name!r}: not available in this build.")
        _READ.add(name)
    return _KERNELS[name]


def declaration(kernel: Kernel) -> Mapping[str, str]:
    """A kernel's declaration: the keywords of `kernel`, and its operands."""
    result = _TEXTS.get((kernel.name, kernel.variant))
    if result is not None:
        return result
    return next(row for row in _rows(kernel.name) if row["variant"] == kernel.variant)


def names() -> list[str]:
    """Names of all registered kernels."""
    kept = {line.partition(b"\t")[0].decode() for line in _lines()}
    return sorted(_KERNELS.keys() | kept)


def choose(
    name: str, values: Mapping[str, int], storages: Mapping[str, str], target: Target
) -> Kernel:
    """The variant for these integers, storages and target."""
    for candidate in variants(name):
        if candidate.suits(values, storages, target.lanes):
            return candidate
    raise UnsupportedOpError(f"kernel {name!r}: no variant for {dict(values)}.")
