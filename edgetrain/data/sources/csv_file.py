"""`csv:FILE`: one sample per line; the last or a named column is the target, all others are
numbers.

Targets are numbers, or class names, which are numbered alphabetically.

Opening reads the file once, refuses cells that are not finite numbers, and stores only the offset
of each line (8 bytes each). Columns are separated by commas, semicolons, tabs or blanks. A first
line without numbers is the header, and so is one that numbers the columns (0,1,2) if one of them
has no other whole number. Values are not scaled: scale them first, or start the model with a
normalisation. Columns fill the axes of the model's input in C order.
"""

import math
import threading
import weakref
from array import array
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain, count, islice

import numpy as np

from edgetrain.errors import DataError
from edgetrain.units.files import open_regular
from edgetrain.units.hints import did_you_mean
from edgetrain.units.wording import counted, listed

from ..checks.values import check_integers
from ..files.reading import file_size, kind_of
from ..source import Field, Options, Source
from .labels import MOST, check_names
from .row_source import Splits

_LINE_NBYTES = 2**20
_CHUNK_CELLS = 2**15
_WORD_NBYTES = 1024  # of a label to keep; longer labels are refused
_SEPARATORS = (b",", b";", b"\t")  # otherwise blanks
_AROUND = b' \t\r\n"'  # characters allowed around a number
_MISSING = (b"", b"NA", b"N/A", b"NULL", b"NONE", b"?", b"-")
_WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff")  # UTF-16's
_COMMENT = b"#"
_UNDECODED = "\N{REPLACEMENT CHARACTER}"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class CsvSource(Source):
    """Lines of a csv file, parsed on demand; "x" is float32 [columns - 1].

    "y" is a class if all targets are whole numbers >= 0 or all are words, otherwise a float.

    Args:
      alone: there is no target; all columns are "x".
      nonfinite: accept infinities and NaN.
    """

    def __init__(
        self, path: str, label: str | None, alone: bool = False, nonfinite: bool = False
    ) -> None:
        self._nbytes = file_size(path, "a CSV file")
        table = _scan(path, label, nonfinite)
        y_dtype = np.dtype(np.float32 if table.classes is None else np.int64)
        x = Field((table.columns - (not alone),), np.dtype(np.float32), flat=True)
        fields = {"x": x} if alone else {"x": x, "y": Field((), y_dtype)}
        classes = None if alone else table.classes
        super().__init__(path, len(table.starts), fields, classes=classes)
        self.labels = table.words or None
        if table.taken:
            first, word = ", ".join(table.header)[:80], table.header[table.target][:40]
            self.note = (
                f"{path}: line 1 ({first}) is taken for column names, because {word!r} is in no "
                "other line. If it is a sample, add a line of column names."
            )
        self._numbers = {word: k for k, word in enumerate(table.words)}
        self._table, self._lock, self._alone = table, threading.Lock(), alone
        others = [k for k in range(table.columns) if k != table.target]
        self._places: dict[str, list[int]] = {"x": others, "y": [table.target]}
        self._file = open_regular(path)  # open as long as the source exists
        weakref.finalize(self, self._file.close)

    def read(
        self, names: tuple[str, ...], indices: np.ndarray, key: tuple[int, int], train: bool
    ) -> dict[str, np.ndarray]:
        values = np.empty((len(indices), self._table.columns))
        for row, index in zip(values, indices.tolist(), strict=True):
            with self._lock:
                self._file.seek(self._table.starts[index])
                line = self._file.readline(_LINE_NBYTES)
            if not line.endswith(b"\n") and self._table.starts[index] + len(line) != self._nbytes:
                raise self._gone(index)  # truncated: half a number is also a number
            row[:] = self._parse(line, index)
        if self._alone:
            return {name: values for name in names}
        parts = {name: values[:, self._places[name]] for name in names}
        return {
            name: part.reshape(len(part), *self.fields[name].shape) for name, part in parts.items()
        }

    def name_targets(self, names: Collection[str]) -> None:
        """Columns with these names, or NAME.0, NAME.1, .. for several numbers, become targets; "x"
        has the other columns. Without such columns, nothing changes."""
        header, places = self._table.header, {}
        for name in names:
            own = [k for k, column in enumerate(header) if column == name]
            several = (
                header.index(f"{name}.{k}") for k in range(len(header)) if f"{name}.{k}" in header
            )
            places[name] = own or list(several)
        taken = [k for own in places.values() for k in own]
        if self._alone or not taken or not all(places.values()) or len({*taken}) == len(header):
            return
        rest = [k for k in range(len(header)) if k not in taken]
        self._places = {"x": rest, **places}
        floats = np.dtype(np.float32)
        self.fields = {"x": Field((len(rest),), floats, flat=True)} | {
            name: Field((len(own),) if f"{name}.0" in header else (), floats)
            for name, own in places.items()
        }

    def where(self, index: int) -> str:
        return f"line {_line_number(self.name, self._table.starts[index])}"

    def scan(self, limits: Mapping[str, int], ignore_index: int | None) -> None:
        limit = limits.get("y") if "y" in self.fields else None
        if limit is None or (self.classes is not None and self.classes <= limit):
            return  # counted when the file was opened
        step = max(1, _CHUNK_CELLS // self._table.columns)
        for start in range(0, self.n, step):
            part = np.arange(start, min(start + step, self.n))
            result = self.read(("y",), part, (0, 0), False)["y"]
            check_integers(
                result, result.dtype, limit, ignore_index, self.sample_label("y", part), True
            )

    def _gone(self, index: int) -> DataError:
        return DataError(
            f"{self.name}: sample {index} is missing: the file changed since it was opened. "
            "Start again."
        )

    def _parse(self, line: bytes, index: int) -> list[float]:
        cells = _cells(line, self._table.separator)
        if len(cells) != self._table.columns:
            raise self._gone(index)
        values = []
        for column, cell in enumerate(cells):
            value: float | None = _number(cell)
            if self._numbers and column == self._table.target:
                value = self._numbers.get(_word(cell))
            if value is None:
                raise DataError(
                    f"{self.name}: {self.where(index)}, column {column + 1}: {_shown(cell)}; "
                    f"expected a number. {_move(cell)}"
                )
            values.append(value)
        return values


def open_csv(where: str, options: Options) -> Splits:
    """Open one file, split by a fixed shuffled order.

    Raises:
      DataError: lines are missing, too long or of different lengths; no column `options.label`;
        a cell is not a finite number.
    """
    alone = options.target is not None and options.label is None
    return {"train": partial(CsvSource, where, options.label, alone, options.allow_nonfinite)}


class _Look:
    """Checks every cell of a file when it is opened.

    Args:
      header: column names; empty without a header.
      target: column that may contain words.
      nonfinite: accept infinities and NaN.
    """

    def __init__(self, path: str, header: list[bytes], target: int, nonfinite: bool) -> None:
        self._path, self._header = path, header
        self._target, self._nonfinite = target, nonfinite
        self._word: tuple[int, bytes] | None = None  # line and cell of the first word as a target
        self._numbers = False  # whether a target is a number

    def at(self, line: int, cells: list[bytes]) -> None:
        """Check a line.

        Raises:
          DataError: names the first bad cell.
        """
        target = self._target
        try:
            total = sum(map(float, cells))
            self._numbers = True
            if self._word is None and (self._nonfinite or math.isfinite(total)):
                return
        except ValueError:  # a word, a quoted number, or not a number
            pass
        for column, cell in enumerate(cells):
            value = _number(cell.strip(_AROUND))
            if column == target:
                self._numbers |= value is not None
                if value is None and self._word is None:
                    self._word = line, cell.strip(_AROUND)
                if self._word is not None and self._numbers:
                    raise self._refusal(self._word[0], target, self._word[1], "a number")
            elif value is None:
                raise self._refusal(line, column, cell.strip(_AROUND), "a number")
            if value is not None and not self._nonfinite and not math.isfinite(value):
                raise self._refusal(line, column, cell.strip(_AROUND), "a finite number")

    def _refusal(self, line: int, column: int, cell: bytes, expected: str) -> DataError:
        name = f" in {_shown(self._header[column])}" if self._header else ""
        return DataError(
            f"{self._path}: line {line}, column {column + 1}: {_shown(cell)}; expected "
            f"{expected}{name}. {_move(cell)}"
        )


@dataclass(frozen=True)
class _Table:
    separator: bytes | None
    columns: int
    target: int
    starts: array  # byte offset of each sample's line
    classes: int | None
    words: tuple[str, ...] = ()
    header: tuple[str, ...] = ()
    taken: bool = False  # whether the header is one only by guess


def _scan(path: str, label: str | None, nonfinite: bool = False) -> _Table:
    """One pass over the file: find line offsets and target types, check that lines contain equally
    many numbers."""
    starts = array("Q")
    lines = _lines(path)
    first = next(lines, (1, 0, b""))
    separator = next((mark for mark in _SEPARATORS if mark in first[2]), None)
    head = _cells(first[2], separator)
    if len(head) < 2:
        raise DataError(
            f"{path}: line {first[0]}: {_shown(first[2])}; expected at least two columns. "
            "Separate them by commas."
        )
    is_header = _is_header(head) or label in _named(head) or _is_numbered(path, head, separator)
    target = _target(path, label, head if is_header else [], len(head))
    header = _decoded(head) if is_header else ()
    _check_header(path, first[0], head)
    largest: float | None = -1.0
    words: Counter[str] = Counter()
    numbers = taken = False
    look = _Look(path, head if is_header else [], target, nonfinite)
    for number, start, line in lines if is_header else chain([first], lines):
        cells = _split(line, separator)
        if len(cells) != len(head):
            raise DataError(
                f"{path}: line {number} has {counted(len(cells), 'column')}; expected {len(head)} "
                f"as in line {first[0]}. {_correction(first)}"
            )
        starts.append(start)
        look.at(number, cells)
        cell = cells[target].strip(_AROUND)
        value = _number(cell)
        largest, numbers = _largest_class(largest, value), numbers or value is not None
        if value is None and not numbers and len(words) <= MOST:
            words[_word(cell[:_WORD_NBYTES])] += 1
    if not starts:
        raise DataError(f"{path}: no numbers below the header. Add samples.")
    if is_header and not numbers and _is_sample(head, target, words):
        starts.insert(0, first[1])
        header = ()
    if not is_header and not numbers and _has_names(head, target, words):
        starts.pop(0)
        header, taken = _decoded(head), True
        del words[_word(head[target])]
    if words and not numbers:
        check_names({*words}, path)
        names = tuple(sorted(words))
        return _Table(separator, len(head), target, starts, len(words), names, header, taken)
    classes = None if largest is None else int(largest) + 1
    return _Table(separator, len(head), target, starts, classes, header=header)


def _check_header(path: str, line: int, head: list[bytes]) -> None:
    """Raise DataError if a column in the first line is empty, as after a trailing separator."""
    if b"" not in head:
        return
    column = head.index(b"")
    move = "Fill it in, or remove the column."
    if column == 0:
        move = "Name the column, or leave out row numbers (to_csv(index=False) in pandas)."
    elif column == len(head) - 1:
        move = "Remove the separator at the end of each line, or name the column."
    raise DataError(
        f"{path}: line {line}, column {column + 1}: ''; expected a column name or a number. {move}"
    )


def _correction(first: tuple[int, int, bytes]) -> str:
    """Advice for a line whose columns differ from those of the first line."""
    if first[2].lstrip().startswith(_COMMENT):
        return f"Remove comments, such as line {first[0]}."
    return "Correct the line."


def _decoded(head: list[bytes]) -> tuple[str, ...]:
    return tuple(cell.decode("utf-8", "replace") for cell in head)


def _word(cell: bytes) -> str:
    return cell.decode("utf-8", "surrogateescape")  # check_names refuses surrogates


def _is_header(cells: list[bytes]) -> bool:
    """Whether no cell is a number; some columns may be named by their place, such as 0,1,label."""
    named = [_number(cell) is None for cell in cells]
    places = [cell == str(place).encode() for place, cell in enumerate(cells)]
    return any(named) and all(a or b for a, b in zip(named, places, strict=True))


def _is_numbered(path: str, head: list[bytes], separator: bytes | None) -> bool:
    """Whether a first line 0,1,2 is a header: one of these columns has no other whole number, as in
    a table of floats without column names that pandas has written."""
    if head != [str(place).encode() for place in range(len(head))]:
        return False
    columns: set[int] = set()
    for number, (_, _, line) in enumerate(islice(_lines(path), 1, None)):
        cells = _cells(line, separator)
        own = {k for k, cell in enumerate(cells) if not cell.lstrip(b"+-").isdigit()}
        columns = columns & own if number else own
        if not columns:
            return False
    return bool(columns)


def _has_names(head: list[bytes], target: int, words: Mapping[str, int]) -> bool:
    """Whether a first line such as 2019,2020,label is a header after all: its numbers are whole and
    differ, and its word is the only one that occurs once."""
    numbers = [cell for k, cell in enumerate(head) if k != target]
    own = _word(head[target][:_WORD_NBYTES])
    once = [word for word, count in words.items() if count == 1]
    return (
        once == [own] != [*words]
        and all(cell.isdigit() for cell in numbers)
        and len({*numbers}) == len(numbers)
    )


def _named(cells: list[bytes]) -> list[str]:
    """The cells that are not numbers."""
    return [_word(cell) for cell in cells if _number(cell) is None]


def _is_sample(head: list[bytes], target: int, words: Collection[str]) -> bool:
    """Whether a first line such as 0,1,cat is a sample after all: its only word is a class of other
    lines."""
    named = [k for k, cell in enumerate(head) if _number(cell) is None]
    return named == [target] and _word(head[target].strip(_AROUND)[:_WORD_NBYTES]) in words


def _largest_class(largest: float | None, value: float | None) -> float | None:
    """None if a target is not a class; text is refused when it is read."""
    if largest is None or value is None or not 0 <= value < 2**31 or value != int(value):
        return None
    return max(largest, value)


def _lines(path: str) -> Iterator[tuple[int, int, bytes]]:
    """(line number from 1, byte offset, content) of each nonblank line."""
    start = 0
    with open_regular(path) as file:
        for number in count(1):
            line = file.readline(_LINE_NBYTES)
            if not line:
                return
            if start == 0:
                _check_text(path, line)
            if len(line) == _LINE_NBYTES:
                raise DataError(
                    f"{path}: line {number} is longer than {_LINE_NBYTES} bytes; expected text "
                    "with one sample per line. Use an npz file for large samples."
                )
            skip = 3 if start == 0 and line.startswith(_BYTE_ORDER_MARK) else 0
            if line.strip():
                yield number, start + skip, line[skip:]
            start += len(line)


def _check_text(path: str, line: bytes) -> None:
    """Raise DataError if a file's first line shows that it is not a text file."""
    if line.startswith(_WIDE_MARKS):
        raise DataError(f"{path}: text in UTF-16; expected UTF-8. Save it as UTF-8.")
    if result := kind_of(line):
        raise DataError(
            f"{path}: {result}; expected text with one sample per line. Save it as CSV, or name "
            "the kind of data that it is."
        )
    if b"\r" in line.rstrip(b"\r\n"):
        raise DataError(
            f"{path}: its lines end in a carriage return alone; expected line feeds. Save it as "
            "CSV in UTF-8."
        )


def _line_number(path: str, start: int) -> int:
    """The line that starts at a byte; searched each time, because only messages need it."""
    return next((number for number, begin, _ in _lines(path) if begin == start), 0)


def _cells(line: bytes, separator: bytes | None) -> list[bytes]:
    return [cell.strip(_AROUND) for cell in _split(line, separator)]


def _split(line: bytes, separator: bytes | None) -> list[bytes]:
    """Split a line into raw cells; a separator in quotes belongs to the cell."""
    parts = line.rstrip(b"\r\n").split(separator)
    if separator is None or b'"' not in line:
        return parts
    cells: list[bytes] = []
    begun: list[bytes] = []
    for part in parts:
        begun.append(part)
        cell = separator.join(begun)
        if not begun[0].lstrip().startswith(b'"') or not cell.count(b'"') % 2:
            cells.append(cell.replace(b'""', b'"'))
            begun = []
    return parts if begun else cells


def _number(cell: bytes) -> float | None:
    try:
        return None if b"_" in cell else float(cell)
    except ValueError:
        return None


def _move(cell: bytes) -> str:
    """Advice for a cell that is not a number."""
    value = _number(cell)
    if cell.upper() in _MISSING or (value is not None and not math.isfinite(value)):
        return "Fill it in, or remove the line."
    if _number(cell.replace(b",", b".", 1)) is not None:
        return "Use a decimal point and no thousands separator."
    return "Replace text by numbers first."


def _shown(text: bytes) -> str:
    return repr(text[:40].decode("utf-8", "replace"))


def _target(path: str, label: str | None, header: list[bytes], columns: int) -> int:
    """Index of the target column: the named or the last one."""
    if label is None:
        return columns - 1
    names = [cell.decode("utf-8", "replace") for cell in header]
    if label not in names:
        result = listed(names) if names else "no header"
        last = "Add one, or leave --label out to use the last column."
        move = f"Choose a column.{did_you_mean(label, names)}" if names else last
        if any(_UNDECODED in name for name in names):
            move = "The header is not UTF-8: save the file as UTF-8."
        raise DataError(f"{path}: no column {label!r}; found {result}. {move}")
    if names.count(label) > 1:
        places = [str(index + 1) for index, name in enumerate(names) if name == label]
        raise DataError(
            f"{path}: columns {' and '.join(places)} are both named {label!r}; expected one. "
            "Rename the others."
        )
    return names.index(label)
