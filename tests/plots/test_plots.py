"""Figures: every function returns one, draws on given axes, and draws what is there."""

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure

import calor
from calor import plots
from calor.plots import _rotations, _sphere, _surfaces
from equations import torus

RANDOM = np.random.default_rng(0)


def unit(*shape):
    vectors = RANDOM.normal(size=shape)
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def positive(count, size):
    root = RANDOM.normal(size=(count, size, size))
    return root @ root.transpose(0, 2, 1) + np.eye(size)


def bump(x):
    return np.exp(-np.sum((x - x[:1]) ** 2, axis=-1))


TORUS = torus()
ON_TORUS = np.array([[3.0, 0, 0], [1, 0, 0], [0, 2, 1], [-3, 0, 0]])
HISTORY = SimpleNamespace(seconds=[1.0, 2.0], validations=[2.0, 1.0])
CERTIFICATE = SimpleNamespace(
    manifold="Sphere(2)",
    times=(0.1, 1.0),
    curves=lambda: {"largest": (1e-2, 1e-3), "mean": (1e-3, 1e-4)},
    bound=lambda t: 1e-2 * t,
    estimate=lambda t: 1e-3 * t,
)


@pytest.mark.parametrize(
    "draw",
    [
        lambda axes: plots.globe(unit(9, 3), axes=axes),
        lambda axes: plots.globe(density=bump, source=unit(3), pixels=30, axes=axes),
        lambda axes: plots.globe(unit(9, 3), log_density=bump, pixels=30, axes=axes),
        lambda axes: plots.world_map(unit(9, 3), axes=axes),
        lambda axes: plots.world_map(unit(9, 3), density=bump, axes=axes),
        lambda axes: plots.rotations(unit(9, 4), axes=axes),
        lambda axes: plots.angles(RANDOM.normal(size=(9, 2)), axes=axes),
        lambda axes: plots.angles(log_density=bump, source=np.zeros(2), pixels=20, axes=axes),
        lambda axes: plots.surface(TORUS, ON_TORUS, pixels=24, axes=axes),
        lambda axes: plots.surface(TORUS, density=bump, source=ON_TORUS[0], pixels=24, axes=axes),
        lambda axes: plots.ellipses(positive(5, 2), axes=axes),
        lambda axes: plots.ellipsoids(positive(3, 3), axes=axes),
        lambda axes: plots.spectra({"data": positive(9, 4), "samples": positive(5, 4)}, axes=axes),
        lambda axes: plots.certificate(CERTIFICATE, axes),
        lambda axes: plots.histories({"one": HISTORY}, "a title", axes),
        lambda axes: plots.histories(HISTORY, axes=axes),
        lambda axes: plots.color_bar(axes),
        lambda axes: plots.points(unit(9, 3), calor.Sphere(2), axes),
        lambda axes: plots.points(unit(9, 4), calor.SO3(), axes),
        lambda axes: plots.points(unit(9, 2), calor.Torus(2), axes),
        lambda axes: plots.points(positive(5, 2), calor.SPD(2), axes),
        lambda axes: plots.points(positive(5, 3), calor.SPD(3), axes),
        lambda axes: plots.points(positive(5, 4), calor.SPD(4), axes),
    ],
)
def test_draws_on_new_and_on_given_axes(draw, tmp_path):
    figure = draw(None)
    assert isinstance(figure, Figure)
    figure.savefig(tmp_path / "one.png", dpi=30)
    mine = Figure()
    axes = mine.subplots(1, 2)[1]
    assert draw(axes) is mine
    assert axes.collections or axes.patches or axes.images or axes.lines
    mine.savefig(tmp_path / "two.png", dpi=30)


def test_panels_side_by_side():
    groups = {"data": unit(9, 3), "samples": unit(9, 3)}
    assert len(plots.world(groups, bump).axes) == 4  # two maps, the density and its scale
    assert len(plots.rotation_density(bump, pixels=9).axes) == 3
    turns = {"data": unit(9, 4), "samples": unit(9, 4)}
    assert [axes.get_title() for axes in plots.rotations(turns).axes] == [
        "data (9)",
        "samples (9)",
    ]
    with pytest.raises(ValueError, match="2 panels are drawn, but axes has 1"):
        plots.rotations(turns, axes=Figure().subplots())


def test_maps_keep_areas_and_lead_back():
    points = unit(200, 3)
    back = _sphere._from_mollweide(*_sphere._mollweide(points))
    np.testing.assert_allclose(back, points, atol=1e-6)


def test_rotations_along_a_fibre_take_the_axis_to_the_place():
    places = np.concatenate([unit(20, 3), [[0, 0, 1.0], [0, 0, -1.0], [1.0, 0, 0]]])
    for number in range(3):
        fibres = _rotations._fibres(places, number)
        matrices = _rotations._matrices(fibres.reshape(-1, 4)).reshape(*fibres.shape[:2], 3, 3)
        found = matrices[..., number]
        np.testing.assert_allclose(found, np.broadcast_to(places[:, None], found.shape), atol=1e-9)


def test_the_eye_sees_points_of_the_surface_and_hides_those_behind():
    eye = _surfaces._Eye(TORUS, _surfaces.view_from(0.0, 0.0))  # along the x axis
    seen = eye.look(40)
    values = jnp.array([TORUS.constraint(x) for x in seen.places[seen.is_hit][::37]])
    assert float(jnp.max(jnp.abs(values))) < 1e-3
    assert len(eye.in_front(ON_TORUS[:1])) == 1
    assert len(eye.in_front(ON_TORUS[3:])) == 0


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: plots.points(np.zeros((1, 4)), calor.Sphere(3)), r"Sphere\(3\) cannot be drawn"),
        (lambda: plots.surface(calor.Sphere(2)), "a Submanifold of R"),
        (lambda: plots.globe(density=bump, log_density=bump), "not both"),
        (lambda: plots.ellipses(positive(4, 3)), r"must have shape \(m, 2, 2\), got \(4, 3, 3\)"),
        (lambda: plots.spectra({name: positive(4, 3) for name in "abcd"}), "at most three"),
    ],
)
def test_bad_requests(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()
