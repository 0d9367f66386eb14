r"""Solutions of the log heat equation: how log p is written in terms of a network.

Everything a solution does not know is in its network; all else is exact.  Three ways to write it:

* `Spreading`, for spaces without cut locus.  The short-time law of first order is taken out,

      log p = log G_t - (1/2) log D + t u_1/u_0 + t^2/(1 + t) N(t, y),

  so the initial error is zero at t = 0, not small at some t0.

* `Settling`, for compact spaces, where p tends to the uniform law at the rate of the first
  eigenvalue lambda,

      log p = -log vol + w(t) N(t, y),     w = lambda / (4 (e^(lambda t) - 1)).

  w makes N of order one at all times: w N ~ -dist^2/4t early, ~ e^(-lambda t) late.

* `DirectSolution`, the paper's: log p = N(t, x), the network of its appendix B.

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
from ...heat.equation import radial_terms
from ...manifolds import AbstractSymmetricSpace
from ...store.stored import stored
from ...training.sets import SetNetwork, set_network
from .base import AbstractSolution, in_window, remaining

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
        self, network: SetNetwork, t: Scalar, y: Float[Array, " k"], start: Scalar, end: Scalar
    ) -> Scalar:
        """The part that is learned, in the window of time from `start` to `end`."""

    @abstractmethod
    def importance(self, t: Scalar, y: Float[Array, " k"]) -> Scalar:
        """The weight of the equation: errors count per unit of log t, less in the far tail."""


@stored("Spreading")
class Spreading(AbstractForm):
    """Brownian motion that never settles; exact as t -> 0."""

    manifold: AbstractSymmetricSpace
    scale: float = eqx.field(static=True)
    """The size of the second order in time, so that N is of order one."""

    def network(self, key):
        """Two layers are enough: the correction is smooth."""
        return _set_network(self.manifold, (16,), (16,), key)

    def log_mass(self, phi, t):
        """Zero: the initial value is exact, and the equation keeps the mass."""
        return jnp.zeros_like(t)

    def base(self, t, y):
        """The law of first order."""
        gaussian = -jnp.sum(y * y) / (4 * t) - self.manifold.dim / 2 * jnp.log(4 * jnp.pi * t)
        return gaussian + FirstOrder(self.manifold).correction(t, y)

    def correction(self, network, t, y, start, end):
        """scale t^2/(1 + t) N(t, y)."""
        bounded = t / (t + end / 4)  # N is smooth at t = 0
        value = network(*_items(self.manifold, y), (2.5 * bounded - 1)[None])
        return self.scale * t**2 / (1 + t) * value

    def importance(self, t, y):
        """The same everywhere."""
        return jnp.sqrt(t)


@stored("Settling")
class Settling(AbstractForm):
    """Brownian motion that becomes uniform on a compact space."""

    manifold: AbstractSymmetricSpace

    def network(self, key):
        """Three layers, for the sharp bend at the cut locus early on."""
        return _set_network(self.manifold, (16, 16), (16,), key)

    def log_mass(self, phi, t):
        """log of the integral of exp(phi), by quadrature in kernel coordinates."""
        y, weights = _uniform_quadrature(self.manifold)
        values = jax.vmap(lambda y: phi(t, y))(jnp.asarray(y, t.dtype))
        vanishing = values - self.base(t, jnp.zeros(1, t.dtype))
        return logsumexp(vanishing, b=jnp.asarray(weights, t.dtype))

    def base(self, t, y):
        """The uniform law."""
        return -self.manifold.log_volume().astype(t.dtype)  # pyright: ignore

    def correction(self, network, t, y, start, end):
        """w(t) N(t, y)."""
        inside = 2 * jnp.log(jnp.minimum(t, end) / start) / jnp.log(end / start) - 1
        value = network(*_items(self.manifold, y), inside[None])
        return self.weight(t) * value

    def weight(self, t: Scalar) -> Scalar:
        """w(t)."""
        rate = self.manifold.spectral_gap()
        return rate / (4 * jnp.expm1(rate * t))

    def late(self, t: Scalar) -> Scalar:
        """How small log(vol p) has become, one until about 1/lambda."""
        return remaining(self.weight, self.manifold.spectral_gap(), t)

    def tail(self, t: Scalar, y: Float[Array, " k"]) -> Scalar:
        """How much a row counts in the tail, by the depth dist^2/4t there.

        Errors there flow outward along geodesics and do not come back.
        """
        return (1 + jnp.sum(y * y) / (4 * t)) ** -_FALL

    def importance(self, t, y):
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
class RadialSolution(AbstractSolution):
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
        return self.form.base(t, y) + self.correction(t, y)

    def correction(self, t, y):
        (network, log_masses), (start, end) = in_window(
            self.edges, (self.networks, self.log_masses), t
        )
        correction = self.form.correction(network, t, y, start, end)
        first, last = log_masses
        fraction = jnp.clip((t - start) / (end - start), 0.0, 1.0)
        return correction - (first + fraction * (last - first))

    def log_prob(self, t, x, x0):
        """log p."""
        return self.phi(t, self.manifold.kernel_coordinates(x, x0))

    def log_prob_and_score(self, t, x, x0):
        """The gradient in y, which the manifold carries to x in closed form."""
        y, lift = self.manifold.lifted_coordinates(x, x0)
        value, slope = jax.value_and_grad(self.phi, 1)(t, y)
        return value, lift(slope)

    def terms(self, t, x, x0):
        """The terms of the equation, in kernel coordinates."""
        return radial_terms(self.phi, self.manifold, t, self.manifold.kernel_coordinates(x, x0))


def normalized(solution: RadialSolution) -> RadialSolution:
    """The solution with its mass at the ends of its windows set to one."""
    form = solution.form

    def log_masses(network, ends):
        def phi(t, y):
            return form.base(t, y) + form.correction(network, t, y, *ends)

        return jnp.stack([form.log_mass(phi, t) for t in ends])

    ends = jnp.asarray(list(pairwise(solution.edges)))
    masses = jax.vmap(log_masses)(solution.networks, ends)
    return eqx.tree_at(lambda s: s.log_masses, solution, masses)
