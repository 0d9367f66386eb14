"""Wrapped Gaussians: normalized, right for small times, and drawn from their own density."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import calor
from calor.models.wrapped import (
    can_wrap,
    coordinates,
    draw_wrapped,
    largest_variance,
    log_wrapped,
    whitening,
)
from quotients import sphere_grid

PLANE = calor.Quotient(calor.Sphere(2), [lambda x: x, lambda x: -x])
CUBE = calor.Quotient(calor.Torus(2), [lambda x: x, lambda x: x + jnp.array([jnp.pi, 0])])


def covariance(dim, largest, smallest, seed=0):
    """With given extreme variances, in random directions."""
    axes = np.linalg.qr(np.random.default_rng(seed).normal(size=(dim, dim)))[0]
    return (axes * np.geomspace(smallest, largest, dim)) @ axes.T


def grid(manifold):
    """Points, and weights of a quadrature, of a compact manifold."""
    name = str(manifold)
    if name == "Sphere(2)":
        return sphere_grid(200)
    if name.startswith("Quotient(Sphere"):
        x, weights = sphere_grid(200)
        return x, weights / 2
    side = 2 * np.pi * (np.arange(160) + 0.5) / 160
    if "Torus" in name:
        x = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
        share = 2 if name.startswith("Quotient") else 1
        return x, np.full(len(x), (side[1] - side[0]) ** 2 / share)
    # S^3 in Hopf coordinates, half of it
    psi, weights = np.polynomial.legendre.leggauss(40)
    eta = (psi + 1) * np.pi / 4
    turn = 2 * np.pi * np.arange(64) / 64
    e, a, b = (part.ravel() for part in np.meshgrid(eta, turn, turn, indexing="ij"))
    x = np.stack([np.sin(e) * np.cos(a), np.sin(e) * np.sin(a), np.cos(e) * np.cos(b)], axis=1)
    x = np.column_stack([x, np.cos(e) * np.sin(b)])
    area = np.pi / 4 * weights * np.sin(eta) * np.cos(eta) * (2 * np.pi / 64) ** 2 / 2
    return x, np.repeat(area, 64 * 64)


def values(manifold, x, x0, times, matrices):
    """Densities at points."""
    run = jax.jit(jax.vmap(lambda x: log_wrapped(manifold, x, x0, times, matrices)))
    return np.exp(np.asarray(run(jnp.asarray(x))))


@pytest.mark.parametrize(
    "manifold", [calor.Sphere(2), calor.Torus(2), calor.SO3(), PLANE, CUBE], ids=str
)
def test_the_widest_have_unit_mass(manifold):
    with jax.enable_x64(True):
        x, weights = grid(manifold)
        x0 = manifold.random_point(jr.key(3)).astype(float)
        largest, dim = largest_variance(manifold), manifold.dim
        matrices = [
            whitening(covariance(dim, most, least), 0.0, largest)
            for most, least in ((99.0, 99.0), (99.0, 0.02), (0.1, 0.02))
        ]
        times = jnp.asarray([largest / 2, 0.02])
        found = weights @ values(manifold, x, x0, times, jnp.asarray(np.stack(matrices)))
        np.testing.assert_allclose(found, 1, atol=1e-4)


def chart(manifold):
    """Points on a grid of normal coordinates at the origin, and weights by hand."""
    side = np.linspace(-4, 4, 48 if manifold.dim == 3 else 161)
    code = np.stack(np.meshgrid(*(side,) * manifold.dim), axis=-1).reshape(-1, manifold.dim)
    cell = (side[1] - side[0]) ** manifold.dim
    if str(manifold) == "Hyperbolic(2)":
        r = np.maximum(np.linalg.norm(code, axis=1), 1e-9)
        return code, cell * np.sinh(r) / r
    # Symmetric matrices [[a, b], [b, c]] as (a, sqrt(2) b, c): half the gap of their eigenvalues.
    half = np.sqrt((code[:, 0] - code[:, 2]) ** 2 / 4 + code[:, 1] ** 2 / 2)
    return code, cell * np.sinh(half) / np.maximum(half, 1e-9)


@pytest.mark.parametrize("manifold", [calor.Hyperbolic(2), calor.SPD(2)], ids=str)
def test_they_have_unit_mass_without_end(manifold):
    with jax.enable_x64(True):
        code, weights = chart(manifold)
        x = jax.jit(jax.vmap(manifold.decode))(jnp.asarray(code))
        x0 = manifold.decode(jnp.asarray([0.5, -0.3, 0.2][: manifold.dim]))
        matrices = np.stack([whitening(covariance(manifold.dim, 0.25, 0.08), 0.0, np.inf)])
        found = weights @ values(manifold, x, x0, jnp.asarray([0.12]), jnp.asarray(matrices))
        np.testing.assert_allclose(found, 1, atol=1e-4)


@pytest.mark.parametrize(
    "manifold",
    [
        calor.Sphere(2),
        calor.SO3(),
        calor.Hyperbolic(3),
        calor.Product(calor.Torus(2), calor.Euclidean(1)),
        pytest.param(calor.SPD(2), marks=pytest.mark.slow),
        pytest.param(PLANE, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_round_ones_are_heat_kernels_at_small_times(manifold):
    kernel, times = calor.heat_kernel(manifold), np.array([1e-4, 1e-3])
    with jax.enable_x64(True):
        x0 = manifold.random_point(jr.key(5)).astype(float)
        draw = jax.vmap(lambda key: kernel.draw(jnp.asarray(times[1]), x0, key))
        x = jax.jit(draw)(jr.split(jr.key(1), 50))
        round_ones = np.stack([whitening(2 * t * np.eye(manifold.dim), 0, 9) for t in times])
        run = lambda x: log_wrapped(manifold, x, x0, jnp.asarray(times), jnp.asarray(round_ones))
        found = np.asarray(jax.jit(jax.vmap(run))(x))
        exact = lambda x, t: kernel.log_prob_at(t, x, x0)
        expected = jax.vmap(jax.vmap(exact, (None, 0)), (0, None))(x, jnp.asarray(times))
        np.testing.assert_allclose(found[:, :2], found[:, 2:], atol=1e-8)
        np.testing.assert_allclose(found[:, 1], expected[:, 1], atol=0.02)
        near = np.asarray(expected[:, 0]) > np.max(expected[:, 0]) - 8
        np.testing.assert_allclose(found[near, 0], expected[near, 0], atol=0.004)


@pytest.mark.parametrize(
    "manifold", [calor.Sphere(2), calor.SO3(), calor.Hyperbolic(2), calor.SPD(2)], ids=str
)
def test_draws_have_the_covariance(manifold):
    x0 = manifold.random_point(jr.key(5))
    wanted = covariance(manifold.dim, 0.05, 0.002)
    matrix = jnp.asarray(whitening(wanted, 0.0, 1.0), x0.dtype)

    def draw(key):
        x = draw_wrapped(manifold, x0, matrix, key)
        return coordinates(manifold, x0, manifold.log_at(x0, x))

    u = np.asarray(jax.jit(jax.vmap(draw))(jr.split(jr.key(2), 20_000)))
    np.testing.assert_allclose(np.cov(u.T), wanted, atol=0.0015)
    np.testing.assert_allclose(u.mean(axis=0), 0, atol=0.006)


def test_there_is_no_pole_at_the_antipode():
    sphere, x0 = calor.Sphere(2), jnp.array([0.0, 0, 1])
    times = jnp.asarray([largest_variance(sphere) / 2])
    for x in (-x0, jnp.array([1e-4, 0, -1.0])):
        assert float(log_wrapped(sphere, x, x0, times, jnp.zeros((0, 2, 2)))[0]) < -5


def test_who_can():
    torus = calor.Submanifold(lambda x: (jnp.hypot(x[0], x[1]) - 2) ** 2 + x[2] ** 2 - 1, 3)
    assert not can_wrap(torus)
    assert not can_wrap(calor.PointCloud(3, 2))
    assert not can_wrap(calor.Product(calor.Sphere(2), torus))
    # Points may spread far along a line, and not on a sphere.
    assert not can_wrap(calor.Product(calor.Sphere(2), calor.Euclidean(1)))
    assert can_wrap(calor.Product(calor.Sphere(2), calor.Torus(1)))
    assert largest_variance(calor.Product(calor.Sphere(2), calor.Euclidean(1))) < 1
    assert largest_variance(calor.Euclidean(2)) == np.inf
    with pytest.raises(ValueError, match="does not know how its exponential map"):
        torus.log_and_distortion(jnp.zeros(3), jnp.zeros(3))
