r"""Points at the door: files, data frames and rotations of scipy, with the row of an error.

What columns mean depends on the manifold: on S^2 two columns are latitude and longitude in degrees
and three are x, y, z; on SO(3) four are a quaternion (w, x, y, z), nine a matrix row by row, and
three Euler angles if their axes are named; on a torus columns are angles in radians; elsewhere a
row is the point itself, flattened.
"""

import csv
import io
import math
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial.transform import Rotation

from ..manifolds import SO3, AbstractManifold, Sphere, Torus
from ..manifolds.base import TOLERANCE
from ..store.atomic import replacing


class TableError(ValueError):
    """A file of points cannot be read; the message names the line and the reason."""


def read_points(
    path: str | Path,
    manifold: AbstractManifold,
    *,
    euler: str | None = None,
    degrees: bool = False,
    array: str | None = None,
) -> np.ndarray:
    """Points of a manifold from a file.

    Args:
        path: a .csv, .npy or .npz file.
        manifold: where the points are.
        euler: axes of Euler angles, as for `SO3.from_euler`, if three columns are such angles.
        degrees: whether Euler angles, or angles of a torus, are in degrees.
        array: which array of an .npz file; needed if several have the shape of points.
    """
    rows, name_row = _read(Path(path), array, choose=_named(manifold), shape=manifold.shape)
    if rows.ndim > 2 and rows.shape[1:] != manifold.shape:
        rows = rows.reshape(len(rows), -1)
    points = _to_points(rows, manifold, euler, degrees, name_row)
    _check(points, manifold, name_row)
    return points


def as_array(data: Any, manifold: AbstractManifold) -> Any:
    """Rotations of scipy and data frames as arrays of points; anything else as it is.

    The columns of a frame mean what those of a csv file do: latitude and longitude in degrees on
    S^2, picked by their names if there are others.
    """
    found: Any = data
    if isinstance(data, list | tuple) and data and all(isinstance(r, Rotation) for r in data):
        found = Rotation.concatenate(data)
    if isinstance(found, Rotation):
        if not isinstance(manifold, SO3):
            raise TypeError(f"rotations of scipy are points of SO3(), not of {manifold}.")
        return np.atleast_2d(found.as_quat(scalar_first=True))
    if not (hasattr(found, "columns") and hasattr(found, "to_numpy")):
        return found
    chosen = _columns([str(name).lower() for name in found.columns]) if _named(manifold) else []
    frame = found[[found.columns[i] for i in chosen]] if chosen else found
    try:
        rows = np.asarray(frame.to_numpy(), float)
    except (TypeError, ValueError) as error:
        raise TableError(
            f"the columns {list(frame.columns)} are not all numbers: {error}"
        ) from error
    return _to_points(rows, manifold, None, False, lambda row: f"row {row}")


def _named(manifold):
    """Whether columns for its points have names of their own."""
    return isinstance(manifold, SO3) or (isinstance(manifold, Sphere) and manifold.dim == 2)


def read_condition(
    path: str | Path, *, labels: bool = False, array: str | None = None
) -> np.ndarray:
    """A table of numbers (n, c), or one column of labels (n,)."""
    path = Path(path)
    if not labels:
        return _read(path, array, choose=False)[0]
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
    lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    found = [line for line in lines if line and not line.startswith("#")]
    if any("," in line for line in found):
        raise TableError(f"{path} must have one column of labels")
    return np.array([int(label) if label.isdecimal() else label for label in found])


def write_points(path: str | Path, points: np.ndarray, manifold: AbstractManifold) -> None:
    """Write points: .csv, .npy or .npz by the ending; on S^2 a csv holds latitude and longitude."""
    path, points = Path(path), np.asarray(points)
    if path.suffix not in (".csv", ".npy", ".npz"):
        raise ValueError(f"cannot write {path}: its name must end in .csv, .npy or .npz.")
    buffer = io.BytesIO()
    if path.suffix == ".npy":
        np.save(buffer, points)
    elif path.suffix == ".npz":
        np.savez(buffer, points=points)
    else:
        header, rows = _to_rows(points, manifold)
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(header)
        writer.writerows([[f"{value:.7g}" for value in row] for row in rows])
        buffer.write(text.getvalue().encode())
    with replacing(path) as file:
        file.write(buffer.getvalue())


def from_latitude_longitude(degrees: np.ndarray) -> np.ndarray:
    """Unit vectors (n, 3) from latitudes and longitudes (n, 2) in degrees."""
    lat, lon = np.deg2rad(np.asarray(degrees, float)).T
    return np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], axis=1)


def to_latitude_longitude(points: np.ndarray) -> np.ndarray:
    """Latitudes and longitudes (n, 2) in degrees of unit vectors (n, 3)."""
    x, y, z = np.asarray(points, float).T
    return np.rad2deg(np.stack([np.arctan2(z, np.hypot(x, y)), np.arctan2(y, x)], axis=1))


# Reading.

_Namer = Callable[[int], str]


def _read(
    path: Path, array: str | None, *, choose: bool, shape: tuple[int, ...] | None = None
) -> tuple[np.ndarray, _Namer]:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    if path.suffix == ".csv":
        return _read_csv(path, choose)
    loaded = _load(path, array, shape)
    if loaded.dtype.kind not in "fiub":
        raise TableError(f"{path} holds {loaded.dtype}, not real numbers")
    rows = np.asarray(loaded, float)
    rows = rows[:, None] if rows.ndim == 1 else rows
    return rows, lambda row: f"{path}, row {row}"


