"""Learned heat kernels: the short-time law below t0, a solution of the heat equation above it.

This is equation (logp-approx) of the paper.  A learned kernel is used like any other, and carries
the certificate of its accuracy and the record of how it was made.
"""

import json
import math
import warnings
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from ..core.checks import positive_integer, random_key
from ..core.numerics import safe_sqrt
from ..core.types import Key, Point, Scalar
from ..heat.certificate import Certificate
from ..heat.chains import ChainReport, effective_size, langevin, metropolis_path, metropolis_walk
from ..heat.clouds.kernel import CloudKernel
from ..heat.early.geodesics import GeodesicLaw
from ..heat.exact.radial import RadialSampler, concrete
from ..heat.kernel import AbstractHeatKernel, PoorKernelWarning, compare_separately
from ..manifolds import AbstractManifold, AbstractSymmetricSpace, Submanifold
from ..store.stored import stored
from .forms.base import AbstractSolution
from .forms.symmetric import RadialSolution

# Times between which draws of isotropic spaces are tabulated.
_T_MIN = 1e-3
# Steps of Metropolis' rule after a random walk in small steps.
_CORRECTIONS = 8
# How much shorter than the kernel is wide these steps are, squared.
_SHORT = 8


@stored(
    "LearnedKernel",
    derived=("sampler",),
    build=lambda t0, t1, **parts: learned_kernel(interval=(t0, t1), **parts),
    root="kernel",
)
class LearnedKernel(AbstractHeatKernel):
    """A heat kernel that was solved for; `calor.solve` makes it."""

    manifold: AbstractManifold
    law: AbstractHeatKernel
    solution: AbstractSolution
    t0: float = eqx.field(static=True)
    t1: float = eqx.field(static=True)
    certificate: Certificate
    record: str = eqx.field(static=True)
    """How it was made: recipe, seed, version, time, as JSON."""
    sampler: RadialSampler | None = eqx.field(static=True)
    """The radial law, tabulated for draws, if the kernel is a function of the distance."""

    def log_prob_at(self, t, x, x0):
        self._warn()
        return self._value(t, x, x0)

    def score_at(self, t, x, x0):
        self._warn()
        return self._joined(t, self.law.score_at, self.solution.score, x, x0)

    def both_at(self, t, x, x0):
        self._warn()
        both = self.law.both_at, self.solution.log_prob_and_score
        return self._joined(t, *both, x, x0)

    def draw(self, t, x0, key):
        self._warn()
        return self._draw(t, x0, key)[0]

    def _value(self, t, x, x0):
        return self._joined(t, self.law.log_prob_at, self.solution.log_prob, x, x0)

    def _joined(self, t, early, late, x, x0) -> Any:
        """The law below t0, the solution above it."""
        if self.t0 == 0:
            return late(t, x, x0)
        before = lambda: early(jnp.minimum(t, self.t0), x, x0)
        after = lambda: late(jnp.maximum(t, self.t0), x, x0)
        if isinstance(self.law, GeodesicLaw):
            # Where t is the same for all points of a batch, one of the two only: the law may have
            # to solve a boundary value problem.  Where it is not, weights are copied for each.
            return jax.lax.cond(t < self.t0, before, after)
        return jax.tree.map(partial(jnp.where, t < self.t0), before(), after())

    def draw_with_score(self, t, x0, key):
        if not isinstance(self.law, GeodesicLaw):
            x = self.draw(t, x0, key)
            return x, self.score_at(t, x, x0)
        # Along a shot geodesic the law knows its score without a boundary value problem.
        self._warn()

        def late(t, x0, key):
            x, _ = self._walk(t, x0, key)
            return x, self.solution.score(t, x, x0)

        return self._joined(t, self.law.draw_with_score, late, x0, key)

    def sample_with_acceptance(self, t: Scalar, x0: Point, *, key: Key) -> tuple[Point, Scalar]:
        """A draw as `sample` makes it, and the acceptance rate of its chain (one if none)."""
        t, x0 = self.checked(t, x0=x0)
        return self._draw(t, x0, random_key(key, str(self)))

    def _draw(self, t, x0, key):
        manifold = self.manifold
        if isinstance(self.law, CloudKernel):  # whose draws are exact
            return self.law.draw(t, x0, key), jnp.ones_like(t)
        if self.sampler is not None:
            z = manifold.draw_tangent(key, x0)
            length = safe_sqrt(manifold.inner_at(x0, z, z))
            x = manifold.exp_at(x0, jnp.sqrt(2 * t) * self.sampler(t, length) * z)
            return x, jnp.ones_like(t)
        if isinstance(manifold, AbstractSymmetricSpace) and math.isinf(
            manifold.injectivity_radius()
        ):
            return langevin(manifold, lambda y: self.phi(t, y), t, x0, key)
        if isinstance(self.law, GeodesicLaw):
            early = lambda t, x0, key: (self.law.draw(t, x0, key), jnp.ones_like(t))
            return self._joined(t, early, self._walk, x0, key)
        return metropolis_walk(manifold, lambda x: self._value(t, x, x0), t, x0, key)

    def chain_report(
        self, t: Scalar, x0: Point, *, key: Key, draws: int = 256
    ) -> ChainReport | None:
        """How well the chains mix that set draws on a `Submanifold` right; None without chains."""
        t, x0 = self.checked(t, x0=x0)
        keys = jr.split(random_key(key, str(self)), positive_integer(draws, "draws", str(self)))
        if not isinstance(self.law, GeodesicLaw) or float(t) < self.t0:
            return None
        if not self.manifold.is_compact():  # pyright: ignore
            return None
        paths, chances = jax.jit(jax.vmap(lambda key: self._path(t, x0, key)))(keys)
        return ChainReport(float(jnp.mean(chances)), _CORRECTIONS, effective_size(paths))

    def _walk(self, t, x0, key):
        """The end of a random walk that Metropolis' rule has set right."""
        path, chances = self._path(t, x0, key)
        return path[-1], jnp.mean(chances)

    def _path(self, t, x0, key):
        """Brownian motion in steps, then a few steps of Metropolis' rule, which are returned.

        On a manifold that is not compact no rule: it would lead to where the network knows nothing.
        """
        key_start, key_walk = jr.split(key)
        start = self.manifold.walk(t, x0, key_start)  # pyright: ignore
        value = lambda x: self.solution.log_prob(t, x, x0)
        if not self.manifold.is_compact():  # pyright: ignore
            return start[None], jnp.ones(1, start.dtype)
        # Short steps, which repair what the walk does wrong.  Wide ones would find places that are
        # near as the crow flies but far along the manifold, where the network may be too high.
        scale = jnp.minimum(t, self.manifold.width**2 / 8) / _SHORT  # pyright: ignore
        return metropolis_path(self.manifold, value, scale, start, key_walk, _CORRECTIONS)

    def compare_at(self, t, x, sources):
        return compare_separately(self, t, x, sources)

    def latest(self):
        """The end of the solved interval where the network knows nothing of what comes after."""
        is_open = isinstance(self.manifold, Submanifold) and not self.manifold.is_compact()
        return self.t1 if is_open else math.inf

    def phi(self, t: Scalar, y: Float[Array, " k"]) -> Scalar:
        """log p as a function of kernel coordinates, on a symmetric space."""
        manifold = self.manifold
        assert isinstance(manifold, AbstractSymmetricSpace)
        if isinstance(self.solution, RadialSolution) and self.t0 == 0:
            return self.solution.phi(t, y)
        origin = manifold.origin().astype(y.dtype)
        return self._value(t, manifold.point_at(y, origin, jr.key(0)), origin)

    def _warn(self):
        if self.certificate.poor:
            warnings.warn(self.certificate.poor, PoorKernelWarning, stacklevel=2)

    @property
    def about(self) -> dict:
        """How it was made: recipe, seed, version, time."""
        return json.loads(self.record)


