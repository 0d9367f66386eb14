"""Files of points: what columns mean, and the line and reason of every error."""

import dataclasses

import jax
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import calor
from calor.data import tables

SPHERE, SO3 = calor.Sphere(2), calor.SO3()


def write(folder, text, name="points.csv"):
    path = folder / name
    path.write_text(text)
    return path


def test_latitude_and_longitude(tmp_path):
    north_east = [[np.sqrt(0.5), 0, np.sqrt(0.5)], [0, 1, 0]]
    for text in (
        "45,0\n0,90\n",
        "# a comment\nlat,lon\n45,0\n\n0,90\n",
        "id,Longitude,Latitude,depth\na,0,45,3\nb,90,0,7\n",
        "\ufefflat, long\r\n45, 0\r\n0, 90\r\n",
    ):
        found = tables.read_points(write(tmp_path, text), SPHERE)
        np.testing.assert_allclose(found, north_east, atol=1e-7)
    found = tables.read_points(write(tmp_path, "x,y,z\n0,0,1\n0,1,0\n"), SPHERE)
    np.testing.assert_allclose(found, [[0, 0, 1], [0, 1, 0]])


def test_rotations(tmp_path):
    turns = Rotation.random(5, random_state=0)
    scalar_first = turns.as_quat(scalar_first=True)
    cases = {
        "q.npy": (scalar_first, {}),
        "m.npy": (turns.as_matrix(), {}),
        "e.npy": (turns.as_euler("ZXZ", degrees=True), {"euler": "ZXZ", "degrees": True}),
    }
    for name, (array, options) in cases.items():
        np.save(tmp_path / name, array)
        found = tables.read_points(tmp_path / name, SO3, **options)
        overlap = np.abs(np.sum(found * scalar_first, axis=1))
        np.testing.assert_allclose(overlap, 1, atol=1e-6)


def test_other_manifolds_and_back(tmp_path):
    for manifold in (calor.SPD(2), calor.Torus(2), calor.Hyperbolic(2), SPHERE, SO3):
        keys = jax.random.split(jax.random.key(0), 7)
        points = np.asarray(jax.vmap(manifold.random_point)(keys))
        for ending in ("csv", "npy", "npz"):
            path = tmp_path / f"points.{ending}"
            tables.write_points(path, points, manifold)
            np.testing.assert_allclose(
                tables.read_points(path, manifold), points, rtol=1e-5, atol=1e-5
            )
    np.savez(tmp_path / "two.npz", a=points, b=points)
    with pytest.raises(tables.TableError, match="has the arrays a, b; name one with --array"):
        tables.read_points(tmp_path / "two.npz", SO3)
    assert len(tables.read_points(tmp_path / "two.npz", SO3, array="b")) == 7


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lat,lon\n10,20\nhigh,30\n", r"line 3: 'high' is not a number"),
        ("lat,lon\n10,20\n95,30\n", r"line 3: a latitude of 95 is outside -90 to 90"),
        ("10,20\n10,400\n", r"line 2: a longitude of 400"),
        ("10,20\n10,nan\n", r"line 2: nan is not a finite number"),
        ("10,20\n10,\n", r"line 2: a cell is empty"),
        ("10,20\n10,20,30\n", r"line 2: 3 columns, but 2 before"),
        ("id,lon,lat\na,10\n", r"line 2: the column lat is missing"),
        ("0,0,1\n0,0,2\n", r"line 2: not a point of Sphere\(2\), 1 away"),
        ("1\n2\n", r"line 1: 1 columns, but a point of Sphere\(2\) is lat, lon or x, y, z"),
        ("lat,lon\n", "has no rows of numbers"),
        ("", "has no rows of numbers"),
    ],
)
def test_bad_tables_name_the_line(tmp_path, text, message):
    with pytest.raises(tables.TableError, match=message):
        tables.read_points(write(tmp_path, text), SPHERE)


def test_other_bad_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        tables.read_points(tmp_path / "none.csv", SPHERE)
    with pytest.raises(tables.TableError, match="must end in .csv, .npy or .npz"):
        tables.read_points(write(tmp_path, "1,2", "points.txt"), SPHERE)
    with pytest.raises(tables.TableError, match="cannot be read"):
        tables.read_points(write(tmp_path, "no array", "points.npy"), SPHERE)
    np.save(tmp_path / "text.npy", np.array(["a", "b"]))
    (tmp_path / "latin.csv").write_bytes("gr\xfcn\n".encode("latin-1"))
    with pytest.raises(tables.TableError, match="not a text file in UTF-8"):
        tables.read_condition(tmp_path / "latin.csv", labels=True)
    with pytest.raises(tables.TableError, match="not real numbers"):
        tables.read_points(tmp_path / "text.npy", SPHERE)
    np.save(tmp_path / "empty.npy", np.zeros((0, 3)))
    with pytest.raises(tables.TableError, match="is empty"):
        tables.read_points(tmp_path / "empty.npy", SPHERE)
    with pytest.raises(tables.TableError, match="name their axes"):
        tables.read_points(write(tmp_path, "1,2,3\n"), SO3)
    skewed = np.arange(18.0).reshape(2, 9)
    np.save(tmp_path / "skewed.npy", skewed)
    with pytest.raises(tables.TableError, match="row 0: not a rotation matrix"):
        tables.read_points(tmp_path / "skewed.npy", SO3)
    with pytest.raises(ValueError, match="must end in"):
        tables.write_points(tmp_path / "a.txt", np.zeros((1, 3)), SPHERE)


def test_an_ending_may_have_capitals(tmp_path):
    points = np.eye(3)
    for name in ("POINTS.CSV", "points.Npy"):
        tables.write_points(tmp_path / name, points, SPHERE)
        np.testing.assert_allclose(tables.read_points(tmp_path / name, SPHERE), points, atol=1e-6)


def test_a_kind_of_file_that_is_only_written_is_not_read(tmp_path):
    write(tmp_path, "", "a.sdf")
    wanted = "must end in .csv, .npy, .npz or .xyz"
    with pytest.raises(tables.TableError, match=wanted):
        tables.read_points(tmp_path / "a.sdf", calor.molecules.molecule_space())


def test_a_kind_of_file_that_is_only_read_is_not_written(tmp_path, monkeypatch):
    rows = calor.Format(read=lambda path: np.loadtxt(path, ndmin=2))
    form = dataclasses.replace(tables.form_of(SPHERE), formats={".txt": rows})
    monkeypatch.setattr(tables, "form_of", lambda manifold: form)
    found = tables.read_points(write(tmp_path, "0 0 1\n", "a.txt"), SPHERE)
    np.testing.assert_allclose(found, [[0, 0, 1]])
    with pytest.raises(tables.TableError, match=r"must end in \.csv, \.npy or \.npz"):
        tables.write_points(tmp_path / "b.txt", found, SPHERE)
