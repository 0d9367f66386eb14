"""Points in files, as `calor fit`, `calor sample` and `calor score` read them."""

import argparse
from pathlib import Path
from typing import Any

from ..store.tables import TABLES, ending, listed
from . import _files
from ._shared import InputError

FILE = f"a {listed(TABLES)} file"
COLUMNS = (
    f"{FILE}; sphere:2: lat, lon in degrees or x, y, z; so3: quaternion w, x, y, "
    "z, matrix, or Euler angles with --euler; molecules: .xyz"
)


def add_columns(parser: argparse.ArgumentParser) -> None:
    """The options that say what the columns of points mean, and what belongs to them."""
    parser.add_argument("--array", metavar="NAME", help="which array of an .npz file")
    parser.add_argument("--euler", metavar="AXES", help="axes of Euler angles, such as ZXZ or xyz")
    parser.add_argument("--degrees", action="store_true", help="angles are in degrees")
    parser.add_argument(
        "--condition",
        metavar="FILE",
        help="numbers or labels, a row each point: a file, or an array of the .npz file of points",
    )


def check_points(
    path: Path, condition: str | None, groups: str | None = None, weights: str | None = None
) -> None:
    """Refuse files that cannot be read before JAX is imported."""
    _files.readable(path)
    for name in (condition, groups, weights):
        if name and not _is_array(name, path):
            _files.readable(Path(name))


def read(options: argparse.Namespace, path: Path, manifold: Any, labels: bool) -> tuple[Any, ...]:
    """Points that are not checked yet, how their rows are named in errors, and their condition."""
    from ..data import tables

    points, name_row = tables.read_rows(
        path, manifold, euler=options.euler, degrees=options.degrees, array=options.array
    )
    condition = None
    if options.condition:
        condition = column(options.condition, path, len(points), labels)
    return points, name_row, condition


def column(name: str, path: Path, count: int, labels: bool) -> Any:
    """Numbers or labels, one row for each point of the file at `path`."""
    from ..data import tables

    file, array = (path, name) if _is_array(name, path) else (Path(name), None)
    found = tables.read_condition(file, labels=labels, array=array)
    if len(found) != count:
        raise InputError(f"{name} has {len(found)} rows, {path} has {count} points")
    return found


def load_model(path: Path, manifold: str | None) -> tuple[Any, bool]:
    """A saved model, and whether its condition is a label."""
    from ._own import load

    model = load(path, manifold, "model")
    return model, model.condition is not None and bool(model.condition.labels)


def _is_array(name, path):
    """Whether something is named as an array of the .npz file that holds the points."""
    return ending(path) == ".npz" and not Path(name).suffix