def learned_kernel(
    manifold: AbstractManifold,
    law: AbstractHeatKernel,
    solution: AbstractSolution,
    interval: tuple[float, float],
    certificate: Certificate,
    record: str,
) -> LearnedKernel:
    """A learned kernel, with the table of its draws if it is isotropic."""
    kernel = LearnedKernel(manifold, law, solution, *interval, certificate, record, None)
    if not isinstance(manifold, AbstractSymmetricSpace) or manifold.coordinate_count() > 1:
        return kernel
    radius = manifold.injectivity_radius()
    farthest = min(radius, 1e6) - 1e-4  # the area vanishes at both ends

    def log_density(t, r):
        inside = np.clip(r, 1e-6, farthest)
        values = concrete(lambda t, r: kernel.phi(t, r[None]), t, inside)
        return values + concrete(lambda r: manifold.log_area(r[None]), inside)

    growth = 0.0
    if not math.isfinite(radius):  # d log J / dr far out
        growth = float(jax.grad(manifold.log_area)(jnp.array([30.0]))[0])
    t_min = min(_T_MIN, interval[1] / 10)
    sampler = RadialSampler(manifold.dim, log_density, radius, t_min, interval[1], growth)
    return LearnedKernel(manifold, law, solution, *interval, certificate, record, sampler)
