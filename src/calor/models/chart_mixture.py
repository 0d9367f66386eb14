r"""Mixtures of Gaussians in the chart of a manifold that one chart covers.

    p(x | c) = sum_k w_k(c) N(z(x); m_k, C_k) / volume(z(x)),

with z(x) the place of x in the chart and `volume` that of a unit cube of places: the density is
normalized in the Riemannian volume.  It is what statistics would try first on such data, and takes
seconds.  Labels have weights of their own, or a mixture; where conditions are numbers there is one
Gaussian, whose mean and widths are regressed on them (`guesses.regression`).
"""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int

from .. import __version__
from ..core.checks import key_numbers, random_key
from ..core.doors import door
from ..core.types import Key, Point, Points, Scalar
from ..data.conditions import Condition
from ..data.folds import Folds, Prepared
from ..data.points import embedded
from ..data.prepare import Given, prepare
from ..heat.kernel import AbstractHeatKernel
from ..manifolds import AbstractManifold
from ..store.stored import stored
from .guesses import find_gaussian
from .guesses.base import AbstractChartLaw
from .guesses.choose import COUNTS, choose_by_label
from .guesses.em import Points as Weighed
from .guesses.parts import parts_law
from .model import AbstractModel, in_batches
from .specification import check_kernel

# Validation parts that choices are made on.
_PARTS = 4


@stored("ChartMixture", root="model", arrays={"centre": np.asarray})
class ChartMixture(AbstractModel):
    """A mixture of Gaussians in the chart; `calor.fit_mixture` makes it."""

    manifold: AbstractManifold
    law: AbstractChartLaw
    """Of places, as seen from the centre."""
    condition: Condition | None
    centre: np.ndarray | None
    record: str = eqx.field(static=True)

    @property
    def weights(self) -> tuple[float, ...]:
        """One: what there is of parts may have other weights for each condition."""
        return (1.0,)

    def log_parts(
        self, x: Points, condition: Any, *, key: Key, tolerance: float, probes: int | None
    ) -> Float[Array, "n 1"]:
        """The log-density."""
        x = self.seen(x)
        features = self.features(condition, len(x))
        return in_batches(self._bare()._log_density, x, features)[:, None]

    def draw_parts(
        self, parts: Int[Array, " n"], condition: Any, *, key: Key, steps: int, method: str
    ) -> Float[Array, "n ..."]:
        """Draws of places as points."""
        features, keys = self.features(condition, len(parts)), jr.split(key, len(parts))
        return self.outside(in_batches(self._bare()._draw, keys, features))

    def _bare(self) -> "ChartMixture":
        """Without what only describes it: equal ones share their compiled functions."""
        return dataclasses.replace(self, condition=None, centre=None, record="")

    def _log_density(self, x: Point, features: Float[Array, " c"]) -> Scalar:
        place, now = self.manifold.embedding(x), jnp.zeros((), x.dtype)
        return self.law.log_prob(place, now, features) - self.manifold.log_chart_volume(x)

    def _draw(self, key: Key, features: Float[Array, " c"]) -> Point:
        return self.manifold.decode(self.law.sample(key, jnp.zeros(()), features))

    def __str__(self) -> str:
        return f"ChartMixture({self.manifold}, {self.law.count()} Gaussians)"


@door("fit_mixture")
def fit_mixture(
    kernel: AbstractHeatKernel,
    data: Points,
    *,
    condition: Any = None,
    groups: Any = None,
    weights: Any = None,
    key: Key,
    validation: float | Any = 0.1,
) -> ChartMixture:
    """Fit a mixture of Gaussians in the chart of a manifold that one chart covers.

    How many Gaussians there are, and how their covariances are drawn together, is chosen by
    likelihood on points that are put aside; the mixture is then of all points.

    Args:
        kernel: a heat kernel, of which only the manifold is used: SPD(n), Euclidean space,
            hyperbolic space or a product of these.
        data: points along the first axis.
        condition: labels (n,), or numbers (n,) or (n, c), that come with each point.
        groups: names of what points belong to, if new points will come from others: whole groups
            are put aside.
        weights: how much each point counts, by default all the same.
        key: a random key, for what is put aside and for the starts.
        validation: the fraction to put aside, four times; or a pair (points, conditions), or points
            alone.
    """
    check_kernel(kernel)
    manifold = kernel.manifold
    if not manifold.has_chart():
        raise ValueError(
            f"no single chart covers {manifold}; mixtures are for SPD(n), Euclidean and hyperbolic "
            "space and their products. calor.fit_density is for all manifolds."
        )
    key = random_key(key)
    key_split, key_fit = jr.split(key)
    given = Given(data, condition, groups, validation, weights)
    folds = prepare(manifold, given, key=key_split, parts=_PARTS)
    found = fit_folds(manifold, folds, key=key_fit)
    if found is None:
        raise ValueError(
            "with conditions that are numbers all points count the same; leave weights out."
        )
    record = json.loads(found[0].record) | {"key": key_numbers(key).tolist()}
    return dataclasses.replace(found[0], record=json.dumps(record))


