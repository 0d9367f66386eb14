"""Gradient, divergence and Laplacian against formulas derived in other ways, in float64."""

import functools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import sympy

from calor.manifolds.hyperbolic import Hyperbolic
from calor.manifolds.spd import SPD
from calor.manifolds.sphere import Sphere
from calor.manifolds.submanifold import Submanifold
from equations import half_plane_metric, unit_sphere

TOLERANCE = 1e-9


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


@functools.cache
def submanifold(name):
    return Submanifold(*SURFACES[name])


def revolution_torus(x):
    return (jnp.hypot(x[0], x[1]) - 2.0) ** 2 + x[2] ** 2 - 0.49


def ellipsoid(x):
    return jnp.sum((x / jnp.array([1.0, 1.2, 1.5])) ** 2) - 1


def two_equations(x):
    """A surface in R^4 without symmetry."""
    return jnp.stack([x @ x - 1, x[0] * x[1] - 0.3 * x[2] + 0.1 * jnp.sin(x[3])])


def bumpy_metric(x):
    """A metric without symmetry, for any dimension."""
    waves = jnp.sin(jnp.outer(x, jnp.arange(1.0, x.size + 1)) + 0.3 * jnp.arange(x.size))
    return jnp.eye(x.size) * (1 + x @ x / 4) + waves @ waves.T / 5


SURFACES = {
    "sphere 2": (unit_sphere, 3),
    "sphere 3": (unit_sphere, 4),
    "torus": (revolution_torus, 3),
    "ellipsoid": (ellipsoid, 3),
    "two equations": (two_equations, 4),
    "bumpy sphere": (unit_sphere, 3, bumpy_metric),
    "bumpy two equations": (two_equations, 4, bumpy_metric),
    "half plane": (None, 2, half_plane_metric),
    "bumpy space": (None, 3, bumpy_metric),
}


def function(x):
    """A function with no symmetry, of any number of coordinates."""
    x = jnp.ravel(x)
    rates = jnp.cos(jnp.arange(x.size) * 1.3) + 0.2
    return jnp.sin(rates @ x) + (x @ jnp.roll(x, 1)) * x[0] + jnp.exp(-0.3 * x[-1])


def close(actual, expected, tolerance=TOLERANCE):
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


def jit_laplacian(manifold, f, x):
    return jax.jit(lambda x: manifold.laplacian(f, x))(x)


# The paper's closed forms.


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("kind", ["named", "equations"])
def test_sphere_operator(n, kind):
    manifold = Sphere(n) if kind == "named" else submanifold(f"sphere {n}")
    x = Sphere(n).project(jr.normal(jr.key(n), (n + 1,)))
    hessian, slope = jax.hessian(function)(x), jax.grad(function)(x)
    expected = jnp.sum((jnp.eye(n + 1) - jnp.outer(x, x)) * hessian) - n * x @ slope
    close(jit_laplacian(manifold, function, x), expected)
    close(jax.jit(lambda x: manifold.gradient(function, x))(x), slope - x * (x @ slope))


@pytest.mark.parametrize("kind", ["equations", "hyperboloid"])
def test_half_plane_operator(kind):
    z = jnp.array([0.4, 0.7])
    expected = z[1] ** 2 * jnp.trace(jax.hessian(function)(z))
    if kind == "equations":
        close(jit_laplacian(submanifold("half plane"), function, z), expected)
        return

    def from_half_plane(z):
        top = (1 + z @ z) / (2 * z[1])
        return jnp.stack([top, z[0] / z[1], top - 1 / z[1]])

    def to_half_plane(x):
        height = 1 / (x[0] - x[2])
        return jnp.stack([x[1] * height, height])

    x = from_half_plane(z)
    close(to_half_plane(x), z)
    close(jit_laplacian(Hyperbolic(2), lambda x: function(to_half_plane(x)), x), expected)


