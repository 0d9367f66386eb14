r"""Kernel density estimates with kernels of the manifold: the opponent to beat.

    p(x | c) = sum_k w_k sum_i a_i(c) p_ki(x) + w_0 uniform,     p_ki(x) = p(t_ki, x | x_i)

Either one bandwidth t, chosen on points that are put aside, and a small uniform part; or several
rows that adapt to the distances of neighbours and to their directions (`bandwidths`), mixed by
expectation and maximization on points that are put aside.  Where the volume distortion of the
exponential map is known, kernels that adapt are Gaussians of tangent spaces (`wrapped`), of any
covariance, which are densities exactly and agree with the heat kernel at small t; else they are
heat kernels.

Without conditions all shares a_i are the same, or as much as points count.  With labels those of
other labels are zero, so that each label has a density of its own.  With numbers, features f of
order one, they are a kernel regression,

    a_i(c) ~ exp(-|f_i - f(c)|^2 / (2 h^2)),

with a width h that is chosen on points put aside too.
"""

import dataclasses
import json
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int

from .. import __version__
from ..core.checks import key_numbers, random_key
from ..core.doors import door
from ..core.types import Key, Points, Scalar
from ..data.conditions import Condition
from ..data.folds import Folds, Prepared
from ..data.points import embedded
from ..data.prepare import Given, prepare
from ..heat.kernel import AbstractHeatKernel
from ..manifolds import AbstractManifold
from ..manifolds.means import frechet_mean
from ..store.stored import stored
from .around import Around, in_rows
from .bandwidths import Widths, adaptive_widths, single_widths, square_spread
from .choice import Choice, mixed, single
from .model import AbstractModel, by_others, in_batches
from .prior import AbstractPrior, KernelPrior, Uniform
from .specification import check_kernel
from .wrapped import can_wrap

_PARTS = 5  # validation parts of `fit_density`, at most
_POINTS = 1024  # points put aside that `fit_density` chooses by, at most
# Widths in numbers of order one that are tried, and one at which labels have nothing in common.
_NARROWEST = 1e-8  # variance of the broad part, where all points are the same
_WIDTHS, _APART = np.geomspace(0.03, 3, 12), 0.01


@stored("KernelDensity", root="model", arrays={"centre": np.asarray})
class KernelDensity(AbstractModel):
    """A kernel density estimate; `calor.fit_density` makes it."""

    kernel: AbstractHeatKernel
    points: Float[Array, "n ..."]
    bandwidths: Float[Array, "k n"]
    broad: AbstractPrior
    weights: tuple[float, ...] = eqx.field(static=True)
    """Of the rows of bandwidths, of those of covariances, and of the broad part."""
    condition: Condition | None
    rows: Float[Array, "n c"]
    """The features of the points."""
    width: Scalar
    """How far features may be apart."""
    record: str = eqx.field(static=True)
    whitenings: Float[Array, "g n d d"] | None = None
    """Of the covariances of wrapped Gaussians, if there are any."""
    counts: Float[Array, " n"] | None = None
    """How much each point counts, if they do not count the same."""
    wrapped: bool = eqx.field(static=True, default=False)
    """Whether the kernel of a bandwidth t is the wrapped Gaussian of variance 2t."""
    centre: np.ndarray | None = None

    @property
    def manifold(self) -> AbstractManifold:
        """Of the kernel."""
        return self.kernel.manifold

    def log_parts(
        self, x: Points, condition: Any, *, key: Key, tolerance: float, probes: int | None
    ) -> Float[Array, "n k"]:
        """log-densities (m, k + g + 1) of every row, and of the broad part."""
        x = self.seen(x)
        return jnp.asarray(self.parts_of(x, self.features(condition, len(x)))[0], x.dtype)

    def parts_of(
        self,
        x: Float[Array | np.ndarray, "m ..."],
        features: Float[Array | np.ndarray, "m c"],
        widths: Any = None,
    ) -> Float[np.ndarray, "h m k"]:
        """The same of points that were checked, for several widths."""
        widths = self.width[None] if widths is None else widths
        near = self._around().parts(x, features, widths)
        far = in_rows(_log_broad, x, features, shared=(self.broad,)).astype(np.float64)
        return np.concatenate([near, np.broadcast_to(far[:, None], (*near.shape[:2], 1))], axis=2)

    def draw_parts(
        self, parts: Int[Array, " n"], condition: Any, *, key: Key, steps: int, method: str
    ) -> Float[Array, "n ..."]:
        """Each point is noise around a data point, or a draw of the broad part."""
        features, keys = self.features(condition, len(parts)), jr.split(key, len(parts))
        shared = self._around(), self.broad, self.width
        return self.outside(in_batches(_draw, parts, features, keys, shared=shared))

    def _around(self) -> Around:
        """The kernels, with nothing that only describes the density."""
        count, dim, dtype = len(self.points), self.manifold.dim, self.points.dtype
        nothing = jnp.zeros((0, count, dim, dim), dtype)
        return Around(
            kernel=self.kernel,
            points=self.points,
            bandwidths=self.bandwidths,
            whitenings=nothing if self.whitenings is None else self.whitenings,
            rows=self.rows,
            counts=jnp.ones(count, dtype) if self.counts is None else self.counts,
            wrapped=self.wrapped,
        )

    def __str__(self) -> str:
        kinds, count = self.bandwidths.shape
        more = 0 if self.whitenings is None else len(self.whitenings)
        shapes = f", {more} covariances" if more else ""
        return f"KernelDensity({self.kernel}, {count} points, {kinds} bandwidths{shapes})"


