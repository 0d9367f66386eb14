r"""The exact heat kernel of the sphere S^n, for every n and, from t = 1e-3 on, at every point.

The kernel is a function of c = cos r.  Two forms are joined at a time t_s near 1:

* late, the series of Gegenbauer polynomials, normalized to C_l(1) = 1, with d_l the multiplicity of
  the eigenvalue l(l + n - 1),

      p = (1/vol) sum_l d_l exp(-l(l + n - 1) t) C_l(c);

* early, a Gaussian times a smooth remainder,

      p = (4 pi t)^(-n/2) exp(-s^2 / 4t) exp(V(t, c)),

  where s is the distance r with its kink at the antipode rounded off over the width ~ t of the
  region there in which all geodesics contribute.  V is smooth; it is computed in float64 when the
  kernel is made (`_sphere_remainder`) and kept as a Chebyshev series.

Since d p_n / dc = 2 pi exp(-nt) p_{n+2}, the score is the ratio of two kernels, computed in the
same way and as accurately: no derivative of a fit is taken.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import binom

from ...core.numerics import accurate_dot, cot_remainder, safe_sqrt, sinc
from ...core.types import Key, Point, Scalar, Tangent
from ...manifolds import Sphere
from ...store.stored import stored
from ..kernel import AbstractHeatKernel
from ..methods import method
from ._sphere_remainder import log_remainder
from .chebyshev import ChebyshevTable, chebyshev_nodes
from .radial import RadialSampler, concrete

_T_MIN = 1e-3  # below it V is continued by the first order of the short-time expansion
_T_MAX = 25.0
_TIME_NODES, _ANGLE_NODES = 36, 44
# sin^2 of half the width of the rounded region at the antipode, over t^2: about where the Bessel
# function that describes it has its first complex zero.
_WIDTH = 0.4


@stored("SphereKernel", derived=("radial", "sampler"))
@method(Sphere, "exact")
class SphereKernel(AbstractHeatKernel):
    """The heat kernel of S^n."""

    manifold: Sphere
    radial: "SphereRadial" = eqx.field(static=True)
    sampler: RadialSampler = eqx.field(static=True)

    def __init__(self, manifold: Sphere):
        """The heat kernel of the given sphere."""
        self.manifold = manifold
        self.radial, self.sampler = _tables(manifold.dim)

    def log_prob_at(self, t: Scalar, x: Point, x0: Point) -> Scalar:
        _, near, far = self._half_angles(x, x0)
        return self.radial(t, near, far)[0]

    def score_at(self, t: Scalar, x: Point, x0: Point) -> Tangent:
        direction, near, far = self._half_angles(x, x0)
        return self.radial(t, near, far)[1] * direction

    def draw(self, t: Scalar, x0: Point, key: Key) -> Point:
        return self.sampler.draw(self.manifold, t, x0, key)

    def compare_at(
        self, t: Scalar, x: Point, sources: Float[Array, "m ..."]
    ) -> tuple[Scalar, Float[Array, " m"], Float[Array, "m ..."]]:
        # Two sources about equally far from x: log p differs by the slope times the difference of
        # the cosines, and that difference is known beyond the working precision.
        direction, near, far = jax.vmap(lambda source: self._half_angles(x, source))(sources)
        values, slopes = jax.vmap(self.radial, (None, 0, 0))(t, near, far)
        high, low = jax.vmap(lambda source: accurate_dot(x, source))(sources)
        # One product with a mask instead of several look-ups: a third of the time of it all.
        table = jnp.stack([values, slopes, high, low, near, far])
        mask = jnp.arange(len(high)) == jnp.argmax(high)
        best, best_slope, best_high, best_low, *angles = jnp.sum(
            jnp.where(mask, table, 0.0), axis=1
        )
        gap = (high - best_high) + (low - best_low)
        # Next to a tie even the rounding of the slopes shows: use that they are nearly
        # (r / sin r) / 2t, whose derivative in cos r is known.
        angle = 2 * jnp.arctan2(*map(safe_sqrt, angles))
        curvature = -cot_remainder(angle) / sinc(angle) ** 2 / (2 * t)
        near_tie, close = (2e-5, 0.02) if x.dtype == jnp.float32 else (1e-8, 2e-5)
        slopes = jnp.where(gap > -near_tie, best_slope + gap * curvature, slopes)
        trapezoid = gap * (slopes + best_slope) / 2
        differences = jnp.where(gap > -close, trapezoid, values - best)
        return best, differences, slopes[:, None] * direction

    def _half_angles(self, x, x0):
        """The part of x0 orthogonal to x, and sin^2, cos^2 of half the distance, both accurate."""
        direction, _, cosine = self.manifold.polar(x, x0)
        squared = jnp.sum(direction * direction)
        small = squared / (2 * (1 + jnp.abs(cosine)))
        ahead = cosine > 0
        return direction, jnp.where(ahead, small, 1 - small), jnp.where(ahead, 1 - small, small)


class SphereRadial:
    """log p on S^n, and its derivative in c = cos r, from near = sin^2(r/2), far = cos^2(r/2)."""

    def __init__(self, dim: int):
        """Fill the table of the sphere of dimension `dim`."""
        self.dim: int = dim
        # At this time the second term of the series is 0.4 at the antipode: no cancellation later.
        self.t_switch: float = float(np.log((dim + 1) / 0.4) / dim)
        degree = np.arange(1, 60)
        sizes = _multiplicity(dim, degree) * np.exp(-degree * (degree + dim - 1) * self.t_switch)
        self.terms: list[int] = [int(np.sum(sizes * degree**2 > eps)) for eps in (1e-8, 1e-17)]
        x, y = chebyshev_nodes(_TIME_NODES)[:, None], chebyshev_nodes(_ANGLE_NODES)[None]
        t = _T_MIN * np.exp((x + 1) / 2 * np.log(self.t_switch / _T_MIN))
        width = _WIDTH * t**2
        far = np.minimum(width * np.expm1((y + 1) / 2 * np.log1p(1 / width)), 1.0)
        remainder = log_remainder(dim, t, 2 * far)
        ratio = log_remainder(dim + 2, t, 2 * far) - remainder - dim * t
        exact = 4 * np.arctan2(np.sqrt(1 - far), np.sqrt(far)) ** 2
        rounded = 4 * np.arcsin(np.sqrt((1 - far) / (1 + width))) ** 2
        self.table: ChebyshevTable = ChebyshevTable(
            np.stack([remainder + (rounded - exact) / (4 * t), ratio])
        )

    def __call__(self, t: Scalar, near: Scalar, far: Scalar) -> tuple[Scalar, Scalar]:
        """Both at time t; the score is the derivative, which is positive, times x0 across x."""
        return _log_prob_and_slope(self, t, near, far)

    def evaluate(self, t: Scalar, near: Scalar, far: Scalar) -> tuple[Scalar, Scalar]:
        """Both by the formulas above, to be differentiated in t and for the slope only."""
        early = jnp.minimum(t, self.t_switch)
        remainder, log_ratio = self._remainders(early, far)
        width = _WIDTH * early**2
        rounded = _squared_angle(near / (1 + width), (far + width) / (1 + width))
        short = remainder - self.dim / 2 * jnp.log(4 * jnp.pi * early) - rounded / (4 * early)
        density, slope = self._series(jnp.maximum(t, self.t_switch), far - near)
        late = jnp.log1p(density) - Sphere(self.dim).log_volume().astype(short.dtype)
        is_early = t < self.t_switch
        return (
            jnp.where(is_early, short, late),
            jnp.where(is_early, jnp.exp(log_ratio) / (2 * early), slope / (1 + density)),
        )

    def _remainders(self, t, far):
        """V, and log of 2t times the slope."""
        clipped = jnp.maximum(t, _T_MIN)
        width = _WIDTH * clipped**2
        x = 2 * jnp.log(clipped / _T_MIN) / np.log(self.t_switch / _T_MIN) - 1
        y = 2 * jnp.log1p(far / width) / jnp.log1p(1 / width) - 1
        remainder, log_ratio = self.table(x, y)
        # The first order in t at the source, where the kernel is at such times.
        n, before = self.dim, clipped - t
        return remainder - before * n * (n - 1) / 6, log_ratio + before * (n - 1) / 3

    def _series(self, t, cosine):
        """vol * p - 1 and its derivative in the cosine."""
        n = self.dim
        density, slope = jnp.zeros_like(t), jnp.zeros_like(t)
        # C_{l-1} and C_l on S^n, and of one degree less on S^{n+2}.
        before, here = jnp.ones_like(cosine), cosine
        before_up, here_up = jnp.zeros_like(cosine), jnp.ones_like(cosine)
        terms = self.terms[0] if t.dtype == jnp.float32 else self.terms[1]
        degrees = np.arange(1, terms + 1)
        eigenvalues = degrees * (degrees + n - 1)
        multiplicities = jnp.asarray(_multiplicity(n, degrees), t.dtype)
        weights = multiplicities * jnp.exp(-jnp.asarray(eigenvalues, t.dtype) * t)
        for degree, eigenvalue, weight in zip(degrees.tolist(), eigenvalues, weights, strict=True):
            density = density + weight * here
            slope = slope + weight * float(eigenvalue / n) * here_up
            before, here = here, _gegenbauer_step(n, degree, cosine, before, here)
            further = _gegenbauer_step(n + 2, degree - 1, cosine, before_up, here_up)
            before_up, here_up = here_up, further
        return density, slope


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _log_prob_and_slope(radial, t, near, far):
    return radial.evaluate(t, near, far)


@_log_prob_and_slope.defjvp
def _(radial, primals, tangents):
    t, near, far = primals
    dt, dnear, dfar = tangents
    (value, slope), (_, dslope) = jax.jvp(radial.evaluate, primals, tangents)
    _, (along_time, _) = jax.jvp(lambda s: radial.evaluate(s, near, far), (t,), (dt,))
    # cos r = far - near, and the derivative of log p in it is the slope, which has its own table
    return (value, slope), (along_time + slope * (dfar - dnear), dslope)


def _gegenbauer_step(n, degree, cosine, before, here):
    """C_{degree+1} on S^n from the two before it."""
    if degree + n == 1:  # on the circle, degree 0
        return cosine
    return ((2 * degree + n - 1) * cosine * here - degree * before) / (degree + n - 1)


def _multiplicity(n, degree):
    """Dimension of the spherical harmonics of a degree >= 1 on S^n."""
    return binom(degree + n, n) - binom(degree + n - 2, n)


def _squared_angle(q: Float[Array, ""], rest: Float[Array, ""]) -> Float[Array, ""]:
    """(2 arcsin sqrt(q))^2 for q + rest = 1, which is analytic at q = 0."""
    small = q < 0.1
    k = np.arange(1, 9 if q.dtype == jnp.float32 else 18)
    series = 2 * 4.0**k / (k**2 * binom(2 * k, k))
    polynomial = jnp.polyval(
        jnp.asarray(series[::-1], q.dtype), jnp.where(small, q, 0.0), unroll=len(k)
    )
    angle = 2 * jnp.arctan2(jnp.sqrt(jnp.where(small, 0.5, q)), jnp.sqrt(rest))
    return jnp.where(small, polynomial * q, angle**2)


@functools.cache
def _tables(dim: int) -> tuple[SphereRadial, RadialSampler]:
    radial = SphereRadial(dim)

    def log_density(t, r):
        near, far = np.sin(r / 2) ** 2, np.cos(r / 2) ** 2
        values = concrete(lambda *at: radial(*at)[0], t, near, far)
        return values + (dim - 1) * np.log(np.maximum(np.sin(r), 1e-300))

    return radial, RadialSampler(dim, log_density, np.pi, _T_MIN, _T_MAX)