@functools.cache
def spd_by_equations(n):
    """SPD(n) as an open subset of R^(n(n+1)/2), the entries of the lower triangle."""
    rows, columns = np.tril_indices(n)

    def matrix(x):
        lower = jnp.zeros((n, n)).at[rows, columns].set(x)
        return lower + jnp.tril(lower, -1).T

    basis = jax.vmap(matrix)(jnp.eye(len(rows)))

    def metric(x):
        whitened = jnp.linalg.solve(matrix(x), basis)
        return jnp.einsum("aij,bji->ab", whitened, whitened)

    return matrix, Submanifold(None, len(rows), metric)


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("kind", ["named", "equations"])
def test_spd_operator_in_logarithms_of_eigenvalues(n, kind):
    def of_logarithms(r):
        return jnp.sum(jnp.sin(1.3 * r)) + jnp.prod(r + 0.4) + jnp.sum(r) ** 2

    def of_matrix(x):
        return of_logarithms(jnp.log(jnp.linalg.eigvalsh(x)))

    rotation, _ = jnp.linalg.qr(jr.normal(jr.key(n), (n, n)))
    r = jnp.array([-0.5, 0.2, 0.9])[:n]
    x = (rotation * jnp.exp(r)) @ rotation.T
    x = (x + x.T) / 2
    slope = jax.grad(of_logarithms)(r)
    expected = jnp.trace(jax.hessian(of_logarithms)(r))
    for i in range(n):
        for j in range(i + 1, n):
            expected += 0.5 * (slope[i] - slope[j]) / jnp.tanh((r[i] - r[j]) / 2)
    if kind == "named":
        close(jit_laplacian(SPD(n), of_matrix, x), expected)
    else:
        matrix, manifold = spd_by_equations(n)
        lower = x[np.tril_indices(n)]
        close(jit_laplacian(manifold, lambda y: of_matrix(matrix(y)), lower), expected)


# Charts, differentiated by sympy.


def chart_oracle(embedding, coordinates, at):
    """Laplacian of f and divergence of a field, in a chart.

    f = x y + z^2 + 2 x, and the field has components (sin(u) + cos(v), cos(u) sin(v)) in the chart.
    """
    u, v = coordinates
    jacobian = sympy.Matrix(embedding).jacobian([u, v])
    metric = jacobian.T * jacobian
    root, inverse = sympy.sqrt(metric.det()), metric.inv()
    x, y, z = embedding
    f = x * y + z**2 + 2 * x
    slope = sympy.Matrix([f.diff(u), f.diff(v)])
    field = sympy.Matrix([sympy.sin(u) + sympy.cos(v), sympy.cos(u) * sympy.sin(v)])

    def divergence(w):
        return sum((root * w[i]).diff(c) for i, c in enumerate(coordinates)) / root

    at = dict(zip(coordinates, at, strict=True))
    return [float(sympy.N(e.subs(at))) for e in (divergence(inverse * slope), divergence(field))]


U, V = sympy.symbols("u v", real=True)
CHARTS = {
    "torus": [
        (2 + sympy.Rational(7, 10) * sympy.cos(V)) * sympy.cos(U),
        (2 + sympy.Rational(7, 10) * sympy.cos(V)) * sympy.sin(U),
        sympy.Rational(7, 10) * sympy.sin(V),
    ],
    "ellipsoid": [
        sympy.sin(V) * sympy.cos(U),
        sympy.Rational(6, 5) * sympy.sin(V) * sympy.sin(U),
        sympy.Rational(3, 2) * sympy.cos(V),
    ],
}


@pytest.mark.parametrize("name", CHARTS)
@pytest.mark.parametrize("at", [(0.7, 0.4), (-2.1, 2.3)])
def test_surface_in_a_chart(name, at):
    laplacian, divergence = chart_oracle(CHARTS[name], (U, V), at)
    entries = sympy.lambdify([U, V], CHARTS[name], jnp)
    embed = lambda c: jnp.stack(entries(*c))

    def chart(x):
        if name == "torus":
            return jnp.stack(
                [jnp.arctan2(x[1], x[0]), jnp.arctan2(x[2], jnp.hypot(x[0], x[1]) - 2)]
            )
        scaled = x / jnp.array([1.0, 1.2, 1.5])
        flat = jnp.hypot(scaled[0], scaled[1])
        return jnp.stack([jnp.arctan2(scaled[1], scaled[0]), jnp.arctan2(flat, scaled[2])])

    def field(x):
        u, v = c = chart(x)
        components = jnp.stack([jnp.sin(u) + jnp.cos(v), jnp.cos(u) * jnp.sin(v)])
        return jax.jvp(embed, (c,), (components,))[1]

    manifold, x = submanifold(name), embed(jnp.array(at))
    f = lambda x: x[0] * x[1] + x[2] ** 2 + 2 * x[0]
    close(jit_laplacian(manifold, f, x), laplacian)
    close(jax.jit(lambda x: manifold.divergence(field, x))(x), divergence)


