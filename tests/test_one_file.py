"""A manifold with a kernel, a name, files and a picture is one file, also outside the package.

The file is `support/grassmannian.py`; nothing in calor knows of it.
"""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from matplotlib.figure import Figure

import calor
import grassmannian
import ratios
from calor import cli, plots
from calor.data import tables
from grassmannian import PLANES
from processes import command
from ratios import Ratios

FILE = str(Path(grassmannian.__file__))
MINE = f"{FILE}:Grassmannian"


def draw(count, seed=0):
    return jax.vmap(PLANES.random_point)(jr.split(jr.key(seed), count))


@pytest.mark.usefixtures("double")
def test_the_geometry_is_that_of_planes():
    x, y = draw(2)
    v = PLANES.random_tangent(jr.key(1), x)
    v = 1.5 * v / PLANES.norm(x, v)
    z = PLANES.exp(x, v)
    np.testing.assert_allclose(PLANES.log(x, z), v, atol=1e-9)
    np.testing.assert_allclose(PLANES.dist(x, z), 1.5)
    # Geodesics are orbits of rotations, and distances are those of the angles between planes.
    turn = jax.scipy.linalg.expm(v @ x - x @ v)
    np.testing.assert_allclose(turn @ x @ turn.T, z, atol=1e-9)
    bases = [jnp.linalg.eigh(point)[1][:, 2:] for point in (x, y)]
    angles = jnp.arccos(jnp.linalg.svd(bases[0].T @ bases[1])[1])
    np.testing.assert_allclose(PLANES.dist(x, y), jnp.sqrt(2) * jnp.linalg.norm(angles))
    # The nearest point has the eigenvectors of the largest eigenvalues.
    off = x + 0.1 * jr.normal(jr.key(2), (4, 4))
    largest = jnp.linalg.eigh(off + off.T)[1][:, 2:]
    np.testing.assert_allclose(PLANES.project(off), largest @ largest.T, atol=1e-9)


@pytest.mark.slow  # that the kernel solves the heat equation implies it
@pytest.mark.usefixtures("double")
def test_the_laplacian_is_that_of_geodesics():
    x = draw(1)[0]
    f = lambda p: jnp.sin(p[0, 1] + 2 * p[2, 3]) * p[1, 1]
    frame = PLANES.frame(x).reshape(16, 16)
    basis = jnp.linalg.eigh(frame.T @ frame)[1][:, -4:].T.reshape(4, 4, 4)
    along = lambda s: sum(f(PLANES.exp_at(x, s * e)) for e in basis)
    np.testing.assert_allclose(PLANES.laplacian(f, x), jax.grad(jax.grad(along))(0.0), rtol=1e-6)


def test_the_exact_kernel_is_the_heat_kernel():
    kernel = calor.heat_kernel(PLANES)
    assert isinstance(kernel, grassmannian.GrassmannianKernel)
    x, y = draw(2)
    residual = jax.jit(lambda t, x: calor.log_heat_residual(kernel, t, x, y))
    assert abs(residual(0.3, x)) < 1e-3
    np.testing.assert_allclose(kernel.log_prob(0.3, x, y), kernel.log_prob(0.3, y, x), rtol=1e-5)
    slope = PLANES.gradient(lambda x: kernel.log_prob(0.3, x, y), x)
    np.testing.assert_allclose(kernel.score(0.3, x, y), slope, atol=1e-4)
    # Of mass one, and with draws whose mean relaxes at the rate of the coordinates.
    density = jnp.exp(jax.vmap(lambda x: kernel.log_prob(0.3, x, y))(draw(20_000, 1)))
    assert float(jnp.mean(density) * jnp.exp(PLANES.log_volume())) == pytest.approx(1, abs=0.03)
    draws = jax.vmap(lambda key: kernel.sample(0.1, y, key=key))(jr.split(jr.key(2), 20_000))
    expected = jnp.eye(4) / 2 + np.exp(-0.4) * (y - jnp.eye(4) / 2)
    np.testing.assert_allclose(jnp.mean(draws, axis=0), expected, atol=0.01)
    assert float(jnp.max(jax.vmap(PLANES.contains)(draws))) < 1e-5


def test_short_time_laws_need_nothing_more():
    law, exact = calor.heat_kernel(PLANES, "short-time"), calor.heat_kernel(PLANES, "exact")
    x = draw(1)[0]
    y = PLANES.exp(x, 0.1 * PLANES.random_tangent(jr.key(1), x))
    assert abs(law.log_prob(0.01, y, x) - exact.log_prob(0.01, y, x)) < 0.1


