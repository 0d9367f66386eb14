"""Heat kernels of manifolds that are given by their equations alone, against the truth."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import calor
from calor.experiments.surface_oracles import Ellipsoid, TorusOfRevolution
from calor.heat.early.geodesics import GeodesicLaw
from calor.solvers import cache
from calor.solvers import choose as kernels
from calor.solvers.spectral.galerkin import solve_spectral
from calor.solvers.spectral.polynomials import orthonormal_polynomials
from equations import AXES, affine_invariant, ellipsoid, relative, sphere, torus


def draws(kernel, t, count=200):
    """Sources, and draws from them with log p and score of the kernel."""
    manifold = kernel.manifold
    x0 = jax.jit(jax.vmap(manifold.draw_point))(jr.split(jr.key(3), count))

    def one(x0, key):
        x, score = kernel.draw_with_score(jnp.asarray(t, x0.dtype), x0, key)
        return x, score

    x, score = jax.jit(jax.vmap(one))(x0, jr.split(jr.key(4), count))
    return x0, x, score


def stereographic(x):
    """The metric of the unit sphere S^3 in stereographic coordinates."""
    return 4 / (1 + x @ x) ** 2 * jnp.eye(3)


def test_scalar_curvature():
    plane = calor.Submanifold(None, 2, lambda x: jnp.eye(2) / x[1] ** 2)
    for manifold, point, wanted in (
        (sphere(3), [0.0, 0, 0, 1], 6),
        (torus(), [3.0, 0, 0], 2 / 3),
        (torus(), [1.0, 0, 0], -2),
        (plane, [0.3, 0.7], -2),
        (calor.Submanifold(None, 3, stereographic), [0.3, 0.7, -0.2], 6),
        (calor.Submanifold(None, 3, affine_invariant), [1.3, 0.2, 0.7], -1),
        # The sphere of radius sin(theta) = 4/5 around a pole of S^3, theta = 2 arctan(1/2).
        (
            calor.Submanifold(lambda x: x @ x - 0.25, 3, stereographic),
            [0.5, 0, 0],
            2 * (5 / 4) ** 2,
        ),
    ):
        found = jax.jit(manifold.scalar_curvature)(jnp.asarray(point))
        np.testing.assert_allclose(found, wanted, rtol=1e-4)


def test_law_along_geodesics_is_the_kernel_of_the_sphere_for_small_times(double):
    law, exact = GeodesicLaw(sphere()), calor.heat_kernel(calor.Sphere(2))
    x0, x, score = draws(law, 0.05, 60)
    truth = jax.vmap(lambda x, x0: exact.score_at(0.05, x, x0))(x, x0)
    assert relative(score, truth) < 1e-3  # without the distortion 1e-2
    value = jax.jit(jax.vmap(lambda x, x0: law.log_prob_at(0.05, x, x0)))(x, x0)
    wanted = jax.vmap(lambda x, x0: exact.log_prob_at(0.05, x, x0))(x, x0)
    # The next order is t^2 / 90; without the curvature the error is t / 3.
    assert float(jnp.mean(jnp.abs(value - wanted))) < 2e-4


@pytest.mark.slow
def test_law_along_geodesics_is_the_kernel_of_a_torus_for_small_times(double):
    law = GeodesicLaw(torus())
    x0, x, score = draws(law, 0.1)
    _, truth = TorusOfRevolution(waves=70).log_prob_and_score(0.1, x, x0)
    assert relative(np.asarray(score), truth) < 2e-3


def test_walks_are_shortened_for_the_curvature():
    manifold, t = sphere(), 1.0
    north = jnp.array([0.0, 0.0, 1.0])
    walk = jax.jit(jax.vmap(lambda key: manifold.walk(t, north, key, steps=2)))
    mean = float(jnp.mean(walk(jr.split(jr.key(0), 8000))[:, 2]))
    assert abs(mean - np.exp(-2 * t)) < 0.03  # Gaussian steps as they are miss by 0.06


def test_polynomials_on_a_sphere_are_its_harmonics(double):
    points = np.asarray(jr.normal(jr.key(0), (2000, 3)))
    points = points / np.linalg.norm(points, axis=1, keepdims=True)
    weights = np.full(2000, 1 / 2000)
    found = orthonormal_polynomials(points, weights, 6, 1000)
    assert found.sizes() == [(k + 1) ** 2 for k in range(7)]
    values = np.asarray(jax.vmap(found)(jnp.asarray(points)))
    np.testing.assert_allclose(values.T @ values / 2000, np.eye(49), atol=1e-10)


def test_spectrum_of_the_sphere_from_its_equation(solved_sphere):
    wanted = np.repeat([0, 2, 6, 12, 20], [1, 3, 5, 7, 9])
    np.testing.assert_allclose(solved_sphere.eigenvalues[:25], wanted, atol=1e-4)
    np.testing.assert_allclose(solved_sphere.log_volume, np.log(4 * np.pi), atol=2e-3)


def test_spectral_kernel_of_the_sphere(solved_sphere):
    exact = calor.heat_kernel(calor.Sphere(2))
    for t in (0.6, 2.0):
        x0, x, score = draws(solved_sphere, t)
        truth = jax.vmap(lambda x, x0, t=t: exact.score(t, x, x0))(x, x0)
        assert relative(score, truth) < 0.01
        value = jax.vmap(lambda x, x0, t=t: solved_sphere.log_prob(t, x, x0))(x, x0)
        wanted = jax.vmap(lambda x, x0, t=t: exact.log_prob(t, x, x0))(x, x0)
        assert float(jnp.mean(jnp.abs(value - wanted))) < 3e-3
    estimate = solved_sphere.certificate.estimate(2.0)
    assert 1e-5 < estimate < 0.05


@pytest.mark.slow
def test_spectral_kernel_of_an_ellipsoid():
    kernel = solve_spectral(ellipsoid(), key=jr.key(0), functions=400)
    truth = Ellipsoid(AXES, degree=14)
    assert abs(float(kernel.log_volume) - np.log(truth.volume)) < 2e-3
    for t in (0.3, 1.0, 2.0):
        x0, x, score = draws(kernel, t)
        value = jax.vmap(lambda x, x0, t=t: kernel.log_prob(t, x, x0))(x, x0)
        wanted, slope = truth.log_prob_and_score(t, x, x0)
        assert np.mean(np.abs(value - wanted)) < 2e-3
        assert relative(np.asarray(score), slope) < 0.01


@pytest.mark.slow
def test_a_model_on_an_ellipsoid():
    kernel = solve_spectral(ellipsoid(), key=jr.key(0), functions=250)
    centre = kernel.manifold.project(jnp.array([0.5, 0.5, 0.8]))
    keys = jr.split(jr.key(1), 2000)
    data = jax.jit(jax.vmap(lambda key: kernel.manifold.walk(0.05, centre, key)))(keys)
    model = calor.fit(
        kernel,
        data,
        parts="diffusion",
        key=jr.key(2),
        network=calor.Network(width=64, depth=3, frequencies=32),
        training=calor.Training(steps=300, batch=256, validate_every=100),
        progress=False,
    )
    new = model.sample(200, key=jr.key(3))
    assert float(jnp.max(jax.vmap(kernel.manifold.contains)(new))) < 1e-4
    wanted = jax.vmap(lambda x: kernel.law.log_prob(0.05, x, centre))(data[:200])
    gap = float(jnp.mean(model.log_prob(data[:200]) - wanted))
    assert abs(gap) < 0.15


def test_solved_kernels_are_kept_by_content(solved_sphere, tmp_path, monkeypatch):
    calls = []

    def solve(manifold, *, key):
        calls.append(manifold)
        return solved_sphere

    monkeypatch.setattr(kernels, "solve_spectral", solve)
    key, x = jr.key(0), jnp.array([0.6, 0.0, 0.8])
    solved = lambda manifold, key: calor.heat_kernel(manifold, "spectral", key=key, cache=tmp_path)
    first, again = solved(sphere(), key), solved(sphere(), key)
    assert len(calls) == 1
    assert again.log_prob(1.0, x, x) == first.log_prob(1.0, x, x)
    assert str(again.certificate) == str(first.certificate)
    # Another surface, another seed, a damaged file: each is solved.
    solved(ellipsoid(), key)
    solved(sphere(), jr.key(1))
    name = cache.fingerprint(sphere(), key, {"method": "spectral"})
    (tmp_path / f"{name}.calor").write_bytes(b"no kernel")
    solved(sphere(), key)
    assert len(calls) == 4


def test_equations_that_differ_in_a_constant_inside_jit_are_told_apart():
    def compiled(axes):
        return calor.Submanifold(jax.jit(lambda x: jnp.sum((x / axes) ** 2) - 1), 3)

    first, second = (compiled(jnp.array([1.0, 1.0, last])) for last in (1.2, 1.3))
    names = [cache.fingerprint(m, jr.key(0), {}) for m in (first, second, first)]
    assert names[0] == names[2] != names[1]


def test_the_law_is_finite_for_far_points():
    law, north = GeodesicLaw(sphere()), jnp.array([0.0, 0.0, 1.0])
    assert np.isfinite(law.log_prob(0.1, -north, north))


def test_what_cannot_be_solved_is_said_at_once():
    with pytest.raises(ValueError, match="for dimensions up to 3"):
        solve_spectral(sphere(4), key=jr.key(0))
    plane = calor.Submanifold(None, 2, lambda x: jnp.eye(2) / x[1] ** 2)
    with pytest.raises(ValueError, match="not known to be compact"):
        solve_spectral(plane, key=jr.key(0))
    with pytest.raises(ValueError, match="say where its kernel is needed"):
        calor.heat_kernel(plane, key=jr.key(0))
    with pytest.raises(ValueError, match="has no method 'spectral'; it has 'short-time'"):
        calor.heat_kernel(plane, "spectral", key=jr.key(0))


def test_points_to_look_around_and_components():
    around = jr.normal(jr.key(0), (50, 2)) * 0.1 + jnp.array([0.0, 1.0])
    plane = calor.Submanifold(None, 2, lambda x: jnp.eye(2) / x[1] ** 2, around=around)
    points = jax.vmap(plane.random_point)(jr.split(jr.key(1), 200))
    assert float(jnp.max(jnp.abs(points - jnp.array([0.0, 1.0])))) < 1.0
    with pytest.raises(ValueError, match="only a compact manifold has a volume"):
        plane.log_volume()
    orthogonal = lambda x: (x.reshape(2, 2).T @ x.reshape(2, 2) - jnp.eye(2))[jnp.triu_indices(2)]
    turns = calor.Submanifold(orthogonal, 4, component=jnp.array([0.0, 1.0, 1.0, 0.0]))
    points = jax.vmap(turns.random_point)(jr.split(jr.key(2), 50))
    np.testing.assert_allclose(jnp.linalg.det(points.reshape(-1, 2, 2)), -1.0, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"around": jnp.ones((5, 2))}, r"an array of shape \(n, 3\), got one of shape \(5, 2\)"),
        ({"around": jnp.full((5, 3), jnp.nan)}, "NaN or infinite entries"),
        ({"around": jnp.ones((5, 3))}, "away from the zeros of the constraint"),
        ({"around": jnp.tile(jnp.array([0.0, 0.0, 1.0]), (5, 1))}, "coincide"),
        ({"component": jnp.ones(3)}, "component is not on"),
        ({"symmetries": lambda key: lambda x: 2 * x}, "must draw isometries"),
        ({"symmetries": lambda key: 3}, "takes a random key and returns a function"),
    ],
)
def test_bad_descriptions_are_explained(options, message):
    with pytest.raises(ValueError, match=message):
        calor.Submanifold(lambda x: x @ x - 1, 3, **options)
