r"""Solutions of the log heat equation: how log p is written in terms of a network.

Everything a solution does not know is in its network; all else is exact.  Three ways to write it:

* `Spreading`, for spaces without cut locus.  The short-time law of first order is taken out,

      log p = log G_t - (1/2) log D + t u_1/u_0 + t^2/(1 + t) N(t, y),

  so the initial error is zero at t = 0, not small at some t0.

* `Settling`, for compact spaces, where p tends to the uniform law at the rate of the first
  eigenvalue lambda,

      log p = -log vol + w(t) N(t, y),     w = lambda / (4 (e^(lambda t) - 1)).

  w makes N of order one at all times: w N ~ -dist^2/4t early, ~ e^(-lambda t) late.

* `direct`, the paper's: log p = N(t, x), the network of its appendix B.

The first two are written in kernel coordinates y, and their network may change from one window of
time to the next.
"""

from abc import abstractmethod
from collections.abc import Callable
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from ...core.types import Key, Scalar
from ...heat.early.laws import FirstOrder
from ...manifolds import AbstractSymmetricSpace
from ...store.stored import stored
from ...training.sets import SetNetwork, set_network
from .base import AbstractRadialSolution, Ends, in_window, remaining, settling

# How fast an equation loses weight with the depth in the tail.
_FALL = 2

# Solutions in kernel coordinates.


class AbstractForm(eqx.Module):
    """log p = base + correction, the correction being written in terms of a set network."""

    manifold: eqx.AbstractVar[AbstractSymmetricSpace]

    @abstractmethod
    def network(self, key: Key) -> SetNetwork:
        """A random network of the size that this form needs."""

    @abstractmethod
    def log_mass(self, phi: Callable[[Scalar, Float[Array, " k"]], Scalar], t: Scalar) -> Scalar:
        """How much to take off phi for exp(phi) to have unit mass.

        The equation does not see a constant added to log p.
        """

    @abstractmethod
    def base(self, t: Scalar, y: Float[Array, " k"]) -> Scalar:
        """The part that is known."""

    @abstractmethod
    def correction(
        self, network: SetNetwork, t: Scalar, y: Float[Array, " k"], ends: Ends
    ) -> Scalar:
        """The part that is learned, in a window of time."""

    @abstractmethod
    def importance(self, t: Scalar, y: Float[Array, " k"]) -> Scalar:
        """The weight of the equation: errors count per unit of log t, less in the far tail."""


@stored("Spreading")
class Spreading(AbstractForm):
    """Brownian motion that never settles; exact as t -> 0."""

    manifold: AbstractSymmetricSpace
    scale: float = eqx.field(static=True)
    """The size of the second order in time, so that N is of order one."""

    def network(self, key: Key) -> SetNetwork:
        """Two layers are enough: the correction is smooth."""
        return _set_network(self.manifold, (16,), (16,), key)

    def log_mass(self, phi: Callable[[Scalar, Float[Array, " k"]], Scalar], t: Scalar) -> Scalar:
        """Zero: the initial value is exact, and the equation keeps the mass."""
        return jnp.zeros_like(t)

    def base(self, t: Scalar, y: Float[Array, " k"]) -> Scalar:
        """The law of first order."""
        return FirstOrder(self.manifold).phi(t, y)

    def correction(
        self, network: SetNetwork, t: Scalar, y: Float[Array, " k"], ends: Ends
    ) -> Scalar:
        """scale t^2/(1 + t) N(t, y)."""
        bounded = t / (t + ends[1] / 4)  # N is smooth at t = 0
        value = network(*_items(self.manifold, y), (2.5 * bounded - 1)[None])
        return self.scale * t**2 / (1 + t) * value

    def importance(self, t: Scalar, y: Float[Array, " k"]) -> Scalar:
        """The same everywhere."""
        return jnp.sqrt(t)


