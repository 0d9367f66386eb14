"""Densities of many data sets: the sets, the simple rivals, paired differences, the table."""

import json
import os
import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import calor
from calor import datasets
from calor.cli import main
from calor.experiments import densities, methods, paired, rival_library, rival_mixtures
from calor.experiments.charts import Angles, Directions, Matrices, log_distortion
from calor.experiments.rival_kernels import adaptive, fit_kernels, one_bandwidth, several_bandwidths
from calor.experiments.sets import SETS, Problem, split_groups
from matrices import matrices

RNG = np.random.default_rng(0)
ROTATIONS = Directions(4, np.stack([np.eye(4), -np.eye(4)]))
TURNS = datasets.hexagonal_turns()
CRYSTALS = Directions(4, np.concatenate([TURNS, -TURNS]))
SPACES = {
    "sphere": (calor.Sphere(2), Directions(3)),
    "torus": (calor.Torus(3), Angles(3)),
    "rotations": (calor.SO3(), ROTATIONS),
    "crystals": (calor.Quotient(calor.SO3(), TURNS), CRYSTALS),
    "matrices": (calor.SPD(2), Matrices(2)),
}


def problem(kind, count, seed=0, groups=None):
    """Points near three others."""
    manifold, family = SPACES[kind]
    keys = jr.split(jr.key(seed), count)

    def near(key, number):
        centre = manifold.draw_point(jr.fold_in(jr.key(7), number))
        v = 0.1 * manifold.draw_tangent(key, centre)
        return manifold.project_at(manifold.exp_at(centre, v))

    points = np.asarray(jax.vmap(near)(keys, jnp.arange(count) % 3), float)
    return Problem(manifold, points, family, groups)


@pytest.mark.parametrize("kind", SPACES)
def test_kernels_of_rivals_are_heat_kernels_at_small_times(kind):
    """Which are normalized, and know the symmetries; pairs are near and half way far."""
    manifold, family = SPACES[kind]
    points, t = problem(kind, 12).points, 2e-3
    kernel = calor.heat_kernel(manifold, "exact")
    exact = jax.jit(jax.vmap(jax.vmap(kernel.log_prob_at, (None, None, 0)), (None, 0, None)))
    with jax.enable_x64(True):
        wanted = np.asarray(exact(jnp.asarray(t), jnp.asarray(points), jnp.asarray(points)))
    halves, volume = family.pairs(points, points)
    k = np.array(1 / (2 * t))
    found = np.logaddexp.reduce(volume - k * halves - family.log_norm(k), axis=2)
    near = wanted > wanted.max() - 10
    assert near.sum() > 12
    np.testing.assert_allclose(found[near], wanted[near], atol=0.15)
    np.testing.assert_allclose(np.diagonal(found), np.diagonal(wanted), atol=0.01)
    if kind != "matrices":
        assert family.log_volume() == pytest.approx(float(manifold.log_volume()), abs=1e-5)


@pytest.mark.parametrize("rule", [one_bandwidth, several_bandwidths, adaptive])
def test_kernel_densities_integrate_to_one(rule):
    height, angle = np.meshgrid((np.arange(300) + 0.5) / 150 - 1, np.arange(300) * np.pi / 150)
    across = np.sqrt(1 - height**2)
    grid = np.stack([across * np.cos(angle), across * np.sin(angle), height], axis=-1)
    density = fit_kernels(rule, problem("sphere", 90), problem("sphere", 30, 1))
    assert len(density.points) == 120
    assert density.times.shape[1] == 120
    values = density.log_prob(grid.reshape(-1, 3), None)
    assert np.mean(np.exp(values)) * 4 * np.pi == pytest.approx(1, abs=0.02)


def test_bandwidths_adapt_as_those_of_calor_did():
    train, held, test = (problem("sphere", n, seed) for seed, n in enumerate((200, 60, 60)))
    heat = calor.heat_kernel(calor.Sphere(2))
    key, given = jr.key(0), {"validation": held.points, "adaptive": True}
    theirs = np.asarray(
        calor.fit_density(heat, train.points, key=key, **given).log_prob(test.points)
    )
    # Around the training points alone, as there.
    nothing = held.rows(np.arange(0))
    ours = fit_kernels(lambda start, _: adaptive(start, held), train, nothing)
    ours = ours.__class__(**{**vars(ours), "times": adaptive(ours, held).times})
    assert ours.log_prob(test.points, None).mean() == pytest.approx(theirs.mean(), abs=0.03)


