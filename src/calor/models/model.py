r"""Generative models: a mixture of parts, whatever the parts are.

    p(x | c) = sum_k w_k p_k(x | c)

A model says what the densities of its parts are and how points are drawn from them; the rest is the
same for all.  Weights are those of the largest likelihood, by expectation and maximization.
"""

import json
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int

from ..core.checks import positive_integer, random_key
from ..core.doors import door
from ..core.types import Key, Points
from ..data.conditions import Condition
from ..data.points import checked_points, uncentred
from ..manifolds import AbstractManifold
from ..store.stored import save

_BATCH = 512


class AbstractModel(eqx.Module):
    """A generative model on a manifold: `sample` draws from it, `log_prob` is its density.

    A new one supplies `log_parts` and `draw_parts`, which take points and conditions as users give
    them: `seen`, `features` and `outside` are at their doors.
    """

    manifold: eqx.AbstractVar[AbstractManifold]
    condition: eqx.AbstractVar[Condition | None]
    """How conditions are encoded, if the model was fitted with any."""
    centre: eqx.AbstractVar[np.ndarray | None]
    """The point that an isometry takes to the origin; the rest of the model lives around there."""
    weights: eqx.AbstractVar[tuple[float, ...]]
    """Of the parts."""
    record: eqx.AbstractVar[str]
    """How it was made: settings, seed, version, as JSON."""

    @abstractmethod
    def log_parts(
        self, x: Points, condition: Any, *, key: Key, tolerance: float, probes: int | None
    ) -> Float[Array, "n k"]:
        """The log-density of every part at points; the arguments are those of `log_prob`."""

    @abstractmethod
    def draw_parts(
        self, parts: Int[Array, " n"], condition: Any, *, key: Key, steps: int, method: str
    ) -> Float[Array, "n ..."]:
        """A draw from each of so many parts; the other arguments are those of `sample`."""

    def methods(self) -> tuple[str, ...]:
        """The ways to draw points, the usual one first."""
        return ("exact",)

    def can_teach(self) -> bool:
        """Whether `calor.distill` can teach a network what it does: it has a flow and a field."""
        return False

    @door("log_prob")
    def log_prob(
        self,
        x: Points,
        *,
        condition: Any = None,
        key: Key | None = None,
        tolerance: float = 1e-4,
        probes: int | None = None,
    ) -> Float[Array, " n"]:
        """The log-density at points, in the Riemannian volume.

        Args:
            x: points along the first axis.
            condition: of each point, or one for all.
            key: for the random vectors that estimate the divergence of a flow in high dimension.
            tolerance: of the solver of a flow.
            probes: how many random vectors; by default the divergence is exact up to dimension
                10, and estimated with 8 beyond.
        """
        key = jr.key(0) if key is None else random_key(key)
        parts = self.log_parts(x, condition, key=key, tolerance=tolerance, probes=probes)
        with np.errstate(divide="ignore"):
            weights = jnp.asarray(np.log(self.weights), parts.dtype)
        return logsumexp(parts + weights, axis=1)

    @door("sample")
    def sample(
        self,
        n: int,
        *,
        condition: Any = None,
        key: Key,
        method: str | None = None,
        steps: int = 200,
    ) -> Float[Array, "n ..."]:
        """Draw points.

        Args:
            n: how many.
            condition: of each point, or one for all, if the model was fitted with conditions.
            key: a random key.
            method: one of the model's `methods()`, by default the first.  Of a diffusion model:
                `"walk"`, a geodesic random walk of the reverse SDE; `"flow"`, the probability
                flow by midpoints, two evaluations of the network a step; `"corrected"`, the walk
                with Langevin corrections; or `"multistep"`, the flow by one evaluation a step,
                for 32 steps or fewer.
            steps: of the walk or flow; a distilled model makes the largest number of jumps up to
                it that it was taught.
        """
        known, n = self.methods(), positive_integer(n, "n")
        if method is not None and method not in known:
            listed = ", ".join(repr(name) for name in known)
            raise ValueError(f"method must be one of {listed}, got {method!r}.")
        steps = positive_integer(steps, "steps")
        key_part, key_run = jr.split(random_key(key))
        parts = jr.choice(key_part, len(self.weights), (n,), p=jnp.asarray(self.weights))
        method = method or known[0]
        return self.draw_parts(parts, condition, key=key_run, steps=steps, method=method)

    def seen(self, x: Points) -> Float[Array, "n ..."]:
        """Points that were checked, as seen from the centre."""
        return checked_points(self.manifold, x, "x", centre=self.centre)

    def outside(self, points: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
        """Points as users see them."""
        return uncentred(self.manifold, points, self.centre)

    def features(self, condition: Any, n: int) -> Float[Array, "n c"]:
        """The numbers that n conditions become, or one for all."""
        if self.condition is None:
            if condition is not None:
                raise ValueError("the model was fitted without conditions; leave it out.")
            return jnp.zeros((n, 0))
        if condition is None:
            raise ValueError("the model was fitted with conditions; give condition=...")
        return self.condition(condition, n)

    @property
    def about(self) -> dict[str, Any]:
        """How it was made: settings, seed, version."""
        return json.loads(self.record)

    def found(self) -> dict[str, Any]:
        """What fitting it found, by names: steps, seconds, how likely held out points are."""
        return {}

    def save(self, path: str | Path) -> None:
        """Save the model in one file; `calor.load` reads it."""
        save(path, self)


@eqx.filter_jit
def _run_batch(
    function: Any, shared: tuple[Any, ...], arrays: tuple[Array | np.ndarray, ...]
) -> Any:
    return jax.vmap(lambda *one: function(*shared, *one))(*arrays)


def in_batches(
    function: Any, *arrays: Array, shared: tuple[Any, ...] = (), size: int = _BATCH
) -> Any:
    """Apply a function of one point to many, a fixed number at a time.

    The last batch is filled up, so that everything is compiled once for large arrays, and once for
    each power of two of small ones.
    """
    count = len(arrays[0])
    size = min(size, 1 << max(count - 1, 0).bit_length())
    results = []
    # Rows are taken by NumPy, which compiles nothing; it has no random keys.
    columns = [a if _is_key(a) else np.asarray(a) for a in arrays]
    for start in range(0, count, size):
        rows = np.minimum(np.arange(start, start + size), count - 1)
        results.append(_run_batch(function, shared, tuple(a[rows] for a in columns)))
    return jax.tree.map(lambda *a: jnp.asarray(np.concatenate(a)[:count]), *results)


def _is_key(array: Array) -> bool:
    return jnp.issubdtype(array.dtype, jax.dtypes.prng_key)


def mixture_weights(
    parts: Float[Array | np.ndarray, "n k"],
    steps: int = 400,
    counts: Float[np.ndarray, " n"] | None = None,
    prior: float = 1.0,
) -> Float[np.ndarray, " k"]:
    """The weights of a mixture of given densities with the largest likelihood, by EM.

    Some more observations are shared among the parts, so that none has the weight zero.

    Args:
        parts: log-densities; NaN where there is no density.
        steps: of expectation and maximization.
        counts: how many observations each point is.
        prior: how many more observations there are.
    """
    parts = finite(parts)
    counts = np.ones(len(parts)) if counts is None else counts
    # Relative to the best part at each point, so that steps take no logarithms.
    relative = np.exp(parts - parts.max(axis=1, keepdims=True))
    weights = np.full(parts.shape[1], 1 / parts.shape[1])
    for _ in range(steps):
        share = weights * (relative.T @ (counts / (relative @ weights)))
        weights = (share + prior / parts.shape[1]) / (counts.sum() + prior)
    return weights


def mixture_value(
    parts: Float[Array | np.ndarray, "n k"],
    counts: Float[np.ndarray, " n"] | None = None,
    prior: float = 1.0,
    blocks: Int[np.ndarray, " n"] | None = None,
) -> Float[np.ndarray, " n"]:
    """The log-density at each point of the mixture with the weights of the largest likelihood.

    If points are in blocks the weights are those of the points of all other blocks.
    """
    parts, counts = finite(parts), np.ones(len(parts)) if counts is None else counts

    def choose(rows: np.ndarray) -> Callable[[np.ndarray], Float[np.ndarray, " m"]]:
        weights = np.log(mixture_weights(parts[rows], counts=counts[rows], prior=prior))
        return lambda of: np.logaddexp.reduce(parts[of] + weights, axis=1)

    return by_others(choose, np.zeros(len(parts), int) if blocks is None else blocks)


def by_others(
    choose: Callable[[np.ndarray], Callable[[np.ndarray], Float[np.ndarray, " m"]]],
    blocks: Int[np.ndarray, " n"],
) -> Float[np.ndarray, " n"]:
    """What is said of the rows of each block by what was chosen by the rows of all others.

    Args:
        choose: from rows to a function of rows.
        blocks: the block of each row; if all are in one, they are judged by their own choice.
    """
    found = np.empty(len(blocks))
    for block in np.unique(blocks):
        inside = np.flatnonzero(blocks == block)
        others = np.flatnonzero(blocks != block)
        found[inside] = choose(others if len(others) else inside)(inside)
    return found


def finite(parts: Float[Array | np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
    """In double precision, with points that a flow lost as points of no density."""
    parts = np.asarray(parts, np.float64)
    return np.where(np.isnan(parts), -1e3, parts)
