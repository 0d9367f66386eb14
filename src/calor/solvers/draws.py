"""How draws from a solved kernel are made: what suits the manifold and the solution.

Where Brownian motion can be drawn exactly, so it is.  If the kernel is a function of the distance,
the length of a Gaussian vector is changed, by a table.  Else a Markov chain sets right what a
Gaussian or a random walk does wrong.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from ..core.numerics import safe_sqrt
from ..core.types import Key, Point, Scalar
from ..heat.chains import ChainReport, effective_size, langevin, metropolis_path, metropolis_walk
from ..heat.exact.radial import RadialSampler, concrete
from ..manifolds import AbstractSymmetricSpace

if TYPE_CHECKING:
    from .solved import LearnedKernel

# Times between which draws of isotropic spaces are tabulated.
_T_MIN = 1e-3
# Steps of Metropolis' rule after a random walk in small steps.
_CORRECTIONS = 8
# How much shorter than the kernel is wide these steps are, squared.
_SHORT = 8

Phi = Callable[[Scalar, Float[Array, " k"]], Scalar]
"""log p at a time, in kernel coordinates."""


class AbstractDraws(eqx.Module):
    """A way to draw from a kernel."""

    @abstractmethod
    def draw(self, kernel: "LearnedKernel", t: Scalar, x0: Point, key: Key) -> tuple[Point, Scalar]:
        """A draw, and the acceptance rate of its chain, one if there is none."""

    def late(self, kernel: "LearnedKernel", t: Scalar, x0: Point, key: Key) -> tuple[Point, Scalar]:
        """The same for times from t0 on."""
        return self.draw(kernel, t, x0, key)

    def report(
        self, kernel: "LearnedKernel", t: Scalar, x0: Point, keys: Key
    ) -> ChainReport | None:
        """How well the chains mix, from one for each key; None without chains."""
        return None


class Exact(AbstractDraws):
    """Those of the law, which are exact at all times."""

    def draw(self, kernel: "LearnedKernel", t: Scalar, x0: Point, key: Key) -> tuple[Point, Scalar]:
        """No chain."""
        return kernel.law.draw(t, x0, key), jnp.ones_like(t)


class Table(AbstractDraws):
    """A Gaussian vector, its length changed as the law of the distance has it."""

    radial: RadialSampler = eqx.field(static=True)

    def draw(self, kernel: "LearnedKernel", t: Scalar, x0: Point, key: Key) -> tuple[Point, Scalar]:
        """No chain."""
        manifold = kernel.manifold
        z = manifold.draw_tangent(key, x0)
        length = safe_sqrt(manifold.inner_at(x0, z, z))
        x = manifold.exp_at(x0, jnp.sqrt(2 * t) * self.radial(t, length) * z)
        return x, jnp.ones_like(t)


class Langevin(AbstractDraws):
    """Steps along the slope of log p in the tangent space of the origin of a symmetric space."""

    manifold: AbstractSymmetricSpace

    def draw(self, kernel: "LearnedKernel", t: Scalar, x0: Point, key: Key) -> tuple[Point, Scalar]:
        """A few steps."""
        return langevin(self.manifold, lambda y: kernel.phi(t, y), t, x0, key)


class Metropolis(AbstractDraws):
    """The paper's random walk, with the density of the kernel."""

    def draw(self, kernel: "LearnedKernel", t: Scalar, x0: Point, key: Key) -> tuple[Point, Scalar]:
        """Many steps."""
        return metropolis_walk(kernel.manifold, lambda x: kernel.log_prob_at(t, x, x0), t, x0, key)


class CorrectedWalk(AbstractDraws):
    """Draws of the law below t0; Brownian motion in steps, then a few of Metropolis' rule, above.

    On a manifold that is not compact no rule: it would lead to where the solution knows nothing.
    """

    width: float = eqx.field(static=True)
    """Of the manifold."""

    def draw(self, kernel: "LearnedKernel", t: Scalar, x0: Point, key: Key) -> tuple[Point, Scalar]:
        """The end of the chain."""
        early = lambda t, x0, key: (kernel.law.draw(t, x0, key), jnp.ones_like(t))
        return kernel.joined(t, early, lambda *at: self.late(kernel, *at), x0, key)

    def late(self, kernel: "LearnedKernel", t: Scalar, x0: Point, key: Key) -> tuple[Point, Scalar]:
        """The end of the chain."""
        path, chances = self._path(kernel, t, x0, key)
        return path[-1], jnp.mean(chances)

    def report(
        self, kernel: "LearnedKernel", t: Scalar, x0: Point, keys: Key
    ) -> ChainReport | None:
        """Of the steps of Metropolis' rule."""
        if float(t) < kernel.t0 or not kernel.manifold.is_compact():
            return None
        paths, chances = jax.jit(jax.vmap(lambda key: self._path(kernel, t, x0, key)))(keys)
        return ChainReport(float(jnp.mean(chances)), _CORRECTIONS, effective_size(paths))

    def _path(self, kernel, t, x0, key):
        key_start, key_walk = jr.split(key)
        manifold = kernel.manifold
        start = manifold.walk(t, x0, key_start)
        if not manifold.is_compact():
            return start[None], jnp.ones(1, start.dtype)
        # Short steps, which repair what the walk does wrong.  Wide ones would find places that are
        # near as the crow flies but far along the manifold, where the network may be too high.
        scale = jnp.minimum(t, self.width**2 / 8) / _SHORT
        value = lambda x: kernel.late_log_prob(t, x, x0)
        return metropolis_path(manifold, value, scale, start, key_walk, _CORRECTIONS)


def draws_in_coordinates(manifold: Any, phi: Phi, last: float) -> AbstractDraws:
    """What suits a kernel that is a function of kernel coordinates, or of nothing so simple.

    Args:
        manifold: where it is.
        phi: log p in the coordinates.
        last: the last time of draws that are tabulated.
    """
    count = manifold.coordinate_count()
    if count == 1:
        return Table(_table(manifold, phi, last))
    is_endless = count > 1 and math.isinf(manifold.injectivity_radius())
    return Langevin(manifold) if is_endless else Metropolis()


def _table(manifold, phi, last):
    radius = manifold.injectivity_radius()
    farthest = min(radius, 1e6) - 1e-4  # the area vanishes at both ends

    def log_density(t, r):
        inside = np.clip(r, 1e-6, farthest)
        values = concrete(lambda t, r: phi(t, r[None]), t, inside)
        return values + concrete(lambda r: manifold.log_area(r[None]), inside)

    growth = 0.0
    if not math.isfinite(radius):  # d log J / dr far out
        growth = float(jax.grad(manifold.log_area)(jnp.array([30.0]))[0])
    return RadialSampler(manifold.dim, log_density, radius, min(_T_MIN, last / 10), last, growth)
