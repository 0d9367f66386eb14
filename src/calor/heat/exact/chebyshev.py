"""Smooth functions of two variables as Chebyshev series, fitted in float64, evaluated in JAX."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.fft import dctn

# Coefficients that all together are below this are left out in float32.
_SINGLE_PRECISION = 1e-6


def chebyshev_nodes(n: int) -> np.ndarray:
    """The n zeros of the Chebyshev polynomial T_n, in (-1, 1)."""
    return np.cos((np.arange(n) + 0.5) * np.pi / n)


class ChebyshevTable:
    """K functions on [-1, 1]^2, each a sum of c_ij T_i(x) T_j(y).

    A constant, compared by identity: compiled code contains its numbers.
    """

    def __init__(self, values: np.ndarray):
        """Interpolate `values` of shape (K, n, m), given at the Chebyshev nodes of x and of y."""
        rows, columns = values.shape[1:]
        coefficients = dctn(values, type=2, axes=(1, 2)) / (rows * columns)
        coefficients[:, 0] /= 2
        coefficients[:, :, 0] /= 2
        self.coefficients: np.ndarray = coefficients
        size = np.max(np.abs(coefficients), axis=0)
        # How many coefficients in each variable are enough in float32.
        self.single: tuple[int, int] = (_needed(size.sum(1)), _needed(size.sum(0)))

    def __call__(self, x: Float[Array, ""], y: Float[Array, ""]) -> Float[Array, " K"]:
        """The K values at (x, y)."""
        rows, columns = self.coefficients.shape[1:]
        if x.dtype == jnp.float32:
            rows, columns = self.single
        coefficients = jnp.asarray(self.coefficients[:, :rows, :columns], x.dtype)
        # The first variable by a matrix product, the second by Clenshaw's recurrence.
        series = jnp.tensordot(_polynomials(x, rows), coefficients, axes=(0, 1))
        here = ahead = jnp.zeros_like(series[:, 0])
        for k in range(columns - 1, 0, -1):
            here, ahead = 2 * y * here - ahead + series[:, k], here
        return y * here - ahead + series[:, 0]


def _needed(sizes):
    tail = np.cumsum(sizes[::-1])[::-1]  # tail[k] = sum of everything from k on
    return max(2, int(np.sum(tail > _SINGLE_PRECISION)))


def _polynomials(x, count):
    """T_0(x), ..., T_{count-1}(x), doubling their number by T_{k+j} = 2 T_k T_j - T_{k-j}."""
    values = jnp.stack([jnp.ones_like(x), x])
    while len(values) < count:
        last = values[-1]
        values = jnp.concatenate([values, 2 * last * values[1:] - values[-2::-1]])
    return values[:count]
