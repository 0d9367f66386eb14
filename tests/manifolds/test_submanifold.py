"""Submanifolds given by equations, against manifolds with closed forms."""

import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from calor.manifolds.sphere import Sphere
from calor.manifolds.submanifold import Submanifold
from equations import half_plane_metric, ring, unit_sphere

LARGE, SMALL = 2.0, 1.0  # radii of the torus of revolution


def clifford_torus(x):
    return jnp.stack([x[:2] @ x[:2] - 0.5, x[2:] @ x[2:] - 0.5])


SPECIFICATIONS = {
    "sphere": (unit_sphere, 3),
    "torus": (ring, 3),
    "clifford": (clifford_torus, 4),
    "half plane": (None, 2, half_plane_metric),
}


@functools.cache
def manifold(name):
    return Submanifold(*SPECIFICATIONS[name])


@pytest.fixture
def float64():
    with jax.enable_x64(True):
        yield


def points(name, count, seed=0):
    x = jr.normal(jr.key(seed), (count, SPECIFICATIONS[name][1]))
    if name == "half plane":
        return x.at[:, 1].set(jnp.exp(x[:, 1]))
    return jax.jit(jax.vmap(manifold(name).project))(x)


def close(actual, expected, tolerance):
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


# Against the sphere with its closed forms.


def test_dimension_shape_and_name():
    assert (manifold("sphere").dim, manifold("sphere").shape) == (2, (3,))
    assert (manifold("clifford").dim, manifold("clifford").shape) == (2, (4,))
    assert (manifold("half plane").dim, manifold("half plane").shape) == (2, (2,))
    assert str(manifold("torus")) == "Submanifold(dim 2 in R^3)"
    assert jax.tree.leaves(manifold("torus")) == []  # nothing for an optimizer to train


@pytest.mark.usefixtures("float64")
def test_sphere_geodesics_float64():
    by_equation, sphere = manifold("sphere"), Sphere(2)
    ambient = 2 * jr.normal(jr.key(0), (20, 3))
    x = jax.jit(jax.vmap(by_equation.project))(ambient)
    close(x, jax.vmap(sphere.project)(ambient), 1e-12)
    y = jnp.roll(x, 1, axis=0)
    v = 2 * jax.vmap(sphere.tangent)(x, y)
    # Fourth order: 64 steps of up to 1/20 radian.
    close(jax.jit(jax.vmap(by_equation.exp))(x, v), jax.vmap(sphere.exp)(x, v), 2e-7)
    close(jax.jit(jax.vmap(by_equation.log))(x, y), jax.vmap(sphere.log)(x, y), 2e-6)
    close(jax.jit(jax.vmap(by_equation.dist))(x, y), jax.vmap(sphere.dist)(x, y), 2e-6)


def test_sphere_geodesics_float32():
    by_equation, sphere = manifold("sphere"), Sphere(2)
    ambient = jnp.array([[1.0, 2.0, 3.0], [0.2, -0.1, 0.1], [-30.0, 1.0, 5.0]])
    for x in ambient:
        close(by_equation.project(x), sphere.project(x), 5e-6)
    x, y = map(sphere.project, ambient[:2])
    assert by_equation.exp(x, y).dtype == jnp.float32
    close(by_equation.exp(x, y), sphere.exp(x, y), 2e-6)
    close(by_equation.log(x, y), sphere.log(x, y), 1e-5)
    close(by_equation.dist(x, y), sphere.dist(x, y), 1e-5)
    close(
        by_equation.norm(x, by_equation.tangent(x, y)), sphere.norm(x, sphere.tangent(x, y)), 1e-6
    )


