r"""Kernel density estimates with the heat kernel of the manifold: the opponent to beat.

    p(x | c) = sum_k w_k sum_i a_i(c) p(t_ki, x | x_i) + w_0 uniform

Either one bandwidth t, chosen on validation data, and a small uniform part; or several that adapt,
t_ki = (c_k d_i)^2 / 2 with d_i the distance of x_i to its k-th neighbour, mixed by expectation
maximization on validation data.

Without conditions all shares a_i are the same.  With labels those of other labels are zero, so that
each label has a density of its own.  With numbers, features f of order one, they are a kernel
regression,

    a_i(c) ~ exp(-|f_i - f(c)|^2 / (2 h^2)),

with a width h that is chosen on validation data too.
"""

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float, Int
from scipy.spatial import KDTree

from .. import __version__
from ..core.checks import key_numbers, random_key
from ..core.doors import door
from ..core.types import Key, Points, Scalar
from ..data.conditions import Condition
from ..data.prepare import Given, Prepared, prepare
from ..heat.kernel import AbstractHeatKernel
from ..manifolds import AbstractManifold
from ..manifolds.means import frechet_mean
from ..store.stored import stored
from .model import AbstractModel, in_batches, mixture_value, mixture_weights
from .prior import AbstractPrior, KernelPrior, Uniform
from .specification import check_kernel

# Neighbours and fractions of their distance that adaptive bandwidths are made from.
_NEIGHBOURS, _FRACTIONS = (2, 5, 15), (0.25, 0.5, 1.0)
_BANDWIDTHS = 24
_BROAD = 0.02  # weight of the broad part beside a single bandwidth
_POINTS = 1024  # validation points that a bandwidth is chosen on
_SMALLEST = 1e-8  # bandwidth
# Widths in numbers of order one that are tried, and one at which labels have nothing in common.
_WIDTHS, _APART = np.geomspace(0.03, 3, 12), 0.01