@pytest.mark.parametrize("kind", ["sphere", "torus", "crystals"])
def test_mixtures_of_directions_find_clusters(kind, monkeypatch):
    monkeypatch.setattr(rival_mixtures, "PARTS", (3, 9))
    train, held, test = (problem(kind, n, seed) for seed, n in enumerate((300, 60, 60)))
    # Other representatives of the same points.
    units = train.family.units(train.points)
    moved = units[np.arange(len(units)), RNG.integers(units.shape[1], size=len(units))]
    if kind == "crystals":
        train = train._replace(points=moved[:, 0])
    found = rival_mixtures.fit_mixture(train, held, 0).log_prob(test.points, None)
    # Gaussians with a standard deviation of .1, one of three.
    truth = -train.manifold.dim * (0.5 + np.log(0.1 * np.sqrt(2 * np.pi))) - np.log(3)
    assert np.mean(found) == pytest.approx(truth, abs=0.35)


def test_mixtures_of_logarithms_have_a_volume(monkeypatch):
    monkeypatch.setattr(rival_mixtures, "GAUSSIANS", (4,))
    manifold, spread = calor.SPD(3), 0.6
    x = matrices(7, 3, spread)
    origin = np.eye(3)
    wanted = jax.vmap(manifold.log_chart_volume)(jnp.asarray(x))
    logs = np.log(np.linalg.eigvalsh(origin @ x))
    np.testing.assert_allclose(log_distortion(logs), wanted, rtol=1e-3, atol=1e-4)
    train, held, test = (problem("matrices", n, seed) for seed, n in enumerate((300, 60, 60)))
    model = rival_mixtures.fit_mixture(train, held, 0)
    truth = -3 * (0.5 + np.log(0.1 * np.sqrt(2 * np.pi))) - np.log(3)
    assert model.log_prob(test.points, None).mean() == pytest.approx(truth, abs=0.35)


def test_conditions_are_used(monkeypatch):
    monkeypatch.setattr(rival_mixtures, "GAUSSIANS", (1,))
    train, held, test = (problem("matrices", n, seed) for seed, n in enumerate((150, 60, 60)))
    # Which of the three centres a matrix is near.
    told = [
        part._replace(condition=np.eye(3)[np.arange(len(part.points)) % 3])
        for part in (train, held, test)
    ]
    for fit in (
        lambda a, b: fit_kernels(adaptive, a, b),
        lambda a, b: fit_kernels(one_bandwidth, a, b),
        lambda a, b: rival_mixtures.fit_mixture(a, b, 0),
    ):
        without = fit(train, held).log_prob(test.points, None).mean()
        with_it = fit(*told[:2]).log_prob(test.points, told[2].condition).mean()
        assert with_it > without + 0.5


def test_whole_groups_are_put_aside():
    groups = np.repeat(np.arange(40), RNG.integers(1, 30, size=40)).astype(str)
    parts = split_groups(groups, 3)
    assert sorted(np.concatenate(parts)) == list(range(len(groups)))
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert not set(groups[parts[one]]) & set(groups[parts[other]])
    for part in parts[1:]:
        assert 0.07 < len(part) / len(groups) < 0.13
    assert not np.array_equal(split_groups(groups, 4)[2], parts[2])


def test_loaders(tmp_path, monkeypatch):
    monkeypatch.setenv("CALOR_DATA", str(tmp_path))
    with pytest.raises(datasets.DataError, match=r"no file .*rna\.tsv"):
        datasets.rna()
    (tmp_path / "torus_rna7").mkdir()
    degrees = [[0, 90, -180, 180, 270, -45, 1.5], [1, 2, "", 4, 5, 6, 7], [1, 2, 3, 4, 5, 6, 7]]
    lines = ["\t".join(map(str, ["1abc", "G", *row])) for row in degrees]
    (tmp_path / "torus_rna7" / "rna.tsv").write_text("\n".join(lines))
    with pytest.warns(UserWarning, match="1 of 3 rows lack an angle"):
        angles, entries = datasets.rna()
    np.testing.assert_allclose(
        angles[0] / np.pi, [0, 1 / 2, -1, -1, -1 / 2, -1 / 4, 1 / 120], atol=1e-12
    )
    assert entries.tolist() == ["1abc", "1abc"]
    (tmp_path / "torus_protein_top8000").mkdir()
    values = np.array([[10, 20, np.nan], [30, 40, 50], [60, 70, 80]], np.float32)
    np.savez(
        tmp_path / "torus_protein_top8000" / "top8000_torsions.npz",
        angles_deg=values,
        residue_type=np.array([0, 0, 1]),
        residue_names=np.array(["arg", "lys"]),
        chain_id=np.array([5, 6, 7]),
    )
    angles, chains = datasets.proteins("arg", 2)
    np.testing.assert_allclose(np.rad2deg(angles), [[10, 20], [30, 40]], rtol=1e-6)
    assert chains.tolist() == [5, 6]
    with pytest.warns(UserWarning, match="1 of 2 rows"):
        assert datasets.proteins("arg", 3)[1].tolist() == [6]
    with pytest.raises(ValueError, match="known are arg, lys, got 'gly'"):
        datasets.proteins("gly", 2)


