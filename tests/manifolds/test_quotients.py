"""Quotients and products against densities written independently (`quotients.py`)."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import calor
from fits import SHORT, SMALL
from quotients import (
    CASES,
    cube_turns,
    lens_matrices,
    negative,
    other_sign,
    same,
    sphere_grid,
)

CHUNK = 1024


@pytest.fixture(params=list(CASES))
def case(request):
    return CASES[request.param]


def evaluate(kernel, t, x, x0):
    """log p and scores at several points, in pieces of one size so that they compile once."""
    pieces = []
    for start in range(0, len(x), CHUNK):
        piece = np.asarray(x[start : start + CHUNK])
        filled = np.concatenate([piece, np.repeat(piece[:1], CHUNK - len(piece), axis=0)])
        found = _evaluate(kernel, jnp.asarray(t, x0.dtype), jnp.asarray(filled), x0)
        pieces.append([np.asarray(array)[: len(piece)] for array in found])
    return [np.concatenate(arrays) for arrays in zip(*pieces, strict=True)]


@eqx.filter_jit
def _evaluate(kernel, t, x, x0):
    return jax.vmap(lambda x: (kernel.log_prob_at(t, x, x0), kernel.score_at(t, x, x0)))(x)


@eqx.filter_jit
def draws(kernel, t, x0, keys):
    return jax.vmap(lambda key: kernel.draw(t, x0, key))(keys)


@functools.cache
def drawn(name, t, count=20_000):
    """A source and draws from it."""
    with jax.enable_x64(True):
        kernel = calor.heat_kernel(CASES[name].make(), "exact")
        x0 = kernel.manifold.random_point(jr.key(5))
        x = draws(kernel, jnp.asarray(t), x0, jr.split(jr.key(1), count))
        return np.asarray(x0), np.asarray(x)


@eqx.filter_jit
def around(manifold, x, steps):
    """A frame at each of the points, and the points that are steps away along it."""
    frames = jax.vmap(manifold.frame)(x)

    def along(x, e):
        return jax.vmap(lambda step: manifold.exp_at(x, step * e))(steps)

    return frames, jax.vmap(jax.vmap(along, (None, 0)))(x, frames)


@eqx.filter_jit
def inner(manifold, x, v, vectors):
    """The inner products of a vector at each point with several others there."""
    return jax.vmap(jax.vmap(manifold.inner_at, (None, None, 0)))(x, v, vectors)


@eqx.filter_jit
def move(manifold, g, x, v):
    """Points and vectors moved by a map, and how far the points are from where they were."""
    moved, carried = jax.vmap(lambda x, v: jax.jvp(g, (x,), (v,)))(x, v)
    return moved, carried, jax.vmap(manifold.dist_at)(x, moved)


@pytest.fixture
def scene(request, case, double):
    """A case, its kernel, a source and, by time, six draws and six points of a late time."""
    name = request.node.callspec.params["case"]
    kernel = calor.heat_kernel(case.make(), "exact")
    x0, far = map(jnp.asarray, drawn(name, case.times[-1]))
    points = {t: jnp.concatenate([drawn(name, t)[1][:6], far[6:12]]) for t in case.times}
    return case, kernel, x0, points


# First and second derivative from five equidistant values.
STEP = 2e-3
STEPS = STEP * np.arange(-2.0, 3.0)
FIRST = np.array([1, -8, 0, 8, -1]) / (12 * STEP)
SECOND = np.array([-1, 16, -30, 16, -1]) / (12 * STEP**2)


def test_density_and_score_are_the_truth(scene):
    case, kernel, x0, points = scene
    manifold = kernel.manifold
    for t, x in points.items():
        value, score = evaluate(kernel, t, x, x0)
        truth = case.density(t, x, x0)
        np.testing.assert_allclose(np.exp(value), truth, rtol=1e-7, atol=1e-10)
        frames, near = around(manifold, x, STEPS)
        slope = case.density(t, near.reshape(-1, *manifold.shape), x0).reshape(near.shape[:3])
        along = np.exp(value)[:, None] * inner(manifold, x, score, frames)
        np.testing.assert_allclose(along, slope @ FIRST, atol=1e-6 * float(np.max(truth)) / t)


def test_mass_is_one_in_its_own_volume(scene):
    case, kernel, x0, _ = scene
    for t in case.times:
        x, weights = case.grid(t, np.asarray(x0))
        mass = np.sum(weights * np.exp(evaluate(kernel, t, x, x0)[0])) / case.copies
        assert abs(mass - 1) < 1e-8, (t, mass - 1)


def test_solves_the_heat_equation(scene):
    """d log p / dt = Delta log p + |score|^2, the derivatives by finite differences."""
    case, kernel, x0, points = scene
    for t, x in points.items():
        x = x[:6]
        _, near = around(kernel.manifold, x, STEPS * np.sqrt(t))
        flat = near.reshape(-1, *kernel.manifold.shape)
        values = evaluate(kernel, t, flat, x0)[0].reshape(near.shape[:3])
        laplacian = np.sum(values @ SECOND, axis=1) / t
        later = np.stack([evaluate(kernel, t * (1 + step), x, x0)[0] for step in STEPS])
        score = evaluate(kernel, t, x, x0)[1]
        squared = inner(kernel.manifold, x, score, score[:, None])[:, 0]
        np.testing.assert_allclose(FIRST @ later / t, laplacian + squared, atol=1e-4 / t)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(name, marks=[] if name == "Klein bottle" else pytest.mark.slow)
        for name in CASES
    ],
    indirect=True,
)
def test_residual_of_the_heat_equation(scene):
    """The same with exact derivatives, which take long to compile."""
    case, kernel, x0, points = scene
    residual = jax.jit(lambda t, x: calor.log_heat_residual(kernel, t, x, x0))
    for t, x in points.items():
        for place in (x0, *x[:3]):
            assert abs(float(residual(jnp.asarray(t), place))) < 1e-5 / t


def test_group_moves_no_point(scene):
    """Neither x nor x0; the score is carried along by the differential of the group element."""
    case, kernel, x0, points = scene
    t, x = list(points.items())[1]
    value, score = evaluate(kernel, t, x, x0)
    for g in case.elements:
        moved, carried, distances = move(kernel.manifold, g, x, jnp.asarray(score))
        np.testing.assert_allclose(distances, 0, atol=1e-7)
        for place, origin, expected in ((moved, x0, carried), (x, g(x0), score)):
            value_moved, score_moved = evaluate(kernel, t, place, origin)
            np.testing.assert_allclose(value_moved, value, atol=1e-8)
            np.testing.assert_allclose(score_moved, expected, atol=1e-7)


def test_late_density_is_one_over_the_volume(scene):
    case, kernel, x0, points = scene
    manifold = kernel.manifold
    if np.isinf(case.volume):
        with pytest.raises(ValueError, match="not compact"):
            manifold.log_volume()
        return
    np.testing.assert_allclose(manifold.log_volume(), np.log(case.volume), rtol=1e-12)
    late = evaluate(kernel, 30.0, points[case.times[0]], x0)[0]
    np.testing.assert_allclose(late, -np.log(case.volume), atol=1e-11)


@pytest.mark.parametrize("name", list(CASES))
def test_draws_follow_the_law(name):
    """The mean of an eigenfunction over draws decays at its eigenvalue."""
    for t in CASES[name].times:
        x0, x = drawn(name, t)
        for function, eigenvalue in CASES[name].moments:
            values = function(x)
            expected = np.exp(-eigenvalue * t) * function(x0[None])[0]
            error = values.std() / np.sqrt(len(x))
            assert abs(values.mean() - expected) < 4 * error, (t, eigenvalue)


# What is special to each construction.


def test_quotient_of_a_quotient_averages_over_both_groups(double):
    """SO(3) hides the sign of a quaternion from a network by itself; another S^3 / +-1 does not."""
    covers = calor.SO3(), calor.Quotient(calor.Sphere(3), [same, negative])
    x = covers[0].random_point(jr.key(0))
    for cover, count in zip(covers, (24, 48), strict=True):
        lookalikes = eqx.filter_jit(calor.Quotient(cover, cube_turns()).lookalikes)
        images = np.asarray(lookalikes(x))
        assert images.shape == (count, 4)
        gaps = np.linalg.norm(images[:, None] - images, axis=-1) + 9 * np.eye(count)
        assert gaps.min() > 0.1
    np.testing.assert_allclose(np.sort(lookalikes(-x), axis=0), np.sort(images, axis=0), atol=1e-6)


def test_nested_quotients_are_accurate_next_to_ties():
    """Half way between two orientations of a cube the score is a difference of large numbers."""
    kernel = calor.heat_kernel(calor.Quotient(calor.SO3(), cube_turns()))
    so3, t = calor.SO3(), 1e-3
    axis = jnp.array([0.0, 0.0, 1.0])
    for gap in (0.0, 1e-4, 1e-3, 1e-2):
        x = so3.from_rotation_vector((np.pi / 4 - gap) * axis)
        # Two Gaussians on a geodesic, at distances (pi/4 -+ gap) / 2: the others do not matter.
        near, far = (np.pi / 4 - gap) / 2, (np.pi / 4 + gap) / 2
        share = 1 / (1 + np.exp((near**2 - far**2) / (4 * t)))
        expected = (far * (1 - share) - near * share) / (2 * t)
        along = so3.compose(x, jnp.array([0.0, 0.0, 0.0, 1.0]))
        found = float(kernel.score(t, x, so3.identity()) @ along)
        assert abs(found - expected) < 2e-3 * (1 + abs(expected)), gap


@pytest.mark.parametrize(
    ("group", "message"),
    [
        (
            lens_matrices()[:3],
            r"3 elements are not closed under composition \(element 2 after element 1 ",
        ),
        (lens_matrices()[[0, 1, 2, 3, 4, 2]], "elements 2 and 5 of the group are the same map"),
        ([np.eye(4), np.diag([1.0, 1, 1, 2])], r"element 1 .* took a point to 0\.\d+ away"),
        ([np.eye(4), np.full((4, 4), np.nan)], "element 1 .* took a point to nan away"),
        ([same, lambda x: x[:3]], r"element 1 .* to an array of shape \(3,\)"),
        (
            [same, lambda x: calor.Sphere(3).project(x * jnp.array([1.0, 1, 1, 2]))],
            r"element 1 of the group is no isometry: it changed a distance of \d\.\d+ by 0\.\d+",
        ),
        ([same, 3], "sequence of functions"),
    ],
)
def test_what_is_no_group_of_isometries_is_refused(group, message):
    with pytest.raises(ValueError, match=message):
        calor.Quotient(calor.Sphere(3), group)


# Models.


def mixture_part(kernel, seed, centre):
    return draws(kernel, jnp.asarray(0.05), centre, jr.split(jr.key(seed), 200))


@pytest.mark.slow
def test_model_on_a_quotient():
    """Fitted to a mixture of two heat kernels, representatives chosen at random."""
    plane = calor.Quotient(calor.Sphere(2), [same, negative])
    kernel = calor.heat_kernel(plane)
    centres = jnp.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    data = jnp.concatenate([mixture_part(kernel, seed, c) for seed, c in enumerate(centres)])
    signs = jr.rademacher(jr.key(2), (400, 1), data.dtype)
    model = calor.fit(
        kernel,
        signs * data,
        parts="diffusion",
        key=jr.key(0),
        network=SMALL,
        training=SHORT,
        progress=False,
    )
    x = model.sample(64, key=jr.key(1), steps=50)
    assert float(jnp.max(jax.vmap(plane.contains)(x))) < 1e-5
    grid, weights = sphere_grid(16)
    value, opposite = np.split(model.log_prob(np.concatenate([grid, -grid])), 2)
    np.testing.assert_allclose(opposite, value, atol=1e-2)  # the solver of the flow
    assert abs(np.sum(weights * np.exp(value)) / 2 - 1) < 0.01


@pytest.mark.slow
def test_model_on_a_product():
    """Rigid motions around two poses; both quaternions of a rotation are the same point."""
    poses = calor.Product(calor.SO3(), calor.Euclidean(3))
    kernel = calor.heat_kernel(poses)
    centres = jnp.array([[1.0, 0, 0, 0, 0, 0, 0], [0, 1.0, 0, 0, 1, 0, 1]])
    data = jnp.concatenate([mixture_part(kernel, seed, c) for seed, c in enumerate(centres)])
    model = calor.fit(
        kernel,
        data,
        parts="diffusion",
        key=jr.key(0),
        network=SMALL,
        training=SHORT,
        progress=False,
    )
    x = model.sample(64, key=jr.key(1), steps=50)
    assert x.shape == (64, 7)
    assert float(jnp.max(jax.vmap(poses.contains)(x))) < 1e-5
    places = jnp.concatenate([data[::10], jax.vmap(other_sign)(data[::10])])
    value, opposite = np.split(model.log_prob(places), 2)
    np.testing.assert_allclose(opposite, value, atol=1e-2)  # the solver of the flow
    assert np.all(np.isfinite(value))