@stored("KernelDensity", root="model")
class KernelDensity(AbstractModel):
    """A kernel density estimate; `calor.fit_density` makes it."""

    kernel: AbstractHeatKernel
    points: Float[Array, "n ..."]
    bandwidths: Float[Array, "k n"]
    broad: AbstractPrior
    weights: tuple[float, ...] = eqx.field(static=True)
    """Of the rows of bandwidths, and of the broad part."""
    condition: Condition | None
    rows: Float[Array, "n c"]
    """The features of the points."""
    width: Scalar
    """How far features may be apart."""
    record: str = eqx.field(static=True)

    @property
    def manifold(self) -> AbstractManifold:
        """Of the kernel."""
        return self.kernel.manifold

    @property
    def centre(self) -> None:
        """None: kernels are where the points are."""
        return None

    def log_parts(
        self, x: Points, condition: Any, *, key: Key, tolerance: float, probes: int | None
    ) -> Float[Array, "n k"]:
        """log-densities (m, k + 1) of every row of bandwidths, and of the broad part."""
        x = self.seen(x)
        return self.parts_of(x, self.features(condition, len(x)))

    def parts_of(
        self, x: Float[Array, "m ..."], features: Float[Array, "m c"]
    ) -> Float[Array, "m k"]:
        """The same of points that were checked."""
        size = max(1, min(256, 2_000_000 // len(self.points)))  # pairs in memory at a time
        run = self._bare()._log_mean
        columns = [in_batches(run, x, features, shared=(t,), size=size) for t in self.bandwidths]
        columns.append(in_batches(self.broad.log_prob, x, features))
        return jnp.stack(columns, axis=1)

    def draw_parts(
        self, parts: Int[Array, " n"], condition: Any, *, key: Key, steps: int, method: str
    ) -> Float[Array, "n ..."]:
        """Each point is noise around a data point, or a draw of the broad part."""
        features, keys = self.features(condition, len(parts)), jr.split(key, len(parts))
        return in_batches(self._bare()._draw, parts, features, keys)

    def _bare(self) -> "KernelDensity":
        """Without what only describes it: equal ones share their compiled functions."""
        return dataclasses.replace(self, weights=(), condition=None, record="")

    def _log_mean(self, times, x, features):
        """The log of the mean of kernels around all points, at one place."""
        values = jax.vmap(lambda t, x0: self.kernel.log_prob_at(t, x, x0))(times, self.points)
        return logsumexp(values + self._log_shares(features))

    def _draw(self, part, features, key):
        """A draw from one part."""
        key_point, key_near, key_far = jr.split(key, 3)
        chosen = jr.categorical(key_point, self._log_shares(features))
        is_broad = part == len(self.bandwidths)
        t = self.bandwidths[jnp.where(is_broad, 0, part), chosen]
        near = self.kernel.draw(t, self.points[chosen], key_near)
        return jnp.where(is_broad, self.broad.sample(key_far, features), near)

    def _log_shares(self, features):
        """log a_i(c) of every point."""
        squares = jnp.sum((self.rows - features) ** 2, axis=1)
        return jax.nn.log_softmax(-squares / (2 * self.width**2))

    def __str__(self) -> str:
        kinds, count = self.bandwidths.shape
        return f"KernelDensity({self.kernel}, {count} points, {kinds} bandwidths)"


@door("fit_density")
def fit_density(
    kernel: AbstractHeatKernel,
    data: Points,
    *,
    condition: Any = None,
    groups: Any = None,
    key: Key,
    validation: float | Any = 0.1,
    adaptive: bool = False,
    t_min: float | None = None,
) -> KernelDensity:
    """Fit a kernel density estimate.

    Args:
        kernel: the heat kernel that is put around every data point.
        data: points along the first axis.
        condition: numbers (n,) or (n, c), or labels (n,), that come with each point.
        groups: names of what points belong to, if new points will come from others: whole groups
            are put aside.
        key: a random key, to put validation data aside.
        validation: the fraction to put aside; or a pair (points, conditions), or points alone.
        adaptive: several bandwidths that adapt to the distance of neighbours, instead of one.
        t_min: the smallest bandwidth; by default it follows from the distance of neighbours.
    """
    check_kernel(kernel)
    key, given = random_key(key), Given(data, condition, groups, validation)
    prepared = prepare(kernel.manifold, given, key=key, centred=False)
    places = np.asarray(jax.vmap(kernel.manifold.embedding)(prepared.points), np.float64)
    record = {
        "manifold": str(kernel.manifold),
        "kernel": str(kernel),
        "adaptive": adaptive,
        "t_min": t_min,
        "key": key_numbers(key).tolist(),
        "calor": __version__,
    }
    start = KernelDensity(  # pyright: ignore[reportCallIssue]
        kernel=kernel,
        points=prepared.points,
        bandwidths=jnp.zeros((0, len(places)), prepared.points.dtype),
        broad=_broad(kernel, prepared.points, places),
        weights=(1 - _BROAD, _BROAD),
        condition=prepared.encoder,
        rows=prepared.features,
        width=jnp.asarray(_APART, prepared.features.dtype),
        record=json.dumps(record),
    )
    held, widths = (prepared.held_out, prepared.held_features), _widths(prepared)
    if adaptive:
        times = np.maximum(_adaptive(places, _labels(prepared)), t_min or _SMALLEST)
        return _mixed(start, times, widths, held)
    few = jr.permutation(key, len(prepared.held_out))[:_POINTS]
    return _single(start, _candidates(places, t_min), widths, [part[few] for part in held])


def _broad(kernel, points, places) -> AbstractPrior:
    """What is left for points that are far from all others."""
    manifold = kernel.manifold
    if manifold.is_compact():
        return Uniform(manifold)
    variance = _square_spread(places) / manifold.dim
    return KernelPrior(kernel, variance, frechet_mean(manifold, points)[None])


def _square_spread(places: Float[np.ndarray, "n d"]) -> float:
    """The mean square distance from the mean."""
    return float(np.mean(np.sum((places - places.mean(0)) ** 2, axis=1)))


def _mixed(start, times, widths, held) -> KernelDensity:
    """Several bandwidths for each point, with their weights, and one width."""
    start = _with(start, bandwidths=times)
    found = _best(
        [_with(start, width=width) for width in widths],
        lambda density: float(np.mean(mixture_value(density.parts_of(*held)))),
    )
    weights = tuple(mixture_weights(found.parts_of(*held)).tolist())
    return dataclasses.replace(found, weights=weights)


def _single(start, times, widths, held) -> KernelDensity:
    """One bandwidth, and one width, each of the largest likelihood given the other."""
    broad = jnp.log(jnp.asarray(start.weights, start.points.dtype))

    def value(density: KernelDensity) -> float:
        return float(jnp.mean(logsumexp(density.parts_of(*held) + broad, axis=1)))

    def of_best_time(density: KernelDensity) -> KernelDensity:
        rows = [np.full((1, len(density.points)), t) for t in times]
        return _best([_with(density, bandwidths=row) for row in rows], value)

    found = of_best_time(_with(start, width=widths[len(widths) // 2]))
    if len(widths) > 1:
        found = of_best_time(_best([_with(found, width=width) for width in widths], value))
    return found


def _best(densities: list[KernelDensity], value: Callable[[KernelDensity], float]) -> KernelDensity:
    """The one of the largest value, which is not asked for if there is no choice."""
    return densities[0] if len(densities) == 1 else max(densities, key=value)


def _with(density: KernelDensity, **changed) -> KernelDensity:
    dtype = density.points.dtype
    arrays = {name: jnp.asarray(value, dtype) for name, value in changed.items()}
    return dataclasses.replace(density, **arrays)


def _widths(prepared: Prepared) -> tuple[float, ...]:
    """The widths to try: one if there are no conditions, or labels."""
    encoder = prepared.encoder
    return (_APART,) if encoder is None or encoder.labels else tuple(_WIDTHS)


def _labels(prepared: Prepared) -> list[Bool[np.ndarray, " n"]]:
    """Which points are of each label; one set of all points where there are no labels."""
    encoder = prepared.encoder
    if encoder is None or not encoder.labels:
        return [np.ones(len(prepared.points), bool)]
    return [column > 0 for column in np.asarray(prepared.features).T if column.any()]


def _candidates(places: Float[np.ndarray, "n d"], t_min: float | None) -> Float[np.ndarray, " b"]:
    """Bandwidths from the distance of neighbours to the spread of the data."""
    if t_min is None:
        t_min = max(_SMALLEST, float(np.quantile(_neighbours(places, 1), 0.1)) ** 2 / 8)
    return np.geomspace(t_min, max(_square_spread(places) / 4, 2 * t_min), _BANDWIDTHS)


def _neighbours(places: Float[np.ndarray, "n d"], number: int) -> Float[np.ndarray, " n"]:
    """The distance of each point to its neighbour of a given number among different points."""
    unique = np.unique(places, axis=0)
    number = min(number, len(unique) - 1)
    if number < 1:
        return np.full(len(places), 1e-3)
    return KDTree(unique).query(places, number + 1)[0][:, -1]


def _adaptive(places, sets) -> Float[np.ndarray, "k n"]:
    """Bandwidths by the distance of neighbours in the same set."""
    found = np.empty((len(_NEIGHBOURS) * len(_FRACTIONS), len(places)))
    for inside in sets:
        rows = [c * _neighbours(places[inside], k) for k in _NEIGHBOURS for c in _FRACTIONS]
        found[:, inside] = np.stack(rows) ** 2 / 2
    return found
