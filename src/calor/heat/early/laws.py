r"""Short-time laws: approximate heat kernels that are good for small t.

They all have the form p = G_t e^{correction}, G_t = (4 pi t)^(-n/2) exp(-dist^2 / 4t):

| law | correction | error of log p inside the cut locus |
|---|---|---|
| `Varadhan` | 0 | O(1) |
| `ZerothOrder` | -(1/2) log D | O(t) |
| `SchwingerDeWitt` | -(1/2) log D + t R/6, R the scalar curvature | O(t) |
| `FirstOrder` | -(1/2) log D + t u_1/u_0 | O(t^2) |
| `Parametrix` | -(1/2) log D + log(1 + t u_1/u_0 + ... + t^k u_k/u_0) | O(t^(k+1)) |

equations (approx-warped), (approx-0th), (approx-sd), (approx-series) of the paper.  None of them
knows of a second geodesic: near a cut locus they are wrong at every t.

Draws come from a geodesic random walk, which converges to Brownian motion itself.
"""

import math
from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.checks import positive_integer
from ...core.registry import Registry
from ...core.types import Key, Point, Scalar, Tangent
from ...manifolds import AbstractManifold, AbstractSymmetricSpace
from ...store.stored import stored
from ..combined import combine, components
from ..kernel import AbstractHeatKernel, log_gaussian
from ..methods import method
from .parametrix import parametrix

# What makes the most accurate law of a family, given a manifold and an order of time.
LAWS = Registry("short-time laws")
# Power series in r converge for r < pi; 32 terms have 4 digits at this radius, and the ratios
# u_k / u_0 are held constant beyond it.
_RADIUS, _TERMS = 2.7, 32


@stored("Varadhan")
class Varadhan(AbstractHeatKernel):
    """The Gaussian of the geodesic distance, on any manifold; its score is log_x(x0) / 2t."""

    manifold: AbstractManifold

    def __check_init__(self) -> None:
        if not isinstance(self.manifold, AbstractManifold):
            raise TypeError(f"Varadhan: needs a manifold, got {self.manifold!r:.80}.")

    def log_prob_at(self, t: Scalar, x: Point, x0: Point) -> Scalar:
        toward = self.manifold.log_at(x, x0)
        squared = self.manifold.inner_at(x, toward, toward)  # unlike the distance, smooth at x = x0
        return log_gaussian(t, squared, self.manifold.dim)

    def score_at(self, t: Scalar, x: Point, x0: Point) -> Tangent:
        return self.manifold.log_at(x, x0) / (2 * t)

    def draw(self, t: Scalar, x0: Point, key: Key) -> Point:
        return self.manifold.walk(t, x0, key)

    def has_unit_mass(self) -> bool:
        """No: the volume that curvature adds or takes away is left out."""
        return False


class AbstractCorrectedGaussian(AbstractHeatKernel):
    """A short-time law on a symmetric space, given by its correction in kernel coordinates."""

    manifold: eqx.AbstractVar[AbstractSymmetricSpace]

    def __check_init__(self) -> None:
        if not isinstance(self.manifold, AbstractSymmetricSpace):
            raise TypeError(
                f"{type(self).__name__}: needs a symmetric space such as Sphere, Hyperbolic or "
                f"SPD, got {self.manifold}; heat_kernel(manifold, 'short-time') has laws for "
                "products and quotients of them."
            )

    @abstractmethod
    def correction(self, t: Scalar, y: Float[Array, " k"]) -> Scalar:
        """log p - log G_t."""

    def log_prob_at(self, t: Scalar, x: Point, x0: Point) -> Scalar:
        return self.phi(t, self.manifold.kernel_coordinates(x, x0))

    def phi(self, t: Scalar, y: Float[Array, " k"]) -> Scalar:
        """The Gaussian and the correction."""
        return log_gaussian(t, jnp.sum(y * y), self.manifold.dim) + self.correction(t, y)

    def score_at(self, t: Scalar, x: Point, x0: Point) -> Tangent:
        return self.both_at(t, x, x0)[1]

    def both_at(self, t: Scalar, x: Point, x0: Point) -> tuple[Scalar, Tangent]:
        y, lift = self.manifold.lifted_coordinates(x, x0)
        correction, slope = jax.value_and_grad(self.correction, 1)(t, y)
        gaussian = log_gaussian(t, jnp.sum(y * y), self.manifold.dim)
        return gaussian + correction, lift(slope - y / (2 * t))

    def draw(self, t: Scalar, x0: Point, key: Key) -> Point:
        return self.manifold.walk(t, x0, key)

    def has_unit_mass(self) -> bool:
        """Nearly, where no cut locus is in reach."""
        return math.isinf(self.manifold.injectivity_radius())


