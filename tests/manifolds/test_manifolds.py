"""One contract for all manifolds, in both precisions."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from cases import MANIFOLDS, pair

# Tolerances: float32, and float64 where geodesics are closed forms or an ODE.
TOLERANCE = {"float32": 3e-4, "float64": 1e-9}
ODE_TOLERANCE = {"float32": 2e-3, "float64": 2e-6}


@pytest.fixture(params=list(MANIFOLDS))
def case(request):
    return MANIFOLDS[request.param]


@pytest.fixture
def tolerance(precision, case):
    is_ode = case is MANIFOLDS["ellipsoid"]
    return (ODE_TOLERANCE if is_ode else TOLERANCE)[precision]


def close(a, b, tolerance):
    a, b = np.asarray(a), np.asarray(b)
    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * (1 + np.max(np.abs(b))))


def test_exp_and_log_invert_each_other(case, tolerance):
    manifold, x, v, y = pair(case, jr.key(0))
    log = manifold.log
    close(log(x, y), v, tolerance)
    close(manifold.norm(x, manifold.log(x, x)), 0.0, tolerance)
    assert y.dtype == v.dtype == jnp.result_type(float)
    assert float(manifold.dist(manifold.exp(x, log(x, y)), y)) < 10 * tolerance


def test_distance_is_symmetric_and_the_length_of_log(case, tolerance):
    manifold, x, v, y = pair(case, jr.key(1))
    dist = manifold.dist
    close(dist(x, y), dist(y, x), tolerance)
    close(dist(x, y), manifold.norm(x, v), tolerance)
    close(manifold.norm(x, manifold.log(x, y)), dist(x, y), tolerance)


def test_tangent_vectors_are_tangent(case, tolerance):
    manifold, x, v, _ = pair(case, jr.key(2))
    close(manifold.tangent(x, v), v, tolerance)
    ambient = jr.normal(jr.key(3), manifold.shape)
    tangent = manifold.tangent(x, ambient)
    close(manifold.tangent(x, tangent), tangent, tolerance)
    # The velocity of a geodesic that starts with it is the vector itself.
    moved = lambda u: jax.jvp(lambda s: manifold.exp(x, s * u), (0.0,), (1.0,))[1]
    close(moved(v), v, tolerance)
    # Moving along a tangent vector stays on the manifold to first order.
    small = 1e-3
    assert float(manifold.contains(x + small * tangent / jnp.max(jnp.abs(tangent)))) < 1e-4


def test_projection_is_idempotent(case, tolerance):
    manifold, x, _, _ = pair(case, jr.key(4))
    near = x + 0.05 * jr.normal(jr.key(5), manifold.shape)
    once = manifold.project(near)
    close(manifold.project(once), once, tolerance)
    assert float(manifold.contains(once)) < tolerance
    close(manifold.project(x), x, tolerance)


def test_geodesics_have_constant_speed(case, tolerance):
    manifold, x, v, _ = pair(case, jr.key(6))
    length = manifold.norm(x, v)

    def speed(s):
        point, velocity = jax.jvp(lambda u: manifold.exp(x, u * v), (s,), (jnp.ones_like(s),))
        return manifold.norm(point, velocity)

    speeds = jax.vmap(speed)(jnp.linspace(0.0, 1.0, 5))
    close(speeds, jnp.full(5, length), 10 * tolerance)


def test_gradient_and_laplacian_against_differences(case, double):
    manifold, x, _, _ = pair(case, jr.key(7))
    weights = jr.normal(jr.key(8), manifold.shape)

    def f(y):
        return jnp.sum(jnp.sin(weights * y)) + jnp.sum(weights * y * y) / 3

    step = 1e-3
    frame = manifold.frame(x)
    exp = jax.jit(jax.vmap(manifold.exp, (None, 0)))
    ahead, behind = exp(x, step * frame), exp(x, -step * frame)
    values, back = jax.vmap(f)(ahead), jax.vmap(f)(behind)
    first, second = (values - back) / (2 * step), (values + back - 2 * f(x)) / step**2
    along = jax.vmap(lambda e: manifold.inner(x, manifold.gradient(f, x), e))(frame)
    scale = 1 + float(jnp.max(jnp.abs(first)))
    np.testing.assert_allclose(along, first, atol=1e-4 * scale)
    laplacian = manifold.laplacian(f, x)
    np.testing.assert_allclose(laplacian, jnp.sum(second), rtol=1e-4, atol=1e-4 * scale)
    # Delta f = div grad f
    field = jax.jit(lambda y: manifold.divergence(lambda z: manifold.gradient(f, z), y))
    np.testing.assert_allclose(field(x), laplacian, rtol=1e-6, atol=1e-6 * scale)


def test_isometries_preserve_distance(case, tolerance):
    manifold, x, _, y = pair(case, jr.key(9))
    move = lambda z: manifold.project(case.isometry(jr.key(10), z))
    dist = manifold.dist
    close(dist(move(x), move(y)), dist(x, y), tolerance)


def test_frame_and_random_tangents_agree_with_the_metric(case, double):
    manifold, x, v, _ = pair(case, jr.key(11))
    frame = manifold.frame(x)
    # A Parseval frame: sum_j <v, e_j> e_j = v.
    along = jax.vmap(lambda e: manifold.inner(x, v, e))(frame)
    np.testing.assert_allclose(jnp.tensordot(along, frame, axes=1), v, atol=1e-9)
    draws = jax.vmap(lambda key: manifold.random_tangent(key, x))(jr.split(jr.key(12), 20000))
    squared = jax.vmap(lambda u: manifold.inner(x, u, u))(draws)
    error = 4 * np.sqrt(2 * manifold.dim / 20000)
    assert abs(float(jnp.mean(squared)) - manifold.dim) < error


def test_jit_and_vmap_agree_with_plain_calls(case):
    manifold, x, v, y = pair(case, jr.key(13))
    stack = lambda a: jnp.stack([a, a])
    for name, arguments in {"exp": (x, v), "log": (x, y), "dist": (x, y)}.items():
        verb = getattr(manifold, name)
        plain, batched = verb(*arguments), jax.jit(jax.vmap(verb))(*map(stack, arguments))
        np.testing.assert_allclose(batched[1], plain, atol=2e-4 * (1 + np.max(np.abs(plain))))


def test_everything_is_finite_at_coinciding_points(case):
    manifold, x, _, _ = pair(case, jr.key(14))
    zero = jnp.zeros_like(x)
    dist = lambda y: manifold.dist(x, y)
    log = lambda y: manifold.log(x, y)
    exp = lambda v: manifold.exp(x, v)
    direction = jr.normal(jr.key(15), manifold.shape)
    for function, point in ((dist, x), (log, x), (exp, zero)):
        along = lambda s, f=function, p=point: f(p + s * direction)
        derivative = lambda s, g=along: jax.jvp(g, (s,), (jnp.ones_like(s),))[1]
        origin = jnp.zeros(())
        values = along(origin), derivative(origin), jax.jacfwd(derivative)(origin)
        values += (jax.grad(lambda p, f=function: jnp.sum(f(p)))(point),)
        for value in values:
            assert np.all(np.isfinite(value))