def test_files_hold_two_vectors_that_span_a_plane(tmp_path):
    path, points = tmp_path / "planes.csv", np.asarray(draw(5))
    tables.write_points(path, points, PLANES)
    assert path.read_text().startswith("u1,u2,u3,u4,v1,v2,v3,v4\n")
    np.testing.assert_allclose(tables.read_points(path, PLANES), points, atol=1e-5)
    path.write_text("1,0,0,0,0,2,0,0\n1,0,0,0,3,0,0,0\n")
    with pytest.raises(tables.TableError, match="line 2: the two vectors span no plane"):
        tables.read_points(path, PLANES)
    path.write_text("1,2\n")
    with pytest.raises(tables.TableError, match=r"a point of Grassmannian\(4, 2\) is two vectors"):
        tables.read_points(path, PLANES)


# Small, and of the same shapes in Python and on the command line, so that they compile once.
SMALL = ["--steps", "2", "--batch", "16", "--width", "8"]


def fit(data, **more):
    small = {"network": calor.Network(width=8), "training": calor.Training(steps=2, batch=16)}
    kernel = calor.heat_kernel(PLANES)
    return calor.fit(
        kernel, data, parts="diffusion", key=jr.key(0), progress=False, **{**small, **more}
    )


def test_fit_sample_score_save_and_plot_in_python(tmp_path):
    model = fit(draw(40))
    points = model.sample(10, key=jr.key(1), steps=4)
    assert float(jnp.max(jax.vmap(PLANES.contains)(points))) < 1e-5
    values = model.log_prob(points)
    assert np.all(np.isfinite(values))
    path = tmp_path / "planes.calor"
    calor.save(path, model)
    np.testing.assert_allclose(calor.load(path).log_prob(points), values, rtol=1e-4, atol=1e-4)
    assert isinstance(plots.points(points, PLANES), Figure)
    axes = Figure().subplots()
    assert plots.points(points, PLANES, axes) is axes.figure
    assert axes.collections


@pytest.mark.slow
def test_a_fit_finds_where_planes_are():
    near = jnp.diag(jnp.array([1.0, 1, 0, 0]))
    kernel = calor.heat_kernel(PLANES)
    data = jax.vmap(lambda key: kernel.sample(0.02, near, key=key))(jr.split(jr.key(3), 300))
    training = calor.Training(steps=200, batch=256)
    model = fit(data[:250], network=calor.Network(width=32, depth=2), training=training)
    # The entropy of the law that they come from is what a perfect model would reach.
    truth = jax.vmap(lambda x: kernel.log_prob(0.02, x, near))(data[250:])
    assert float(jnp.mean(model.log_prob(data[250:]) - truth)) > -0.7


def test_fit_sample_and_score_on_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tables.write_points("planes.csv", np.asarray(draw(40)), PLANES)
    mine = ["--manifold", MINE, "--json"]
    assert cli.main(["fit", "planes.csv", "--out", "a.calor", *SMALL, *mine]) == 0
    assert "Grassmannian(4, 2)" in json.loads(capsys.readouterr().out)["model"]
    drawn = ["-n", "10", "--steps", "4", "--out", "new.csv", "--plot", "new.png"]
    assert cli.main(["sample", "a.calor", *drawn, *mine]) == 0
    assert json.loads(capsys.readouterr().out)["manifold"] == "Grassmannian(4, 2)"
    assert (tmp_path / "new.png").read_bytes().startswith(b"\x89PNG")
    assert cli.main(["sample", "a.calor", *drawn[:5], "new.JSON", *mine]) == 0
    capsys.readouterr()
    assert cli.main(["score", "a.calor", "new.JSON", *mine]) == 0
    assert json.loads(capsys.readouterr().out)["points"] == 10
    assert cli.main(["check", "a.calor", *mine]) == 2
    assert "holds a model, not a kernel" in capsys.readouterr().err
    (tmp_path / "new.csv").write_text("1,0,0,0,0,1,0,0\n2,0,0,0,2,0,0,0\n")
    assert cli.main(["score", "a.calor", "new.csv", *mine]) == 2
    assert "new.csv, line 2: the two vectors span no plane" in capsys.readouterr().err
    # A file of calor runs nothing: in a process that has not seen the file it says what to import.
    done = command("sample", "a.calor", "--out", "other.csv")
    assert done.returncode == 2
    assert "grassmannian" in done.stderr
    assert "import the file that defines" in done.stderr
    assert "grassmannian.py" in done.stderr


