"""The planner's loops: Python functions on numbers and numpy arrays, compiled like kernels.

Python calls *entries*. An entry's annotations give the types of its arguments: int, float, an array
of one of the kinds in kinds.py, or a NamedTuple of these. A *unit* is a set of entries that share
code, compiled to one object. The object is cached like a kernel's (cache/disk.py) or installed with
the kernels (cache/library.py), so planning compiles only units that are in neither. Loops allocate
nothing and raise nothing.
"""

import ctypes
import functools
import importlib
import itertools
import struct
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from ...units.phases import phase
from ...units.sha import sha256
from ..cache import closures, disk, jit, library, load, workers
from ..cache.processor import Target
from .kinds import fields, flattened, layout

IMPORTS = (*load.IMPORTS, "strlen", "log", "exp", "exp2", "pow")  # the C library has them
_RESULT_WORDS = 8  # maximum number of values that an entry returns


class Unit:
    """Entries that are compiled together.

    Args:
      name: what it does, for progress messages.
      package: of the loops' files, such as `edgetrain.compiler.arena`.
      files: all modules of `package` that the code depends on.
    """

    every: list["Unit"] = []

    def __init__(self, name: str, package: str, files: Sequence[str]) -> None:
        self.name, self.package, self.files = name, package, tuple(files)
        self.entries: dict[str, Entry] = {}
        self._addresses: dict[str, int] = {}
        self._lock = threading.Lock()
        self._beside: tuple[workers.Workers, int] | None = None
        Unit.every.append(self)

    def entry(self, function: Callable) -> "Entry":
        """Make a loop callable from Python."""
        made = Entry(self, function)
        self.entries[function.__name__] = made
        return made

    def address(self, name: str) -> int:
        """Address of an entry in this process; compiles the unit if it is not cached."""
        with self._lock:
            if not self._addresses:
                symbols = [self._symbol(n) for n in self.entries]
                path = self._file()
                if path is None:
                    path, code = self._made()
                if path is not None:
                    result = load.found(path, symbols)
                else:
                    result = load.opened([code], symbols, IMPORTS)
                self._addresses = {n: result[self._symbol(n)] for n in self.entries}
        return self._addresses[name]

    def _made(self) -> tuple[Path | None, bytes]:
        """The cached file with the unit, and the object if no file can be cached."""
        with phase(f"compiling the {self.name}"):
            if self._beside is not None:
                workers_of, number = self._beside
                workers_of.wait(number)
            code = self.keep()
            path = self._file()
            return path, b"" if path is not None else code or self.object(jit.host())

    def _file(self) -> Path | None:
        """The installed or cached file, or None."""
        installed = library.installed()
        path = installed.loops(self.name, self.digest()) if installed is not None else None
        if path is None:
            identity = self._identity(jit.host())
            path = disk.path_of(self._kept(identity), identity)
        return path

    def missing(self) -> bool:
        """Whether the next call has to compile."""
        return not self._addresses and self._file() is None

    def keep(self) -> bytes | None:
        """Compile and cache the unit if it is not cached; returns the object if it was compiled."""
        if not self.missing():
            return None
        code, identity = self.object(jit.host()), self._identity(jit.host())
        joined = load.joined([code], IMPORTS)
        if joined is not None:
            disk.write(self._kept(identity), identity, joined)
        return code

    def object(self, target: Target) -> bytes:
        """Compile the unit for a processor.

        Raises:
          NotKept: nothing can be compiled here.
        """
        if not jit.available():
            raise jit.NotKept(f"the planner's {self.name}")
        from .text import object_of

        self.digest()  # imports all of its files
        entries = {self._symbol(name): entry for name, entry in self.entries.items()}
        return object_of(entries, target)

    def _symbol(self, entry: str) -> str:
        return f"et_{self.name.replace(' ', '_')}_{entry}"

    @functools.cache  # noqa: B019 units live as long as the process
    def digest(self) -> str:
        """Digest of all sources that its code depends on."""
        for file in self.files:
            importlib.import_module(f"{self.package}.{file}")
        digest = sha256(" ".join(map(closures.file_digest, closures.LOOPS)).encode())
        for file in self.files:
            digest.update(_source(f"{self.package}.{file}").read_bytes())
        return digest.hexdigest()

    def _identity(self, machine: Target) -> str:
        compiled_for = machine.triple, machine.cpu, machine.features
        return repr((self.name, compiled_for, self.digest(), jit.compiler()))

    @staticmethod
    def _kept(identity: str) -> str:
        return f"libraries/{sha256(identity.encode()).hexdigest()[:40]}.so"


