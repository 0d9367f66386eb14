r"""The heat kernels of flat space and of the flat torus: a Gaussian and a theta function.

On the circle, with d the difference of two angles,

    p(t, d) = (4 pi t)^(-1/2) sum_k exp(-(d + 2 pi k)^2 / 4t)
            = (1 / 2 pi) (1 + 2 sum_k exp(-k^2 t) cos(kd)),

the first form for t < 1, the second for t > 1.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ...core.types import Key, Point, Scalar, Tangent
from ...manifolds import Euclidean, Torus
from ...store.stored import stored
from ..kernel import AbstractHeatKernel, log_gaussian
from ..methods import method


@stored("EuclideanKernel")
@method(Euclidean, "exact")
class EuclideanKernel(AbstractHeatKernel):
    """The Gaussian of variance 2t."""

    manifold: Euclidean

    def log_prob_at(self, t: Scalar, x: Point, x0: Point) -> Scalar:
        return log_gaussian(t, jnp.sum((x - x0) ** 2), self.manifold.dim)

    def score_at(self, t: Scalar, x: Point, x0: Point) -> Tangent:
        return (x0 - x) / (2 * t)

    def draw(self, t: Scalar, x0: Point, key: Key) -> Point:
        return x0 + jnp.sqrt(2 * t) * jr.normal(key, x0.shape, x0.dtype)


@stored("TorusKernel")
@method(Torus, "exact")
class TorusKernel(AbstractHeatKernel):
    """The product of n theta functions."""

    manifold: Torus

    def log_prob_at(self, t: Scalar, x: Point, x0: Point) -> Scalar:
        return jnp.sum(_circle(t, x, x0)[0])

    def score_at(self, t: Scalar, x: Point, x0: Point) -> Tangent:
        return _circle(t, x, x0)[1]

    def draw(self, t: Scalar, x0: Point, key: Key) -> Point:
        noise = jr.normal(key, x0.shape, x0.dtype)
        return self.manifold.exp_at(x0, jnp.sqrt(2 * t) * noise)


def _circle(t, x, x0):
    """log p and its derivative in x, angle by angle."""
    d, gap = _difference(x, x0)
    is_early = t < 1
    # Not minimum and maximum, whose derivatives at t = 1 are halves.
    early, late = jnp.where(is_early, t, 1.0), jnp.where(is_early, 1.0, t)

    # The images at the distances |d|, 2 pi - |d|, 2 pi + |d| and 4 pi - |d|; the next one is
    # smaller than the first by exp(-4 pi^2 / t).  Half way around, where the first two are equal,
    # everything is written in the distance from there.
    behind = jnp.abs(d) > jnp.pi / 2
    side = jnp.where(d > 0, 1.0, -1.0)
    ratio = jnp.pi * gap / early  # log of the first image over the second
    log_first = -(d**2) / (4 * early) - jnp.log(4 * jnp.pi * early) / 2
    slope_near = -d / (2 * early) + side * jnp.pi / early * jax.nn.sigmoid(-ratio)
    slope_behind = side * (gap - jnp.pi * jnp.tanh(ratio / 2)) / (2 * early)
    # The third and the fourth, relative to the first, add up to 1e-4 at t = 1 where d = 0.
    second = jnp.exp(-ratio)
    third = jnp.exp(-jnp.pi * (2 * jnp.pi - gap) / early)
    fourth = jnp.exp(-2 * jnp.pi * (jnp.pi + gap) / early)
    more = (third + fourth) / (1 + second)
    change = (fourth * (2 + second) - third * (1 + 2 * second)) / ((1 + second) ** 2 * (1 + more))
    log_images = log_first + jax.nn.softplus(-ratio) + jnp.log1p(more)
    slope_images = jnp.where(behind, slope_behind, slope_near) + side * jnp.pi / early * change

    k = np.arange(1, 7)
    weight = 2 * jnp.exp(-(k**2) * late)
    angles = d[:, None] * k
    density = jnp.cos(angles) @ weight
    # sin(kd) by the distance from pi where that is the smaller angle
    turned = side[:, None] * jnp.where(k % 2, 1.0, -1.0) * jnp.sin(gap[:, None] * k)
    sines = jnp.where(behind[:, None], turned, jnp.sin(angles))
    log_modes = jnp.log1p(density) - np.log(2 * np.pi)
    slope_modes = -(sines @ (weight * k)) / (1 + density)

    log_prob = jnp.where(is_early, log_images, log_modes)
    return log_prob, jnp.where(is_early, slope_images, slope_modes)


def _difference(x, x0):
    """x - x0 in [-pi, pi], and its distance from +-pi; each accurate where it is small.

    The rounding error of the difference and the part of pi beyond the working precision are added
    back, so that the kernel is right next to the cut locus, where its score varies fastest.
    """
    raw = x - x0
    back = raw - x
    error = (x - (raw - back)) - (x0 + back)
    high = jnp.asarray(np.pi, x.dtype)
    low = jnp.asarray(np.pi - float(np.asarray(np.pi, x.dtype)), x.dtype)
    if x.dtype == jnp.float64:
        low = jnp.asarray(1.2246467991473532e-16, x.dtype)
    half_turns = jax.lax.stop_gradient(jnp.round(raw / high))
    rest = ((raw - half_turns * high) - half_turns * low) + error  # raw modulo pi
    odd = half_turns % 2 == 1
    d = jnp.where(odd, rest - jnp.sign(rest + (rest == 0)) * high, rest)
    gap = jnp.where(odd, jnp.abs(rest), (high - jnp.abs(rest)) + low)
    return d, gap
