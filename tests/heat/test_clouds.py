"""Clouds modulo permutations: permanents by brute force, the kernel and its equation."""

import itertools
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import calor
from calor import matchings, recipes
from calor.heat.clouds import permanents
from calor.heat.clouds.kernel import CloudKernel

SIZES = (1, 3, 5)
# Compiled whole: one small compilation for each operation would take longer.
exact, exact_posterior = jax.jit(permanents.exact), jax.jit(permanents.exact_posterior)
exact_slope = jax.jit(jax.grad(permanents.exact))
sinkhorn = jax.jit(
    lambda m: (permanents.sinkhorn(m), jax.grad(lambda m: permanents.sinkhorn(m)[0])(m))
)
bethe = jax.jit(
    lambda m: (permanents.bethe(m, 400), jax.grad(lambda m: permanents.bethe(m, 400)[0])(m))
)


def all_permutations(logits):
    """log perm and P by listing the permutations."""
    n = len(logits)
    orders = list(itertools.permutations(range(n)))
    values = np.array([sum(logits[i, s[i]] for i in range(n)) for s in orders])
    total = np.logaddexp.reduce(values)
    posterior = np.zeros((n, n))
    for order, value in zip(orders, values, strict=True):
        posterior[range(n), order] += np.exp(value - total)
    return total, posterior


def logits(n, spread=3.0, seed=0):
    return np.random.default_rng(seed).normal(size=(n, n)) * spread


@pytest.mark.parametrize("n", SIZES)
def test_exact_permanents_are_sums_over_permutations(double, n):
    matrix = jnp.asarray(logits(n))
    value, posterior = all_permutations(np.asarray(matrix))
    np.testing.assert_allclose(exact(matrix), value, rtol=1e-12)
    np.testing.assert_allclose(exact_posterior(matrix), posterior, atol=1e-12)
    np.testing.assert_allclose(exact_slope(matrix), posterior, atol=1e-12)


def test_exact_permanents_have_two_derivatives(double):
    """P is differentiated by formulas: its derivative is the covariance of the matching."""
    matrix, eps = jnp.asarray(logits(4)), 1e-6
    direction = jnp.asarray(logits(4, 1.0, 1))
    _, moved = jax.jit(lambda m, d: jax.jvp(exact_slope, (m,), (d,)))(matrix, direction)
    after, before = (all_permutations(np.asarray(matrix + e * direction))[1] for e in (eps, -eps))
    np.testing.assert_allclose(moved, (after - before) / (2 * eps), atol=1e-8)


def test_permanents_far_from_underflow():
    """Products of e^-300 in single precision."""
    matrix = jnp.asarray(logits(6, 100.0), jnp.float32)
    value, posterior = all_permutations(np.asarray(matrix, np.float64))
    np.testing.assert_allclose(exact(matrix), value, rtol=1e-5)
    np.testing.assert_allclose(exact_posterior(matrix), posterior, atol=1e-3)
    for found in (sinkhorn(matrix)[0][1], bethe(matrix)[0][1]):
        assert np.all(np.isfinite(found))


