"""Molecules: the rules of bonds, measures on real molecules, files, and bad input."""

import os

import numpy as np
import pytest

from calor import molecules, qm9
from calor.data import tables
from calor.data.molecules import Molecule, MoleculeError

needs_data = pytest.mark.skipif(
    "CALOR_DATA" not in os.environ, reason="CALOR_DATA is not set: real molecules are read from it"
)

METHANE = Molecule(
    np.array([6, 1, 1, 1, 1]),
    0.629 * np.array([[0, 0, 0], [1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1.0]]),
)
NITROGEN = Molecule(np.array([7, 7]), np.array([[0, 0, 0], [0, 0, 1.098]]))
FORMALDEHYDE = Molecule(
    np.array([6, 8, 1, 1]),
    np.array([[0, 0, 0], [1.205, 0, 0], [-0.55, 0.94, 0], [-0.55, -0.94, 0.0]]),
)


@pytest.mark.parametrize(
    ("molecule", "orders"), [(METHANE, [1, 1, 1, 1]), (NITROGEN, [3]), (FORMALDEHYDE, [2, 1, 1])]
)
def test_bonds_by_distance(molecule, orders):
    found = molecules.bond_orders(molecule)
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_array_equal(found[0, 1:], orders)
    assert molecules.stable_atoms(molecule).all()


def test_a_missing_atom_is_noticed():
    broken = Molecule(METHANE.numbers[:-1], METHANE.places[:-1])
    np.testing.assert_array_equal(molecules.stable_atoms(broken), [False, True, True, True])


def test_measures_of_known_molecules():
    pytest.importorskip("rdkit")
    two = Molecule(
        np.concatenate([METHANE.numbers, NITROGEN.numbers]),
        np.concatenate([METHANE.places, NITROGEN.places + 10]),
    )
    found = molecules.measure([METHANE, METHANE, NITROGEN, two], known={molecules.smiles(NITROGEN)})
    assert found["molecule_stability"] == found["validity"] == 1
    assert found["connected"] == 0.75  # the largest fragment of the last one is methane
    assert found["uniqueness"] == 0.5
    assert found["novelty"] == 0.5


@needs_data
def test_measures_of_real_molecules():
    """As published for the data: atoms 99.0, molecules 95.2, valid 97.7 per cent (EDM)."""
    pytest.importorskip("rdkit")
    data = qm9.load()
    np.testing.assert_array_equal(np.bincount(data.part), [100_000, 17_748, 13_083])
    np.testing.assert_array_equal(qm9.split(len(data.part)), data.part)
    chosen = np.random.default_rng(1).choice(len(data.part), 1500, replace=False)
    found = molecules.measure(data.molecules(chosen))
    assert found["atom_stability"] == pytest.approx(0.993, abs=0.003)
    assert found["molecule_stability"] == pytest.approx(0.952, abs=0.013)  # two standard errors
    assert found["validity"] == pytest.approx(0.977, abs=0.01)


def test_clouds_and_back():
    manifold = molecules.molecule_space(6, 2)
    given = [METHANE, NITROGEN]
    clouds = molecules.to_clouds(given, manifold)
    for before, after in zip(given, molecules.from_clouds(clouds, manifold), strict=True):
        np.testing.assert_array_equal(after.numbers, before.numbers)
        np.testing.assert_allclose(after.places, before.places - before.places.mean(0), atol=1e-6)


def test_files(tmp_path):
    given = [METHANE, NITROGEN, FORMALDEHYDE]
    molecules.write(tmp_path / "a.xyz", given)
    again = molecules.read_xyz(tmp_path / "a.xyz")
    np.testing.assert_allclose(again[2].places, FORMALDEHYDE.places, atol=1e-6)
    space = molecules.molecule_space(6, 2)
    clouds = tables.read_points(tmp_path / "a.xyz", space)
    np.testing.assert_allclose(clouds, molecules.to_clouds(given, space), atol=1e-5)
    chemistry = pytest.importorskip("rdkit.Chem")
    tables.write_points(tmp_path / "a.sdf", clouds, space)
    read = chemistry.SDMolSupplier(str(tmp_path / "a.sdf"))
    assert [chemistry.MolToSmiles(molecule) for molecule in read] == ["C", "N#N", "C=O"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no molecules"),
        ("five\n\n", "line 1: expected the number of atoms, got 'five'"),
        ("2\n\nH 0 0 0\n", "cut off: line 1 announces 2 atoms"),
        ("1\n\nXe 0 0 0\n", r"line 3: expected an element \(H, C, N, O, F\)"),
        ("1\n\nH 0 zero 0\n", "line 3: could not convert"),
        ("1\n\nH 0 nan 0\n", "line 3: the coordinates are not finite"),
    ],
)
def test_damaged_files(tmp_path, text, message):
    (tmp_path / "bad.xyz").write_text(text)
    with pytest.raises(MoleculeError, match=message):
        molecules.read_xyz(tmp_path / "bad.xyz")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: molecules.measure([]), "no molecules to measure"),
        (lambda: molecules.to_clouds([], molecules.molecule_space()), "the set is empty"),
        (lambda: molecules.to_clouds([METHANE], molecules.molecule_space(4)), "has 5 atoms"),
        (lambda: molecules.bond_orders(Molecule(np.array([2]), np.zeros((1, 3)))), "number 2"),
        (lambda: molecules.write("a.pdb", []), "must end in .xyz or .sdf"),
        (lambda: molecules.read_xyz("nowhere.xyz"), "there is no file nowhere.xyz"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(MoleculeError, match=message):
        call()


@needs_data
@pytest.mark.slow
def test_the_package_has_the_same_molecules(tmp_path, monkeypatch):
    pytest.importorskip("qm9pack")
    wanted = qm9.load()
    monkeypatch.delenv("CALOR_DATA")
    monkeypatch.setenv("CALOR_CACHE", str(tmp_path))
    for found in (qm9.load(), qm9.load()):  # parsed, and kept
        for ours, theirs in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(ours, theirs)
