"""Fitting as a user does it: files, resuming, the command line, and errors at the door."""

import json
import warnings

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import calor
from calor import cli
from calor.experiments import earth, rotations
from calor.manifolds.names import manifold_named
from calor.models.network import field_network
from calor.models.times import find_scales
from calor.training import loop as training
from calor.training import steps
from calor.training.fixed import trainable
from fits import SHORT, SMALL, fitted, points_of

SPHERE = calor.Sphere(2)


def fit(data, **options):
    kernel = calor.heat_kernel(SPHERE)
    options = {"network": SMALL, "training": SHORT, "progress": False, **options}
    return calor.fit(kernel, data, parts="diffusion", key=jr.key(0), **options)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hyperbolic:2"])  # its prior holds a kernel
def test_saved_models_are_the_same(name, tmp_path):
    model = fitted(name)
    model.save(tmp_path / "model.calor")
    again = calor.load(tmp_path / "model.calor")
    x = points_of(model.manifold, 4)
    assert jnp.array_equal(model.log_prob(x), again.log_prob(x))
    assert jnp.array_equal(model.sample(3, key=jr.key(0)), again.sample(3, key=jr.key(0)))
    assert again.about["manifold"] == str(model.manifold)


@pytest.mark.slow
@pytest.mark.parametrize(("where", "number"), [("_advance", 20), ("_validated", 2)])
def test_an_interrupted_fit_goes_on_to_the_same_result(where, number, tmp_path, monkeypatch):
    data, path = points_of(SPHERE, 200), tmp_path / "fit.partial"
    monkeypatch.setattr(steps, "_CALL", 0.0)  # a call for every step
    whole = fit(data)
    room = steps if where == "_advance" else training
    original, calls = getattr(room, where), []

    def counted(*inputs):
        calls.append(1)
        if len(calls) == number:
            raise KeyboardInterrupt
        return original(*inputs)

    monkeypatch.setattr(room, where, counted)
    with pytest.raises(KeyboardInterrupt):
        fit(data, resume=path)
    assert path.exists()
    monkeypatch.setattr(room, where, original)
    with pytest.raises(calor.FileError, match="belongs to another run"):
        fit(points_of(SPHERE, 201), resume=path)
    again = fit(data, resume=path)
    assert not path.exists()
    assert again.history.steps.tolist() == whole.history.steps.tolist() == [15, 30]
    x = data[:3]
    np.testing.assert_allclose(again.log_prob(x), whole.log_prob(x), atol=1e-5)


@pytest.mark.parametrize("name", ["sphere:2", pytest.param("hyperbolic:2", marks=pytest.mark.slow)])
def test_a_fit_to_other_data_of_the_same_shape_compiles_nothing(name):
    manifold = manifold_named(name)
    kernel, compiled = calor.heat_kernel(manifold), []

    def heard(event, seconds, **_):
        if event.endswith("backend_compile_duration"):
            compiled.append(seconds)

    def run(data):
        calor.fit(
            kernel,
            data,
            parts="diffusion",
            key=jr.key(1),
            network=SMALL,
            training=SHORT,
            progress=False,
        )

    # As far spread, which decides at how many times weights of noise and flow are sought.
    first = points_of(manifold, 60)
    second = first[np.random.default_rng(0).permutation(60)]
    run(first)
    jax.monitoring.register_event_duration_secs_listener(heard)
    try:
        run(second)
    finally:
        jax.monitoring.unregister_event_duration_listener(heard)
    assert not compiled


def test_training_is_judged_by_the_likelihood_of_held_out_points():
    data = points_of(SPHERE, 120)
    model = fit(data[:80], validation=data[80:])
    judged = -float(jnp.min(model.history.validations))
    # Fewer stops, and the flow in few steps.
    assert abs(judged - float(jnp.mean(model.log_prob(data[80:])))) < 0.05


def test_only_the_network_is_trained():
    group = np.stack([np.eye(3), np.diag([-1.0, -1, 1])])
    quotient = calor.Quotient(SPHERE, group)
    places = jr.normal(jr.key(0), (9, 3))
    network = field_network(SMALL, places, (0.1, 1.0), (1e-3, 1.0), 0, 3, key=jr.key(2))
    trained, rest = trainable(calor.TangentScore(quotient, network), lambda s: s.network)
    assert not jax.tree.leaves(trained.manifold)
    assert trained.network.frequencies.value is None
    assert len(jax.tree.leaves(trained)) == 2 * (SMALL.depth + 1)
    assert jax.tree.leaves(rest.manifold)


