"""Elementary functions with removable singularities, finite with all their derivatives.

The argument is guarded, not the result: where a formula would divide by zero it is handed a harmless
argument, and a Taylor polynomial answers instead.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def safe_sqrt(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """The square root of max(x, 0), with derivative zero (instead of infinite) at zero."""
    positive = x > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, x, 1.0)), 0.0)


def safe_norm(x: Float[Array, "..."]) -> Float[Array, ""]:
    """The Euclidean norm over all axes, with derivative zero at the zero vector."""
    return safe_sqrt(jnp.sum(x * x))


def sinc(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """sin(x) / x, as an even smooth function."""
    small = jnp.abs(x) < 0.1
    x2 = x * x
    series = 1 - x2 / 6 * (1 - x2 / 20 * (1 - x2 / 42 * (1 - x2 / 72)))
    safe = jnp.where(small, 1.0, x)
    return jnp.where(small, series, jnp.sin(safe) / safe)


def sinhc(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """sinh(x) / x, as an even smooth function."""
    small = jnp.abs(x) < 0.1
    x2 = x * x
    series = 1 + x2 / 6 * (1 + x2 / 20 * (1 + x2 / 42 * (1 + x2 / 72)))
    safe = jnp.where(small, 1.0, x)
    return jnp.where(small, series, jnp.sinh(safe) / safe)


def log_sinhc(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """log(sinh(x) / x), as an even smooth function that does not overflow."""
    a = jnp.abs(x)
    small = a < 0.3
    x2 = x * x
    series = x2 / 6 * (
        1 - x2 / 30 * (1 - x2 * 4 / 63 * (1 - x2 * 3 / 40 * (1 - x2 * 8 / 99)))
    )
    safe = jnp.where(small, 1.0, a)
    return jnp.where(small, series, safe + jnp.log1p(-jnp.exp(-2 * safe)) - jnp.log(2 * safe))


def wrap_angle(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """The representative of an angle in [-pi, pi); derivative one everywhere."""
    turns = jax.lax.stop_gradient(jnp.floor((x + jnp.pi) / (2 * jnp.pi)))
    return x - 2 * jnp.pi * turns


def coth_remainder(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """(coth(x) - 1/x) / x, as an even smooth function, 1/3 at zero."""
    small = jnp.abs(x) < 0.5
    x2 = jnp.where(small, x * x, 0.0)
    series = jnp.polyval(jnp.asarray(_COTH_SERIES[::-1], x2.dtype), x2, unroll=8)
    safe = jnp.where(small, 1.0, x)
    return jnp.where(small, series, (1 / jnp.tanh(safe) - 1 / safe) / safe)


def cot_remainder(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """(1/x - cot(x)) / x, as an even function smooth for |x| < pi, 1/3 at zero."""
    small = jnp.abs(x) < 0.5
    x2 = jnp.where(small, x * x, 0.0)
    series = jnp.polyval(jnp.asarray(np.abs(_COTH_SERIES[::-1]), x2.dtype), x2, unroll=8)
    safe = jnp.where(small, 1.0, x)
    return jnp.where(small, series, (1 / safe - 1 / jnp.tan(safe)) / safe)


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