@pytest.mark.usefixtures("float64")
def test_projection_has_two_derivatives():
    def field(manifold):
        return lambda x: jnp.sin(manifold.project_at(x) @ jnp.array([1.0, 2.0, 3.0]))

    x = jnp.array([0.6, -0.9, 0.4])
    for order in (jax.grad, jax.hessian):
        ours, theirs = order(field(manifold("sphere"))), order(field(Sphere(2)))
        close(jax.jit(ours)(x), jax.jit(theirs)(x), 1e-9)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("argument", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_distance_has_two_derivatives(argument):
    ends = jnp.array([0.6, 0.8, 0.0]), jnp.array([0.0, 0.6, 0.8])

    def derivatives(manifold):
        # Composed with the projection, so that the extension off the sphere is the same.
        def energy(x, y):
            return manifold.dist_at(Sphere(2).project_at(x), Sphere(2).project_at(y)) ** 2 / 2

        both = lambda x, y: (jax.grad(energy, argument)(x, y), jax.hessian(energy, argument)(x, y))
        return jax.jit(both)(*ends)

    for ours, theirs in zip(derivatives(manifold("sphere")), derivatives(Sphere(2)), strict=True):
        close(ours, theirs, 1e-6)


# The closest point.


@pytest.mark.usefixtures("float64")
def test_projection_to_the_torus():
    ambient = 2 * jr.normal(jr.key(3), (200, 3))
    radius = jnp.hypot(ambient[:, 0], ambient[:, 1])
    core = ambient.at[:, 2].set(0.0) * (LARGE / radius)[:, None]
    outward = ambient - core
    expected = core + SMALL * outward / jnp.linalg.norm(outward, axis=1, keepdims=True)
    found = jax.jit(jax.vmap(manifold("torus").project))(ambient)
    close(found, expected, 1e-9)
    close(jax.jit(jax.vmap(manifold("torus").project))(found), found, 1e-12)


def test_projection_of_the_center_is_some_point():
    assert float(manifold("sphere").contains(manifold("sphere").project(jnp.zeros(3)))) < 1e-6


def test_contains_is_a_distance():
    x = jnp.array([0.0, 0.0, 1.01])
    close(manifold("sphere").contains(x), 0.01, 1e-3)
    center = float(manifold("sphere").contains(jnp.zeros(3)))
    assert 1 < center < math.inf


def test_open_sets_project_to_themselves():
    x = jnp.array([0.3, 2.0])
    close(manifold("half plane").project(x), x, 0)
    close(manifold("half plane").projector(x), jnp.eye(2), 0)


# Other geometries.


@pytest.mark.usefixtures("float64")
def test_clifford_torus_is_flat():
    angles = jnp.array([[0.3, 1.0], [1.7, 2.2]])
    x, y = jax.vmap(
        lambda a: jnp.concatenate([jnp.stack([jnp.cos(b), jnp.sin(b)]) for b in a]) / 2**0.5
    )(angles)
    torus = manifold("clifford")
    close(torus.dist(x, y), jnp.linalg.norm(angles[0] - angles[1]) / 2**0.5, 1e-7)
    close(torus.exp(x, torus.log(x, y)), y, 1e-10)
    close(torus.laplacian(lambda z: z[0] * z[3], x), -4 * x[0] * x[3], 1e-9)


@pytest.mark.usefixtures("float64")
def test_half_plane_distances():
    half_plane = manifold("half plane")
    x, y = points("half plane", 40), points("half plane", 40, seed=1)
    cosh = 1 + jnp.sum((x - y) ** 2, axis=1) / (2 * x[:, 1] * y[:, 1])
    close(jax.jit(jax.vmap(half_plane.dist))(x, y), jnp.arccosh(cosh), 1e-5)
    up, reach = jnp.array([0.3, 0.1]), jnp.array([0.3, 10.0])
    close(half_plane.dist(up, reach), math.log(100), 1e-6)
    close(half_plane.exp(up, jnp.array([0.0, 0.1])), [0.3, 0.1 * math.e], 1e-8)


@pytest.mark.parametrize("name", ["torus", "half plane"])
def test_exp_is_inverse_to_log(name):
    x = points(name, 30)
    noise = 0.7 * jr.normal(jr.key(5), (30, x.shape[1]))
    v = jax.jit(jax.vmap(manifold(name).tangent))(x, noise)
    if name == "half plane":
        v = v * x[:, 1:]
    y = jax.jit(jax.vmap(manifold(name).exp))(x, v)
    back, gap = jax.jit(jax.vmap(manifold(name).shoot))(x, y)
    close(back, v, 1e-4)
    assert float(jnp.max(gap)) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("name", ["torus", "half plane"])
def test_no_nan_in_the_distance_to_itself(name):
    x = points(name, 1)[0]

    @jax.jit
    def derivatives(x, y):
        distance = lambda y: manifold(name).dist(x, y)
        return distance(y), jax.grad(distance)(y), jax.hessian(distance)(y)

    values = derivatives(x, x)
    assert all(bool(jnp.all(jnp.isfinite(value))) for value in values)
    close(values[0], 0, 1e-6)


def test_exp_can_be_differentiated_backwards():
    x = jnp.array([LARGE + SMALL, 0.0, 0.0])
    height = lambda v: manifold("torus").exp(x, v)[2]
    close(jax.grad(height)(jnp.array([0.0, 0.0, 0.3])), [0.0, 0.0, math.cos(0.3)], 1e-5)


# Uniform points.


@functools.cache
def torus_sample():
    keys = jr.split(jr.key(11), 20000)
    return np.asarray(jax.jit(jax.vmap(manifold("torus").random_point))(keys), float)


def test_uniform_points_on_the_torus():
    x = torus_sample()
    tube = np.arctan2(x[:, 2], np.hypot(x[:, 0], x[:, 1]) - LARGE) % (2 * math.pi)
    around = np.arctan2(x[:, 1], x[:, 0])
    ratio = SMALL / LARGE
    law = lambda angle: (angle + ratio * np.sin(angle)) / (2 * math.pi)
    assert stats.kstest(tube, law).pvalue > 1e-4
    assert stats.kstest(around, stats.uniform(-math.pi, 2 * math.pi).cdf).pvalue > 1e-4
    for order in (1, 2, 3):
        expected = ratio / 2 if order == 1 else 0.0
        for angle, mean in [(tube, expected), (around, 0.0)]:
            for wave, target in [(np.cos(order * angle), mean), (np.sin(order * angle), 0.0)]:
                assert abs(wave.mean() - target) < 4 * wave.std() / len(x) ** 0.5
    assert np.abs(ring(x.T)).max() < 1e-5


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("torus", 4 * math.pi**2 * LARGE * SMALL),
        ("sphere", 4 * math.pi),
    ],
)
def test_volume(name, expected):
    estimate, error = manifold(name).volume(jr.key(2))
    assert abs(float(estimate) - expected) < 0.02 * expected
    assert abs(float(estimate) - expected) < 4 * float(error)
    assert float(error) < 0.01 * expected


