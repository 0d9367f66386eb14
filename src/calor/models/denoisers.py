r"""Denoisers of the paper on SPD(n): networks that name a positive definite matrix.

* `TriangularScore`, for brain signals: a perceptron from the triangle of X to a triangle U, which
  names U^T U.
* `SPDNetScore`, for traffic: SPD-Net (Li et al. 2024), shaped like a U of layers X -> W X W^T
  (BiMap) and "no eigenvalue below epsilon" (ReEig), with sizes 10-10-6-6-3-3-6-6-10-10 for n = 10.
  On the way up each size is averaged with the matrix of that size on the way down; time and
  condition enter as congruences.

The matrix Y that is named is read as in a `DenoisedScore`: s = log_X(Y) / (a (1 + a)), a^2 = 2t.
Pass the class as `score` to `calor.fit`.
"""

import dataclasses
import math
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from ..core.types import Key, Point, Scalar, Tangent
from ..manifolds import SPD, AbstractManifold
from ..manifolds.matrices import eigh
from ..store.stored import stored
from ..training.dense import Dense, dense
from ..training.fixed import Fixed
from .fields import AbstractField, guessed, toward
from .guesses.base import AbstractGuess
from .network import AbstractNetwork, FieldNetwork, Task, time_waves, times_kept, with_times

_FLOOR = 1e-4
"""No eigenvalue is lower after a layer ReEig."""


def _needs_spd(manifold: AbstractManifold) -> None:
    if not isinstance(manifold, SPD):
        raise ValueError(f"this score is for SPD(n), not for {manifold}.")


@stored("TriangularScore")
class TriangularScore(AbstractField):
    """A triangle from a triangle: X -> U, the denoised matrix being U^T U."""

    manifold: SPD
    network: FieldNetwork
    guess: AbstractGuess | None = None

    @staticmethod
    def outputs(manifold: AbstractManifold) -> int:
        """The entries of a triangle."""
        _needs_spd(manifold)
        return manifold.dim

    def vector_at(self, t: Scalar, x: Point, condition: Float[Array, " c"]) -> Tangent:
        i, j = np.triu_indices(self.manifold.size)
        if self.guess is not None:
            told = guessed(self.manifold, self.guess, t, x, condition)
            condition = jnp.concatenate([condition, told])
        entries = self.network((x - jnp.eye(len(x), dtype=x.dtype))[i, j], t, condition)
        upper = jnp.eye(len(x), dtype=x.dtype).at[i, j].add(entries)
        made = upper.T @ upper + _FLOOR * jnp.eye(len(x), dtype=x.dtype)
        return toward(self.manifold, t, x, made)


@jax.custom_jvp
def rectify(s: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The symmetric matrix with eigenvalues below the floor lifted to it (ReEig)."""
    w, q = eigh(s)
    return (q * jnp.maximum(w, _FLOOR)) @ q.T


@rectify.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    # Divided differences of max(w, floor): between 0 and 1, also where eigenvalues meet.
    (s,), (e,) = primals, tangents
    w, q = eigh(s)
    lifted = jnp.maximum(w, _FLOOR)
    gaps = w[:, None] - w
    apart = jnp.abs(gaps) > 1e-6
    slopes = jnp.where(
        apart,
        (lifted[:, None] - lifted) / jnp.where(apart, gaps, 1.0),
        0.5 * ((w > _FLOOR)[:, None].astype(w.dtype) + (w > _FLOOR)),
    )
    return (q * lifted) @ q.T, q @ (slopes * (q.T @ e @ q)) @ q.T


@stored("SPDNet", **with_times(lambda: SPDNet))
class SPDNet(eqx.Module):
    """BiMap and ReEig layers in the shape of a U."""

    maps: tuple[Float[Array, "o i"], ...]
    hidden: Dense
    turns: Dense
    """From features of time and condition to the congruences before the first and middle map."""
    log_times: Fixed

    def __call__(
        self, x: Float[Array, "n n"], t: Scalar, condition: Float[Array, " c"]
    ) -> Float[Array, "n n"]:
        """The matrix that is named."""
        features = jnp.concatenate([time_waves(t, self.log_times, 4), condition])
        turns = self.turns(jax.nn.silu(self.hidden(features.astype(x.dtype))))
        half, first = len(self.maps) // 2, len(x) ** 2
        size = math.isqrt(len(turns) - first)
        before = jnp.eye(len(x), dtype=x.dtype) + turns[:first].reshape(len(x), len(x))
        middle = jnp.eye(size, dtype=x.dtype) + turns[first:].reshape(size, size)
        x = before @ x @ before.T
        seen = {}
        for number, weight in enumerate(self.maps):
            x = rectify(weight @ x @ weight.T)
            if number < half:
                seen[len(x)] = x
            elif number == half:
                x = middle @ x @ middle.T
            elif len(x) in seen:
                x = (x + seen[len(x)]) / 2
        return rectify((x + x.T) / 2)


def spd_net(
    key: Key, manifold: AbstractManifold, conditions: int, times: tuple[float, float]
) -> SPDNet:
    """A random SPD-Net whose maps begin as parts of the identity, nearly."""
    _needs_spd(manifold)
    n = manifold.shape[0]
    middle, small = max(1, round(0.6 * n)), max(1, round(0.3 * n))
    sizes = [n, n, middle, middle, small, small, middle, middle, n, n]
    key_maps, key_hidden, key_turns = jr.split(key, 3)
    maps = [
        jnp.eye(after, before) + 0.05 * jr.normal(k, (after, before))
        for k, (before, after) in zip(jr.split(key_maps, 9), pairwise(sizes), strict=True)
    ]
    return SPDNet(
        tuple(maps),
        dense(key_hidden, 9 + conditions, 64, spread=0.1),
        dense(key_turns, 64, n * n + small * small, spread=0.0, scale=0.05),
        times_kept(times),
    )


@dataclasses.dataclass(frozen=True)
class SPDNetwork(AbstractNetwork):
    """An SPD-Net, whose size follows from that of the matrices."""

    gaussian: bool | None = None
    """Whether there is a Gaussian as a first guess; it gives the prior and the times."""

    def check(self, manifold: Any) -> None:
        _needs_spd(manifold)

    def has_gaussian(self) -> bool | None:
        return self.gaussian

    def build(self, task: Task, *, key: Key) -> Any:
        times = task.scales.t_min, task.scales.t1
        return spd_net(key, task.manifold, task.features, times)


@stored("SPDNetScore")
class SPDNetScore(AbstractField):
    """SPD-Net names the denoised matrix."""

    manifold: SPD
    network: SPDNet
    guess: AbstractGuess | None = None

    @staticmethod
    def network_of(chosen: AbstractNetwork) -> AbstractNetwork:
        """Its own, whatever was chosen."""
        return SPDNetwork(chosen.has_gaussian())

    def vector_at(self, t: Scalar, x: Point, condition: Float[Array, " c"]) -> Tangent:
        return toward(self.manifold, t, x, self.network(x, t, condition))