def test_differences_are_paired(tmp_path):
    """Standard errors of points in groups are those of independent sums over groups."""
    job = SimpleNamespace(out=tmp_path, name="a b", seed=0, method="ours")
    ours, theirs = RNG.normal(size=600), RNG.normal(size=600)
    shared = np.repeat(RNG.normal(size=60), 10)
    paired.keep(job, {"whole": ours + theirs + shared}, None)
    job.method = "rival, one"
    paired.keep(job, {"rival": theirs}, None)
    report = {"results": {"a b": {"ours": {"0": {}}, "rival, one": {"0": {}}}}}
    found = paired.differences(report, tmp_path, "whole")["a b"]["rival"]["0"]
    assert found["mean"] == pytest.approx(np.mean(ours + shared), abs=1e-5)
    by_points = np.std(ours + shared, ddof=1) / np.sqrt(600)
    assert found["standard_error"] == pytest.approx(by_points, abs=1e-5)
    paired.keep(job, {"rival": theirs}, np.repeat(np.arange(60), 10))
    found = paired.differences(report, tmp_path, "whole")["a b"]["rival"]["0"]
    sums = (ours + shared).reshape(60, 10).mean(axis=1)
    by_groups = np.std(sums, ddof=1) / np.sqrt(60)
    assert by_groups > 1.5 * by_points
    assert found["standard_error"] == pytest.approx(by_groups, abs=1e-5)
    runs = {str(n): {"mean": mean, "standard_error": 0.3} for n, mean in enumerate((1.0, 2.0, 3.0))}
    every = paired.overall(runs)
    assert every.mean == 2
    assert every.by_splits == pytest.approx(1 / np.sqrt(3))
    assert every.by_points == pytest.approx(0.3 / np.sqrt(3))
    assert every.errors() == pytest.approx(2 * np.sqrt(3))


class Made:
    """A model that finds every point this likely."""

    condition = None

    def __init__(self, value):
        self.value = value

    def log_prob(self, x):
        return np.full(len(x), self.value)


