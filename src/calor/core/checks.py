"""Checks at the public doors: what was wrong, what was seen, what to do.

Shapes and dtypes are known to JAX at any time and are always checked.  Values are checked when the
function is called with concrete arrays; inside `jax.jit` and `jax.vmap` they are not known yet.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array


def is_concrete(*arrays: Array) -> bool:
    """Whether the values of all the arrays are known, i.e. none is being traced."""
    return not any(isinstance(array, Tracer) for array in arrays)


def _by(owner: str) -> str:
    """Who says it; nobody where a door says it."""
    return f"{owner}: " if owner else ""


def real_array(value: object, name: str, shape: tuple[int, ...], owner: str) -> Array:
    """`value` as a real floating array of the given shape, finite if concrete."""
    by = _by(owner)
    if not isinstance(value, jax.Array):
        try:
            value = np.asarray(value)
        except Exception as error:
            raise TypeError(
                f"{by}{name} must be an array of real numbers, got {type(value).__name__}."
            ) from error
        if value.dtype == object or value.dtype.kind in "USV":
            raise TypeError(f"{by}{name} must be an array of real numbers, got {value!r:.80}.")
    if jnp.issubdtype(value.dtype, jnp.complexfloating):
        raise TypeError(
            f"{by}{name} must be real, got dtype {value.dtype}; take its real part if its "
            "imaginary part is only rounding."
        )
    array = value
    if not isinstance(array, jax.Array):
        with jax.ensure_compile_time_eval():  # known numbers stay known inside jax.jit
            array = jnp.asarray(value)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        array = array.astype(jnp.result_type(float))
    if array.shape != shape:
        hint = ""
        if array.ndim > len(shape) and array.shape[array.ndim - len(shape) :] == shape:
            hint = " This is a function of one point: use jax.vmap for a batch."
        raise ValueError(f"{by}{name} must have shape {shape}, got shape {array.shape}.{hint}")
    # NumPy, because inside jax.jit operations of JAX are traced even on known numbers.
    if is_concrete(array) and not np.all(np.isfinite(np.asarray(array))):
        count = int(np.sum(~np.isfinite(np.asarray(array))))
        raise ValueError(
            f"{by}{name} has {count} entries that are NaN or infinite; clean the data first."
        )
    return array


def field_values(function: object, x: Array, shape: tuple[int, ...], owner: str) -> None:
    """Raise unless `function` takes the point x to real numbers of the given shape."""
    if not callable(function):
        raise TypeError(f"{owner}: expected a function of one point, got {function!r:.80}.")
    output = jax.eval_shape(function, x)
    seen = getattr(output, "shape", None)
    if seen != shape or not jnp.issubdtype(output.dtype, jnp.floating):
        described = f"a {type(output).__name__}"
        if seen is not None:
            described = f"{output.dtype} of shape {seen}"
        raise ValueError(
            f"{owner}: the function must return real numbers of shape {shape} at one point, got "
            f"{described}; write it with jax.numpy."
        )


def positive_time(value: object, owner: str = "") -> Array:
    """`value` as a time t > 0."""
    by = _by(owner)
    t = real_array(value, "t", (), owner)
    if is_concrete(t) and not float(t) > 0:
        raise ValueError(f"{by}the time t must be positive, got t = {float(t):g}.")
    return t


def random_key(key: object, owner: str = "") -> Array:
    """`key` as a single random key."""
    by = _by(owner)
    if not isinstance(key, jax.Array):
        raise TypeError(f"{by}key must come from jax.random.key(seed), got {type(key).__name__}.")
    if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        shape = key.shape
    elif key.dtype == jnp.uint32 and key.ndim >= 1:  # a legacy jax.random.PRNGKey
        shape = key.shape[:-1]
    else:
        raise TypeError(f"{by}key must come from jax.random.key(seed), got {key!r:.60}.")
    if shape != ():
        raise ValueError(
            f"{by}key must be one key, got an array of keys of shape {shape}; use jax.vmap "
            "to draw a batch."
        )
    return key


def positive_integer(value: object, name: str, owner: str = "", at_least: int = 1) -> int:
    """`value` as an integer of at least `at_least`, for constructors."""
    by = _by(owner)
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{by}{name} must be an integer, got {value!r}.")
    if value < at_least:
        raise ValueError(f"{by}{name} must be at least {at_least}, got {value}.")
    return int(value)


def key_numbers(key: Array) -> np.ndarray:
    """The numbers of a random key, to tell runs apart by them."""
    data = jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key
    return np.asarray(data)
