"""QM9: 130,831 small organic molecules with their geometries (Ramakrishnan et al. 2014).

Read from the folder qm9 of CALOR_DATA (`qm9_geometry.npz`, `qm9_properties.npz`), or else from the
package `qm9pack`, whose tables are parsed once and then kept in the cache of calor.  The split is
EDM's: a permutation by NumPy's generator of seed 0, 100,000 / 17,748 / 13,083.
"""

import ast
import csv
import importlib.util
import io
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..core.bar import bar
from ..core.folders import folder
from ..store.atomic import replacing
from .datasets import DataError, data_folder
from .molecules import NUMBERS, SYMBOLS, Molecule

PROPERTIES = ("dipole", "polarizability", "HOMO", "LUMO", "gap", "Cv", "U0")
_COLUMNS = (
    "Dipole_debye", "Polarizability_bohr3", "HOMO_au", "LUMO_au", "HOMO_LUMO_gap_au",
    "Heatcapacity_Cv_cal_mol_K", "InternalEnergy_0K_au",
)  # fmt: skip
PARTS = ("train", "validation", "test")


class QM9(NamedTuple):
    """Molecules one after the other."""

    places: np.ndarray
    """(atoms, 3), in angstrom."""
    numbers: np.ndarray
    """(atoms,), atomic numbers."""
    ends: np.ndarray
    """(molecules + 1,): molecule i has the atoms ends[i] to ends[i + 1]."""
    part: np.ndarray
    """(molecules,): 0 training, 1 validation, 2 test."""
    properties: np.ndarray
    """(molecules, 7), see `PROPERTIES`."""

    def chosen(self, part: str, largest: int = 29) -> np.ndarray:
        """The molecules of a part with at most so many atoms."""
        if part not in PARTS:
            raise ValueError(f"qm9: part must be one of {', '.join(PARTS)}, got {part!r}.")
        is_chosen = (self.part == PARTS.index(part)) & (np.diff(self.ends) <= largest)
        if not is_chosen.any():
            raise ValueError(f"qm9: no molecule of the {part} part has at most {largest} atoms.")
        return np.flatnonzero(is_chosen)

    def molecules(self, chosen: np.ndarray) -> list[Molecule]:
        """Some of the molecules."""
        return [
            Molecule(
                self.numbers[self.ends[i] : self.ends[i + 1]],
                self.places[self.ends[i] : self.ends[i + 1]],
            )
            for i in np.asarray(chosen).tolist()
        ]


def load(progress: bool | None = None) -> QM9:
    """All molecules."""
    try:
        place = data_folder() / "qm9"
    except DataError:
        place = None
    if place is not None and (place / "qm9_geometry.npz").is_file():
        return _read(place / "qm9_geometry.npz", place / "qm9_properties.npz")
    kept = folder(None) / "qm9.npz"
    if not kept.is_file():
        if importlib.util.find_spec("qm9pack") is None:
            raise DataError(
                "QM9 is neither in the folder qm9 of CALOR_DATA nor installed as a package; run: "
                "pip install 'calor[molecules]'"
            )
        kept.parent.mkdir(parents=True, exist_ok=True)
        _keep(kept, progress)
    return _read(kept, kept)


def _read(geometry: Path, properties: Path) -> QM9:
    try:
        with np.load(geometry, allow_pickle=False) as found:
            places = found["xyz_1e4A"].astype(np.float32) / 1e4
            numbers, counts = found["z"], found["n_atoms"].astype(int)
            part = found["split_edm"]
        with np.load(properties, allow_pickle=False) as found:
            table = found["props"]
    except (OSError, KeyError, ValueError) as error:
        raise DataError(f"{geometry} cannot be read ({error}); it may be damaged") from error
    ends = np.concatenate([[0], np.cumsum(counts)])
    if not ends[-1] == len(numbers) == len(places) or not np.isin(numbers, NUMBERS).all():
        raise DataError(f"{geometry} is damaged: its atoms do not add up")
    return QM9(places, numbers, ends, part, table)


def split(count: int) -> np.ndarray:
    """The part of each of `count` molecules: 0 training, 1 validation, 2 test."""
    order = np.random.RandomState(0).permutation(count)
    train = min(100_000, count)
    test = int(0.1 * count)
    part = np.zeros(count, np.uint8)
    part[order[train : count - test]] = 1
    part[order[count - test :]] = 2
    return part


def _keep(path: Path, progress: bool | None) -> None:
    """Parse the tables of the package."""
    spec = importlib.util.find_spec("qm9pack")
    assert spec is not None
    assert spec.origin is not None
    tables = Path(spec.origin).parent / "data"
    places, numbers, counts, properties = [], [], [], []
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    with bar(130_831, "reading QM9", unit="molecule", progress=progress) as shown:
        for number in (1, 2, 3):
            file = tables / f"qm9_part{number}.csv"
            if not file.is_file():
                raise DataError(f"there is no file {file}; install qm9pack again")
            with file.open(newline="", encoding="utf-8") as lines:
                for row in csv.DictReader(lines):
                    symbols = ast.literal_eval(row["Elements"])
                    numbers.append([NUMBERS[SYMBOLS.index(symbol)] for symbol in symbols])
                    text = row["XYZ_Ang"].replace("[", "").replace("]", "")
                    places.append(np.array(text.split(","), float).reshape(-1, 3))
                    counts.append(len(symbols))
                    properties.append([float(row[column]) for column in _COLUMNS])
                    shown.update()
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        xyz_1e4A=np.round(np.concatenate(places) * 1e4).astype(np.int32),
        z=np.concatenate(numbers).astype(np.uint8),
        n_atoms=np.array(counts, np.uint8),
        split_edm=split(len(counts)),
        props=np.array(properties, np.float32),
    )
    with replacing(path) as file:
        file.write(buffer.getvalue())