def _log_broad(broad, x, features):
    return broad.log_prob(x, features)


def _draw(around, broad, width, part, features, key):
    """A draw from a row of kernels, or from the broad part."""
    key_near, key_far = jr.split(key)
    is_broad = part == len(around.bandwidths) + len(around.whitenings)
    near = around.draw(width, part, features, key_near)
    return jnp.where(is_broad, broad.sample(key_far, features), near)


@door("fit_density")
def fit_density(
    kernel: AbstractHeatKernel,
    data: Points,
    *,
    condition: Any = None,
    groups: Any = None,
    weights: Any = None,
    key: Key,
    validation: float | Any = 0.1,
    adaptive: bool = False,
    t_min: float | None = None,
) -> KernelDensity:
    """Fit a kernel density estimate.

    What is put aside chooses bandwidths and weights; the density itself is that of all points.

    Args:
        kernel: the heat kernel that is put around every data point.
        data: points along the first axis.
        condition: numbers (n,) or (n, c), or labels (n,), that come with each point.
        groups: names of what points belong to, if new points will come from others: whole groups
            are put aside.
        weights: how much each point counts, if they do not count the same.
        key: a random key, to put validation data aside.
        validation: the fraction to put aside, several times in turn if there are few points; or a
            pair (points, conditions), or points alone.
        adaptive: several bandwidths that adapt to the distance of neighbours, and covariances that
            adapt to their directions, instead of one bandwidth.
        t_min: the smallest bandwidth; by default it follows from the distance of neighbours.
    """
    check_kernel(kernel)
    key, given = random_key(key), Given(data, condition, groups, validation, weights)
    folds = prepare(kernel.manifold, given, key=key, centred=False, parts=_parts(validation))
    return _fit(kernel, folds, key=key, adaptive=adaptive, t_min=t_min, most=_POINTS)[0]


def fit_folds(
    kernel: AbstractHeatKernel,
    folds: Folds,
    *,
    key: Key,
    adaptive: bool = True,
    t_min: float | None = None,
) -> tuple[KernelDensity, Float[np.ndarray, " h"]]:
    """The density of all points, and what is said of points by densities that have not seen them.

    A point that was put aside is judged by the points of the training part alone, and by weights
    that were found on other validation parts.

    Args:
        kernel: the heat kernel.
        folds: the data.
        key: a random key.
        adaptive: several rows of kernels that adapt, instead of one bandwidth.
        t_min: the smallest bandwidth.

    Returns:
        The density, and the log-densities of all rows put aside, as `folds.judged` has them.
    """
    density, values, counts = _fit(kernel, folds, key=key, adaptive=adaptive, t_min=t_min)
    table, count = np.concatenate(values, axis=1), np.concatenate(counts)
    choose = mixed if adaptive else single

    def chosen(rows: np.ndarray) -> Any:
        choice = choose([table[:, rows]], [count[rows]])
        return lambda of: choice.value(table[:, of])

    return density, by_others(chosen, folds.blocks())


