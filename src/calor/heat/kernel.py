r"""Heat kernels: the interface that exact, short-time and learned kernels share.

The heat kernel p(t, x | x0) of a manifold is the density at x, with respect to the Riemannian
volume, of Brownian motion that started at x0 a time t ago.  The convention of calor is written here
and nowhere else: the generator is Delta, not Delta/2,

    dp/dt = Delta p,        dX = sqrt(2) dB,

so in R^n the variance of each coordinate is 2t.  For phi = log p the equation reads

    dphi/dt = Delta phi + |grad phi|^2.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from ..core.checks import positive_time, random_key
from ..core.types import Key, Point, Scalar, Tangent
from ..manifolds import AbstractManifold
from .certificate import AbstractCertificate, Certificate
from .chains import metropolis_walk


class PoorKernelWarning(UserWarning):
    """A kernel is used where it is not known to be accurate."""


class UnsolvedError(ValueError):
    """A way to a kernel does not lead there on some manifold; another one may."""


class AbstractHeatKernel(eqx.Module):
    """A heat kernel, or an approximation of one; every method is for one point.

    To write a new kernel, supply the three abstract methods; each receives checked arrays.
    `calor.heat.methods.method` above the class tells `calor.heat_kernel` of it.
    """

    manifold: eqx.AbstractVar[AbstractManifold]
    """The manifold it lives on."""

    @abstractmethod
    def log_prob_at(self, t: Scalar, x: Point, x0: Point) -> Scalar:
        """log p(t, x | x0)."""

    @abstractmethod
    def score_at(self, t: Scalar, x: Point, x0: Point) -> Tangent:
        """The Riemannian gradient of log p in x."""

    @abstractmethod
    def draw(self, t: Scalar, x0: Point, key: Key) -> Point:
        """A draw from p(t, . | x0)."""

    def compare_at(
        self, t: Scalar, x: Point, sources: Float[Array, "m ..."]
    ) -> tuple[Scalar, Float[Array, " m"], Float[Array, "m ..."]]:
        """log p(t, x | source) and its score for several sources at once.

        Returns the largest log p, each one minus the largest, and the scores.  The differences
        decide from which source a point came; a kernel that can have them more accurately than
        as differences of large numbers does so here.
        """
        values, scores = jax.vmap(lambda source: self.both_at(t, x, source))(sources)
        largest = jnp.max(values)
        return largest, values - largest, scores

    def log_prob(self, t: Scalar, x: Point, x0: Point) -> Scalar:
        """log p(t, x | x0), with respect to the Riemannian volume."""
        return _call(self.log_prob_at, *self.checked(t, x=x, x0=x0))

    def score(self, t: Scalar, x: Point, x0: Point) -> Tangent:
        """The Riemannian gradient of log p(t, x | x0) in x, a tangent vector at x."""
        return _call(self.score_at, *self.checked(t, x=x, x0=x0))

    def sample(self, t: Scalar, x0: Point, *, key: Key, sampler: str = "fast") -> Point:
        """A draw of Brownian motion that started at x0 a time t ago.

        Args:
            t: the time.
            x0: where it started.
            key: a random key.
            sampler: `"fast"`, the kernel's own way, or `"mcmc"`, the paper's: a Metropolis-adjusted
                geodesic random walk with the kernel's density, on any manifold.
        """
        methods = {"fast": self.draw, "mcmc": self._draw_by_chain}
        if sampler not in methods:
            raise ValueError(f"{self}: sampler must be 'fast' or 'mcmc', got {sampler!r}.")
        t, x0 = self.checked(t, x0=x0)
        return _call(methods[sampler], t, x0, random_key(key, str(self)))

    def _draw_by_chain(self, t: Scalar, x0: Point, key: Key) -> Point:
        return metropolis_walk(self.manifold, lambda x: self.log_prob_at(t, x, x0), t, x0, key)[0]

    def both_at(self, t: Scalar, x: Point, x0: Point) -> tuple[Scalar, Tangent]:
        """Both at once, for kernels that can share work between them."""
        return self.log_prob_at(t, x, x0), self.score_at(t, x, x0)

    def draw_with_score(self, t: Scalar, x0: Point, key: Key) -> tuple[Point, Tangent]:
        """A draw and the score there; some kernels know the score of their own draws better."""
        x = self.draw(t, x0, key)
        return x, self.score_at(t, x, x0)

    def known_draw(self, t: Scalar, x0: Point, key: Key) -> tuple[Point, Scalar, Tangent]:
        """A draw, with log p and the score there."""
        x = self.draw(t, x0, key)
        return x, *self.both_at(t, x, x0)

    def join(self, x: Point, y: Point) -> Tangent:
        """The velocity at x of the path to y that noise takes: a shortest geodesic."""
        return self.manifold.log_at(x, y)

    def is_costly(self) -> bool:
        """Whether log p takes so long that it is asked for only where it is needed."""
        return False

    def phi(self, t: Scalar, y: Float[Array, " k"]) -> Scalar:
        """log p as a function of kernel coordinates, on a symmetric space."""
        return phi_by_points(self.manifold, self.log_prob_at, t, y)

    def certified(self, last: float, *, rounded: bool = True) -> Certificate | None:
        """What is known of its error up to a time, if it is only good for small ones.

        Args:
            last: the time.
            rounded: whether the kernel will be used in single precision, where it may end earlier.
        """
        return None

    def solved(self) -> "AbstractSolvedKernel | None":
        """The kernel in it that was solved for, which has a certificate, if there is one."""
        return None

    def found_volume(self) -> Scalar | None:
        """The logarithm of the volume, if the kernel knows it better than the manifold does."""
        return None

    def latest(self) -> float:
        """The last time that the kernel is made for."""
        return math.inf

    def has_unit_mass(self) -> bool:
        """Whether log p belongs to a density at the times that the kernel is made for."""
        return True

    def spectral_gap(self) -> float:
        """The smallest positive eigenvalue of -Delta, as far as it is known; else zero."""
        return self.manifold.spectral_gap()

    def checked(self, t: Any, **points: Any) -> list[Array]:
        """A time and named points as arrays of one dtype, the one of the points."""
        t = positive_time(t, str(self))
        arrays = [self.manifold.check_point(point, name) for name, point in points.items()]
        dtype = jnp.result_type(*arrays)
        return [array.astype(dtype) for array in (t, *arrays)]

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.manifold})"


class AbstractSolvedKernel(AbstractHeatKernel):
    """A kernel that was solved for, and says how accurate it is."""

    certificate: eqx.AbstractVar[AbstractCertificate]

    @abstractmethod
    def certified_again(self, *, points: int, key: Key) -> AbstractCertificate:
        """The certificate at new points, so many at each time."""

    def solved(self) -> "AbstractSolvedKernel":
        """Itself."""
        return self


@eqx.filter_jit
def _call(method, *arguments):
    """Run a method of a kernel compiled, also under a `jax.vmap` that is not."""
    return method(*arguments)


def phi_by_points(
    manifold: Any,
    log_prob: Callable[[Scalar, Point, Point], Scalar],
    t: Scalar,
    y: Float[Array, " k"],
) -> Scalar:
    """log p in kernel coordinates y of a symmetric space, at a point that has them."""
    origin = manifold.origin().astype(y.dtype)
    return log_prob(t, manifold.point_at(y, origin, jr.key(0)), origin)


def log_gaussian(t: Scalar, squared: Scalar, dim: int) -> Scalar:
    """log G_t at a squared distance: the kernel of flat space, (4 pi t)^(-n/2) exp(-r^2 / 4t)."""
    return -squared / (4 * t) - dim / 2 * jnp.log(4 * jnp.pi * t)