def test_scales_follow_the_data_in_many_dimensions():
    for manifold in (calor.Euclidean(50), calor.Sphere(30), calor.Torus(10)):
        points = jax.vmap(manifold.random_point)(jr.split(jr.key(0), 300))
        scales = find_scales(calor.heat_kernel(manifold, "short-time"), points)
        assert scales.t_min <= scales.t1 / 100
        assert (
            2 * manifold.dim * scales.t_min < 2 * manifold.dim
        )  # noise below the size of the data
    small = 1e-4 * jr.normal(jr.key(1), (300, 2))
    assert find_scales(calor.heat_kernel(calor.Euclidean(2)), small).t_min < 1e-9


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.zeros((5, 2)), r"data must have shape \(n, 3\) for Sphere\(2\), got \(5, 2\)"),
        (np.ones((5, 3)), r"data\[0\] is not on Sphere\(2\)"),
        (np.full((5, 3), np.nan), "NaN or infinite entries in 5 rows, the first is row 0"),
        (np.zeros((0, 3)), "at least 2 rows, got 0"),
        (np.array([["a", "b", "c"]] * 5), "must be an array of real numbers"),
    ],
)
def test_bad_data_are_refused_at_the_door(data, message):
    with pytest.raises((ValueError, TypeError), match=message):
        fit(data)


def test_bad_arguments_are_refused():
    data = points_of(SPHERE, 20)
    with pytest.raises(TypeError, match="kernel must come from"):
        calor.fit(SPHERE, data, parts="diffusion", key=jr.key(0))
    with pytest.raises(ValueError, match="validation must be a fraction"):
        fit(data, validation=1.5)
    with pytest.raises(ValueError, match="0 < t_min < t1"):
        fit(data, t_min=5.0)
    with pytest.raises(ValueError, match="got 3 conditions for 20 points"):
        fit(data, condition=[1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="steps must be at least 1, got 0"):
        calor.Training(steps=0)
    with pytest.raises(ValueError, match="learning_rate must be positive"):
        calor.Training(learning_rate=-1.0)


@pytest.mark.slow
def test_a_last_time_that_is_too_early_warns():
    with pytest.warns(calor.PriorWarning, match="raise t1"):
        fit(points_of(SPHERE, 50), t1=0.2)


def test_frechet_mean_is_the_point_of_no_pull(double):
    for manifold in (SPHERE, calor.SPD(3), calor.Hyperbolic(2)):
        points = jnp.asarray(points_of(manifold, 40))
        mean = calor.frechet_mean(manifold, points)
        pull = jnp.mean(jax.vmap(lambda y: manifold.log(mean, y))(points), axis=0)
        assert float(manifold.norm(mean, pull)) < 1e-8


def test_frechet_mean_of_points_far_out_in_negative_curvature(double):
    plane = calor.Hyperbolic(2)
    angle = jnp.linspace(0, 2.5, 9)
    radius = jnp.linspace(2, 6, 9)
    flat = radius[:, None] * jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1)
    points = jax.vmap(plane.decode)(flat)
    mean = calor.frechet_mean(plane, points)
    pull = jnp.mean(jax.vmap(lambda y: plane.log(mean, y))(points), axis=0)
    assert float(plane.norm(mean, pull)) < 1e-8


# The command line.

FIT = ["--steps", "20", "--batch", "64", "--width", "16"]


