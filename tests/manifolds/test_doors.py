"""Bad input: every error says what was wrong, what was seen and what to do."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import calor

NORTH = jnp.array([0.0, 0.0, 1.0])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: calor.Sphere(0), ValueError, "n must be at least 1, got 0"),
        (lambda: calor.Sphere(2.5), TypeError, "n must be an integer, got 2.5"),
        (lambda: calor.SPD(True), TypeError, "n must be an integer, got True"),
        (lambda: calor.Product(), ValueError, "at least one manifold"),
        (lambda: calor.Product(3), TypeError, "every factor must be a manifold, got 3"),
        (
            lambda: calor.Sphere(2).exp(NORTH[:2], NORTH),
            ValueError,
            r"shape \(3,\), got shape \(2,\)",
        ),
        (lambda: calor.Sphere(2).exp(jnp.zeros((5, 3)), NORTH), ValueError, "use jax.vmap"),
        (
            lambda: calor.Sphere(2).log(NORTH, 2 * NORTH),
            ValueError,
            "y is not on Sphere.*it is 1 away",
        ),
        (
            lambda: calor.Sphere(2).dist(NORTH, NORTH * jnp.nan),
            ValueError,
            "3 entries that are NaN",
        ),
        (lambda: calor.Sphere(2).project("north"), TypeError, "real numbers"),
        (lambda: calor.Sphere(2).project(NORTH * 1j), TypeError, "must be real, got dtype complex"),
        (lambda: calor.Hyperbolic(2).dist(NORTH, NORTH), ValueError, r"not on Hyperbolic\(2\)"),
        (
            lambda: calor.Hyperbolic(2).from_ball([0.8, 0.8]),
            ValueError,
            "norm below 1, got norm 1.13",
        ),
        (
            lambda: calor.SPD(2).dist(jnp.eye(2), jnp.array([[1.0, 0.5], [0.0, 1.0]])),
            ValueError,
            "not symmetric, entries differ by up to 0.5",
        ),
        (
            lambda: calor.SPD(2).dist(jnp.eye(2), -jnp.eye(2)),
            ValueError,
            "not positive definite, its smallest eigenvalue is -1",
        ),
        (lambda: calor.SO3().from_matrix(2 * jnp.eye(3)), ValueError, "not a rotation matrix"),
        (lambda: calor.SO3().from_matrix(-jnp.eye(3)), ValueError, "det R = -1"),
        (lambda: calor.SO3().from_euler("xxz", [0, 0, 0]), ValueError, "got 'xxz'"),
        (lambda: calor.SO3().from_euler("xYz", [0, 0, 0]), ValueError, "all upper case"),
        (lambda: calor.Sphere(2).random_point(0), TypeError, r"jax.random.key\(seed\), got int"),
        (lambda: calor.Sphere(2).random_point(jr.split(jr.key(0))), ValueError, "an array of keys"),
        (
            lambda: calor.Quotient(calor.Sphere(2), [lambda x: -x]),
            ValueError,
            "contain the identity",
        ),
        (
            lambda: calor.Quotient(calor.Sphere(2), [lambda x: x, lambda x: 2 * x]),
            ValueError,
            "does not map",
        ),
        (
            lambda: calor.Quotient(calor.Sphere(2), np.eye(2)[None]),
            ValueError,
            r"must have shape \(g, n, n\), got \(1, 2, 2\)",
        ),
        (
            lambda: calor.Quotient(
                calor.Sphere(1), [lambda x: x, lambda x: jnp.array([-x[1], x[0]])]
            ),
            ValueError,
            "not closed under composition",
        ),
        (lambda: calor.Quotient(calor.Sphere(2), []), ValueError, "non-empty"),
        (
            lambda: calor.heat_kernel(calor.Sphere(2)).log_prob(-1.0, NORTH, NORTH),
            ValueError,
            "t must be positive, got t = -1",
        ),
        (
            lambda: calor.heat_kernel(calor.Sphere(2)).score(0.0, NORTH, NORTH),
            ValueError,
            "t must be positive, got t = 0",
        ),
        (
            lambda: calor.heat_kernel(calor.Sphere(2)).score(np.nan, NORTH, NORTH),
            ValueError,
            "t has",
        ),
        (
            lambda: calor.heat_kernel(calor.Sphere(2)).sample(0.1, 1.5 * NORTH, key=jr.key(0)),
            ValueError,
            "x0 is not on Sphere",
        ),
        (
            lambda: calor.heat_kernel(calor.Sphere(2)).sample(0.1, NORTH, key=3),
            TypeError,
            "key must",
        ),
        (
            lambda: calor.heat_kernel(calor.Sphere(2)).log_prob(jnp.ones(3), NORTH, NORTH),
            ValueError,
            r"t must have shape \(\), got shape \(3,\)",
        ),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_shapes_are_checked_under_vmap_too():
    kernel = calor.heat_kernel(calor.Sphere(2))
    with pytest.raises(ValueError, match=r"x must have shape \(3,\), got shape \(4,\)"):
        jax.vmap(kernel.log_prob, (None, 0, None))(0.1, jnp.ones((5, 4)), NORTH)


def test_what_is_accepted():
    """Lists, NumPy arrays, integers, legacy keys, and points with four decimals."""
    sphere = calor.Sphere(2)
    assert float(sphere.dist([0, 0, 1], np.array([0.0, 1.0, 0.0]))) == pytest.approx(np.pi / 2)
    assert sphere.random_point(jax.random.PRNGKey(0)).shape == (3,)
    rounded = np.round(np.asarray(sphere.random_point(jr.key(0)), np.float64), 4)
    assert np.isfinite(sphere.dist(rounded, NORTH))
    assert calor.SPD(1).dist([[2.0]], [[1.0]]) == pytest.approx(np.log(2))


def test_import_does_not_change_the_precision():
    assert not jax.config.jax_enable_x64


def test_constants_inside_jit_are_checked_too():
    """A point that is known while a function is traced is checked like any other."""
    sphere = calor.Sphere(2)
    np.testing.assert_allclose(jax.jit(lambda x: sphere.dist(x, NORTH))(-NORTH), np.pi, rtol=1e-6)
    with pytest.raises(ValueError, match="y is not on Sphere"):
        jax.jit(lambda x: sphere.dist(x, 2 * np.asarray(NORTH)))(NORTH)


def test_volumes():
    sphere, rotations = calor.Sphere(2), calor.SO3()
    np.testing.assert_allclose(rotations.log_volume(), np.log(np.pi**2), rtol=1e-6)
    product = calor.Product(calor.Product(sphere, rotations), calor.Torus(1))
    expected = np.log(4 * np.pi) + np.log(np.pi**2) + np.log(2 * np.pi)
    np.testing.assert_allclose(product.log_volume(), expected, rtol=1e-6)
    with pytest.raises(ValueError, match="is not compact"):
        calor.Product(sphere, calor.Euclidean(1)).log_volume()
