"""What rows of numbers mean on a manifold: each family says so in a `Form` of its own.

A row is one point.  Unless a family says more, it is the point itself, flattened, with columns x0,
x1 and so on.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation

from ..core.registry import Registry, T, always
from ..manifolds import AbstractManifold
from ..store.tables import NameRow, TableError

FORMS = Registry("form")


def form(family: type, *, when: Callable[[Any], bool] = always) -> Callable[[T], T]:
    """Register a function from a manifold to its `Form` for those of a class of manifolds."""
    return FORMS.register(family, when=when)


class BadRow(ValueError):
    """A row is no point: its number, why, and the message where rows have no better name."""

    def __init__(self, row: int, reason: str, message: str = ""):
        super().__init__(message or f"row {row}: {reason}")
        self.row: int = row
        self.reason: str = reason


@contextmanager
def naming(name_row: NameRow) -> Iterator[None]:
    """Errors of rows say where the row stands."""
    try:
        yield
    except BadRow as error:
        raise TableError(f"{name_row(error.row)}: {error.reason}") from error


class Angles(NamedTuple):
    """How angles are written."""

    euler: str | None = None
    """The axes of Euler angles, if columns are such angles."""
    degrees: bool = False


_RADIANS = Angles()


class Format(NamedTuple):
    """A kind of file that is no table and holds points of one family."""

    write: Callable[[Path, np.ndarray], None] | None = None
    """None, if such files are only read; see `store.atomic.replacing`."""
    read: Callable[[Path], np.ndarray] | None = None
    """None, if such files are only written."""


@dataclass(frozen=True)
class Form:
    """How the points of one manifold are written as rows of numbers."""

    manifold: AbstractManifold
    columns: Mapping[int, Callable[[np.ndarray, Angles], np.ndarray]] = field(default_factory=dict)
    """By number of columns: how rows (n, columns) become points; flattened points need no entry."""
    to_rows: Callable[[np.ndarray], np.ndarray] | None = None
    """How points become the rows that are written; flattened by default."""
    header: Sequence[str] = ()
    """The names of the columns that are written."""
    wanted: str = ""
    """What columns a point may have, for errors."""
    names: Sequence[Sequence[Collection[str]]] = ()
    """Columns to pick if a header has them: for each of several sets the spellings of each name."""
    angles: Collection[str] = ()
    """Which of the options `euler` and `degrees` mean something."""
    take: Callable[[Any], np.ndarray | None] = lambda data: None
    """Points from objects of other libraries, or None."""
    formats: Mapping[str, Format] = field(default_factory=dict)
    """Other kinds of files, by their ending in small letters."""

    def read(self, rows: np.ndarray, angles: Angles = _RADIANS) -> np.ndarray:
        """Points from rows (n, ...)."""
        rows = rows.reshape(len(rows), -1)
        count, size = rows.shape[1], math.prod(self.manifold.shape)
        if count in self.columns:
            return np.asarray(self.columns[count](rows, angles))
        if count == size:
            return rows.reshape(-1, *self.manifold.shape)
        wanted = self.wanted or f"{size} numbers"
        raise BadRow(0, f"{count} columns, but a point of {self.manifold} is {wanted}")

    def write(self, points: np.ndarray) -> tuple[Sequence[str], np.ndarray]:
        """The names of the columns, and rows."""
        rows = points.reshape(len(points), -1) if self.to_rows is None else self.to_rows(points)
        return self.header or [f"x{i}" for i in range(rows.shape[1])], rows

    def pick(self, header: Sequence[str]) -> list[int]:
        """The numbers of the columns to take, if a header in small letters names them."""
        for wanted in self.names:
            found = [[header.index(name) for name in names if name in header] for names in wanted]
            if all(found):
                return [places[0] for places in found]
        return []


def form_of(manifold: AbstractManifold) -> Form:
    """How the points of a manifold are written."""
    entry = FORMS.find(manifold)
    return Form(manifold) if entry is None else entry.made(manifold)


def check_angles(found: Form, angles: Angles) -> None:
    """Refuse options that mean nothing on the manifold."""
    turns = angles.euler is not None and "euler" in found.angles
    if angles.degrees and not turns and "degrees" not in found.angles:
        raise TableError(
            f"degrees are for angles of a torus and Euler angles, not for {found.manifold}"
        )
    if angles.euler is not None and not turns:
        raise TableError(f"Euler angles are for so3, not for {found.manifold}")


def as_array(data: Any, manifold: AbstractManifold) -> Any:
    """Rotations of scipy and data frames as arrays of points; anything else as it is.

    The columns of a frame mean what those of a csv file do: latitude and longitude in degrees on
    S^2, picked by their names if there are others.
    """
    found = form_of(manifold)
    taken = found.take(data)
    if taken is not None:
        return taken
    if isinstance(data, Rotation) or _are_rotations(data):
        raise TypeError(f"rotations of scipy are points of SO3(), not of {manifold}.")
    if not (hasattr(data, "columns") and hasattr(data, "to_numpy")):
        return data
    chosen = found.pick([str(name).lower() for name in data.columns])
    frame = data[[data.columns[i] for i in chosen]] if chosen else data
    try:
        rows = np.asarray(frame.to_numpy(), float)
    except (TypeError, ValueError) as error:
        raise TableError(
            f"the columns {list(frame.columns)} are not all numbers: {error}"
        ) from error
    with naming(lambda row: f"row {row}"):
        return found.read(rows)


def _are_rotations(data: Any) -> bool:
    is_list = isinstance(data, list | tuple) and len(data) > 0
    return is_list and all(isinstance(item, Rotation) for item in data)
