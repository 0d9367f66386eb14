"""Data at the door: checked once, with the number of the row that is wrong, then trusted."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float
from scipy.spatial import KDTree

from ._types import Key
from .heat import AbstractHeatKernel
from .manifolds import AbstractManifold, PointCloud
from .manifolds.base import TOLERANCE
from .mixture import Mixture, fit_mixture
from .networks import FieldNetwork, Network
from .prior import is_compact
from .score import Condition, frame_size, learn_condition
from .tables import as_array

# Data points for each Gaussian of a first guess, and the smallest time that its Gaussians stand
# for, in units of the smallest time of the model: single points are not to be remembered.
_POINTS_EACH, _NARROWEST = 16, 5.0
# The smallest noise of points in a cloud, in units of the distance of neighbours.
_FINEST = 0.02


def checked_points(
    manifold: AbstractManifold, data: Any, owner: str, name: str = "data", at_least: int = 1
) -> Float[Array, "n ..."]:
    """An array of points of a manifold, along the first axis.

    Args:
        manifold: where the points are.
        data: an array, a data frame, or rotations of scipy.
        owner: the public function that is called, for messages.
        name: of the argument, for messages.
        at_least: how many points there must be.
    """
    try:
        data = as_array(data, manifold)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{owner}: {name}: {error}") from error
    try:
        array = np.asarray(data)
    except Exception as error:
        raise TypeError(f"{owner}: {name} must be an array, got {type(data).__name__}.") from error
    if array.dtype.kind not in "fiub":
        raise TypeError(
            f"{owner}: {name} must be an array of real numbers, got {array.dtype} "
            f"({type(data).__name__})."
        )
    if array.shape == manifold.shape:
        array = array[None]
    if array.ndim != 1 + len(manifold.shape) or array.shape[1:] != manifold.shape:
        expected = ("n", *manifold.shape)
        raise ValueError(
            f"{owner}: {name} must have shape ({', '.join(map(str, expected))}) for {manifold}, "
            f"got {array.shape}."
        )
    if len(array) < at_least:
        raise ValueError(f"{owner}: {name} must have at least {at_least} rows, got {len(array)}.")
    bad = ~np.isfinite(array).reshape(len(array), -1).all(axis=1)
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(
            f"{owner}: {name} has NaN or infinite entries in {int(bad.sum())} rows, the first is "
            f"row {row}; clean the data first."
        )
    points = jnp.asarray(array, jnp.result_type(float))
    offsets = np.asarray(_offsets(manifold, points))
    if not np.all(offsets <= TOLERANCE):
        row = int(np.argmax(~(offsets <= TOLERANCE)))
        try:
            manifold.check_point(points[row], f"{name}[{row}]")
        except ValueError as error:
            raise ValueError(f"{owner}: {error}") from error
        raise ValueError(f"{owner}: {name}[{row}] is not on {manifold}.")
    return _projected(manifold, points)


@eqx.filter_jit
def _offsets(manifold, points):
    return jax.vmap(manifold._offset)(points)


@eqx.filter_jit
def _projected(manifold, points):
    return jax.vmap(manifold._project)(points)


def split(key: Key, count: int, fraction: float) -> tuple[Array, Array]:
    """Indices of a training part and of a validation part, both not empty."""
    order = jr.permutation(key, count)
    held = min(max(1, round(fraction * count)), count - 1)
    return order[held:], order[:held]


class Prepared(eqx.Module):
    """Checked data, split into a training and a validation part."""

    points: Float[Array, "n ..."]
    features: Float[Array, "n c"]
    held_out: Float[Array, "m ..."]
    held_features: Float[Array, "m c"]
    encoder: Condition | None


def prepare(
    manifold: AbstractManifold,
    data: Any,
    condition: Any,
    validation: Any,
    key: Key,
    owner: str,
) -> Prepared:
    """Check the data once, encode the conditions, and put a validation part aside."""
    points = checked_points(manifold, data, owner, "data", at_least=2)
    encoder = None
    features = jnp.zeros((len(points), 0))
    if condition is not None:
        encoder = learn_condition(condition, owner)
        if len(np.asarray(condition)) != len(points):
            raise ValueError(
                f"{owner}: got {len(np.asarray(condition))} conditions for {len(points)} points."
            )
        features = encoder(condition, len(points), owner)
    if isinstance(validation, int | float | np.number):
        if not 0 < validation < 1:
            raise ValueError(
                f"{owner}: validation must be a fraction between 0 and 1, or points, got "
                f"{validation!r}."
            )
        first, second = split(key, len(points), float(validation))
        return Prepared(points[first], features[first], points[second], features[second], encoder)
    held_condition = None
    if isinstance(validation, tuple) and len(validation) == 2:
        validation, held_condition = validation
    held = checked_points(manifold, validation, owner, "validation")
    held_features = jnp.zeros((len(held), 0))
    if encoder is not None:
        if held_condition is None:
            raise ValueError(
                f"{owner}: with conditions, validation must be a pair (points, conditions)."
            )
        held_features = encoder(held_condition, len(held), owner)
    return Prepared(points, features, held, held_features, encoder)


class Scales(NamedTuple):
    """The smallest and the last time, and the lengths that a network resolves."""

    t_min: float
    t1: float
    finest: float
    coarsest: float


def find_scales(
    manifold: AbstractManifold,
    points: Float[Array, "n ..."],
    t_min: float | None,
    t1: float | None,
    owner: str,
    kernel: AbstractHeatKernel | None = None,
) -> Scales:
    """Take the times that are given, and find the rest from the data and the kernel."""
    places = np.asarray(jax.vmap(manifold.embedding)(points), np.float64)
    spread = float(np.sqrt(np.mean(np.sum((places - places.mean(0)) ** 2, axis=1))))
    given = t_min
    if t_min is None and isinstance(manifold, PointCloud):
        t_min = (_FINEST * point_scale(manifold, points)) ** 2 / 2
    if t_min is None:
        # Noise of some thousand units in the last place, so that its direction is well resolved.
        floor = (4000 * float(jnp.finfo(points.dtype).eps) * float(np.max(np.abs(places)))) ** 2
        sample = np.random.default_rng(0).permutation(places)[:20000]
        near = KDTree(places).query(sample, 2)[0][:, 1]  # zero where a point is repeated
        t_min = max(floor / 2, float(np.quantile(near, 0.25)) ** 2 / (2 * manifold.dim), 1e-30)
    if t1 is None:
        gap = manifold.spectral_gap() if kernel is None else kernel.spectral_gap()
        t1 = 6 / gap if gap > 0 else max(4 * spread**2 / manifold.dim, 20 * t_min)
        if gap == 0 and is_compact(manifold):
            t1 = max(t1, 3 * spread**2)
        if kernel is not None:
            t1 = min(t1, kernel.latest())
        t_min = min(t_min, t1 / 100) if given is None else t_min
    if not 0 < t_min < t1 < math.inf:
        raise ValueError(
            f"{owner}: times must satisfy 0 < t_min < t1, got t_min = {t_min:g}, t1 = {t1:g}."
        )
    finest = 2.5 * math.sqrt(2 * t_min)
    return Scales(float(t_min), float(t1), finest, max(spread, 2 * finest))


def point_scale(manifold: PointCloud, clouds: Float[Array, "m n ..."]) -> float:
    """The median distance of a point to the nearest one of its cloud."""

    @jax.jit
    @jax.vmap
    def nearest(x):
        squared = manifold.squared_distances(x, x) + 1e30 * jnp.eye(manifold.size)
        return jnp.min(squared, axis=1), manifold.present(x)

    squared, present = map(np.asarray, nearest(clouds[:2000]))
    return float(np.sqrt(np.median(squared[present > 0])))


def find_guess(
    network: Network, manifold: AbstractManifold, prepared: Prepared, scales: Scales, key: Key
) -> Mixture | None:
    """The mixture that a network corrects, if it does: at least sixteen points for each centre."""
    centres = min(network.centres, len(prepared.points) // _POINTS_EACH)
    if centres == 0:
        return None
    places = jax.vmap(manifold.embedding)(prepared.points)
    return fit_mixture(places, manifold.dim, centres, _NARROWEST * scales.t_min, key)


def build_network(
    network: Network,
    manifold: AbstractManifold,
    prepared: Prepared,
    scales: Scales,
    outputs: Callable[[AbstractManifold], int],
    guess: Mixture | None,
    key: Key,
) -> FieldNetwork:
    """A network for the embedded points of a manifold."""
    places = jax.vmap(manifold.embedding)(prepared.points)
    lengths, times = (scales.finest, scales.coarsest), (scales.t_min, scales.t1)
    conditions = prepared.features.shape[1] + (frame_size(manifold) if guess is not None else 0)
    # Compact manifolds are of size one, and late noise fills them however narrow the data are.
    smallest = 0.1 if is_compact(manifold) else 1e-12
    return network.build(key, places, lengths, times, conditions, outputs(manifold), smallest)
