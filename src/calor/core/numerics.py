"""Elementary functions with removable singularities, finite with all their derivatives.

The argument is guarded, not the result: where a formula would divide by zero it is handed a
harmless argument, and a Taylor polynomial answers instead.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def safe_sqrt(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """The square root of max(x, 0), with derivative zero (instead of infinite) at zero."""
    not_positive = x <= 0  # false for NaN, which stays NaN
    return jnp.where(not_positive, 0.0, jnp.sqrt(jnp.where(not_positive, 1.0, x)))


def safe_norm(x: Float[Array, "..."]) -> Float[Array, ""]:
    """The Euclidean norm over all axes, with derivative zero at the zero vector."""
    return safe_sqrt(jnp.sum(x * x))


def sinc(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """sin(x) / x, as an even smooth function."""
    return _ratio(jnp.sin, x, -x * x)


def sinhc(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """sinh(x) / x, as an even smooth function."""
    return _ratio(jnp.sinh, x, x * x)


def _ratio(sine, x, square):
    """sine(x) / x, whose Taylor series in -x^2 or x^2 is the same for the two sines."""
    small = jnp.abs(x) < 0.1
    series = 1 + square / 6 * (1 + square / 20 * (1 + square / 42 * (1 + square / 72)))
    safe = jnp.where(small, 1.0, x)
    return jnp.where(small, series, sine(safe) / safe)


def log_sinhc(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """log(sinh(x) / x), as an even smooth function that does not overflow."""
    a = jnp.abs(x)
    small = a < 0.3
    x2 = x * x
    series = x2 / 6 * (1 - x2 / 30 * (1 - x2 * 4 / 63 * (1 - x2 * 3 / 40 * (1 - x2 * 8 / 99))))
    safe = jnp.where(small, 1.0, a)
    return jnp.where(small, series, safe + jnp.log1p(-jnp.exp(-2 * safe)) - jnp.log(2 * safe))


def accurate_dot(
    x: Float[Array, " n"], y: Float[Array, " n"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """x . y as a sum of two floating point numbers, to one and a half times the precision."""
    exponent, mantissa = (8, 11) if x.dtype == jnp.float32 else (11, 25)

    def split(a):
        high = jax.lax.reduce_precision(a, exponent, mantissa)
        return high, a - high

    (x_high, x_low), (y_high, y_low) = split(x), split(y)
    # Products of the halves are exact, so a compiler that fuses multiplication and addition
    # changes nothing.  The large ones are added with their rounding errors carried along.
    rest = jnp.sum(x_high * y_low + x_low * y_high + x_low * y_low)
    terms = x_high * y_high
    total = terms[0]
    for term in terms[1:]:
        new = total + term
        part = new - total
        rest = rest + ((total - (new - part)) + (term - part))
        total = new
    return total, rest


def wrap_angle(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """The representative of an angle in [-pi, pi); derivative one everywhere."""
    turns = jax.lax.stop_gradient(jnp.floor((x + jnp.pi) / (2 * jnp.pi)))
    return x - 2 * jnp.pi * turns


def squared_arcsinh(q: Float[Array, "..."]) -> Float[Array, "..."]:
    """arcsinh(sqrt(q))^2 for q >= 0, which is analytic at q = 0."""
    small = q < 0.15
    inner = jnp.where(small, q, 0.0)
    series = inner * jnp.polyval(jnp.asarray(_ARCSINH_SERIES[::-1], q.dtype), inner, unroll=20)
    return jnp.where(small, series, jnp.arcsinh(jnp.sqrt(jnp.where(small, 1.0, q))) ** 2)


def arcsinh_ratio(q: Float[Array, "..."]) -> Float[Array, "..."]:
    """arcsinh(sqrt(q))^2 / q, analytic for q > -1 and one at q = 0."""
    small = q < 0.15  # the series is good down to -1/2
    inner = jnp.where(small, q, 0.0)
    series = jnp.polyval(jnp.asarray(_ARCSINH_SERIES[::-1], q.dtype), inner, unroll=20)
    safe = jnp.where(small, 1.0, q)
    return jnp.where(small, series, jnp.arcsinh(jnp.sqrt(safe)) ** 2 / safe)


# arcsinh(x)^2 = sum of (-1)^(k+1) (2x)^(2k) / (2 k^2 binom(2k, k))
_ARCSINH_SERIES = np.array(
    [(-1) ** (k + 1) * 4.0**k / (2 * k**2 * math.comb(2 * k, k)) for k in range(1, 20)]
)


def even_features(x: Float[Array, "..."]) -> Float[Array, "... 2"]:
    """Two even analytic functions of x that stay of order one for networks to look at."""
    x2 = x * x / 4
    return jnp.stack([x2 / (1 + x2), jnp.log1p(x2) / 4], axis=-1)


def coth_remainder(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """(coth(x) - 1/x) / x, as an even smooth function, 1/3 at zero."""
    return _with_series(_COTH_SERIES, lambda x: (1 / jnp.tanh(x) - 1 / x) / x, x)


def cot_remainder(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """(1/x - cot(x)) / x, as an even function smooth for |x| < pi, 1/3 at zero."""
    return _with_series(np.abs(_COTH_SERIES), lambda x: (1 / x - 1 / jnp.tan(x)) / x, x)


def _with_series(coefficients, formula, x):
    """An even function by its Taylor coefficients in x^2 near zero, and by a formula elsewhere."""
    small = jnp.abs(x) < 0.5
    x2 = jnp.where(small, x * x, 0.0)
    series = jnp.polyval(jnp.asarray(coefficients[::-1], x2.dtype), x2, unroll=8)
    return jnp.where(small, series, formula(jnp.where(small, 1.0, x)))


# Powers of x^2 in (coth(x) - 1/x) / x: 2^(2k+2) B_(2k+2) / (2k+2)!
_COTH_SERIES = np.array(
    [
        1 / 3,
        -1 / 45,
        2 / 945,
        -1 / 4725,
        2 / 93555,
        -1382 / 638512875,
        4 / 18243225,
        -3617 / 162820783125,
    ]
)


def cholesky_rows(matrix: Float[Array, "n n"]) -> list[list[Array]]:
    """The lower triangular factor of a small positive definite matrix, entry by entry.

    Unlike a call of LAPACK it is fast in batches, and can be differentiated again and again.  And
    batches of ten thousand calls of LAPACK inside a loop have made XLA's runtime on two CPU cores
    wait for itself forever (jax 0.10.2).
    """
    rows: list[list[Array]] = []
    for i in range(len(matrix)):
        row: list[Array] = []
        for j in range(i + 1):
            rest = matrix[i, j] - sum(
                a * b for a, b in zip(row, rows[j] if j < i else row, strict=False)
            )
            row.append(jnp.sqrt(rest) if i == j else rest / rows[j][j])
        rows.append(row)
    return rows


def log_det(matrix: Float[Array, "n n"]) -> Array:
    """The logarithm of the determinant of a small positive definite matrix."""
    return 2 * sum(jnp.log(row[-1]) for row in cholesky_rows(matrix))  # pyright: ignore


def _forward(rows, vector):
    """The entries of L^-1 v."""
    half: list[Array] = []
    for i, row in enumerate(rows):
        half.append((vector[i] - sum(a * b for a, b in zip(row, half, strict=False))) / row[-1])
    return half


def whiten(matrix: Float[Array, "n n"], vector: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
    """L^-1 v, with L L^T the small positive definite matrix, for one or more vectors v."""
    return jnp.stack(_forward(cholesky_rows(matrix), vector))


def solve_positive(
    matrix: Float[Array, "n n"], vector: Float[Array, "n ..."]
) -> Float[Array, "n ..."]:
    """The solution of a small positive definite system, for one or more right hand sides."""
    rows = cholesky_rows(matrix)
    size, half, solution = len(rows), _forward(rows, vector), []
    for i in reversed(range(size)):
        below = sum(rows[j][i] * solution[size - 1 - j] for j in range(i + 1, size))
        solution.append((half[i] - below) / rows[i][i])
    return jnp.stack(solution[::-1])