@pytest.mark.slow
def test_volume_with_a_metric():
    # Nine times the Euclidean metric: lengths are tripled.
    sphere = Submanifold(unit_sphere, 3, lambda x: 9 * jnp.eye(3))
    estimate, error = sphere.volume(jr.key(3), points=1024)
    assert abs(float(estimate) - 36 * math.pi) < 4 * float(error) < 0.3 * 36 * math.pi


def test_log_volume_inside_jit_is_the_same_number():
    traced = jax.jit(lambda x: x + manifold("sphere").log_volume())(0.0)
    close(traced, manifold("sphere").log_volume(), 1e-6)
    close(traced, math.log(4 * math.pi), 0.02)


# Errors.


def raises(match):
    return pytest.raises(ValueError, match=match)


def test_constructor_errors():
    with raises("must be a function of a point, got 3"):
        Submanifold(3, 3)
    with raises("ambient_dim must be at least 1, got 0"):
        Submanifold(unit_sphere, 0)
    with pytest.raises(TypeError, match="ambient_dim must be an integer, got 3.0"):
        Submanifold(unit_sphere, 3.0)
    with raises(r"must return one value or a vector of values, got shape \(3, 3\)"):
        Submanifold(lambda x: jnp.outer(x, x), 3)
    with raises("must return real numbers"):
        Submanifold(lambda x: x[0] > 0, 3)
    with raises("cannot be evaluated at an array of shape"):
        Submanifold(lambda x: math.sin(x[0]), 3)
    with raises("3 equations in 3 dimensions leave a set of dimension 0"):
        Submanifold(lambda x: x, 3)
    with raises("no zero of the constraint was found .* where it is finite"):
        Submanifold(lambda x: x @ x + 1, 3)
    with raises("no zero of the constraint was found .* where it is NaN or infinite"):
        Submanifold(lambda x: jnp.log(-x @ x), 3)
    with raises("the constraint is singular at x"):
        Submanifold(lambda x: (x @ x - 1) ** 2, 3)
    with raises("the constraint is singular at x"):
        Submanifold(lambda x: jnp.stack([x @ x - 1, 2 * x @ x - 2]), 3)
    with raises(r"metric must return shape \(3, 3\), got shape \(3,\)"):
        Submanifold(unit_sphere, 3, lambda x: x)
    with raises("metric is not symmetric at x"):
        Submanifold(unit_sphere, 3, lambda x: jnp.eye(3).at[0, 1].set(0.5))
    with raises("metric is not positive definite at x"):
        Submanifold(unit_sphere, 3, lambda x: -jnp.eye(3))


def test_point_errors():
    sphere, half_plane = manifold("sphere"), manifold("half plane")
    with raises("x is not on .* it is 0.0955 away"):
        sphere.exp(jnp.array([1.1, 0.0, 0.0]), jnp.zeros(3))
    with raises(r"must have shape \(3,\), got shape \(2, 3\)\. .* jax.vmap"):
        sphere.project(jnp.ones((2, 3)))
    with raises("metric is not finite at x"):
        half_plane.norm(jnp.array([0.3, 0.0]), jnp.ones(2))
    with raises("an open set has no uniform law"):
        half_plane.random_point(jr.key(0))
    with raises("only a compact manifold has a volume"):
        half_plane.volume(jr.key(0))
    cone = Submanifold(lambda x: x[0] ** 2 + x[1] ** 2 - x[2] ** 2, 3)
    with raises("the constraint is singular at x"):
        cone.tangent(jnp.zeros(3), jnp.ones(3))


def test_shooting_errors():
    coarse = Submanifold(unit_sphere, 3, steps=1)
    x, y = jnp.array([1.0, 0.0, 0.0]), jnp.array([-1.0, 0.0, 0.0])
    with raises("no geodesic found from x = .* to y = .* misses y by .* Use points closer"):
        coarse.log(x, y)
    with pytest.raises(eqx.EquinoxRuntimeError, match="no geodesic found from x to y"):
        jax.block_until_ready(eqx.filter_jit(coarse.dist)(x, y))
    velocity, gap = coarse.shoot(x, y)
    assert bool(jnp.all(jnp.isfinite(velocity)))
    assert float(gap) > 0.1