@pytest.mark.parametrize("n", SIZES)
def test_sinkhorn_bounds_from_above_and_bethe_from_below(double, n):
    matrix = jnp.asarray(logits(n))
    value, _ = all_permutations(np.asarray(matrix))
    (upper, matching), slope_upper = sinkhorn(matrix)
    (lower, beliefs), slope_lower = bethe(matrix)
    assert lower <= value + 1e-9
    assert upper >= value - 1e-9
    for found in (matching, beliefs):
        np.testing.assert_allclose(jnp.sum(found, axis=0), 1, atol=1e-6)
        np.testing.assert_allclose(jnp.sum(found, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(slope_upper, matching, atol=1e-9)
    np.testing.assert_allclose(slope_lower, beliefs, atol=1e-6)


def test_bethe_of_ones():
    """Vontobel (2013): (n - 1)^(n (n - 1)) / n^(n (n - 2))."""
    n = 5
    expected = n * (n - 1) * np.log(n - 1) - n * (n - 2) * np.log(n)
    np.testing.assert_allclose(bethe(jnp.zeros((n, n)))[0][0], expected, rtol=1e-5)


def cloud(key, manifold, count=None):
    """A random cloud with so many points."""
    x = manifold.random_point(key)
    if count is None:
        return x
    present = (jnp.arange(manifold.size) < count).astype(x.dtype)
    places = jr.normal(key, (manifold.size, manifold.features))
    return manifold.project(manifold.with_presence(places, present))


def learned():
    return matchings.Learned(matchings.matching_network(jr.key(5), 8, 1))


MATCHINGS = {
    "exact": matchings.Exact,
    "bethe": matchings.Bethe,
    "sinkhorn": matchings.Sinkhorn,
    "learned": learned,
}


@pytest.mark.parametrize("name", MATCHINGS)
def test_symmetries_of_the_kernel(double, name):
    """Relabeling either cloud, moving and turning both, exchanging them."""
    n, k, t = 5, 3, 0.3
    kernel = CloudKernel(calor.PointCloud(n, k), MATCHINGS[name]())
    keys = jr.split(jr.key(1), 6)
    x, x0 = (cloud(key, kernel.manifold) for key in keys[:2])
    orders = [jr.permutation(key, n) for key in keys[2:4]]
    turn, _ = jnp.linalg.qr(jr.normal(keys[4], (k, k)))
    shift = jr.normal(keys[5], (k,))
    value, score = kernel.log_prob(t, x, x0), kernel.score(t, x, x0)
    close = {"rtol": 1e-6, "atol": 1e-6}
    for other in (
        kernel.log_prob(t, x[orders[0]], x0[orders[1]]),
        kernel.log_prob(t, x @ turn + shift, x0 @ turn + shift),
        kernel.log_prob(t, x0, x),
    ):
        np.testing.assert_allclose(other, value, **close)
    np.testing.assert_allclose(kernel.score(t, x[orders[0]], x0), score[orders[0]], **close)
    np.testing.assert_allclose(kernel.score(t, x @ turn, x0 @ turn), score @ turn, **close)
    gradient = jax.grad(lambda x: kernel.log_prob(t, x, x0))(x)
    np.testing.assert_allclose(gradient, score, **close)


@pytest.mark.parametrize("name", MATCHINGS)
def test_absent_points_change_nothing(name):
    """A cloud of three among six is a cloud of three."""
    large = calor.PointCloud(6, 2, smallest=1)
    small = calor.PointCloud(3, 2)
    x, x0 = (cloud(key, large, 3) for key in jr.split(jr.key(2)))
    padded = CloudKernel(large, MATCHINGS[name]())
    plain = CloudKernel(small, MATCHINGS[name]())
    few, few0 = (small.project(large.places(y)[:3]) for y in (x, x0))
    close = {"rtol": 1e-4, "atol": 1e-4}
    np.testing.assert_allclose(padded.log_prob(0.3, x, x0), plain.log_prob(0.3, few, few0), **close)
    score = padded.score(0.3, x, x0)
    np.testing.assert_allclose(score[:3, :2], plain.score(0.3, few, few0), **close)
    np.testing.assert_array_equal(score[3:], 0)
    assert padded.log_prob(0.3, cloud(jr.key(3), large, 4), x0) == -np.inf
    drawn = padded.sample(0.3, x0, key=jr.key(4))
    assert large.contains(drawn) < 1e-6
    assert large.count(drawn) == 3


@pytest.mark.parametrize("centred", [0, 2])
def test_exact_kernel_solves_the_heat_equation(double, centred):
    manifold = calor.PointCloud(4, 2, centred=centred)
    kernel = calor.heat_kernel(manifold)
    x0 = cloud(jr.key(0), manifold)
    x = kernel.sample(0.4, x0, key=jr.key(1))
    assert abs(calor.log_heat_residual(kernel, 0.4, x, x0)) < 1e-9


def test_the_kernel_is_the_sum_over_images():
    """As `Quotient` has it, which lists the group."""
    n, k, t = 3, 2, 0.5
    orders = list(itertools.permutations(range(n)))
    group = [lambda x, s=s: x.reshape(n, k)[jnp.array(s)].ravel() for s in orders]
    listed = calor.heat_kernel(calor.Quotient(calor.Euclidean(n * k), group))
    manifold = calor.PointCloud(n, k)
    kernel = calor.heat_kernel(manifold)
    x, x0 = (cloud(key, manifold) for key in jr.split(jr.key(6)))
    expected = listed.log_prob(t, x.ravel(), x0.ravel())
    np.testing.assert_allclose(kernel.log_prob(t, x, x0), expected, rtol=1e-5)
    expected = listed.score(t, x.ravel(), x0.ravel()).reshape(n, k)
    np.testing.assert_allclose(kernel.score(t, x, x0), expected, atol=1e-5)
    expected = listed.manifold.dist(x.ravel(), x0.ravel())
    np.testing.assert_allclose(manifold.dist(x, x0), expected, rtol=1e-5)


@pytest.mark.parametrize("centred", [0, 1])
def test_unit_mass_and_chapman_kolmogorov(double, centred):
    """Two or three points on a line, by quadrature: a quotient has 1/n! of the volume."""
    n = 2 + centred  # two dimensions in both cases
    manifold = calor.PointCloud(n, 1, centred=centred)
    kernel = calor.heat_kernel(manifold)
    axis = np.linspace(-7, 7, 121)
    grid = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    basis = np.eye(2)
    if centred:  # an orthonormal basis of the vectors of mean zero
        basis = np.array([[1, -1, 0], [1, 1, -2]]) / np.sqrt([[2], [6]])
    points = jnp.asarray((grid @ basis)[..., None])
    cell = (axis[1] - axis[0]) ** 2 / (2 if n == 2 else 6)
    x0, x1 = (
        manifold.project(jnp.asarray(y)[:n, None]) for y in ([0.9, -0.3, 0.1], [0.2, 0.7, 1.5])
    )
    density = jax.vmap(kernel.log_prob, (None, 0, None))
    first = np.exp(density(0.4, points, x0))
    np.testing.assert_allclose(np.sum(first) * cell, 1, rtol=1e-8)
    second = np.exp(density(0.3, points, x1))  # symmetric in its two clouds
    joined = np.exp(kernel.log_prob(0.7, x1, x0))
    np.testing.assert_allclose(np.sum(first * second) * cell, joined, rtol=1e-8)


def test_learned_matching_is_exact_in_both_limits(double):
    """Whatever its weights are."""
    matching, n = learned(), 6
    far = jnp.asarray(logits(n, 0.05))
    close = -200.0 * (1 - jnp.eye(n)) + logits(n, 5.0)
    for matrix in (far, close):
        value = eqx.filter_jit(matching.of_logits)(matrix, jnp.asarray(float(n)))
        np.testing.assert_allclose(value, exact(matrix), atol=3e-3)


def test_clouds_of_different_numbers_are_apart():
    manifold = calor.PointCloud(4, 2, smallest=2)
    x, y = cloud(jr.key(0), manifold, 3), cloud(jr.key(1), manifold, 2)
    assert manifold.dist(x, y) == np.inf
    assert manifold.dist(x, x[jnp.array([2, 0, 1, 3])]) < 1e-6


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: calor.PointCloud(0, 3), "n must be at least 1"),
        (lambda: calor.PointCloud(3, 2, smallest=5), "smallest must not exceed n = 3"),
        (lambda: calor.PointCloud(3, 2, centred=3), "centred must be at most k = 2"),
        (lambda: calor.heat_kernel(calor.PointCloud(20, 3), "exact"), "has no method 'exact'"),
        (
            lambda: calor.PointCloud(2, 2, centred=2).dist(jnp.ones((2, 2)), jnp.zeros((2, 2))),
            "not on",
        ),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    "recipe",
    [
        recipes.clouds(width=8, depth=1, steps=25, batch=8, equation=1.0),
        recipes.paper(steps=50, batch=64),
    ],
    ids=["own", "paper"],
)
def test_recipes(tmp_path, recipe):
    """A short training runs, is certified and saved; a poor kernel says so when it is used."""
    manifold = calor.PointCloud(3, 2)
    kernel = calor.solve(manifold, recipe, key=jr.key(0), certificate_points=8)
    assert np.isfinite(kernel.certificate.residual)
    calor.save(tmp_path / "cloud.calor", kernel)
    again = calor.load(tmp_path / "cloud.calor")
    x, x0 = (cloud(key, manifold) for key in jr.split(jr.key(6)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", calor.PoorKernelWarning)
        value, score = (k.log_prob(0.1, x, x0) for k in (kernel, again)), kernel.score(0.1, x, x0)
        np.testing.assert_allclose(*value, rtol=1e-6)
        slope = jax.grad(lambda x: kernel.log_prob(0.1, x, x0))(x)
        np.testing.assert_allclose(score, slope, rtol=1e-3, atol=1e-3)


def test_the_shipped_network_is_accurate_for_clouds_that_it_never_saw():
    """Scores of ten grown points, one more than it was taught with, against the permanent."""
    manifold = calor.PointCloud(10, 3)
    x0 = jnp.asarray(manifold.grown(16, jr.key(9)), jnp.float32)
    kernels = [calor.heat_kernel(manifold, method) for method in ("exact", "pinn")]
    draw = jax.jit(jax.vmap(kernels[0].draw, (None, 0, 0)))
    scores = [jax.jit(jax.vmap(kernel.score_at, (None, 0, 0))) for kernel in kernels]
    for t in (0.05, 0.4, 2.0):
        x = draw(jnp.float32(t), x0, jr.split(jr.key(1), 16))
        true, found = (np.asarray(score(jnp.float32(t), x, x0)) for score in scores)
        errors = np.sqrt(np.sum((found - true) ** 2, (1, 2)) / np.sum(true**2, (1, 2)))
        assert np.mean(errors) < 0.05
