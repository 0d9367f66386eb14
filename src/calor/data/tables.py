"""Points of a manifold in files: tables, or files of a kind that only its family has.

How a file is read is known by its ending (`store/tables`), what its columns mean by the form of the
manifold (`forms`).
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from ..manifolds import AbstractManifold
from ..store.atomic import replacing
from ..store.tables import NameRow, Wanted, ending, table_of
from ..store.tables import TableError as TableError
from .forms import Angles, check_angles, form_of, naming
from .points import doubled_points


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
        path: a table (`store.tables`), or what else the form reads, such as .xyz of molecules.
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
    path, found = _readable(path), form_of(manifold)
    check_angles(found, Angles(euler, degrees))
    readers = {end: other.read for end, other in found.formats.items() if other.read is not None}
    if ending(path) in readers:
        return readers[ending(path)](path), lambda row: f"{path}, entry {row + 1}"
    table = table_of(path, readers)
    rows, name_row = table.read(path, Wanted(array, manifold.shape, found.pick))
    with naming(name_row):
        return found.read(rows, Angles(euler, degrees)), name_row


def read_condition(
    path: str | Path, *, labels: bool = False, array: str | None = None
) -> np.ndarray:
    """A table of numbers (n, c), or one column of labels (n,)."""
    path = _readable(path)
    table = table_of(path)
    return table.read_labels(path, Wanted(array)) if labels else table.read(path, Wanted(array))[0]


def writer(path: str | Path, manifold: AbstractManifold) -> Callable[[np.ndarray], None]:
    """What writes points to a file; its ending says how."""
    path, found = Path(path), form_of(manifold)
    writers = {end: each.write for end, each in found.formats.items() if each.write is not None}
    if ending(path) in writers:
        return lambda points: writers[ending(path)](path, np.asarray(points))
    table = table_of(path, writers)

    def write(points: np.ndarray) -> None:
        with replacing(path) as file:
            table.write(file, np.asarray(points), found.write)

    return write


def write_points(path: str | Path, points: np.ndarray, manifold: AbstractManifold) -> None:
    """Write points in the way the ending says; on S^2 a csv holds latitude and longitude."""
    writer(path, manifold)(points)


def _readable(path: str | Path) -> Path:
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {path}")
    return Path(path)
