"""Kernels of two parts: a short-time law below a time t0, from t0 on what was solved for.

This is equation (logp-approx) of the paper.
"""

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp

from ..core.types import Key, Point, Scalar, Tangent
from .kernel import AbstractHeatKernel, AbstractSolvedKernel

T = TypeVar("T")


class AbstractJoinedKernel(AbstractSolvedKernel):
    """The law below t0, from t0 on what a leaf supplies."""

    law: eqx.AbstractVar[AbstractHeatKernel]
    t0: eqx.AbstractVar[float]

    @abstractmethod
    def late_log_prob(self, t: Scalar, x: Point, x0: Point) -> Scalar:
        """log p from t0 on."""

    @abstractmethod
    def late_both(self, t: Scalar, x: Point, x0: Point) -> tuple[Scalar, Tangent]:
        """log p and its score from t0 on."""

    @abstractmethod
    def late_draw(self, t: Scalar, x0: Point, key: Key) -> Point:
        """A draw from t0 on."""

    def late_draw_with_score(self, t: Scalar, x0: Point, key: Key) -> tuple[Point, Tangent]:
        """The same with the score there, for kernels that know it without looking again."""
        x = self.late_draw(t, x0, key)
        return x, self.late_both(t, x, x0)[1]

    @abstractmethod
    def warn(self) -> None:
        """Called before the kernel is used; it may say that it should not be."""

    def log_prob_at(self, t: Scalar, x: Point, x0: Point) -> Scalar:
        self.warn()
        return self.joined(t, self.law.log_prob_at, self.late_log_prob, x, x0)

    def score_at(self, t: Scalar, x: Point, x0: Point) -> Tangent:
        self.warn()
        return self.joined(t, self.law.score_at, lambda *at: self.late_both(*at)[1], x, x0)

    def both_at(self, t: Scalar, x: Point, x0: Point) -> tuple[Scalar, Tangent]:
        self.warn()
        return self.joined(t, self.law.both_at, self.late_both, x, x0)

    def draw_with_score(self, t: Scalar, x0: Point, key: Key) -> tuple[Point, Tangent]:
        if not self.law.is_costly():
            x = self.draw(t, x0, key)
            return x, self.score_at(t, x, x0)
        self.warn()
        # The law knows the scores of its own draws without much work.  In training every point has
        # its own time: `cond` would do both too, and copy what was learned for each point.
        early, late = self.law.draw_with_score, self.late_draw_with_score
        return self._selected(t, early, late, x0, key)

    def known_draw(self, t: Scalar, x0: Point, key: Key) -> tuple[Point, Scalar, Tangent]:
        self.warn()

        def late(t, x0, key):
            x = self.late_draw(t, x0, key)
            return x, *self.late_both(t, x, x0)

        return self.joined(t, self.law.known_draw, late, x0, key)

    def joined(self, t: Scalar, early: Callable[..., T], late: Callable[..., T], *rest: Point) -> T:
        """A function of the time, and of more, below t0 and another from t0 on."""
        if self.t0 > 0 and self.law.is_costly():
            # Where t is the same for all points of a batch, one of the two only.
            return jax.lax.cond(t < self.t0, lambda: early(t, *rest), lambda: late(t, *rest))
        return self._selected(t, early, late, *rest)

    def _selected(self, t, early, late, *rest):
        if self.t0 == 0:
            return late(t, *rest)
        before = early(jnp.minimum(t, self.t0), *rest)
        after = late(jnp.maximum(t, self.t0), *rest)
        return jax.tree.map(partial(jnp.where, t < self.t0), before, after)

    def is_costly(self) -> bool:
        """If the law is."""
        return self.law.is_costly()
