"""Draws from the exact kernels: moments of eigenfunctions and the law of the distance."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.integrate import cumulative_simpson
from scipy.stats import kstest

import calor

COUNT = 200_000
TIMES = (1e-3, 0.03, 0.3, 1.0, 4.0, 20.0)


def draw(kernel, t, x0, seed=0):
    keys = jr.split(jr.key(seed), COUNT)
    return jax.vmap(lambda key: kernel.sample(t, x0, key=key))(keys)


def assert_mean(values, expected, where=""):
    """The mean is the expected one, within four standard errors."""
    values = np.asarray(values, dtype=np.float64)
    error = values.std() / np.sqrt(len(values)) + 1e-7
    assert abs(values.mean() - expected) < 4 * error, (where, values.mean(), expected, error)


@pytest.mark.parametrize("n", [1, 2, 3, 6])
@pytest.mark.parametrize("t", TIMES)
def test_sphere_moments(n, t):
    """E f(x) = exp(-lambda t) f(x0) for the harmonics of degree 1 and 2 in x . x0."""
    sphere = calor.Sphere(n)
    x0 = sphere.random_point(jr.key(1))
    x = draw(calor.heat_kernel(sphere), t, x0)
    assert float(jnp.max(jax.vmap(sphere.contains)(x))) < 1e-5
    cosine = np.asarray(x @ x0, dtype=np.float64)
    assert_mean(cosine, np.exp(-n * t), "degree 1")
    second = ((n + 1) * cosine**2 - 1) / n
    assert_mean(second, np.exp(-2 * (n + 1) * t), "degree 2")
    # Isotropic about x0: the part across x0 has no preferred direction.
    across = x - cosine[:, None] * x0
    for axis in range(n + 1):
        assert_mean(across[:, axis], 0.0, f"axis {axis}")


@pytest.mark.parametrize("t", TIMES)
def test_rotation_moments(t):
    """Characters of SO(3) decay like exp(-4 l (l + 1) t) in the metric of quaternions."""
    so3 = calor.SO3()
    x0 = so3.random_point(jr.key(1))
    x = draw(calor.heat_kernel(so3), t, x0)
    cosine = np.asarray(x @ x0, dtype=np.float64)
    angle = 2 * np.arccos(np.clip(np.abs(cosine), 0, 1))
    for degree in (1, 2):
        character = 1 + 2 * sum(np.cos(k * angle) for k in range(1, degree + 1))
        expected = (2 * degree + 1) * np.exp(-4 * degree * (degree + 1) * t)
        assert_mean(character, expected, degree)


@pytest.mark.parametrize("t", TIMES)
def test_torus_moments(t):
    x0 = jnp.array([0.4, -2.9])
    x = draw(calor.heat_kernel(calor.Torus(2)), t, x0)
    assert float(jnp.max(jnp.abs(x))) <= np.pi + 1e-6
    d = np.asarray(x - x0, dtype=np.float64)
    assert_mean(np.cos(d[:, 0]), np.exp(-t))
    assert_mean(np.sin(d[:, 1]), 0.0)
    assert_mean(np.cos(2 * d[:, 1]), np.exp(-4 * t))
    assert_mean(np.cos(d[:, 0] + d[:, 1]), np.exp(-2 * t))


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("t", [1e-3, 0.03, 0.3, 1.0])
def test_hyperbolic_moments(n, t):
    """-<x, x0> = cosh r is an eigenfunction with eigenvalue n; its variance grows fast."""
    space = calor.Hyperbolic(n)
    x0 = space.random_point(jr.key(1))
    x = draw(calor.heat_kernel(space), t, x0)
    r = np.asarray(jax.vmap(space.dist, (0, None))(x, x0), dtype=np.float64)
    assert_mean(np.cosh(r), np.exp(n * t))


@pytest.mark.parametrize("t", [1e-3, 0.1, 1.0])
def test_spd2_moments(t):
    """log det x_t is Gaussian of variance 2 n t; E tr x_t = n exp((n + 1) t / 2) from x0 = I."""
    x0 = jnp.array([[2.0, 0.5], [0.5, 1.0]])
    kernel = calor.heat_kernel(calor.SPD(2))
    x = np.asarray(draw(kernel, t, x0), dtype=np.float64)
    log_det = np.log(np.linalg.det(x)) - np.log(np.linalg.det(x0))
    assert kstest(log_det / np.sqrt(4 * t), "norm").pvalue > 1e-4
    relative = np.trace(np.linalg.solve(np.asarray(x0, np.float64), x), axis1=1, axis2=2)
    inverse = np.trace(np.linalg.solve(x, np.asarray(x0, np.float64)), axis1=1, axis2=2)
    assert_mean(relative, 2 * np.exp(1.5 * t))
    assert_mean(inverse, 2 * np.exp(1.5 * t))
    assert np.all(np.linalg.eigvalsh(x) > 0)


def test_spd2_log_determinant_later(double):
    """At t = 4 condition numbers reach 1e12: beyond float32, still inside float64."""
    kernel = calor.heat_kernel(calor.SPD(2))
    x = np.asarray(draw(kernel, 4.0, jnp.eye(2)))
    assert kstest(np.log(np.linalg.det(x)) / 4, "norm").pvalue > 1e-4


RADIAL = {
    "S^2": (calor.Sphere(2), lambda r: np.sin(r), np.pi),
    "S^5": (calor.Sphere(5), lambda r: np.sin(r) ** 4, np.pi),
    "SO(3)": (calor.SO3(), lambda r: np.sin(r) ** 2, np.pi / 2),
    "H^2": (calor.Hyperbolic(2), lambda r: np.sinh(r), np.inf),
    "H^3": (calor.Hyperbolic(3), lambda r: np.sinh(r) ** 2, np.inf),
}


@pytest.mark.parametrize("space", list(RADIAL))
@pytest.mark.parametrize("t", TIMES)
def test_law_of_the_distance(space, t):
    """Kolmogorov-Smirnov against the integral of the kernel itself."""
    manifold, weight, radius = RADIAL[space]
    kernel = calor.heat_kernel(manifold)
    origin = jnp.zeros(manifold.shape).at[0].set(1.0)
    x = draw(kernel, t, origin, seed=3)
    r = np.asarray(jax.vmap(manifold.dist, (0, None))(x, origin), dtype=np.float64)
    # Float32 coordinates of the hyperboloid end at a distance of 88.
    reach = min(radius, (manifold.dim - 1) * t + 14 * np.sqrt(t), 85.0)
    grid = np.linspace(0, reach, 4001)
    direction = jnp.zeros(manifold.shape).at[1].set(1.0)
    hyperbolic = isinstance(manifold, calor.Hyperbolic)
    cosine, sine = (np.cosh, np.sinh) if hyperbolic else (np.cos, np.sin)
    along = cosine(grid)[:, None] * origin + sine(grid)[:, None] * direction
    log_p = jax.vmap(kernel.log_prob, (None, 0, None))(t, jnp.asarray(along, jnp.float32), origin)
    density = np.exp(np.asarray(log_p, dtype=np.float64)) * weight(grid)
    law = cumulative_simpson(density, x=grid, initial=0)
    law /= law[-1]
    assert kstest(r, lambda q: np.interp(q, grid, law)).pvalue > 1e-4


def test_draws_below_the_smallest_tabulated_time():
    for manifold in (calor.Sphere(2), calor.Hyperbolic(2)):
        kernel = calor.heat_kernel(manifold)
        x0 = manifold.random_point(jr.key(1))
        x = draw(kernel, 1e-5, x0)
        r = jax.vmap(manifold.dist, (0, None))(x, x0)
        assert_mean(r**2 / 4e-5, 1.0)


def test_same_key_same_draw():
    kernel = calor.heat_kernel(calor.SO3())
    x0 = calor.SO3().identity()
    first, again = (kernel.sample(0.3, x0, key=jr.key(5)) for _ in range(2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, kernel.sample(0.3, x0, key=jr.key(6)))
