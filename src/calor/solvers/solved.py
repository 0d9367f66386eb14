"""Learned heat kernels: the short-time law below t0, a solution of the heat equation above it.

A learned kernel is used like any other, and carries the certificate of its accuracy and the record
of how it was made.
"""

import dataclasses
import json
import math
import warnings
from typing import Any

import equinox as eqx
import jax.random as jr
from jaxtyping import Array, Float

from ..core.checks import positive_integer, random_key
from ..core.types import Key, Point, Scalar, Tangent
from ..heat.certificate import Certificate
from ..heat.chains import ChainReport
from ..heat.joined import AbstractJoinedKernel
from ..heat.kernel import AbstractHeatKernel, PoorKernelWarning
from ..manifolds import AbstractManifold
from ..store.stored import stored
from .certify import certify_solution
from .draws import AbstractDraws, Metropolis
from .forms.base import AbstractSolution


@stored(
    "LearnedKernel",
    derived=("sampler",),
    build=lambda t0, t1, **parts: learned_kernel(interval=(t0, t1), **parts),
    root="kernel",
)
class LearnedKernel(AbstractJoinedKernel):
    """A heat kernel that was solved for; `calor.solve` makes it."""

    manifold: AbstractManifold
    law: AbstractHeatKernel
    solution: AbstractSolution
    t0: float = eqx.field(static=True)
    t1: float = eqx.field(static=True)
    certificate: Certificate
    record: str = eqx.field(static=True)
    """How it was made: recipe, seed, version, time, as JSON."""
    sampler: AbstractDraws
    """How it draws; the solution says."""

    def late_log_prob(self, t: Scalar, x: Point, x0: Point) -> Scalar:
        """The solution."""
        return self.solution.log_prob(t, x, x0)

    def late_both(self, t: Scalar, x: Point, x0: Point) -> tuple[Scalar, Tangent]:
        """The solution."""
        return self.solution.log_prob_and_score(t, x, x0)

    def late_draw(self, t: Scalar, x0: Point, key: Key) -> Point:
        """By its sampler."""
        return self.sampler.late(self, t, x0, key)[0]

    def draw(self, t: Scalar, x0: Point, key: Key) -> Point:
        self.warn()
        return self.sampler.draw(self, t, x0, key)[0]

    def warn(self) -> None:
        """If the certificate calls it poor."""
        if self.certificate.poor:
            warnings.warn(self.certificate.poor, PoorKernelWarning, stacklevel=3)

    def sample_with_acceptance(self, t: Scalar, x0: Point, *, key: Key) -> tuple[Point, Scalar]:
        """A draw as `sample` makes it, and the acceptance rate of its chain (one if none)."""
        t, x0 = self.checked(t, x0=x0)
        return self.sampler.draw(self, t, x0, random_key(key, str(self)))

    def chain_report(
        self, t: Scalar, x0: Point, *, key: Key, draws: int = 256
    ) -> ChainReport | None:
        """How well the chains mix that set draws on a `Submanifold` right; None without chains."""
        t, x0 = self.checked(t, x0=x0)
        keys = jr.split(random_key(key, str(self)), positive_integer(draws, "draws", str(self)))
        return self.sampler.report(self, t, x0, keys)

    def latest(self) -> float:
        """The end of the solved interval where the network knows nothing of what comes after."""
        return math.inf if self.solution.settles() else self.t1

    def phi(self, t: Scalar, y: Float[Array, " k"]) -> Scalar:
        """log p as a function of kernel coordinates, on a symmetric space."""
        return self.joined(t, self.law.phi, self.solution.phi, y)

    def certified_again(self, *, points: int, key: Key) -> Certificate:
        """The certificate at new points."""
        interval = (self.t0, self.t1)
        return certify_solution(self.solution, self.law, interval, points=points, key=key)

    @property
    def about(self) -> dict[str, Any]:
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
    """A learned kernel, with how it draws."""
    kernel = LearnedKernel(
        manifold=manifold,
        law=law,
        solution=solution,
        t0=interval[0],
        t1=interval[1],
        certificate=certificate,
        record=record,
        sampler=Metropolis(),
    )
    return dataclasses.replace(kernel, sampler=solution.draws(kernel.phi, interval[1]))
