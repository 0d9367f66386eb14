"""Products of rows with a matrix: the same as `@`, under every transformation."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from calor.training.rows import product

X, WEIGHT, WEIGHTS = (
    jr.normal(key, shape)
    for key, shape in zip(jr.split(jr.key(0), 3), [(5, 3, 4), (4, 2), (5, 4, 2)], strict=True)
)


def value(multiply):
    return lambda x, weight: jnp.sum(jnp.tanh(multiply(jnp.sin(x), weight)) ** 2)


def both(transform, *inputs):
    with jax.enable_x64(True):
        doubles = [jnp.asarray(np.asarray(a), jnp.float64) for a in inputs]
        ours, theirs = (transform(value(multiply))(*doubles) for multiply in (product, jnp.matmul))
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("axes", [(0, None), (1, None), (0, 0), (None, 0)])
def test_batches(axes):
    weight = WEIGHT if axes[1] is None else WEIGHTS
    both(lambda f: jax.vmap(f, axes), X, weight)
    both(lambda f: jax.vmap(jax.grad(f, (0, 1)), axes), X, weight)
    both(lambda f: jax.grad(lambda *a: jnp.sum(jax.vmap(f, axes)(*a)), (0, 1)), X, weight)


@pytest.mark.parametrize("transform", [jax.jit, jax.grad, jax.hessian, jax.checkpoint])
def test_other_transformations(transform):
    both(transform, X, WEIGHT)
    both(lambda f: lambda *a: jax.jvp(f, a, a), X, WEIGHT)


def test_types_and_sizes():
    half = X.astype(jnp.bfloat16)
    with jax.numpy_dtype_promotion("standard"):
        found, expected = jax.jit(product)(half, WEIGHT), half @ WEIGHT
    assert found.dtype == expected.dtype == jnp.float32
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert product(jnp.zeros((0, 4)), WEIGHT).shape == (0, 2)
    np.testing.assert_array_equal(product(jnp.zeros((5, 0)), jnp.zeros((0, 2))), np.zeros((5, 2)))
    with pytest.raises(ValueError, match=r"rows of \(5, 3, 4\) do not fit a matrix of \(3, 2\)"):
        product(X, WEIGHT[:3])


def test_one_row():
    np.testing.assert_allclose(product(X[0, 0], WEIGHT), X[0, 0] @ WEIGHT, rtol=1e-6)