@stored("Settling")
class Settling(AbstractForm):
    """Brownian motion that becomes uniform on a compact space."""

    manifold: AbstractSymmetricSpace

    def network(self, key: Key) -> SetNetwork:
        """Three layers, for the sharp bend at the cut locus early on."""
        return _set_network(self.manifold, (16, 16), (16,), key)

    def log_mass(self, phi: Callable[[Scalar, Float[Array, " k"]], Scalar], t: Scalar) -> Scalar:
        """log of the integral of exp(phi), by quadrature in kernel coordinates."""
        y, weights = _uniform_quadrature(self.manifold)
        values = jax.vmap(lambda y: phi(t, y))(jnp.asarray(y, t.dtype))
        vanishing = values - self.base(t, jnp.zeros(1, t.dtype))
        return logsumexp(vanishing, b=jnp.asarray(weights, t.dtype))

    def base(self, t: Scalar, y: Float[Array, " k"]) -> Scalar:
        """The uniform law."""
        return -self.manifold.log_volume().astype(t.dtype)  # pyright: ignore

    def correction(
        self, network: SetNetwork, t: Scalar, y: Float[Array, " k"], ends: Ends
    ) -> Scalar:
        """w(t) N(t, y)."""
        start, end = ends
        inside = 2 * jnp.log(jnp.minimum(t, end) / start) / jnp.log(end / start) - 1
        value = network(*_items(self.manifold, y), inside[None])
        return settling(self.manifold.spectral_gap(), t) * value

    def late(self, t: Scalar) -> Scalar:
        """How small log(vol p) has become, one until about 1/lambda."""
        return remaining(self.manifold.spectral_gap(), t)

    def tail(self, t: Scalar, y: Float[Array, " k"]) -> Scalar:
        """How much a row counts in the tail, by the depth dist^2/4t there.

        Errors there flow outward along geodesics and do not come back.
        """
        return (1 + jnp.sum(y * y) / (4 * t)) ** -_FALL

    def importance(self, t: Scalar, y: Float[Array, " k"]) -> Scalar:
        """Less in the tail; late relative to what remains of log p."""
        return t * self.tail(t, y) / self.late(t)


def _set_network(manifold, item_widths, group_widths, key):
    y = jax.ShapeDtypeStruct((manifold.coordinate_count(),), float)
    features = jax.eval_shape(manifold.invariants, y).shape[1]
    return set_network(key, features, len(manifold.grouping()), 1, item_widths, group_widths)


def _uniform_quadrature(manifold):
    """Gauss-Legendre points y and weights of the uniform law, for even functions of few y."""
    count = manifold.coordinate_count()
    nodes = min(64, int(2e5 ** (1 / count)))
    x, weights = np.polynomial.legendre.leggauss(nodes)
    axis = (x + 1) / 2 * manifold.injectivity_radius()
    y = np.stack(np.meshgrid(*[axis] * count, indexing="ij"), -1).reshape(-1, count)
    product = np.prod(np.stack(np.meshgrid(*[weights] * count)), axis=0).ravel()
    area = np.asarray(jax.vmap(lambda y: jnp.exp(manifold.log_area(y)))(jnp.asarray(y)))
    return y, product * area / np.sum(product * area)


def _items(manifold, y):
    return manifold.invariants(y), jnp.asarray(manifold.grouping(), y.dtype)


@stored("RadialSolution")
class RadialSolution(AbstractRadialSolution):
    """A solution in kernel coordinates y, with one network for each window of time."""

    manifold: AbstractSymmetricSpace
    form: AbstractForm
    edges: tuple[float, ...] = eqx.field(static=True)
    """The ends of the windows of time, increasing."""
    networks: SetNetwork
    """Their networks, stacked along the first axis."""
    log_masses: Float[Array, "w 2"]
    """What is taken off at both ends of each window, so that the mass is one."""

    def phi(self, t: Scalar, y: Float[Array, " k"]) -> Scalar:
        """log p in kernel coordinates."""
        base, stacked = self.form.base(t, y), (self.networks, self.log_masses)
        (network, (first, last)), ends = in_window(self.edges, stacked, t)
        correction = self.form.correction(network, t, y, ends)
        start, end = ends
        fraction = jnp.clip((t - start) / (end - start), 0.0, 1.0)
        return base + (correction - (first + fraction * (last - first)))


def normalized(
    form: AbstractForm, edges: tuple[float, ...], networks: SetNetwork
) -> RadialSolution:
    """The solution with these networks, whose mass at the ends of its windows is one."""

    def log_masses(network, ends):
        def phi(t, y):
            return form.base(t, y) + form.correction(network, t, y, ends)

        return jnp.stack([form.log_mass(phi, t) for t in ends])

    masses = jax.vmap(log_masses)(networks, jnp.asarray(list(pairwise(edges))))
    return RadialSolution(form.manifold, form, edges, networks, masses)
