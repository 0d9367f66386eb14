"""No NaN, in value or derivative, where formulas have removable singularities, in float32."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import calor
from calor.manifolds.matrices import eigenvalues, random_rotation, symmetric_log


def assert_finite(function, *points):
    """Value, and first derivatives in both modes, in every argument."""
    numbers = tuple(range(len(points)))
    assert np.all(np.isfinite(function(*points)))
    for derivative in (jax.jacfwd, jax.jacrev):
        for block in derivative(function, numbers)(*points):
            assert np.all(np.isfinite(block))


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_antipodes(n):
    sphere = calor.Sphere(n)
    x = sphere.random_point(jr.key(0))
    for offset in (0.0, 1e-7, 1e-5, 1e-3):
        y = sphere.project(-x + offset * jr.normal(jr.key(1), x.shape))
        assert_finite(sphere.log, x, y)
        assert_finite(sphere.dist, x, y)
        distance = float(sphere.dist(x, y))
        assert abs(distance - np.pi) < 3 * (n + 1) * offset + 1e-6
        assert abs(float(sphere.norm(x, sphere.log(x, y))) - distance) < 1e-5


def test_identity_and_half_turns():
    so3 = calor.SO3()
    identity = so3.identity()
    for axis in ([1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0], [0.6, 0, 0.8]):
        half_turn = jnp.array([0.0, *axis])
        assert_finite(so3.log, identity, half_turn)
        assert_finite(so3.dist, identity, half_turn)
        np.testing.assert_allclose(so3.dist(identity, half_turn), np.pi / 2, rtol=1e-6)
        assert_finite(so3.to_matrix, half_turn)
        assert_finite(so3.to_rotation_vector, half_turn)
        assert_finite(so3.from_matrix, so3.to_matrix(half_turn))
    assert_finite(so3.to_rotation_vector, identity)
    assert_finite(so3.from_rotation_vector, jnp.zeros(3))
    assert_finite(so3.log, identity, -identity)
    assert float(so3.dist(identity, -identity)) == 0


def test_repeated_eigenvalues():
    spd = calor.SPD(3)
    identity = jnp.eye(3)
    double = jnp.diag(jnp.array([2.0, 2.0, 5.0]))
    for x, y in ((identity, identity), (identity, double), (double, double), (double, identity)):
        assert_finite(spd.log, x, y)
        assert_finite(spd.dist, x, y)
        assert_finite(spd.exp, x, spd.log(x, y))
        second = jax.jacfwd(jax.jacfwd(lambda z, x=x: spd.log(x, z)))(y)
        assert np.all(np.isfinite(second))


def test_second_derivative_of_matrix_log_at_repeated_eigenvalues_is_right():
    with jax.enable_x64(True):
        spd = calor.SPD(3)
        x = jnp.diag(jnp.array([2.0, 2.0, 5.0]))
        direction = jnp.array([[0.3, 0.1, -0.2], [0.1, -0.4, 0.25], [-0.2, 0.25, 0.1]])
        identity = jnp.eye(3)
        for verb in (spd.log, spd.exp):
            path = lambda s, verb=verb: verb(identity, x + s * direction)
            second = jax.jacfwd(jax.jacfwd(path))(0.0)
            h = 3e-4
            difference = (path(h) + path(-h) - 2 * path(0.0)) / h**2
            np.testing.assert_allclose(second, difference, rtol=2e-5, atol=2e-5)


def test_far_out_in_hyperbolic_space():
    for n in (2, 3):
        space = calor.Hyperbolic(n)
        origin = space.origin()
        direction = jr.normal(jr.key(n), (n,))
        direction = direction / jnp.linalg.norm(direction)
        far = space.exp(origin, jnp.concatenate([jnp.zeros(1), 15.0 * direction]))
        np.testing.assert_allclose(space.dist(origin, far), 15.0, rtol=1e-6)
        # Rounding the coordinates of a unit vector there turns it by a tenth.
        np.testing.assert_allclose(space.norm(far, space.log(far, origin)), 15.0, rtol=1e-2)
        for x, y in ((origin, far), (far, origin), (far, far)):
            assert_finite(space.log, x, y)
            assert_finite(space.dist, x, y)
        assert float(space.dist(far, far)) == 0
        opposite = space.exp(origin, jnp.concatenate([jnp.zeros(1), -15.0 * direction]))
        np.testing.assert_allclose(space.dist(far, opposite), 30.0, rtol=1e-5)


def test_ill_conditioned_matrices():
    spd = calor.SPD(4)
    q, _ = jnp.linalg.qr(jr.normal(jr.key(0), (4, 4)))
    x = (q * jnp.array([1e-3, 1.0, 30.0, 1e3])) @ q.T
    x = (x + x.T) / 2
    identity = jnp.eye(4)
    expected = np.linalg.norm(np.log(np.linalg.eigvalsh(np.asarray(x, np.float64))))
    # The smallest eigenvalue is known to a tenth: a condition number of 1e6 against 1e-7.
    np.testing.assert_allclose(spd.dist(identity, x), expected, rtol=3e-2)
    np.testing.assert_allclose(spd.dist(x, identity), expected, rtol=3e-2)
    for pair in ((identity, x), (x, identity), (x, x)):
        assert_finite(spd.log, *pair)
        assert_finite(spd.dist, *pair)
    assert_finite(spd.exp, x, 0.1 * x)


def test_rotations_agree_with_scipy():
    with jax.enable_x64(True):
        so3 = calor.SO3()
        generator = np.random.default_rng(0)
        special = Rotation.from_rotvec([[0, 0, 0], [np.pi, 0, 0], [0, 1e-9, 0], [0, 0, 3.1415]])
        for rotation in [*Rotation.random(30, rng=generator), *special]:
            x = jnp.asarray(rotation.as_quat(scalar_first=True))
            matrix = rotation.as_matrix()
            np.testing.assert_allclose(so3.to_matrix(x), matrix, atol=1e-12)
            assert float(so3.dist(so3.from_matrix(matrix), x)) < 1e-7
            turned = so3.from_rotation_vector(rotation.as_rotvec())
            assert float(so3.dist(turned, x)) < 1e-7
            back = Rotation.from_rotvec(np.array(so3.to_rotation_vector(x)))
            assert (back * rotation.inv()).magnitude() < 1e-7
            other = Rotation.random(rng=generator)
            product = so3.compose(x, jnp.asarray(other.as_quat(scalar_first=True)))
            np.testing.assert_allclose(
                so3.to_matrix(product), (rotation * other).as_matrix(), atol=1e-12
            )
            inverse = so3.to_matrix(so3.inverse(x))
            np.testing.assert_allclose(inverse, rotation.inv().as_matrix(), atol=1e-12)


@pytest.mark.parametrize("order", ["fixed", "turning"])
def test_euler_angles_agree_with_scipy(order):
    with jax.enable_x64(True):
        so3 = calor.SO3()
        generator = np.random.default_rng(1)
        sequences = [a + b + c for a in "xyz" for b in "xyz" for c in "xyz" if a != b != c]
        for name in sequences:
            sequence = name if order == "fixed" else name.upper()
            for rotation in Rotation.random(5, rng=generator):
                x = jnp.asarray(rotation.as_quat(scalar_first=True))
                expected = rotation.as_euler(sequence)
                np.testing.assert_allclose(so3.to_euler(x, sequence), expected, atol=1e-9)
                degrees = so3.from_euler(sequence, np.rad2deg(expected), degrees=True)
                assert float(so3.dist(degrees, x)) < 1e-7
            # In gimbal lock the angles are not unique, the rotation is.
            middle = 0.0 if name[0] == name[2] else np.pi / 2
            locked = so3.from_euler(sequence, jnp.array([0.4, middle, -1.1]))
            again = so3.from_euler(sequence, so3.to_euler(locked, sequence))
            assert float(so3.dist(again, locked)) < 1e-6


def test_fast_eigenvalues_of_ordinary_and_degenerate_matrices():
    noise = jr.normal(jr.key(0), (64, 10, 10))
    matrices = [noise @ jnp.swapaxes(noise, 1, 2), jnp.eye(10)[None], jnp.zeros((1, 10, 10))]
    matrices += [
        jnp.diag(jnp.array([1.0, 1, 1, 2, 2, 3, 1e-6, 5, 5, 5]))[None],
        jnp.ones((1, 10, 10)),
    ]
    batch = jnp.concatenate(matrices)
    found = np.asarray(jax.vmap(eigenvalues)(batch))
    truth = np.linalg.eigvalsh(np.asarray(batch, np.float64))
    scale = np.max(np.abs(truth), axis=1, keepdims=True) + 1e-30
    assert np.max(np.abs(found - truth) / scale) < 2e-6
    slope = jax.jacfwd(lambda s: jnp.sum(eigenvalues(s)))(batch[0])
    np.testing.assert_allclose(slope, np.eye(10), atol=1e-5)
    assert_finite(eigenvalues, batch[-2])


def test_batches_of_matrices_are_decomposed_one_by_one():
    """On a CPU: batches that XLA decomposes side by side may wait for each other for ever."""
    x = jnp.stack([jnp.eye(3)] * 8)
    text = jax.jit(jax.vmap(jax.vmap(symmetric_log))).lower(x[None]).as_text()
    calls = [line for line in text.splitlines() if "syevd" in line]
    assert calls
    assert not any("8x3x3" in line for line in calls)


def test_random_rotations_are_uniform(double):
    """The fourth moments of the entries, 3 / n(n + 2) and (n + 1) / (n - 1) n (n + 2)."""
    n, count = 3, 40_000
    q = jax.vmap(lambda key: random_rotation(key, n, jnp.float64))(jr.split(jr.key(0), count))
    np.testing.assert_allclose(
        jnp.einsum("bij,bkj->bik", q, q), np.stack([np.eye(n)] * count), atol=1e-12
    )
    np.testing.assert_allclose(jnp.mean(q**4, axis=0), 3 / (n * (n + 2)), atol=0.005)
    other = jnp.mean(q[:, 0, 0] ** 2 * q[:, 1, 1] ** 2)
    np.testing.assert_allclose(other, (n + 1) / ((n - 1) * n * (n + 2)), atol=0.005)
