"""One contract for all exact kernels: heat equation, mass, symmetry, Chapman-Kolmogorov, score."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.integrate import simpson

import calor
from calor.heat.exact import EuclideanKernel
from calor.heat.methods import method, with_key
from cases import MANIFOLDS, pair

EXACT = [
    "Euclidean(3)",
    "Sphere(1)",
    "Sphere(2)",
    "Sphere(5)",
    "SO3",
    "Torus(3)",
    "Hyperbolic(2)",
    "SPD(2)",
    "SO3 x R^3",
    "projective plane",
    "Klein bottle",
]
TIMES = (0.02, 0.3, 2.0)


@pytest.fixture(params=EXACT)
def name(request):
    return request.param


def points(name, t):
    """Two points about a diffusion length sqrt(2t) apart, if there is room."""
    manifold, x0, v, _ = pair(MANIFOLDS[name], jr.key(0))
    length = min(np.sqrt(2 * t), MANIFOLDS[name].reach)
    return manifold.exp(x0, v * (length / manifold.norm(x0, v))), x0


# Quotients of spheres share their code with SO(3), products add up: one of them is enough here.
@pytest.mark.parametrize("name", sorted(set(EXACT) - {"projective plane", "SO3 x R^3"}))
def test_solves_the_heat_equation(name, double):
    kernel = calor.heat_kernel(MANIFOLDS[name].make(), "exact")
    residual = jax.jit(lambda t, x, x0: calor.log_heat_residual(kernel, t, x, x0))
    for t in TIMES:
        x, x0 = points(name, t)
        assert abs(float(residual(jnp.asarray(t), x, x0))) < 1e-5 / t
        assert abs(float(residual(jnp.asarray(t), x0, x0))) < 1e-4 / t


def test_is_symmetric(name, double):
    kernel = calor.heat_kernel(MANIFOLDS[name].make(), "exact")
    for t in TIMES:
        x, x0 = points(name, t)
        np.testing.assert_allclose(kernel.log_prob(t, x, x0), kernel.log_prob(t, x0, x), atol=1e-8)


def test_score_is_the_gradient(name, double):
    manifold = MANIFOLDS[name].make()
    kernel = calor.heat_kernel(manifold, "exact")
    log_prob = jax.vmap(kernel.log_prob, (None, 0, None))
    gradient = jax.jit(lambda t, x, x0: manifold.gradient(lambda y: kernel.log_prob(t, y, x0), x))
    for t in TIMES:
        x, x0 = points(name, t)
        score = kernel.score(t, x, x0)
        np.testing.assert_allclose(manifold.tangent(x, score), score, atol=1e-9 / t)
        frame, step = manifold.frame(x), 1e-5
        exp = jax.vmap(manifold.exp, (None, 0))
        ahead, behind = exp(x, step * frame), exp(x, -step * frame)
        slope = (log_prob(t, ahead, x0) - log_prob(t, behind, x0)) / (2 * step)
        along = jax.vmap(lambda e: manifold.inner(x, score, e))(frame)
        np.testing.assert_allclose(along, slope, atol=1e-5 / t)
        np.testing.assert_allclose(gradient(t, x, x0), score, atol=1e-6 / t)


def test_chapman_kolmogorov(name):
    """p(s + t, x | x0) is the mean of p(t, x | y) over draws y from p(s, . | x0)."""
    kernel = calor.heat_kernel(MANIFOLDS[name].make(), "exact")
    x, x0 = points(name, 0.4)
    s, t, count = 0.15, 0.25, 100_000
    draws = jax.vmap(lambda key: kernel.sample(s, x0, key=key))(jr.split(jr.key(1), count))
    values = np.exp(jax.vmap(kernel.log_prob, (None, None, 0))(t, x, draws), dtype=float)
    error = values.std() / np.sqrt(count)
    assert abs(values.mean() - np.exp(float(kernel.log_prob(s + t, x, x0)))) < 4 * error


# The manifold, and the volume of its sphere of radius r, for isotropic spaces.
RADIAL = {
    "S^2": (calor.Sphere(2), lambda r: 2 * np.pi * np.sin(r), np.pi),
    "S^3": (calor.Sphere(3), lambda r: 4 * np.pi * np.sin(r) ** 2, np.pi),
    "S^6": (calor.Sphere(6), lambda r: np.pi**3 * np.sin(r) ** 5, np.pi),
    "SO(3)": (calor.SO3(), lambda r: 4 * np.pi * np.sin(r) ** 2, np.pi / 2),
    "H^2": (calor.Hyperbolic(2), lambda r: 2 * np.pi * np.sinh(r), np.inf),
    "H^3": (calor.Hyperbolic(3), lambda r: 4 * np.pi * np.sinh(r) ** 2, np.inf),
}


@pytest.mark.parametrize("space", list(RADIAL))
def test_has_unit_mass(space, double):
    manifold, sphere_volume, radius = RADIAL[space]
    kernel = calor.heat_kernel(manifold, "exact")
    origin = jnp.zeros(manifold.shape).at[0].set(1.0)
    direction = jnp.zeros(manifold.shape).at[1].set(1.0)
    hyperbolic = isinstance(manifold, calor.Hyperbolic)
    cosine, sine = (np.cosh, np.sinh) if hyperbolic else (np.cos, np.sin)
    for t in (0.01, 0.2, 1.0, 3.0):
        r = np.linspace(0, min(radius, 2 * manifold.dim * t + 12 * np.sqrt(t)), 2001)
        along = cosine(r)[:, None] * origin + sine(r)[:, None] * direction
        log_p = jax.vmap(kernel.log_prob, (None, 0, None))(t, along, origin)
        mass = simpson(np.exp(np.asarray(log_p)) * sphere_volume(r), x=r)
        assert abs(mass - 1) < 1e-7, t


def test_mass_of_spd2(double):
    """With the volume element sqrt(2) pi |sinh((r1 - r2)/2)| dr1 dr2 over the plane."""
    kernel = calor.heat_kernel(calor.SPD(2))
    r = jnp.linspace(-9, 9, 361)
    density = jax.jit(
        jax.vmap(
            jax.vmap(
                lambda a, b: kernel.log_prob(0.5, jnp.diag(jnp.exp(jnp.stack([a, b]))), jnp.eye(2)),
                (0, None),
            ),
            (None, 0),
        )
    )
    volume = np.sqrt(2) * np.pi * np.abs(np.sinh((r[:, None] - r[None]) / 2))
    mass = np.sum(np.exp(density(r, r)) * volume) * 0.05**2
    assert abs(mass - 1) < 1e-3


def test_continues_below_the_smallest_tabulated_time(double):
    """Diffusion models go down to t = 1e-7; there the kernel is Gaussian to first order."""
    for n in (1, 2, 5):
        kernel = calor.heat_kernel(calor.Sphere(n))
        x0 = calor.Sphere(n).random_point(jr.key(0))
        v = calor.Sphere(n).random_tangent(jr.key(1), x0)
        for t in (1e-7, 1e-5, 9.99e-4, 1.001e-3):
            x = calor.Sphere(n).exp(x0, np.sqrt(2 * t) * v)
            first = calor.FirstOrder(calor.Sphere(n))
            expected = first.log_prob(t, x, x0)
            np.testing.assert_allclose(kernel.log_prob(t, x, x0), expected, atol=2e-6)
            np.testing.assert_allclose(
                kernel.score(t, x, x0), first.score(t, x, x0), rtol=1e-5, atol=1e-6 / np.sqrt(t)
            )


def test_methods_that_a_manifold_has():
    assert isinstance(calor.heat_kernel(calor.Sphere(2)), calor.HeatKernel)
    assert isinstance(calor.heat_kernel(calor.SPD(5)), calor.FirstOrder)
    with pytest.raises(ValueError, match=r"SPD\(5\) has no method 'exact'; it has 'pinn', 'short"):
        calor.heat_kernel(calor.SPD(5), "exact")
    with pytest.raises(ValueError, match="it has 'exact', 'pinn', 'short-time'"):
        calor.heat_kernel(calor.Sphere(2), "spectral")
    with pytest.raises(TypeError, match="must be a manifold"):
        calor.heat_kernel("sphere")
    mixed = calor.Product(calor.Sphere(2), calor.SPD(3))
    with pytest.raises(ValueError, match="has no method 'exact'"):
        calor.heat_kernel(mixed, "exact")


def test_a_kernel_of_ones_own_is_found():
    """On a manifold of a user's own, in products and quotients, and before what calor has."""

    class Line(calor.Euclidean):
        """R, of another class."""

    @method(Line, "exact", when=lambda line: line.dim == 1)
    class LineKernel(EuclideanKernel):
        """Its kernel."""

    made = []

    @method(Line, "slow", rank=7, ready=with_key)
    def slow(manifold, *, key, cache):
        made.append((key, cache))
        return LineKernel(manifold)

    assert isinstance(calor.heat_kernel(Line(1)), LineKernel)
    assert not isinstance(calor.heat_kernel(Line(2)), LineKernel)
    product = calor.heat_kernel(calor.Product(Line(1), calor.Sphere(2)))
    assert isinstance(product.kernels[0], LineKernel)
    folded = calor.Quotient(Line(1), [lambda x: x, lambda x: -x])
    assert isinstance(calor.heat_kernel(folded).cover, LineKernel)
    calor.heat_kernel(folded, "slow", cache="there")
    assert made == [(None, "there")]
    with pytest.raises(ValueError, match="it has 'exact', 'slow', 'pinn', 'short-time'"):
        calor.heat_kernel(Line(1), "none")


def test_nothing_is_traced_twice():
    """Calls with new numbers of the same shapes reuse the compiled code."""
    kernel = calor.heat_kernel(calor.Sphere(2))
    x0 = calor.Sphere(2).random_point(jr.key(0))
    traces = []

    @jax.jit
    def score(t, x):
        traces.append(None)
        return calor.heat_kernel(calor.Sphere(2)).score(t, x, x0)

    for seed in range(3):
        score(0.1 + seed, kernel.sample(0.1 + seed, x0, key=jr.key(seed)))
    assert len(traces) == 1
