r"""Wrapped Gaussians: Gaussians of a tangent space, carried to the manifold by the exponential map.

With u the coordinates of log_{x0}(x) in an orthonormal basis and D the volume distortion of exp,

    p(x) = N(u; 0, S) / D,

which is a density as long as nearly all of the Gaussian lies where geodesics are shortest.  On a
quotient it is the sum over the images of x on the cover, and no condition is needed there.

A covariance is given by its whitening matrix W, W S W^T = I, with orthogonal rows: its inverse and
its determinant are read off.
"""

import math

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float
from scipy.stats import chi

from ..core.types import Key, Point, Tangent
from ..heat.kernel import log_gaussian
from ..manifolds import AbstractManifold

# The mass of a Gaussian that may lie beyond the shortest geodesics.  Next to their ends, where D
# may be zero, the density is cut off: this is less than 1e-4 of the mass.
_BEYOND, _CUT = 2e-5, 0.95
# Images of a point that are summed over, at most.
_IMAGES = 64


def can_wrap(manifold: AbstractManifold) -> bool:
    """Whether the density of a wrapped Gaussian is known, and none need be wider than allowed."""
    if not _top(manifold).has_distortion():
        return False
    if not manifold.is_compact() and math.isfinite(_top(manifold).injectivity_radius()):
        return False  # a product: its points may spread far where one factor is small
    point = jax.ShapeDtypeStruct(manifold.shape, jnp.result_type(float))
    return jax.eval_shape(lambda x: images(manifold, x), point).shape[0] <= _IMAGES


def largest_variance(manifold: AbstractManifold) -> float:
    """The largest variance in one direction of a Gaussian that may be wrapped."""
    radius = _top(manifold).injectivity_radius()
    return (radius / float(chi.isf(_BEYOND, manifold.dim))) ** 2


def whitening(
    covariance: Float[np.ndarray, "... d d"], smallest: float, largest: float
) -> Float[np.ndarray, "... d d"]:
    """The whitening matrix with orthogonal rows, of variances between two bounds."""
    variances, axes = np.linalg.eigh(covariance)
    scales = np.sqrt(np.clip(variances, smallest, largest))
    return np.swapaxes(axes, -1, -2) / scales[..., None]


def images(manifold: AbstractManifold, x: Point) -> Float[Array, "g ..."]:
    """All points of the uppermost cover that are the point x."""
    found, cover = manifold.orbit(x), manifold.covering()
    if cover is manifold:
        return found
    return jax.vmap(lambda y: images(cover, y))(found).reshape(-1, *manifold.shape)


def coordinates(manifold: AbstractManifold, x0: Point, v: Tangent) -> Float[Array, " d"]:
    """Of a tangent vector at x0, in the orthonormal basis there."""
    return jax.vmap(lambda e: manifold.inner_at(x0, e, v))(manifold.basis(x0))


def log_wrapped(
    manifold: AbstractManifold,
    x: Point,
    x0: Point,
    times: Float[Array, " k"],
    whitenings: Float[Array, "g d d"],
) -> Float[Array, " h"]:
    """log-densities at x of Gaussians around x0: of variances 2t, and of given covariances."""
    cover, dim = _top(manifold), manifold.dim
    radius = _CUT * cover.injectivity_radius()
    log_scales = jnp.sum(jnp.log(jnp.sum(whitenings**2, axis=-1)), axis=-1) / 2

    def one(x: Point) -> Float[Array, " h"]:
        v, log_distortion = cover.log_and_distortion(x0, x)
        u = coordinates(cover, x0, v)
        round_ones = log_gaussian(times, jnp.sum(u * u), dim)
        # A product, not sums that XLA fuses: in batches of 128 places those were wrong far from x0,
        # by hundreds, on CPU (jax 0.10.2).
        squares = jnp.sum((whitenings @ u) ** 2, axis=-1)
        others = log_scales - squares / 2 - dim / 2 * math.log(2 * math.pi)
        known = jnp.concatenate([round_ones, others]) - log_distortion
        return known if math.isinf(radius) else jnp.where(u @ u < radius**2, known, -jnp.inf)

    values = jax.vmap(one)(images(manifold, x))
    return values[0] if len(values) == 1 else logsumexp(values, axis=0)


def draw_wrapped(
    manifold: AbstractManifold, x0: Point, whitening: Float[Array, "d d"], key: Key
) -> Point:
    """A draw from a wrapped Gaussian."""
    z = jr.normal(key, (manifold.dim,), x0.dtype)
    u = (z / jnp.sum(whitening**2, axis=1)) @ whitening
    v = jnp.tensordot(u, manifold.basis(x0), axes=1)
    return manifold.project_at(manifold.exp_at(x0, v))


def _top(manifold: AbstractManifold) -> AbstractManifold:
    """The uppermost cover."""
    cover = manifold.covering()
    return manifold if cover is manifold else _top(cover)