def _parts(validation: float | Any) -> int:
    """How many validation parts: together they are at most half of the data."""
    if isinstance(validation, int | float | np.number) and 0 < validation < 1:
        return max(1, min(_PARTS, int(0.5 / validation)))
    return 1


def _fit(kernel, folds, *, key, adaptive, t_min, most=None):
    """The density, and the values of all rows at points put aside; of so many of them, at most."""
    manifold = kernel.manifold
    wrapped = adaptive and can_wrap(manifold)
    record = {
        "manifold": str(manifold),
        "kernel": str(kernel),
        "adaptive": adaptive,
        "t_min": t_min,
        "key": key_numbers(key).tolist(),
        "calor": __version__,
    }

    def around(prepared: Prepared) -> KernelDensity:
        """Kernels of all kinds around the points."""
        if adaptive:
            rows = adaptive_widths(manifold, prepared, t_min, wrapped=wrapped)
        else:
            rows = single_widths(manifold, prepared, t_min)
        return _unweighed(kernel, prepared, rows, wrapped, json.dumps(record))

    parts = [folds.part(number) for number in range(max(1, len(folds.rows)))]
    densities = [around(part) for part in parts]
    widths = _widths(folds.whole)
    values, counts = [], []
    for part, density in zip(parts, densities, strict=True):
        few = np.asarray(jr.permutation(key, len(part.held_out)))
        few = np.sort(few[: None if most is None else -(-most // len(parts))])
        held, features = np.asarray(part.held_out)[few], np.asarray(part.held_features)[few]
        values.append(density.parts_of(held, features, widths))
        held = part.held_weights
        counts.append(np.ones(len(few)) if held is None else held[few])
    choose = mixed if adaptive else single
    density = around(folds.whole) if folds.rows else densities[0]
    return _chosen(density, choose(values, counts), widths), values, counts


def _unweighed(kernel, prepared, rows: Widths, wrapped, record) -> KernelDensity:
    """All rows, with no weights yet."""
    dtype = prepared.points.dtype
    counts = prepared.weights
    return KernelDensity(  # pyright: ignore[reportCallIssue]
        kernel=kernel,
        points=prepared.points,
        bandwidths=jnp.asarray(rows.times, dtype),
        broad=_broad(kernel, prepared.points),
        weights=(),
        condition=prepared.encoder,
        rows=prepared.features,
        width=jnp.asarray(_APART, dtype),
        record=record,
        whitenings=jnp.asarray(rows.whitenings, dtype),
        counts=None if counts is None else jnp.asarray(counts, dtype),
        wrapped=wrapped,
        centre=prepared.centre,
    )


def _broad(kernel, points) -> AbstractPrior:
    """What is left for points that are far from all others."""
    manifold = kernel.manifold
    if manifold.is_compact():
        return Uniform(manifold)
    variance = square_spread(np.asarray(embedded(manifold, points), np.float64)) / manifold.dim
    # Rounded, so that densities of nearly the same points share compiled functions.
    t = 2.0 ** float(np.round(np.log2(max(variance, _NARROWEST))))
    return KernelPrior(kernel, t, frechet_mean(manifold, points)[None])


def _widths(prepared: Prepared) -> Float[Array, " h"]:
    """The widths to try: one if there are no conditions, or labels."""
    encoder = prepared.encoder
    alone = encoder is None or encoder.labels
    return jnp.asarray([_APART] if alone else _WIDTHS, prepared.points.dtype)


def _chosen(density: KernelDensity, choice: Choice, widths: Float[Array, " h"]) -> KernelDensity:
    """The density of the rows that were chosen."""
    kinds, whitenings = len(density.bandwidths), density.whitenings
    shapes = choice.kept[choice.kept >= kinds] - kinds
    return dataclasses.replace(
        density,
        bandwidths=density.bandwidths[choice.kept[choice.kept < kinds]],
        whitenings=None if whitenings is None or len(shapes) == 0 else whitenings[shapes],
        weights=tuple(choice.weights.tolist()),
        width=widths[choice.width],
    )