def test_one_fit_fills_all_columns_of_calor(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(SETS, "floods", lambda: problem("sphere", 200))
    asked = []

    def fitted(kernel, data, **given):
        asked.append({"rows": len(data), **given})
        models = (Made(1.0), Made(2.0), Made(2.0), Made(np.nan))
        names = ("density", "flow", "flow", "diffusion")
        return methods.Whole(models, (0.5, 0.2, 0.2, 0.1), names, {})

    monkeypatch.setattr(densities, "fit_everything", fitted)
    arguments = ["reproduce", "densities", "--only", "floods", "--out", str(tmp_path)]
    chosen = ["--splits", "2", "--minutes", "0.5"]
    assert main([*arguments, *chosen, "--methods", "calor", "uniform"]) == 0
    assert len(asked) == 2  # one fit for a split
    assert asked[0]["rows"] == 180
    assert asked[0]["minutes"] == 0.5
    shown = capsys.readouterr().out
    whole = np.log(0.5 * np.e + 0.4 * np.e**2)
    for text in (
        "calor, flow",
        "2.000",
        f"{whole:.3f}",
        "uniform",
        f"+{whole + 2.531:.3f}",
        "flow 0.40",
    ):
        assert text in shown
    # A rival that is run later is compared as well; calor is not fitted again.
    rival = densities.MIXTURE
    monkeypatch.setattr(rival_mixtures, "PARTS", (3,))
    assert main([*arguments, *chosen, "--methods", rival]) == 0
    assert len(asked) == 2
    text = (tmp_path / "densities.json").read_text()
    report = json.loads(text)
    made = report["differences"]["floods"]
    assert set(made) >= {"uniform", rival, "calor, flow", "calor, density"}
    mean = report["results"]["floods"][rival]["1"]["means"][rival]
    assert made[rival]["1"]["mean"] == pytest.approx(whole - mean, abs=1e-5)
    assert len(text) < 6000  # no values of single points
    assert "| floods | mixture" in capsys.readouterr().out.replace("  ", " ")
    # Without the values of points the differences stay.
    for file in (tmp_path / "points").iterdir():
        file.unlink()
    assert main([*arguments, *chosen, "--methods", rival]) == 0
    assert (
        json.loads((tmp_path / "densities.json").read_text())["differences"]
        == report["differences"]
    )


def test_the_library_is_given_the_seconds_of_calor(tmp_path, monkeypatch, capsys):
    given, rng = [], np.random.default_rng(0)
    for name, kind in (("floods", "sphere"), ("rotations", "rotations")):
        manifold, family = SPACES[kind]
        points = rng.normal(size=(200, family.size))
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        made = Problem(manifold, points, family)
        monkeypatch.setitem(SETS, name, lambda made=made: made)

    def trained(train, held, seconds, seed):
        given.append((len(train.points), len(held.points), seconds, seed))
        return SimpleNamespace(log_prob=lambda x: np.full(len(x), -1.25), steps=7, kept=5)

    monkeypatch.setattr(densities, "fit_library", trained)
    fitted = methods.Whole((Made(1.0),), (1.0,), ("flow",), {})
    monkeypatch.setattr(densities, "fit_everything", lambda *args, **given: fitted)
    usual = ["reproduce", "densities", "--only", "floods", "rotations", "--out", str(tmp_path)]
    usual += ["--minutes", "0.5"]
    assert densities.LIBRARY not in densities.EXPERIMENT.of("default", None, None).methods
    assert main([*usual, "--splits", "1", "--methods", "calor"]) == 0
    # It took another time than was planned, once with the seconds of its cores, once without.
    path = tmp_path / "densities.json"
    report = json.loads(path.read_text())
    run = report["results"]["floods"]["calor"]["0"]
    assert run["cpu_seconds"] >= 0
    report["results"]["floods"]["calor"] = {
        "0": {**run, "cpu_seconds": 41.0},
        "1": {**{key: run[key] for key in run if key != "cpu_seconds"}, "fit_seconds": 42.0},
    }
    path.write_text(json.dumps(report))
    assert main([*usual, "--splits", "3", "--methods", densities.LIBRARY]) == 0
    assert given == [(160, 20, seconds, seed) for seed, seconds in enumerate((41.0, 42.0, 30.0))]
    # Rotations are a quotient of a sphere, which the library does not have.
    report = json.loads(path.read_text())
    assert report["results"]["rotations"][densities.LIBRARY]["0"]["means"] == {}
    made = report["differences"]["floods"][densities.LIBRARY]
    assert made["0"]["mean"] == pytest.approx(2.25)
    shown = capsys.readouterr().out
    assert "| flow_matching | +2.250" in shown
    assert "-1.250 ± 0.000" in shown


@pytest.mark.parametrize("missing", ["torch", "flow_matching"])
def test_the_error_says_which_package_is_missing(missing, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(SETS, "floods", lambda: problem("sphere", 200))
    for name in [name for name in sys.modules if name.partition(".")[0] == "flow_matching"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    monkeypatch.setitem(sys.modules, missing, None)
    arguments = ["reproduce", "densities", "--only", "floods", "--out", str(tmp_path)]
    assert main([*arguments, "--methods", "flow_matching"]) == 2
    error = capsys.readouterr().err
    assert f"needs the package {missing}, which is not installed" in error
    assert "pip install torch flow_matching" in error


def on_the_sphere(rng, count, k=6.0):
    """A law of von Mises and Fisher around the north pole, and its log-density."""
    z = 1 + np.log1p(rng.uniform(size=count) * np.expm1(-2 * k)) / k
    angle = rng.uniform(0, 2 * np.pi, count)
    across = np.sqrt(1 - z**2)
    points = np.stack([across * np.cos(angle), across * np.sin(angle), z], axis=1)
    return points, lambda x: k * (x[:, 2] - 1) - np.log(2 * np.pi * -np.expm1(-2 * k) / k)


def on_the_torus(rng, count, k=4.0):
    """Two angles of von Mises, the second around the first, and their log-density."""
    points = rng.vonmises(0, k, (count, 2))
    points[:, 1] += points[:, 0]
    constant = 2 * np.log(2 * np.pi * np.i0(k))
    return points, lambda x: k * (np.cos(x[:, 0]) + np.cos(x[:, 1] - x[:, 0])) - constant


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch about itself
@pytest.mark.parametrize("kind", ["sphere", "torus"])
def test_the_library_learns_a_density(kind, monkeypatch):
    pytest.importorskip("torch")
    pytest.importorskip("flow_matching")
    for name, value in (("WIDTH", 64), ("BATCH", 512), ("STEPS", 25)):
        monkeypatch.setattr(rival_library, name, value)
    rng, n = np.random.default_rng(0), 60
    angle = np.arange(n) * 2 * np.pi / n
    if kind == "sphere":
        (points, truth), manifold, family = on_the_sphere(rng, 4000), calor.Sphere(2), Directions(3)
        height, weights = np.polynomial.legendre.leggauss(n)
        z, angle = (each.ravel() for each in np.meshgrid(height, angle, indexing="ij"))
        across = np.sqrt(1 - z**2)
        grid = np.stack([across * np.cos(angle), across * np.sin(angle), z], axis=1)
        volume = np.repeat(weights, n) * 2 * np.pi / n
    else:
        (points, truth), manifold, family = on_the_torus(rng, 4000), calor.Torus(2), Angles(2)
        grid = np.stack(np.meshgrid(angle, angle), axis=-1).reshape(-1, 2)
        volume = np.full(n**2, (2 * np.pi / n) ** 2)
    train, held, test = Problem(manifold, points, family).split(0)
    model = rival_library.fit_library(train, held, 15, 0)
    assert 0 < model.kept <= model.steps
    assert np.sum(volume * np.exp(model.log_prob(grid))) == pytest.approx(1, abs=0.01)
    off = model.log_prob(test.points) - truth(test.points)
    assert np.mean(np.abs(off)) < 0.25
    again = model.log_prob(points[:50] + (2 * np.pi if kind == "torus" else 0))
    np.testing.assert_allclose(again, model.log_prob(points[:50]), atol=1e-6)


def test_everything_is_what_calor_fits(monkeypatch):
    asked = {}

    def fitted(plan, *args, **given):
        asked.update(given)
        return SimpleNamespace(
            models=("a", "b"), weights=(0.5, 0.5), names=("density", "flow"), about=plan
        )

    given = {"condition": None, "groups": None, "minutes": 0.1, "key": jr.key(0)}
    monkeypatch.setattr(
        methods, "fit", lambda *args, **more: fitted({"plan": {"steps": 3}}, **more)
    )
    whole = methods.fit_everything(calor.heat_kernel(calor.Sphere(2)), np.eye(3), **given)
    assert whole == (("a", "b"), (0.5, 0.5), ("density", "flow"), {"steps": 3})
    assert asked["minutes"] == 0.1
    # Of a law for early times there is one part.
    monkeypatch.setattr(methods, "fit", lambda *args, **more: fitted({}, **more))
    whole = methods.fit_everything(calor.heat_kernel(calor.Sphere(2)), np.eye(3), **given)
    assert whole.names == ("diffusion",)


def test_minutes_are_for_densities_alone(tmp_path, capsys):
    assert main(["reproduce", "earth", "--minutes", "1", "--out", str(tmp_path / "no")]) == 2
    assert "--minutes: earth has budgets of its own" in capsys.readouterr().err
    for wrong in ("0", "-1", "nan", "soon"):
        assert main(["reproduce", "densities", f"--minutes={wrong}"]) == 2
        assert "must be a number of minutes above 0" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif("CALOR_DATA" not in os.environ, reason="CALOR_DATA is not set")
@pytest.mark.parametrize("name", ["floods", "torsions cispro", "brain"])
def test_reproduce_quickly(name, tmp_path, capsys):
    arguments = ["reproduce", "densities", "--budget", "quick", "--only", name]
    assert main([*arguments, "--out", str(tmp_path)]) == 0
    assert "best rival" in capsys.readouterr().out
    results = json.loads((tmp_path / "densities.json").read_text())["results"]
    assert set(results[name]) == set(densities.USUAL)


@pytest.mark.skipif("CALOR_DATA" not in os.environ, reason="CALOR_DATA is not set")
def test_orientations_of_a_grain_are_alike_up_to_the_symmetry_of_the_crystal():
    points, grains = datasets.orientations()
    largest = np.bincount(grains).argmax()
    images = CRYSTALS.places(points[grains == largest])
    cosines = np.abs(images @ images[0, 0]).max(axis=1)
    assert np.degrees(2 * np.arccos(np.minimum(cosines.min(), 1))) < 5
    plain = np.abs(images[:, 0] @ images[0, 0])
    assert np.degrees(2 * np.arccos(plain.min())) > 50
