"""Learned kernels measured again: their certificate at new points, their errors against the truth.

The errors are those of the paper's table (heat_kernel_eval): means of the absolute and relative
errors of log p and of the score, at points drawn from the kernel and, on compact manifolds, at
uniform points too, where the errors of the far tail show.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array

from ..core.types import Key
from ..heat.certificate import AbstractCertificate
from ..heat.kernel import AbstractHeatKernel
from ..heat.methods import methods
from .choose import heat_kernel

POINTS = 2000
"""Points at each time."""
TIMES = (0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 4.0)


def certify_again(kernel: AbstractHeatKernel, key: Key, points: int = 512) -> AbstractCertificate:
    """The certificate of a learned kernel at new points, in float64."""
    with jax.enable_x64(True):
        return _solved(kernel).certified_again(points=points, key=key)


def _solved(kernel):
    solved = kernel.solved()
    if solved is None:
        raise ValueError(f"{kernel} was not solved for: it has no certificate.")
    return solved


def against_exact(
    kernel: AbstractHeatKernel, key: Key, times: tuple[float, ...] = TIMES, points: int = POINTS
) -> list[dict[str, Any]]:
    """Mean errors by time and by law of the points; empty if no exact kernel is known."""
    manifold = kernel.manifold
    if "exact" not in methods(manifold):
        return []
    exact = heat_kernel(manifold, "exact")
    end = _solved(kernel).certificate.times[-1]
    key_source, key_points = jr.split(key)
    x0 = manifold.random_point(key_source)
    keys = jr.split(key_points, points)
    rows = []
    for t in times:
        if t > end:
            continue
        laws = {"draws": _draw(exact, jnp.asarray(t, x0.dtype), x0, keys)}
        if manifold.is_compact():
            laws["uniform"] = jax.vmap(manifold.random_point)(keys)
        for law, x in laws.items():
            rows.append({"t": t, "points": law, **compare(kernel, exact, t, x, x0)})
    return rows


def compare(
    kernel: AbstractHeatKernel, exact: AbstractHeatKernel, t: float, x: Array, x0: Array
) -> dict[str, Any]:
    """Errors at given points of the kernel in working precision, of the truth in float64."""
    manifold = kernel.manifold

    log_prob, score = _evaluate(kernel, jnp.asarray(t, x.dtype), x, x0)
    log_prob, score = np.asarray(log_prob, np.float64), np.asarray(score, np.float64)
    with jax.enable_x64(True):
        # The points were rounded: the truth is taken at the nearest points of the manifold.
        x = jax.vmap(manifold.project)(jnp.asarray(np.asarray(x, np.float64)))
        x0 = manifold.project(jnp.asarray(np.asarray(x0, np.float64)))
        true, slope = _evaluate(exact, jnp.asarray(t), x, x0)
        norms = jax.vmap(manifold.norm)
        length, off = np.asarray(norms(x, slope)), np.asarray(norms(x, slope - score))
        true = np.asarray(true)
    error = np.abs(log_prob - true)
    return {
        "log_prob": float(np.mean(error)),
        "log_prob_max": float(np.max(error)),
        "log_prob_relative": float(np.mean(error / np.abs(true))),
        "score": float(np.mean(off)),
        "score_max": float(np.max(off)),
        "score_relative": float(np.mean(off / np.maximum(length, 1e-30))),
    }


@eqx.filter_jit
def _draw(kernel, t, x0, keys):
    return jax.vmap(lambda key: kernel.draw(t, x0, key))(keys)


@eqx.filter_jit
def _evaluate(kernel, t, x, x0):
    return jax.vmap(lambda x: (kernel.log_prob_at(t, x, x0), kernel.score_at(t, x, x0)))(x)