def begin(units: Sequence[Unit]) -> None:
    """Have other processes compile the units that are not cached; a unit's first call waits.

    The first unit gets its own processor.
    """
    missing = [unit for unit in units if unit._beside is None and unit.missing()]
    tasks = [{"unit": u.name, "module": f"{u.package}.{u.files[0]}"} for u in missing]
    running = workers.started(tasks)
    for number, unit in enumerate(missing if running is not None else ()):
        unit._beside = running, number  # type: ignore[assignment]


def _source(module: str) -> Path:
    return Path(importlib.import_module(module).__file__ or "")


class Loop:
    """A helper that loops call. Python can call it too, and then runs the original function."""

    def __init__(self, function: Callable) -> None:
        functools.update_wrapper(self, function)
        self.function = function

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)


class Entry(Loop):
    """A loop that is called from Python."""

    def __init__(self, unit: Unit, function: Callable) -> None:
        super().__init__(function)
        self.unit = unit

    @functools.cached_property
    def kinds(self) -> tuple[tuple[Any, ...], Any]:
        """Kinds of the parameters and of the result, from the annotations."""
        hints = get_type_hints(self.function, include_extras=True)
        result = hints.pop("return", None)
        return tuple(hints.values()), None if result is type(None) else result

    @functools.cached_property
    def _call(self) -> Callable:
        prototype = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_char_p, *[ctypes.c_int64] * 2)
        return prototype(self.unit.address(self.function.__name__))

    @functools.cached_property
    def _result(self) -> tuple[struct.Struct, Callable]:
        """The layout of the result's words, and the function that converts them."""
        kind = self.kinds[1]
        inner = None if kind is None else fields(kind)
        if inner is not None:
            return struct.Struct(layout(inner)), kind
        return struct.Struct("" if kind is None else layout([kind])), _alone

    @functools.cached_property
    def _parameters(self) -> tuple[struct.Struct, tuple[tuple[Any, Any], ...]]:
        """The layout of a call's words: the result's address, then the words of each kind."""
        kinds = self.kinds[0]
        pairs = tuple((kind, fields(kind)) for kind in kinds)
        flat = [int, *(kind if inner is None else int for kind, inner in pairs)]
        return struct.Struct(layout(flat)), pairs

    def __call__(self, *args: Any) -> Any:
        returned = (ctypes.c_int64 * _RESULT_WORDS)()
        words: list[float] = [ctypes.addressof(returned)]
        tables = []
        form, pairs = self._parameters
        for (kind, inner), value in zip(pairs, args, strict=True):
            if inner is None:
                words += flattened(kind, value)
            else:
                tables.append(_table(inner, value))
                words.append(tables[-1].address)
        self._call(0, form.pack(*words), 0, 1)
        read, make = self._result
        return make(*read.unpack_from(returned))


def _alone(number: float | None = None) -> Any:
    return number


loop = Loop


class _Table(NamedTuple):
    """A record's words, and the record itself, which is kept alive so that its id is not reused."""

    record: Any
    words: ctypes.Array
    address: int


_tables: dict[int, _Table] = {}
_KEPT_TABLES = 12


def _table(kinds: tuple[Any, ...], record: Any) -> _Table:
    """The words of a record. The last few with arrays are cached, since calls often repeat them."""
    result = _tables.get(id(record))
    if result is None:
        words = itertools.chain.from_iterable(map(flattened, kinds, record))
        packed = struct.pack(layout(kinds), *words)
        buffer = ctypes.create_string_buffer(packed, len(packed))
        result = _Table(record, buffer, ctypes.addressof(buffer))
        if any(kind not in (int, float) for kind in kinds):
            _tables[id(record)] = result
            for old in list(_tables)[:-_KEPT_TABLES]:
                _tables.pop(old, None)
    return result
