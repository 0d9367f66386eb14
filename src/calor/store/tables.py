"""Tables of numbers in files, by the ending of their name; another ending is an entry in `TABLES`.

What columns mean is not known here: `data/tables` asks the form of a manifold.
"""

import csv
import io
import math
import zipfile
import zlib
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

NameRow = Callable[[int], str]
"""From the number of a row to where it stands, such as `points.csv, line 3`."""


class TableError(ValueError):
    """A file of points cannot be read; the message names the line and the reason."""


class Wanted(NamedTuple):
    """What is taken of a file that holds more than one table."""

    array: str | None = None
    """The name of one of its arrays."""
    shape: tuple[int, ...] | None = None
    """The shape of a row, if no array is named."""
    pick: Callable[[Sequence[str]], list[int]] = lambda header: []
    """From names of columns, in small letters, to the numbers of those to take; all, if none."""


class Table(NamedTuple):
    """A kind of file that holds rows."""

    read: Callable[[Path, Wanted], tuple[np.ndarray, NameRow]]
    """Numbers, and how rows are named in errors."""
    read_labels: Callable[[Path, Wanted], np.ndarray]
    """Whole numbers or texts, one a row."""
    write: Callable[[BinaryIO, np.ndarray, Callable[[np.ndarray], tuple[Sequence[str], Any]]], None]
    """Write points; the last argument makes of them the names of columns, and rows."""


def ending(path: str | Path) -> str:
    """The ending of a name, in small letters."""
    return Path(path).suffix.lower()


def listed(words: Collection[str]) -> str:
    """Words as in `a, b or c`."""
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


def table_of(path: Path, others: Collection[str] = ()) -> Table:
    """How to read or write a file; the error names all endings, those of others too."""
    if ending(path) not in TABLES:
        known = listed((*TABLES, *others))
        raise TableError(f"the name of a table of points must end in {known}, got {path}")
    return TABLES[ending(path)]


# Arrays of NumPy.


def _read_array(path, wanted):
    loaded = _load(path, wanted)
    if loaded.dtype.kind not in "fiub":
        raise TableError(f"{path} holds {loaded.dtype}, not real numbers")
    rows = np.asarray(loaded, float)
    return rows[:, None] if rows.ndim == 1 else rows, lambda row: f"{path}, row {row}"


def _read_array_labels(path, wanted):
    found = _load(path, wanted)
    if found.size != len(found) or found.dtype.kind not in "fiubU":
        raise TableError(
            f"{path} must have one label a row, got {found.dtype} of shape {found.shape}"
        )
    found = found.ravel()
    if found.dtype.kind == "U":
        return found
    wrong = ~((found == np.floor(found)) & (np.abs(found) < 2**53))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise TableError(f"{path}, row {row}: a label must be a whole number, got {found[row]}")
    return found.astype(int)


def _load(path, wanted):
    """An array of a .npy or .npz file, the one whose rows have a shape if none is named."""
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.lib.npyio.NpzFile):
            with loaded:
                loaded = dict(loaded)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise TableError(f"{path} cannot be read ({error}); it may be damaged") from error
    if isinstance(loaded, dict):
        array = wanted.array
        fitting = [name for name, values in loaded.items() if values.shape[1:] == wanted.shape]
        if array is None and 1 in (len(loaded), len(fitting)):
            array = (fitting if len(fitting) == 1 else list(loaded))[0]
        if array is None or array not in loaded:
            known = ", ".join(loaded) or "none"
            asked = "name one with --array" if array is None else f"there is no {array!r}"
            raise TableError(f"{path} has the arrays {known}; {asked}")
        loaded = loaded[array]
    if loaded.ndim == 0 or len(loaded) == 0:
        raise TableError(f"{path} is empty")
    return loaded


# Text.


def _read_csv(path, wanted):
    """Numbers of a csv file: comments with #, an optional header, every line as long as the first.

    A header with names that are known picks those columns.
    """
    lines, rows, columns, header = [], [], [], []
    reader = csv.reader(io.StringIO(_text(path)))
    for cells in reader:
        number = reader.line_num
        cells = [cell.strip() for cell in cells]
        if not any(cells) or cells[0].startswith("#"):
            continue
        if not rows and not header and not any(_is_number(cell) for cell in cells):
            header = [cell.lower() for cell in cells]
            columns = wanted.pick(header)
            continue
        for column in columns:
            if column >= len(cells):
                raise TableError(f"{path}, line {number}: the column {header[column]} is missing")
        cells = [cells[column] for column in columns] or cells
        if rows and len(cells) != len(rows[0]):
            raise TableError(
                f"{path}, line {number}: {len(cells)} columns, but {len(rows[0])} before"
            )
        rows.append([_number(cell, path, number) for cell in cells])
        lines.append(number)
    if not rows:
        raise TableError(f"{path} has no rows of numbers")
    return np.array(rows), lambda row: f"{path}, line {lines[row]}"


def _read_csv_labels(path, wanted):
    lines = [line.strip() for line in _text(path).splitlines()]
    found = [line for line in lines if line and not line.startswith("#")]
    if any("," in line for line in found):
        raise TableError(f"{path} must have one column of labels")
    return np.array([int(label) if label.isdecimal() else label for label in found])


def _write_csv(file, points, as_rows):
    header, rows = as_rows(points)
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(header)
    lines.writerows([[f"{value:.7g}" for value in row] for row in rows])
    file.write(text.getvalue().encode())


def _text(path):
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise TableError(f"{path} is not a text file in UTF-8: {error.reason}") from error


def _is_number(cell):
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _number(cell, path, line):
    if not cell:
        raise TableError(f"{path}, line {line}: a cell is empty")
    try:
        value = float(cell)
    except ValueError as error:
        raise TableError(f"{path}, line {line}: {cell!r:.40} is not a number") from error
    if not math.isfinite(value):
        raise TableError(f"{path}, line {line}: {cell} is not a finite number")
    return value


TABLES = {
    ".csv": Table(_read_csv, _read_csv_labels, _write_csv),
    ".npy": Table(_read_array, _read_array_labels, lambda file, points, _: np.save(file, points)),
    ".npz": Table(
        _read_array, _read_array_labels, lambda file, points, _: np.savez(file, points=points)
    ),
}
"""Every kind of table, by its ending."""