# The paper's own formula, equation (fp-coords), written out with the ambient connection.


def covariant_derivative(metric, field, x):
    """Matrix of the ambient Levi-Civita derivative, entry [j, k] = (nabla_k X)^j."""
    g, dg = metric(x), jax.jacfwd(metric)(x)  # dg[i, j, k] = d_k g_ij
    lowered = (dg + jnp.swapaxes(dg, 1, 2) - jnp.moveaxis(dg, 2, 0)) / 2
    christoffel = jnp.einsum("il,ljk->ijk", jnp.linalg.inv(g), lowered)
    return jax.jacfwd(field)(x) + jnp.einsum("ijk,j->ik", christoffel, field(x))


def paper_operators(name, f):
    """Gradient field, and divergence of fields, by the formulas of appendix A.1."""
    constraint, size = SURFACES[name][:2]
    metric = SURFACES[name][2] if len(SURFACES[name]) > 2 else lambda x: jnp.eye(size)

    def projector(x):
        if constraint is None:
            return jnp.eye(size)
        jacobian = jax.jacfwd(lambda y: jnp.atleast_1d(constraint(y)))(x)
        raised = jnp.linalg.inv(metric(x)) @ jacobian.T
        return jnp.eye(size) - raised @ jnp.linalg.inv(jacobian @ raised) @ jacobian

    def gradient(x):
        return projector(x) @ jnp.linalg.inv(metric(x)) @ jax.jacfwd(f)(x)

    def divergence(field, x):
        p = projector(x)
        return jnp.trace(p @ covariant_derivative(metric, field, x) @ p)

    return projector, gradient, divergence


@functools.cache
def both_ways(name):
    """Everything calor computes on a surface, and the same by the formulas above."""
    manifold, (constraint, size, *metric) = submanifold(name), SURFACES[name]
    projector, gradient, divergence = paper_operators(name, function)
    field = lambda y: projector(y) @ jnp.sin(jnp.arange(1.0, y.size + 1) * y[0] + y[1])

    def other_extension(y):
        off = 0.0 if constraint is None else jnp.sum(constraint(y))
        return function(y) + jnp.exp(y[0]) * off + 3 * off**2

    @jax.jit
    def compute(x):
        inverse = jnp.linalg.inv(metric[0](x)) if metric else jnp.eye(size)
        frame, slope, laplacian = manifold.frame(x), gradient(x), divergence(gradient, x)
        return {
            "projector": (manifold.projector(x), projector(x)),
            "frame": (frame.T @ frame, projector(x) @ inverse),
            "gradient": (manifold.gradient(function, x), slope),
            "laplacian": (manifold.laplacian(function, x), laplacian),
            "divergence": (manifold.divergence(field, x), divergence(field, x)),
            "gradient, other extension": (manifold.gradient(other_extension, x), slope),
            "laplacian, other extension": (manifold.laplacian(other_extension, x), laplacian),
        }

    start = jr.normal(jr.key(3), (size,))
    return compute(manifold.project(start))


QUANTITIES = ["projector", "frame", "gradient", "laplacian", "divergence"]
QUANTITIES += ["gradient, other extension", "laplacian, other extension"]


@pytest.mark.parametrize("quantity", QUANTITIES)
@pytest.mark.parametrize("name", [n for n in SURFACES if "sphere " not in n and n != "half plane"])
def test_projector_formula(name, quantity):
    close(*both_ways(name)[quantity])


@pytest.mark.parametrize("manifold", [Sphere(2), Hyperbolic(3), SPD(2)], ids=str)
def test_laplacian_is_divergence_of_gradient(manifold):
    x = manifold.random_point(jr.key(7))
    field = lambda y: manifold.gradient(function, y)
    divergence = jax.jit(lambda x: manifold.divergence(field, x))(x)
    close(divergence, jax.jit(lambda x: manifold.laplacian(function, x))(x))
