"""Tables of points: .csv, .npy and .npz files, with the line of an error.

What columns mean is said by the form of the manifold (`forms`).
"""

import csv
import io
import math
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ..manifolds import AbstractManifold
from ..store.atomic import replacing
from .forms import Angles, Form, NameRow, TableError, check_angles, form_of, naming
from .points import doubled_points

_ENDINGS = (".csv", ".npy", ".npz")


def read_points(
    path: str | Path,
    manifold: AbstractManifold,
    *,
    euler: str | None = None,
    degrees: bool = False,
    array: str | None = None,
) -> np.ndarray:
    """Points of a manifold from a file, checked.

    Args:
        path: a .csv, .npy or .npz file; molecules may be in an .xyz file.
        manifold: where the points are.
        euler: axes of Euler angles, as for `SO3.from_euler`, if three columns are such angles.
        degrees: whether Euler angles, or angles of a torus, are in degrees.
        array: which array of an .npz file; needed if several have the shape of points.
    """
    points, name_row = read_rows(path, manifold, euler=euler, degrees=degrees, array=array)
    with naming(name_row):
        return doubled_points(manifold, points, str(path))


def read_rows(
    path: str | Path,
    manifold: AbstractManifold,
    *,
    euler: str | None = None,
    degrees: bool = False,
    array: str | None = None,
) -> tuple[np.ndarray, NameRow]:
    """The same before they are checked, and how rows are named: `with naming(name_row)`."""
    path, found = Path(path), form_of(manifold)
    check_angles(found, Angles(euler, degrees))
    other = found.formats.get(path.suffix)
    if other is not None and other.read is not None:
        return other.read(path), lambda row: f"{path}, entry {row + 1}"
    rows, name_row = _read(path, array, found)
    with naming(name_row):
        return found.read(rows, Angles(euler, degrees)), name_row


def read_condition(
    path: str | Path, *, labels: bool = False, array: str | None = None
) -> np.ndarray:
    """A table of numbers (n, c), or one column of labels (n,)."""
    path = Path(path)
    if not labels:
        return _read(path, array)[0]
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    if path.suffix != ".csv":
        found = _load(path, array)
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
    lines = [line.strip() for line in _text(path).splitlines()]
    found = [line for line in lines if line and not line.startswith("#")]
    if any("," in line for line in found):
        raise TableError(f"{path} must have one column of labels")
    return np.array([int(label) if label.isdecimal() else label for label in found])


def writer(path: str | Path, manifold: AbstractManifold) -> Callable[[np.ndarray], None]:
    """What writes points to a file; its ending says how."""
    path, found = Path(path), form_of(manifold)
    other = found.formats.get(path.suffix)
    if other is not None:
        return lambda points: other.write(path, np.asarray(points))
    if path.suffix not in _ENDINGS:
        *most, last = (*_ENDINGS, *found.formats)
        raise ValueError(
            f"cannot write {path}: its name must end in {', '.join(most)} or {last} for points of "
            f"{manifold}."
        )
    return lambda points: _write(path, np.asarray(points), found)


def write_points(path: str | Path, points: np.ndarray, manifold: AbstractManifold) -> None:
    """Write points: .csv, .npy or .npz by the ending; on S^2 a csv holds latitude and longitude."""
    writer(path, manifold)(points)


def _write(path: Path, points: np.ndarray, found: Form) -> None:
    buffer = io.BytesIO()
    if path.suffix == ".npy":
        np.save(buffer, points)
    elif path.suffix == ".npz":
        np.savez(buffer, points=points)
    else:
        header, rows = found.write(points)
        text = io.StringIO()
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(header)
        lines.writerows([[f"{value:.7g}" for value in row] for row in rows])
        buffer.write(text.getvalue().encode())
    with replacing(path) as file:
        file.write(buffer.getvalue())


# Reading.


def _read(path: Path, array: str | None, found: Form | None = None) -> tuple[np.ndarray, NameRow]:
    """Rows of numbers; those columns and that array that a form chooses."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    if path.suffix == ".csv":
        return _read_csv(path, found)
    loaded = _load(path, array, None if found is None else found.manifold.shape)
    if loaded.dtype.kind not in "fiub":
        raise TableError(f"{path} holds {loaded.dtype}, not real numbers")
    rows = np.asarray(loaded, float)
    rows = rows[:, None] if rows.ndim == 1 else rows
    return rows, lambda row: f"{path}, row {row}"


def _load(path, array, shape=None):
    """An array of a .npy or .npz file, the one whose rows have a shape if none is named."""
    if path.suffix not in _ENDINGS:
        raise TableError(f"{path}: its name must end in .csv, .npy or .npz")
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.lib.npyio.NpzFile):
            with loaded:
                loaded = dict(loaded)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise TableError(f"{path} cannot be read ({error}); it may be damaged") from error
    if isinstance(loaded, dict):
        fitting = [name for name, values in loaded.items() if values.shape[1:] == shape]
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


def _read_csv(path, found):
    """Numbers of a csv file: comments with #, an optional header, every line as long as the first.

    A header with names that the form knows picks those columns.
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
            columns = found.pick(header) if found else []
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
