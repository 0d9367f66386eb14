r"""The exact heat kernels of the hyperbolic spaces H^2 and H^3.

    p(t, r) = (4 pi t)^(-n/2) exp(-r^2 / 4t) exp(V_n(t, r)),
    V_3 = -t - log(sinh r / r),
    V_2 = -t/4 + log (2/sqrt(pi)) int_0^inf exp(-q^2) (shc(a) shc(b))^(-1/2) dq,

with shc(x) = sinh(x)/x, a = (s + r)/2, b = (s - r)/2 and s^2 = r^2 + 4 t q^2: McKean's integral
after the substitution that makes its integrand an even analytic function of q, for which equally
spaced nodes converge exponentially.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from ...core.numerics import log_sinhc
from ...core.types import Key, Point, Scalar, Tangent
from ...manifolds import Hyperbolic
from ...store.stored import stored
from ..kernel import AbstractHeatKernel, log_gaussian
from ..methods import method
from .radial import RadialSampler, concrete

_T_MIN, _T_MAX = 1e-3, 25.0


@stored("HyperbolicKernel", derived=("sampler",))
@method(Hyperbolic, "exact", when=lambda space: space.dim in (2, 3))
class HyperbolicKernel(AbstractHeatKernel):
    """The heat kernel of H^2 or H^3."""

    manifold: Hyperbolic
    sampler: RadialSampler = eqx.field(static=True)

    def __init__(self, manifold: Hyperbolic):
        """The heat kernel of the given space."""
        if manifold.dim not in (2, 3):
            raise ValueError(f"The exact kernel is known for H^2 and H^3 only, got {manifold}.")
        self.manifold = manifold
        self.sampler = radial_sampler(manifold.dim)

    def log_prob_at(self, t: Scalar, x: Point, x0: Point) -> Scalar:
        return radial_log_prob(self.manifold.dim, t, self.manifold.squared_distance(x, x0))

    def score_at(self, t: Scalar, x: Point, x0: Point) -> Tangent:
        pull = radial_pull(self.manifold.dim, t, self.manifold.squared_distance(x, x0))
        return pull * self.manifold.log_at(x, x0)

    def draw(self, t: Scalar, x0: Point, key: Key) -> Point:
        return self.sampler.draw(self.manifold, t, x0, key)


# V is an even function of r.  Below this distance it is replaced by its tangent as a function of
# r^2, from which it differs by less than 1e-9, so that it is smooth in x at x = x0.
_SMALL = 0.01


def radial_log_prob(dim: int, t: Scalar, squared: Scalar) -> Scalar:
    """log p on H^2 or H^3, as a function of the squared distance."""
    r, slope = _slope(dim, t, squared)
    below = jnp.where(squared < _SMALL**2, (squared - _SMALL**2) * slope / (2 * r), 0.0)
    return log_gaussian(t, squared, dim) + _remainder(dim, t, r) + below


def radial_pull(dim: int, t: Scalar, squared: Scalar) -> Scalar:
    """-(d log p / dr) / r, which is smooth at r = 0: the score is this times log_x(x0)."""
    r, slope = _slope(dim, t, squared)
    return 1 / (2 * t) - slope / r


def _slope(dim, t, squared):
    """The distance, if it is not small, and dV/dr there."""
    r = jnp.sqrt(jnp.maximum(squared, _SMALL**2))
    return r, jax.jvp(lambda s: _remainder(dim, t, s), (r,), (jnp.ones_like(r),))[1]


def _remainder(dim, t, r):
    if dim == 3:
        return -t - log_sinhc(r)
    spacing, count = (0.25, 18) if r.dtype == jnp.float32 else (0.12, 52)
    # At late times the integrand is narrower, and its poles are closer.
    q = (np.arange(count) + 0.5) * spacing / jnp.sqrt(1 + t / 20)
    step = spacing / jnp.sqrt(1 + t / 20)
    s = jnp.sqrt(r**2 + 4 * t * q**2)
    a = (s + r) / 2
    b = t * q**2 / a
    terms = -(q**2) - (log_sinhc(a) + log_sinhc(b)) / 2
    return -t / 4 + jnp.log(2 * step / np.sqrt(np.pi)) + logsumexp(terms)


@functools.cache
def radial_sampler(dim: int) -> RadialSampler:
    """The radial law of H^2 or H^3."""

    def log_density(t, r):
        values = concrete(functools.partial(radial_log_prob, dim), t, r**2)
        # log sinh r, without overflow
        return values + (dim - 1) * (r + np.log(np.maximum(-np.expm1(-2 * r), 1e-300)))

    return RadialSampler(dim, log_density, np.inf, _T_MIN, _T_MAX, growth=dim - 1.0)