@pytest.mark.slow
def test_a_process_that_has_not_seen_the_file_runs_it_and_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fit(draw(40)).save(tmp_path / "a.calor")
    few = ["-n", "10", "--steps", "4"]
    done = command("sample", "a.calor", "--manifold", MINE, "--out", "new.csv", *few)
    assert (done.returncode, done.stderr) == (0, f"calor: running {FILE}\n")
    assert len(tables.read_points("new.csv", PLANES)) == 10


OWN = """
import calor

word = "no manifold"
flat = calor.Euclidean(2)

def make(size=2):
    return calor.Euclidean(size)

def fails():
    return calor.Sphere(0)
"""
SOLVE = ["--out", "r2.calor", "--set", "points=64", "steps=3", "rounds=1"]


@pytest.mark.slow
def test_solve_and_check_a_manifold_of_a_file(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN)
    assert cli.main(["solve", "own.py:make", *SOLVE]) == 0
    assert capsys.readouterr().err == "calor: running own.py\n"
    assert cli.main(["check", "r2.calor", "--manifold", "own.py:flat", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["manifold"] == "Euclidean(2)"
    assert cli.main(["check", "r2.calor", "--manifold", MINE]) == 2
    assert "lives on Euclidean(2), but --manifold is Grass" in capsys.readouterr().err


def test_a_manifold_of_ones_own_is_solved(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    space, key = Ratios(), jr.key(0)
    recipe = calor.recipes.default(points=64, steps=3, rounds=1)
    kernel = calor.solve(space, recipe, key=key, progress=False)
    x, x0 = jnp.array([1.5]), jnp.array([0.7])
    exact = -(jnp.log(x / x0) ** 2) / 0.4 - jnp.log(0.4 * jnp.pi) / 2
    np.testing.assert_allclose(kernel.log_prob(0.1, x, x0), exact[0], atol=1e-3)
    assert float(kernel.sample(0.1, x0, key=key)[0]) > 0
    kernel.certificate.estimate(0.1)
    calor.save("python.calor", kernel)
    mine = f"{ratios.__file__}:Ratios"
    assert cli.main(["solve", mine, *SOLVE, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["manifold"] == "Ratios(1)"
    for path in ("python.calor", "r2.calor"):  # the same equation, recipe and key
        again = calor.load(path, kind="kernel")
        assert again.manifold == space
        np.testing.assert_allclose(again.log_prob(0.1, x, x0), kernel.log_prob(0.1, x, x0), 1e-5)
    assert cli.main(["check", "r2.calor", "--manifold", MINE]) == 2
    assert "lives on Ratios(1), but --manifold is Grassmannian" in capsys.readouterr().err
    # Where its file has not been run, the name of the file is what is known.
    done = command("check", "r2.calor")
    assert done.returncode == 2
    assert "'ratios:1'" in done.stderr
    assert "ratios.py" in done.stderr


@pytest.mark.slow
def test_the_heat_kernel_of_ones_own_is_solved_with_a_key():
    kernel = calor.heat_kernel(Ratios(), key=jr.key(0))
    x, x0 = jnp.array([1.5]), jnp.array([0.7])
    exact = -(jnp.log(x / x0) ** 2) / 0.4 - jnp.log(0.4 * jnp.pi) / 2
    np.testing.assert_allclose(kernel.log_prob(0.1, x, x0), exact[0], atol=1e-4)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("none.py:flat", "there is no file none.py"),
        ("own.py:other", "own.py defines no 'other'; it defines flat, make, fails"),
        ("own.py:word", "is 'no manifold', neither a manifold nor a function"),
        ("own.py:fails", "own.py:fails() failed: own.py, line 11: ValueError: Sphere: n must"),
        ("broken.py:flat", "broken.py, line 2: ZeroDivisionError: division by zero"),
        ("typo.py:flat", "typo.py, line 1: "),
    ],
)
def test_errors_of_a_file_name_its_line(named, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "broken.py").write_text("one = 1\ntwo = one / 0\n")
    (tmp_path / "typo.py").write_text("def (:\n")
    assert cli.main(["solve", named, *SOLVE]) == 2
    printed = capsys.readouterr().err.splitlines()
    assert printed[-1].startswith("calor: error: ")
    assert message in printed[-1]
    assert not (tmp_path / "r2.calor").exists()
