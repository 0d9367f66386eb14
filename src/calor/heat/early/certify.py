"""The certificate of the law along shot geodesics, a solution that is exact as t -> 0."""

import functools
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ...core.types import Key
from ..certificate import FURTHER, TIMES, Certificate, assembled, column

if TYPE_CHECKING:
    from .geodesics import GeodesicLaw

# If rounding to single precision moves the score of the law by more than this, its use ends.
_ROUNDING = 1e-3


def certify_law(
    law: "GeodesicLaw", last: float, *, key: Key, points: int = 128, rounded: bool = True
) -> Certificate:
    """Measure the law along shot geodesics, in float64, up to a time.

    It ends earlier where coordinates far away are so distorted that rounding to single precision
    decides about the score, unless it is not used `rounded`.
    """
    times, columns = np.geomspace(last / 50, last, TIMES), []
    with jax.enable_x64(True):
        keys = jr.split(key, TIMES + 1)
        sources = law.manifold.sources(points, keys[0])
    for t, key_time in zip(times, keys[1:], strict=True):
        with jax.enable_x64(True):
            shots = _shots(law, jnp.asarray(t), sources, jr.split(key_time, points))
            shots = {name: np.asarray(values) for name, values in shots.items()}
        if rounded and not _survives_rounding(law, t, sources, shots) and len(columns) > 1:
            break
        residual = shots["residual"]
        columns.append(column(residual, np.abs(residual) / shots["largest"], shots["length"]))
    times = times[: len(columns)]
    return assembled(law.manifold, 0.0, times, columns, points, initial_error=0.0)


@functools.lru_cache(maxsize=16)
def measured(law: "GeodesicLaw", last: float, rounded: bool = True) -> Certificate:
    """`certify_law`, once for a law, a time and one key."""
    return certify_law(law, last, key=jr.key(1), rounded=rounded)


def _survives_rounding(law, t, sources, shots):
    """Whether the scores are nearly the same in single precision."""
    with jax.enable_x64(False):
        start = t, sources, shots["basis"], shots["v"]
        rounded = _scores(law, *(jnp.asarray(a, jnp.float32) for a in start))
    with jax.enable_x64(True):
        gaps = np.asarray(rounded, float) - shots["score"]
        gap, size = (float(_mean_square(law, shots["x"], w)) for w in (gaps, shots["score"]))
    return gap < _ROUNDING**2 * size


@eqx.filter_jit
def _shots(law, t, sources, keys):
    """Draws of the law, and what it leaves of the equation there."""
    factors = jnp.where(jnp.arange(len(sources)) % 2 == 0, 1.0, FURTHER)

    def shoot(row):
        x0, factor, key = row
        basis = law.manifold.basis(x0)
        v = law.velocity(factor * t, x0, basis, key)
        x, _, score = law.along(t, x0, basis, v)
        residual, largest = law.residual(t, x0, basis, v)
        found = {"residual": residual, "largest": largest, "length": jnp.sqrt(v @ v)}
        return {"basis": basis, "v": v, "x": x, "score": score, **found}

    return jax.lax.map(shoot, (sources, factors, keys), batch_size=64)


@eqx.filter_jit
def _scores(law, t, sources, bases, velocities):
    return jax.vmap(lambda *shot: law.along(t, *shot)[2])(sources, bases, velocities)


@eqx.filter_jit
def _mean_square(law, x, vectors):
    return jnp.mean(jax.vmap(lambda x, w: law.manifold.inner_at(x, w, w))(x, vectors)[::2])