def test_fit_sample_and_score(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place = np.random.default_rng(0).normal([30, 40], 5, size=(80, 2))
    np.savetxt("data.csv", place, delimiter=",", header="lat,lon", comments="")
    arguments = ["fit", "--manifold", "sphere:2", "data.csv", "--out", "model.calor", *FIT]
    assert cli.main(arguments) == 0
    said = capsys.readouterr().out
    assert "weighed together" in said
    assert "\n80 points\n" in said
    assert "{" not in said
    assert cli.main("sample model.calor -n 20 --out new.csv --plot new.png --steps 20".split()) == 0
    lines = (tmp_path / "new.csv").read_text().splitlines()
    assert lines[0] == "lat,lon"
    assert len(lines) == 21
    assert (tmp_path / "new.png").read_bytes().startswith(b"\x89PNG")
    assert cli.main("score model.calor new.csv --json --out values.csv".split()) == 0
    report = json.loads(capsys.readouterr().out.partition("{")[2].join(["{", ""]))
    assert report["points"] == 20
    assert np.isfinite(report["log_prob"])
    assert len((tmp_path / "values.csv").read_text().splitlines()) == 21
    assert cli.main(["check", "model.calor"]) == 2
    assert "holds a model, not a kernel" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("fit --manifold sphere:2 none.csv --out m.calor", "there is no file none.csv"),
        ("fit --manifold sphere:2 bad.csv --out m.calor", "bad.csv, line 2: a latitude of 95"),
        ("fit --manifold sphere:2 few.csv --out m.calor", "few.csv has 2 points; at least 10"),
        ("fit --manifold ball:2 few.csv --out m.calor", "unknown manifold 'ball:2'"),
        ("fit --manifold sphere:2 few.csv --out no/m.calor", "does not exist; make it first"),
        ("fit --manifold so3 three.csv --out m.calor", "name their axes, as in --euler ZXZ"),
        ("fit --manifold sphere:2 few.csv --out m.calor --resume", "there is no unfinished run"),
        ("sample few.csv --out new.csv", "few.csv is damaged, truncated, or no file of calor"),
        ("sample none.calor --out new.csv", "there is no file none.calor"),
        ("score none.calor few.csv", "there is no file none.calor"),
        ("reproduce moon", "invalid choice: 'moon'"),
        ("reproduce earth --only moon", "known data sets are floods"),
    ],
)
def test_bad_input_gets_one_line(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.csv").write_text("10,20\n95,20\n")
    (tmp_path / "few.csv").write_text("10,20\n15,20\n")
    (tmp_path / "three.csv").write_text("10,20,30\n")
    assert cli.main(arguments.split()) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


# Experiments.


@pytest.fixture
def made_up_earth(tmp_path, monkeypatch):
    """Files like those of the benchmark, small."""
    folder = tmp_path / "data" / "earth"
    folder.mkdir(parents=True)
    place = np.random.default_rng(0).normal([10, 20], 4, size=(120, 2))
    lines = "".join(f"{lat:.4f},{lon:.4f}\n" for lat, lon in place)
    (folder / "flood.csv").write_text(f"# source\nlat,long\n{lines}")
    monkeypatch.setenv("CALOR_DATA", str(tmp_path / "data"))


@pytest.mark.slow
def test_earth_runs_at_the_quick_budget(made_up_earth, tmp_path, capsys):
    out = tmp_path / "results"
    command = ["reproduce", "earth", "--only", "floods", "--budget", "quick", "--out", str(out)]
    assert cli.main(command) == 0
    printed = capsys.readouterr().out
    for row in (*earth.PUBLISHED, *earth.METHODS):
        assert f"| {row}" in printed
    assert (out / "earth.json").is_file()
    assert (out / "earth-floods.png").is_file()
    before = (out / "earth.json").read_bytes()
    assert cli.main(command) == 0  # nothing is computed again
    assert (out / "earth.json").read_bytes() == before


@pytest.mark.slow
def test_rotations_run_at_the_quick_budget(tmp_path, capsys):
    command = ["reproduce", "so3", "--only", "16", "--budget", "quick", "--out", str(tmp_path)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", calor.PriorWarning)
        assert cli.main(command) == 0
    printed = capsys.readouterr().out
    for row in rotations.METHODS:
        assert f"| {row}" in printed


def test_missing_data_say_what_to_set(monkeypatch, capsys, tmp_path):
    monkeypatch.delenv("CALOR_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["reproduce", "earth"]) == 2
    assert "CALOR_DATA is not set" in capsys.readouterr().err


def test_the_mixture_of_rotations_has_the_density_it_says():
    mixture = calor.datasets.RotationMixture(4, seed=0)
    x = mixture.sample(2000, key=jr.key(0))
    # Components do not overlap: the entropy is that of a normal and of the choice among four.
    entropies = 1.5 * np.log(2 * np.pi * np.e * np.square(mixture.scales))
    expected = -np.mean(entropies) - np.log(4)
    assert abs(float(jnp.mean(mixture.log_prob(x))) - expected) < 0.15