@stored("ZerothOrder")
class ZerothOrder(AbstractCorrectedGaussian):
    """D^(-1/2) G_t: the volume distortion of the exponential map taken into account."""

    manifold: AbstractSymmetricSpace

    def correction(self, t: Scalar, y: Float[Array, " k"]) -> Scalar:
        return -self.manifold.log_distortion(y) / 2


@stored("SchwingerDeWitt")
class SchwingerDeWitt(AbstractCorrectedGaussian):
    """D^(-1/2) G_t exp(t R / 6), with R the scalar curvature."""

    manifold: AbstractSymmetricSpace

    def correction(self, t: Scalar, y: Float[Array, " k"]) -> Scalar:
        return -self.manifold.log_distortion(y) / 2 + t * self.manifold.scalar_curvature() / 6


@stored("FirstOrder")
class FirstOrder(AbstractCorrectedGaussian):
    """D^(-1/2) G_t exp(t u_1/u_0), u_1/u_0 in closed form on every symmetric space of calor."""

    manifold: AbstractSymmetricSpace

    def correction(self, t: Scalar, y: Float[Array, " k"]) -> Scalar:
        return -self.manifold.log_distortion(y) / 2 + t * self.manifold.first_order(y)

    def latest(self) -> float:
        """In negative curvature the time 1.5 dim / |scalar curvature|, else not known.

        Up to there the mean residual of the equation adds up to an error of log p of 0.03, 0.08 and
        0.14 on SPD(n) for n = 5, 13 and 22, nearly the same at all points, and to one of the score
        below 0.3 %; on H^4 and H^7 to 0.01, 0.03 and the same.
        """
        return self.manifold.curved_from()


@stored("Parametrix", derived=("coefficients",))
class Parametrix(AbstractCorrectedGaussian):
    """G_t (u_0 + u_1 t + ... + u_k t^k) on spheres, hyperbolic and flat spaces."""

    manifold: AbstractSymmetricSpace
    order: int = eqx.field(static=True)
    coefficients: tuple[tuple[float, ...], ...] = eqx.field(static=True)
    """Coefficients of r^(2j) in u_1/u_0, ..., u_k/u_0."""

    def __init__(self, manifold: AbstractSymmetricSpace, order: int = 3):
        """The expansion up to the power `order` of t."""
        curvature = manifold.constant_curvature()
        if curvature is None:
            raise ValueError(
                f"Parametrix: known for Sphere, Hyperbolic, Euclidean and Torus, got {manifold}; "
                "FirstOrder has the first order on every symmetric space."
            )
        self.manifold = manifold
        self.order = positive_integer(order, "order", "Parametrix", at_least=0)
        series = parametrix(manifold.dim, curvature, self.order, _TERMS) if curvature else ()
        self.coefficients = tuple(tuple(float(c) for c in ratio) for ratio in series[1:])

    def correction(self, t: Scalar, y: Float[Array, " k"]) -> Scalar:
        zeroth = -self.manifold.log_distortion(y) / 2
        if not self.coefficients:  # flat: the Gaussian is exact
            return zeroth
        squared = jnp.minimum(jnp.sum(y * y), _RADIUS**2)
        total = jnp.ones_like(t)
        for k, series in enumerate(self.coefficients, start=1):
            ratio = jnp.polyval(jnp.asarray(series[::-1], y.dtype), squared, unroll=_TERMS)
            total = total + ratio * t**k
        # In hyperbolic space the terms alternate: at large t the sum may leave its range.
        return zeroth + jnp.log(jnp.maximum(total, 1e-6))


LAWS.register(AbstractManifold)(lambda manifold, order: Varadhan(manifold))
# Where curvature is negative the terms alternate, and late the sum leaves its range.
LAWS.register(AbstractSymmetricSpace, when=lambda space: space.constant_curvature() in (0, 1))(
    Parametrix
)
LAWS.register(AbstractSymmetricSpace)(lambda manifold, order: FirstOrder(manifold))


def short_time_law(manifold: AbstractManifold, order: int = 3) -> AbstractHeatKernel:
    """The most accurate short-time law of a manifold, a parametrix up to `order` if it has one."""
    found = combine(manifold, lambda part, key: short_time_law(part, order))
    return found if found is not None else LAWS.find(manifold).made(manifold, order)  # pyright: ignore


def _stands_alone(manifold):
    """Not made of parts, whose methods are its own, nor of points, whose law is `labelled`."""
    return not components(manifold) and manifold.parts() == 1


@method(AbstractManifold, "short-time", when=_stands_alone, rank=3)
def _short_time(manifold: AbstractManifold, *, key: Key | None, cache: object):
    return short_time_law(manifold)
