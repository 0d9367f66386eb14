"""One contract for all exact kernels: heat equation, mass, symmetry, Chapman-Kolmogorov, score."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from cases import MANIFOLDS, pair
from scipy.integrate import quad

import calor

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
    """A kernel and two points about a diffusion length sqrt(2t) apart, if there is room."""
    manifold, x0, v, _ = pair(MANIFOLDS[name], jr.key(0))
    kernel = calor.heat_kernel(manifold, "exact")
    length = min(np.sqrt(2 * t), MANIFOLDS[name].reach)
    v = v * (length / manifold.norm(x0, v))
    return kernel, manifold, jax.jit(manifold.exp)(x0, v), x0


@pytest.mark.parametrize("t", TIMES)
def test_solves_the_heat_equation(name, t, double):
    kernel, _, x, x0 = points(name, t)
    residual = jax.jit(lambda s, y, z: calor.log_heat_residual(kernel, s, y, z))
    scale = 1 / t
    assert abs(float(residual(jnp.asarray(t), x, x0))) < 1e-5 * scale
    assert abs(float(residual(jnp.asarray(t), x0, x0))) < 1e-4 * scale


@pytest.mark.parametrize("t", TIMES)
def test_is_symmetric(name, t, double):
    kernel, _, x, x0 = points(name, t)
    np.testing.assert_allclose(kernel.log_prob(t, x, x0), kernel.log_prob(t, x0, x), atol=1e-8)


@pytest.mark.parametrize("t", TIMES)
def test_score_is_the_gradient(name, t, double):
    kernel, manifold, x, x0 = points(name, t)
    score = kernel.score(t, x, x0)
    np.testing.assert_allclose(manifold.tangent(x, score), score, atol=1e-9 / t)
    frame, step = manifold.frame(x), 1e-5
    exp = jax.jit(jax.vmap(manifold.exp, (None, 0)))
    log_prob = jax.vmap(lambda y: kernel.log_prob(t, y, x0))
    slope = (log_prob(exp(x, step * frame)) - log_prob(exp(x, -step * frame))) / (2 * step)
    along = jax.vmap(lambda e: manifold.inner(x, score, e))(frame)
    np.testing.assert_allclose(along, slope, atol=1e-5 / t)
    gradient = manifold.gradient(lambda y: kernel.log_prob(t, y, x0), x)
    np.testing.assert_allclose(gradient, score, atol=1e-6 / t)


def test_chapman_kolmogorov(name):
    """p(s + t, x | x0) is the mean of p(t, x | y) over draws y from p(s, . | x0)."""
    kernel, _, x, x0 = points(name, 0.4)
    s, t, count = 0.15, 0.25, 100_000
    draws = jax.jit(jax.vmap(lambda key: kernel.sample(s, x0, key=key)))(
        jr.split(jr.key(1), count)
    )
    values = np.exp(jax.jit(jax.vmap(lambda y: kernel.log_prob(t, x, y)))(draws), dtype=float)
    error = values.std() / np.sqrt(count)
    assert abs(values.mean() - np.exp(float(kernel.log_prob(s + t, x, x0)))) < 4 * error


# Volume of the unit sphere in tangent space times the radial volume, for isotropic spaces.
RADIAL = {
    "Sphere(2)": (lambda r: 2 * np.pi * np.sin(r), np.pi),
    "Sphere(3)": (lambda r: 4 * np.pi * np.sin(r) ** 2, np.pi),
    "Sphere(6)": (lambda r: 16 / 15 * np.pi**3 * np.sin(r) ** 5, np.pi),
    "SO3": (lambda r: 4 * np.pi * np.sin(r) ** 2, np.pi / 2),
    "Hyperbolic(2)": (lambda r: 2 * np.pi * np.sinh(r), 40.0),
    "Hyperbolic(3)": (lambda r: 4 * np.pi * np.sinh(r) ** 2, 40.0),
}


@pytest.mark.parametrize("space", list(RADIAL))
@pytest.mark.parametrize("t", [0.01, 0.2, 1.0, 3.0])
def test_has_unit_mass(space, t, double):
    manifold = eval(f"calor.{space}" + ("()" if space == "SO3" else ""))
    kernel = calor.heat_kernel(manifold, "exact")
    weight, radius = RADIAL[space]
    origin = jnp.zeros(manifold.shape).at[0].set(1.0)
    direction = jnp.zeros(manifold.shape).at[1].set(1.0)
    hyperbolic = isinstance(manifold, calor.Hyperbolic)
    cosine, sine = (jnp.cosh, jnp.sinh) if hyperbolic else (jnp.cos, jnp.sin)
    along = jax.jit(
        lambda r: kernel.log_prob(t, cosine(r) * origin + sine(r) * direction, origin)
    )
    reach = min(radius, 2 * t + 12 * np.sqrt(t))
    mass, _ = quad(
        lambda r: float(jnp.exp(along(r))) * weight(r), 0, reach, epsabs=1e-8, limit=100
    )
    assert abs(mass - 1) < 1e-6


def test_mass_of_spd2(double):
    """With the volume element sqrt(2) pi |sinh((r1 - r2)/2)| dr1 dr2 over the plane."""
    kernel = calor.heat_kernel(calor.SPD(2))
    r = jnp.linspace(-9, 9, 361)
    density = jax.jit(
        jax.vmap(
            jax.vmap(lambda a, b: kernel.log_prob(0.5, jnp.diag(jnp.exp(jnp.stack([a, b]))),
                                                  jnp.eye(2)), (0, None)), (None, 0))
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
    with pytest.raises(ValueError, match=r"SPD\(5\) has no method 'exact'; it has 'short-time'"):
        calor.heat_kernel(calor.SPD(5), "exact")
    with pytest.raises(ValueError, match="it has 'exact', 'short-time'"):
        calor.heat_kernel(calor.Sphere(2), "pinn")
    with pytest.raises(TypeError, match="must be a manifold"):
        calor.heat_kernel("sphere")
    mixed = calor.Product(calor.Sphere(2), calor.SPD(3))
    with pytest.raises(ValueError, match="has no method 'exact'"):
        calor.heat_kernel(mixed, "exact")


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
