r"""Molecules as clouds of atoms, and how good generated ones are.

An atom is its place in angstrom and its element, one-hot times `TYPE_SCALE`, so a molecule of n
atoms is a cloud of n points of R^8, its centre at zero: `PointCloud(29, 8, smallest=3, centred=3)`.

The measures are those of EDM (Hoogeboom et al. 2022).  Two atoms are bonded if they are near enough
for their elements; an atom is stable if its bonds add up to its valence, a molecule if all its
atoms are.  With RDKit: a molecule is valid if those bonds make one, by its largest fragment; unique
if no other has the same SMILES; novel if no molecule of the training data has.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ..manifolds import AbstractManifold, PointCloud
from ..store.atomic import replacing
from ..store.tables import ending
from .forms import FORMS, Form, Format, form

SYMBOLS = ("H", "C", "N", "O", "F")
NUMBERS = (1, 6, 7, 8, 9)
TYPE_SCALE = 0.25
"""The length of a one-hot element, in angstrom: with it elements are as noisy as in EDM."""

VALENCE = {"H": 1, "C": 4, "N": 3, "O": 2, "F": 1}
# Lengths of bonds in picometres, and how much longer a bond may be.
_SINGLE = {
    "HH": 74, "HC": 109, "HN": 101, "HO": 96, "HF": 92, "CC": 154, "CN": 147, "CO": 143,
    "CF": 135, "NN": 145, "NO": 140, "NF": 136, "OO": 148, "OF": 142, "FF": 142,
}  # fmt: skip
_DOUBLE = {"CC": 134, "CN": 129, "CO": 120, "NN": 125, "NO": 121, "OO": 121}
_TRIPLE = {"CC": 120, "CN": 116, "CO": 113, "NN": 110}
_MARGINS = (10, 5, 3)


class MoleculeError(ValueError):
    """A molecule cannot be read or written; the message says why."""


class Molecule(NamedTuple):
    """Atomic numbers (n,) and places (n, 3) in angstrom."""

    numbers: np.ndarray
    places: np.ndarray


def _table():
    """Longest distances (3, 5, 5) in angstrom of single, double and triple bonds; zero if none."""
    limits = np.zeros((3, 5, 5))
    for limit, lengths, margin in zip(limits, (_SINGLE, _DOUBLE, _TRIPLE), _MARGINS, strict=True):
        for (first, second), length in lengths.items():
            i, j = SYMBOLS.index(first), SYMBOLS.index(second)
            limit[i, j] = limit[j, i] = (length + margin) / 100
    return limits


_LIMITS = _table()


def bond_orders(molecule: Molecule) -> np.ndarray:
    """The order (n, n) of the bond of every pair of atoms: 0, 1, 2 or 3."""
    kinds = _kinds(molecule.numbers)
    gaps = molecule.places[:, None] - molecule.places
    distances = np.sqrt(np.sum(gaps**2, axis=-1))
    limits = _LIMITS[:, kinds[:, None], kinds]
    single, double, triple = distances < limits
    orders = np.where(single, np.where(triple, 3, np.where(double, 2, 1)), 0)
    np.fill_diagonal(orders, 0)
    return orders


def _kinds(numbers):
    kinds = np.searchsorted(NUMBERS, numbers)
    known = (kinds < len(NUMBERS)) & (np.take(NUMBERS, kinds, mode="clip") == numbers)
    if not np.all(known):
        unknown = int(np.asarray(numbers)[~known][0])
        raise MoleculeError(
            f"unknown element with atomic number {unknown}; known are {', '.join(SYMBOLS)}"
        )
    return kinds


def stable_atoms(molecule: Molecule) -> np.ndarray:
    """Whether the bonds of each atom add up to its valence."""
    wanted = np.array([VALENCE[symbol] for symbol in SYMBOLS])[_kinds(molecule.numbers)]
    return np.sum(bond_orders(molecule), axis=1) == wanted


def smiles(molecule: Molecule) -> str | None:
    """The canonical SMILES of the largest fragment, or None if RDKit finds it impossible."""
    made = rdkit_molecule(molecule)
    return None if made is None else _chemistry().MolToSmiles(made)


def rdkit_molecule(molecule: Molecule) -> Any:
    """The largest fragment as a molecule of RDKit with its places, or None if it is impossible."""
    chemistry = _chemistry()
    building = chemistry.RWMol()
    for number in molecule.numbers.tolist():
        building.AddAtom(chemistry.Atom(int(number)))
    orders = bond_orders(molecule)
    kinds = [chemistry.BondType.SINGLE, chemistry.BondType.DOUBLE, chemistry.BondType.TRIPLE]
    for i, j in np.argwhere(np.triu(orders) > 0).tolist():
        building.AddBond(i, j, kinds[orders[i, j] - 1])
    conformer = chemistry.Conformer(len(molecule.numbers))
    for i, place in enumerate(molecule.places.tolist()):
        conformer.SetAtomPosition(i, place)
    building.AddConformer(conformer)
    try:
        whole = building.GetMol()
        chemistry.SanitizeMol(whole)
        fragments = chemistry.GetMolFrags(whole, asMols=True)
    except ValueError:  # a valence that RDKit does not know, a ring that cannot be aromatic
        return None
    return max(fragments, key=lambda part: part.GetNumAtoms())


def _chemistry():
    try:
        from rdkit import Chem, RDLogger
    except ImportError as error:
        raise ImportError(
            "validity of molecules needs rdkit, which is not installed; run: "
            "pip install 'calor[molecules]'"
        ) from error
    RDLogger.DisableLog("rdApp.*")  # pyright: ignore
    return Chem


def measure(molecules: Sequence[Molecule], known: Collection[str] | None = None) -> dict[str, Any]:
    """The measures of EDM, as fractions.

    Args:
        molecules: generated ones.
        known: SMILES of the training data as `smiles` writes them, for novelty.

    Returns:
        `atom_stability`, `molecule_stability`; `validity`, `uniqueness` among valid ones, `novelty`
        among unique ones, as in EDM; `connected`, the fraction in one piece; and their number.
    """
    if not len(molecules):
        raise MoleculeError("there are no molecules to measure")
    stable = [stable_atoms(molecule) for molecule in molecules]
    report = {
        "molecules": len(molecules),
        "atom_stability": float(np.mean(np.concatenate(stable))),
        "molecule_stability": float(np.mean([np.all(atoms) for atoms in stable])),
    }
    made = [rdkit_molecule(molecule) for molecule in molecules]
    sizes = [0 if part is None else part.GetNumAtoms() for part in made]
    whole = [size == len(each.numbers) for size, each in zip(sizes, molecules, strict=True)]
    valid = [_chemistry().MolToSmiles(part) for part in made if part is not None]
    unique = set(valid)
    report["connected"] = float(np.mean(whole))
    report["validity"] = len(valid) / len(molecules)
    report["uniqueness"] = len(unique) / max(len(valid), 1)
    if known is not None:
        report["novelty"] = len(unique - set(known)) / max(len(unique), 1)
    return report


# Clouds.


def molecule_space(largest: int = 29, smallest: int = 3) -> PointCloud:
    """The clouds of molecules with so many atoms."""
    return PointCloud(largest, 3 + len(NUMBERS), smallest=smallest, centred=3)


def _holds_molecules(manifold: PointCloud) -> bool:
    return manifold.features == 3 + len(NUMBERS) and manifold.centred == 3


@form(PointCloud, when=_holds_molecules)
def _molecules(manifold: PointCloud) -> Form:
    def write_clouds(path: Path, points: np.ndarray) -> None:
        write(path, from_clouds(points, manifold))

    def read_clouds(path: Path) -> np.ndarray:
        return to_clouds(read_xyz(path), manifold)

    formats = {".sdf": Format(write_clouds), ".xyz": Format(write_clouds, read_clouds)}
    return Form(manifold, formats=formats)


def is_molecule_space(manifold: AbstractManifold) -> bool:
    """Whether clouds of a manifold can be read as molecules."""
    found = FORMS.find(manifold)
    return found is not None and found.made is _molecules


def to_clouds(molecules: Sequence[Molecule], manifold: PointCloud) -> np.ndarray:
    """Molecules as an array of clouds."""
    if not len(molecules):
        raise MoleculeError("there are no molecules: the set is empty")
    clouds = np.zeros((len(molecules), *manifold.shape), np.float32)
    for cloud, (numbers, places) in zip(clouds, molecules, strict=True):
        n = len(numbers)
        if not manifold.smallest <= n <= manifold.size:
            raise MoleculeError(
                f"a molecule has {n} atoms; {manifold} has clouds of {manifold.smallest} to "
                f"{manifold.size}"
            )
        cloud[:n, :3] = places - np.mean(places, axis=0)
        cloud[np.arange(n), 3 + _kinds(numbers)] = TYPE_SCALE
        if manifold.is_varying:
            cloud[:n, -1] = 1
    return clouds


def from_clouds(clouds: Any, manifold: PointCloud) -> list[Molecule]:
    """Molecules from an array of clouds: the element of an atom is its largest entry."""
    found = []
    for cloud in np.asarray(clouds):
        places = np.asarray(manifold.places(jnp.asarray(cloud)))
        n = int(np.sum(cloud[:, -1] > 0.5)) if manifold.is_varying else manifold.size
        kinds = np.argmax(places[:n, 3:], axis=1)
        found.append(Molecule(np.array(NUMBERS)[kinds], places[:n, :3].astype(float)))
    return found


# Files.


def write(path: str | Path, molecules: Sequence[Molecule]) -> None:
    """Write molecules as .xyz, or as .sdf with bonds by distance, by the ending."""
    path = Path(path)
    if ending(path) not in _BLOCKS:
        known = " or ".join(_BLOCKS)
        raise MoleculeError(f"cannot write {path}: its name must end in {known}")
    block = _BLOCKS[ending(path)]
    with replacing(path) as file:
        for number, molecule in enumerate(molecules):
            file.write(block(molecule, f"molecule {number} by calor").encode())


def _atoms(molecule):
    """The symbol and the place of each atom."""
    symbols = np.array(SYMBOLS)[_kinds(molecule.numbers)]
    return zip(symbols, molecule.places.tolist(), strict=True)


def _xyz_block(molecule, title):
    rows = [str(len(molecule.numbers)), title]
    for symbol, (x, y, z) in _atoms(molecule):
        rows.append(f"{symbol:2s} {x:12.6f} {y:12.6f} {z:12.6f}")
    return "\n".join(rows) + "\n"


def _sdf_block(molecule, title):
    """One record of a V2000 structure-data file."""
    orders = bond_orders(molecule)
    pairs = np.argwhere(np.triu(orders) > 0)
    rows = [
        title,
        "  calor",
        "",
        f"{len(molecule.numbers):3d}{len(pairs):3d}  0  0  0  0  0  0  0  0999 V2000",
    ]
    for symbol, (x, y, z) in _atoms(molecule):
        rows.append(f"{x:10.4f}{y:10.4f}{z:10.4f} {symbol:3s} 0  0  0  0  0  0  0  0  0  0  0  0")
    rows += [f"{i + 1:3d}{j + 1:3d}{orders[i, j]:3d}  0  0  0  0" for i, j in pairs.tolist()]
    return "\n".join([*rows, "M  END", "$$$$"]) + "\n"


_BLOCKS = {".xyz": _xyz_block, ".sdf": _sdf_block}


def read_xyz(path: str | Path) -> list[Molecule]:
    """Molecules of an .xyz file, one after the other."""
    path = Path(path)
    if not path.is_file():
        raise MoleculeError(f"there is no file {path}")
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    found, at = [], 0
    while at < len(lines):
        if not lines[at].strip():
            at += 1
            continue
        found.append(_read_record(path, lines, at))
        at += 2 + len(found[-1].numbers)
    if not found:
        raise MoleculeError(f"{path} holds no molecules")
    return found


def _read_record(path, lines, at):
    """The molecule that begins at a line with the number of its atoms."""
    word = lines[at].strip()
    if not word.isdecimal() or int(word) < 1:
        raise MoleculeError(
            f"{path}, line {at + 1}: expected the number of atoms, got {word[:40]!r}"
        )
    rows = lines[at + 2 : at + 2 + int(word)]
    if len(rows) < int(word):
        raise MoleculeError(f"{path} is cut off: line {at + 1} announces {word} atoms")
    numbers, places = [], []
    for offset, row in enumerate(rows):
        cells = row.split()
        line = f"{path}, line {at + 3 + offset}"
        if len(cells) < 4 or cells[0] not in SYMBOLS:
            known = ", ".join(SYMBOLS)
            raise MoleculeError(
                f"{line}: expected an element ({known}) and three coordinates, got {row[:40]!r}"
            )
        try:
            place = [float(cell) for cell in cells[1:4]]
        except ValueError as error:
            raise MoleculeError(f"{line}: {error}") from error
        if not np.all(np.isfinite(place)):
            raise MoleculeError(f"{line}: the coordinates are not finite: {row[:40]!r}")
        numbers.append(NUMBERS[SYMBOLS.index(cells[0])])
        places.append(place)
    return Molecule(np.array(numbers), np.array(places))