def _load(path, array, shape=None):
    """An array of a .npy or .npz file, the one whose rows have a shape if none is named."""
    if path.suffix not in (".npy", ".npz"):
        raise TableError(f"{path}: its name must end in .csv, .npy or .npz")
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.lib.npyio.NpzFile):
            names = list(loaded)
            fitting = [name for name in names if loaded[name].shape[1:] == shape]
            if array is None and 1 in (len(names), len(fitting)):
                array = (fitting if len(fitting) == 1 else names)[0]
            if array not in names:
                known = ", ".join(names) or "none"
                asked = "name one with --array" if array is None else f"there is no {array!r}"
                raise TableError(f"{path} has the arrays {known}; {asked}")
            loaded = loaded[array]
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        if isinstance(error, TableError):
            raise
        raise TableError(f"{path} cannot be read ({error}); it may be damaged") from error
    if loaded.ndim == 0 or len(loaded) == 0:
        raise TableError(f"{path} is empty")
    return loaded


def _read_csv(path, choose):
    """Numbers of a csv file: comments with #, an optional header, every line as long as the first.

    A header that names lat and lon, or x, y and z, picks those columns.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise TableError(f"{path} is not a text file in UTF-8: {error.reason}") from error
    lines, rows, columns, header = [], [], [], []
    reader = csv.reader(io.StringIO(text))
    for cells in reader:
        number = reader.line_num
        cells = [cell.strip() for cell in cells]
        if not any(cells) or cells[0].startswith("#"):
            continue
        if not rows and not header and not any(_is_number(cell) for cell in cells):
            header = [cell.lower() for cell in cells]
            columns = _columns(header) if choose else []
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


def _columns(header):
    """Columns to take: latitude and longitude, or x, y, z, if the header names them."""
    sets = [
        [("lat", "latitude"), ("lon", "long", "lng", "longitude")],
        [("w",), ("x",), ("y",), ("z",)],
        [("x",), ("y",), ("z",)],
    ]
    for wanted in sets:
        found = [[header.index(name) for name in names if name in header] for names in wanted]
        if all(found):
            return [places[0] for places in found]
    return []


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


# Columns to points and back.


def _to_points(rows, manifold, euler, degrees, name_row):
    turns = isinstance(manifold, SO3) and euler is not None
    if degrees and not turns and not isinstance(manifold, Torus):
        raise TableError(f"degrees are for angles of a torus and Euler angles, not for {manifold}")
    if euler is not None and not isinstance(manifold, SO3):
        raise TableError(f"Euler angles are for so3, not for {manifold}")
    if rows.shape[1:] == manifold.shape and not turns:
        return np.deg2rad(rows) if degrees else rows
    count = rows.shape[1]
    if isinstance(manifold, Sphere) and manifold.dim == 2 and count == 2:
        latitude, longitude = rows.T
        for values, limit, what in ((latitude, 90, "latitude"), (longitude, 360, "longitude")):
            bad = np.abs(values) > limit
            if bad.any():
                row = int(np.argmax(bad))
                raise TableError(
                    f"{name_row(row)}: a {what} of {values[row]:g} is outside -{limit} to {limit} "
                    "degrees"
                )
        return from_latitude_longitude(rows)
    if isinstance(manifold, SO3) and count == 9:
        return _from_matrices(manifold, rows.reshape(-1, 3, 3), name_row)
    if isinstance(manifold, SO3) and count == 3:
        if euler is None:
            raise TableError(
                f"{name_row(0)}: three columns are Euler angles; name their axes, as in "
                "--euler ZXZ --degrees"
            )
        turn = jax.vmap(lambda angles: manifold.from_euler(euler, angles, degrees=degrees))
        return np.asarray(turn(jnp.asarray(rows)))
    size = math.prod(manifold.shape)
    if count == size:
        return rows.reshape(-1, *manifold.shape)
    wanted = {
        "Sphere(2)": "lat, lon or x, y, z",
        "SO3()": "w, x, y, z, a matrix, or Euler angles",
    }.get(str(manifold), f"{size} numbers")
    raise TableError(f"{name_row(0)}: {count} columns, but a point of {manifold} is {wanted}")


def _from_matrices(manifold, matrices, name_row):
    products = np.einsum("nji,njk->nik", matrices, matrices)
    errors = np.max(np.abs(products - np.eye(3)), axis=(1, 2))
    bad = (errors > 1e-3) | (np.linalg.det(matrices) < 0)
    if bad.any():
        row = int(np.argmax(bad))
        raise TableError(
            f"{name_row(row)}: not a rotation matrix, R^T R is {errors[row]:.3g} off I and "
            f"det R = {np.linalg.det(matrices[row]):.3g}"
        )
    return np.asarray(jax.jit(jax.vmap(manifold.from_matrix))(jnp.asarray(matrices)))


def _check(points, manifold, name_row):
    finite = np.isfinite(points).reshape(len(points), -1).all(axis=1)
    if not finite.all():
        raise TableError(f"{name_row(int(np.argmin(finite)))}: NaN or infinite")
    array = jnp.asarray(points, jnp.result_type(float))
    offsets = np.asarray(jax.jit(jax.vmap(manifold.offset_at))(array))
    bad = ~(offsets <= TOLERANCE)
    if bad.any():
        row = int(np.argmax(bad))
        raise TableError(
            f"{name_row(row)}: not a point of {manifold}, {offsets[row]:.3g} away from it"
        )


def _to_rows(points, manifold):
    if isinstance(manifold, Sphere) and manifold.dim == 2:
        return ("lat", "lon"), to_latitude_longitude(points)
    if isinstance(manifold, SO3):
        return ("w", "x", "y", "z"), points
    rows = points.reshape(len(points), -1)
    return [f"x{i}" for i in range(rows.shape[1])], rows