def fit_folds(
    manifold: AbstractManifold, folds: Folds, *, key: Key, counts: Sequence[int] = COUNTS
) -> tuple[ChartMixture, Float[np.ndarray, " h"]] | None:
    """A mixture of all points, and what mixtures that have not seen them say of those put aside.

    Args:
        manifold: where the points are.
        folds: checked data and what is put aside in turn.
        key: a random key.
        counts: numbers of Gaussians that are tried beside one for each label.

    Returns:
        The mixture and log-densities in the order of `folds.judged`, or None if there is no
        mixture: where no chart covers the manifold, or numbers and weights come with the points.
    """
    whole = folds.whole
    if not manifold.has_chart():
        return None
    if whole.encoder is None or whole.encoder.labels:
        law, judged, choice = _of_labels(manifold, folds, key, counts)
        encoder = whole.encoder
    elif whole.weights is not None:
        return None
    else:
        law, encoder, judged = _of_numbers(manifold, folds)
        choice = {"regression": True}
    record = {"manifold": str(manifold), "parts": law.count(), **choice, "calor": __version__}
    model = ChartMixture(  # pyright: ignore[reportCallIssue]
        manifold=manifold,
        law=law,
        condition=encoder,
        centre=whole.centre,
        record=json.dumps(record),
    )
    return model, judged


def _of_labels(manifold, folds: Folds, key: Key, counts: Sequence[int]):
    """The mixture given labels, or nothing."""
    whole = folds.whole
    count = len(whole.points)
    points = jnp.concatenate([whole.points, whole.held_out])
    places = np.asarray(embedded(manifold, points), np.float64)
    encoder = whole.encoder
    size, labels = 1, np.zeros(len(places), int)
    if encoder is not None:
        size = len(encoder.labels)
        features = [whole.features, whole.held_features][: 1 + (len(places) > count)]
        labels = np.argmax(np.concatenate(features), axis=1)
    weights = np.ones(len(places))
    for rows, given in ((slice(count), whole.weights), (slice(count, None), whole.held_weights)):
        if given is not None:
            weights[rows] = given
    everything = np.arange(count)
    splits = [
        (np.setdiff1d(everything, np.concatenate([rows, unseen])), rows)
        for rows, unseen in zip(folds.rows, folds.unseen, strict=True)
    ]
    splits = splits or [(everything, np.arange(count, len(places)))]
    seed = int(jr.randint(key, (), 0, 2**31 - 1))
    data = Weighed(places, labels, weights)
    chosen = choose_by_label(data, size, splits, everything, seed, counts)
    aside = np.concatenate([rows for _, rows in splits])
    judged = np.concatenate(chosen.judged) - log_volumes(manifold, points[aside])
    return parts_law(chosen.parts), judged, {"choice": dataclasses.asdict(chosen.choice)}


def _of_numbers(manifold, folds: Folds):
    """One Gaussian, told its mean and widths by regressions on numbers."""

    def fitted(part: Prepared):
        # What was put aside predicts nothing.
        part, law = find_gaussian(True, manifold, dataclasses.replace(part, held_out_is_ours=False))
        assert law is not None, "a Gaussian was asked for"
        return part, law

    judged = []
    for number in range(max(1, len(folds.rows))):
        part, law = fitted(folds.part(number))
        places = embedded(manifold, part.held_out)
        values = _log_probs(law, places, part.held_features.astype(places.dtype))
        judged.append(np.asarray(values, np.float64) - log_volumes(manifold, part.held_out))
    whole = folds.whole
    if folds.rows:  # none is held out, of which features are predicted
        few = {"held_out": whole.points[:1], "held_features": whole.features[:1]}
        whole = dataclasses.replace(whole, **few)
    part, law = fitted(whole)
    return law, part.encoder, folds.judged(judged)


@eqx.filter_jit
def _log_probs(law, places, features):
    return jax.vmap(lambda z, f: law.log_prob(z, jnp.zeros((), z.dtype), f))(places, features)


def log_volumes(
    manifold: AbstractManifold, points: Float[Array, "n ..."]
) -> Float[np.ndarray, " n"]:
    """The logarithms of the volume of the chart at points."""
    return np.asarray(in_batches(manifold.log_chart_volume, points), np.float64)
