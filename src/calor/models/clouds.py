r"""Scores and velocities of point clouds, by a network that knows their symmetries.

The network is that of Satorras, Hoogeboom and Welling (2021), as Hoogeboom et al. (2022) use it for
molecules: every point has features h_i and a place x_i, every pair sends a message,

    m_ij = phi(h_i, h_j, |x_i - x_j|^2),       h_i <- h_i + psi(h_i, sum_j a(m_ij) m_ij),
    x_i <- x_i + sum_j (x_i - x_j) / (1 + |x_i - x_j|) chi(m_ij),

so that turning, reflecting or relabeling the cloud does the same to the result.  Places are seen
from the centre of the cloud if the manifold has it fixed, else from the mean of the data.

Noised data of spread c have about the score -x/(c^2 + 2t); the network N, of order one, adds to it
as in Karras et al. (2022):

    s = -x / (c^2 + 2t) + c / sqrt(2t (c^2 + 2t)) N(x / sqrt(c^2 + 2t), t).
"""

import dataclasses
from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from ..core.checks import positive_integer
from ..core.numerics import safe_sqrt
from ..core.types import Key, Point, Scalar, Tangent
from ..manifolds import AbstractManifold, PointCloud
from ..store.stored import stored
from ..training.dense import Dense, dense
from ..training.fixed import Fixed
from ..training.rows import product
from .families import FAMILIES, Family
from .fields import AbstractField
from .network import AbstractNetwork, Task, time_waves, times_kept, with_times
from .prior import AbstractPrior

# Messages are summed and divided by this.
_SHARE = 10.0
# The smallest noise of points in a cloud, in units of the distance of neighbours.
_FINEST = 0.02


@stored("Layer")
class Layer(eqx.Module):
    """One exchange of messages between all pairs of points."""

    own: Dense
    other: Dense
    lengths: Dense
    message: Dense
    attention: Dense
    first: Dense
    second: Dense
    pull: Dense

    def __call__(
        self,
        hidden: Float[Array, "n w"],
        places: Float[Array, "n s"],
        start: Float[Array, "n n"],
        pairs: Float[Array, "n n"],
    ) -> tuple[Float[Array, "n w"], Float[Array, "n s"]]:
        """Features and places after the exchange.

        Args:
            hidden: features (n, w).
            places: where the points are.
            start: squared distances (n, n) at the beginning.
            pairs: one for pairs (n, n) of different points that are both present.
        """
        gaps = places[:, None] - places
        squared = jnp.sum(gaps**2, axis=-1)
        lengths = jnp.stack([jnp.log1p(squared), jnp.log1p(start)], axis=-1)
        inner = _affine(self.own, hidden)[:, None] + _affine(self.other, hidden)
        inner = jax.nn.silu(inner + _affine(self.lengths, lengths))
        messages = jax.nn.silu(_affine(self.message, inner))
        weights = pairs * jax.nn.sigmoid(_affine(self.attention, messages)[..., 0])
        received = jnp.einsum("ij,ijd->id", weights, messages) / _SHARE
        change = jax.nn.silu(_affine(self.first, jnp.concatenate([hidden, received], axis=-1)))
        # The length of a gap is not smooth at zero, where the gap is.
        scaled = gaps / (1 + safe_sqrt(squared)[..., None])
        strength = pairs * _affine(self.pull, messages)[..., 0]
        moved = places + jnp.einsum("ij,ijc->ic", strength, scaled) / _SHARE
        return hidden + _affine(self.second, change), moved


def _affine(layer: Dense, x: Float[Array, "... i"]) -> Float[Array, "... o"]:
    """The affine map of a layer, of every row."""
    return product(x, layer.weight) + layer.bias


def _layer(key: Key, width: int) -> Layer:
    keys = jr.split(key, 8)
    return Layer(
        own=dense(keys[0], width, width, 0.1),
        other=dense(keys[1], width, width, 0.0),
        lengths=dense(keys[2], 2, width, 0.0),
        message=dense(keys[3], width, width, 0.1),
        attention=dense(keys[4], width, 1, 0.0),
        first=dense(keys[6], 2 * width, width, 0.1),
        second=dense(keys[7], width, width, 0.0, scale=0.3),
        pull=dense(keys[5], width, 1, 0.0, scale=0.3),
    )


@stored("EquivariantNetwork", **with_times(lambda: EquivariantNetwork))
class EquivariantNetwork(eqx.Module):
    """A vector for each point of a cloud, at each time."""

    middle: Fixed
    spread: Fixed
    """Of each coordinate of the data; the same number for all that are places."""
    space: int = eqx.field(static=True)
    """So many leading coordinates are places, the others features that do not turn."""
    log_times: Fixed
    start: Dense
    layers: tuple[Layer, ...]
    out: Dense

    def __call__(
        self,
        x: Float[Array, "n k"],
        present: Float[Array, " n"],
        t: Scalar,
        condition: Float[Array, " c"],
    ) -> Float[Array, "n k"]:
        """The vectors, for points x with their middle taken off, scaled to order one."""
        places, features = x[:, : self.space], x[:, self.space :]
        waves, count = time_waves(t, self.log_times, 4), jnp.sum(present) / 10
        shared = jnp.concatenate([waves, count[None], condition]).astype(x.dtype)
        radius = jnp.log1p(jnp.sum(places**2, axis=-1, keepdims=True))
        shared = jnp.broadcast_to(shared, (len(x), len(shared)))
        hidden = self.start(jnp.concatenate([features, radius, shared], axis=-1))
        pairs = present[:, None] * present * (1 - jnp.eye(len(x), dtype=x.dtype))
        begun = jnp.sum((places[:, None] - places) ** 2, axis=-1)
        moved = places
        for layer in self.layers:
            hidden, moved = layer(hidden, moved, begun, pairs)
        result = self.out(hidden)
        # The place itself, by an invariant amount: messages do not know where the centre is.
        outward = result[:, :1] * places
        return jnp.concatenate([moved - places + outward, result[:, 1:]], axis=-1)


@dataclasses.dataclass(frozen=True)
class CloudNetwork(AbstractNetwork):
    """The size of an `EquivariantNetwork`; the paper's has width 256 and depth 9."""

    width: int = 64
    depth: int = 4
    space: int | None = None
    """How many leading coordinates are places, which turn together; by default those that the
    manifold centres, or all if it centres none."""

    def __post_init__(self) -> None:
        for name in ("width", "depth"):
            value = positive_integer(getattr(self, name), name, "CloudNetwork")
            object.__setattr__(self, name, value)
        if self.space is not None:
            positive_integer(self.space, "space", "CloudNetwork")

    def check(self, manifold: Any) -> None:
        if (self.space or 0) > manifold.features:
            raise ValueError(
                f"CloudNetwork: space must be at most the {manifold.features} coordinates of "
                f"{manifold}, got {self.space}."
            )

    def judges_by_likelihood(self, manifold: AbstractManifold) -> bool:
        """Never: likelihoods in so many dimensions take too long."""
        return False

    def build(self, task: Task, *, key: Key) -> Any:
        """A random network for data."""
        manifold = task.manifold
        space = self.space or manifold.centred or manifold.features
        middle, spread = cloud_moments(manifold, task.points, space)
        keys = jr.split(key, self.depth + 2)
        inputs = manifold.features - space + 11 + task.features
        outputs = 1 + manifold.features - space
        return EquivariantNetwork(
            Fixed(middle),
            Fixed(spread),
            space,
            times_kept((task.scales.t_min, task.scales.t1)),
            dense(keys[0], inputs, self.width, 0.1),
            tuple(_layer(k, self.width) for k in keys[2:]),
            dense(keys[1], self.width, outputs, 0.0, scale=0.1),
        )


def cloud_moments(
    manifold: PointCloud, clouds: Float[Array, "m n ..."], space: int
) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
    """Mean and spread of the coordinates of single points; places share their spread.

    The mean of centred places is zero.
    """
    places = np.asarray(jax.vmap(manifold.places)(clouds), np.float64)
    rows = places[np.asarray(jax.vmap(manifold.present)(clouds)) > 0]
    middle, spread = rows.mean(axis=0), rows.std(axis=0)
    middle[: manifold.centred] = 0
    spread[:space] = np.sqrt(np.mean(spread[:space] ** 2))
    spread = np.maximum(spread, 1e-3 * spread.max() + 1e-12)
    return jnp.asarray(middle, clouds.dtype), jnp.asarray(spread, clouds.dtype)


class AbstractCloudField(AbstractField):
    """A field of clouds; a new one supplies `_values`."""

    manifold: PointCloud
    network: EquivariantNetwork  # pyright: ignore
    guess: None = None

    @abstractmethod
    def _values(self, t, inside, output, known) -> Float[Array, "n k"]:
        """The vector of each point, from its place, what the network returns, and c^2."""

    def vector_at(self, t: Scalar, x: Point, condition: Float[Array, " c"]) -> Tangent:
        manifold, network, present = self.manifold, self.network, self.manifold.present(x)
        inside = manifold.places(x) - network.middle.value
        known = network.spread.value**2
        scaled = inside / jnp.sqrt(known + 2 * t) * present[:, None]
        values = self._values(t, inside, network(scaled, present, t, condition), known)
        return manifold.tangent_at(x, manifold.with_presence(values, present))


@stored("CloudScore")
class CloudScore(AbstractCloudField):
    """The score of noised clouds."""

    def _values(self, t, inside, output, known):
        total = known + 2 * t
        return jnp.sqrt(known / (2 * t * total)) * output - inside / total


@stored("CloudVelocity")
class CloudVelocity(AbstractCloudField):
    """The velocity of a flow of clouds, of the size of the distance to the prior."""

    def _values(self, t, inside, output, known):
        last = jnp.exp(self.network.log_times.value[1].astype(output.dtype))
        return jnp.sqrt(known + 2 * last) * output


@stored("CloudPrior")
class CloudPrior(AbstractPrior):
    """As many points as data have, Gaussian around their mean with the variance of noised data."""

    manifold: PointCloud
    middle: Float[Array, " k"]
    variance: Float[Array, " k"]
    log_counts: Float[Array, " c"]
    """Logarithms of the probabilities of `smallest`, ..., n points."""

    def sample(self, key: Key, features: Float[Array, " c"]) -> Point:
        """A draw."""
        key_count, key_noise = jr.split(key)
        return self._drawn(self._presence(key_count), key_noise)

    def partner(self, x: Point, key: Key, features: Float[Array, " c"]) -> Point:
        """A draw with as many points as x."""
        return self._drawn(self.manifold.present(x), key)

    def _presence(self, key: Key) -> Float[Array, " n"]:
        count = self.manifold.smallest + jr.categorical(key, self.log_counts)
        return (jnp.arange(self.manifold.size) < count).astype(self.middle.dtype)

    def _drawn(self, present: Float[Array, " n"], key: Key) -> Point:
        manifold = self.manifold
        zero = manifold.with_presence(jnp.zeros((manifold.size, manifold.features)), present)
        noise = manifold.places(manifold.draw_tangent(key, zero))
        places = self.middle + jnp.sqrt(self.variance) * noise
        return manifold.with_presence(places, present)

    def log_prob(self, x: Point, features: Float[Array, " c"]) -> Scalar:
        """In the volume of the quotient: the sum over the relabelings of a cloud, all equal."""
        manifold, count = self.manifold, self.manifold.count(x)
        inside = (manifold.places(x) - self.middle) * manifold.present(x)[:, None]
        exponent = -jnp.sum(inside**2 / self.variance) / 2
        free = count - (jnp.arange(manifold.features) < manifold.centred)
        width = jnp.sum(free * jnp.log(2 * jnp.pi * self.variance)) / 2
        index = (count - manifold.smallest).astype(int)
        orders = jax.scipy.special.gammaln(count + 1)
        return exponent - width + orders + self.log_counts[index]


def cloud_prior(manifold: PointCloud, clouds: Float[Array, "m n ..."], t1: float) -> CloudPrior:
    """The prior of data that are noised until t1."""
    middle, spread = cloud_moments(manifold, clouds, max(manifold.centred, 1))
    counts = np.asarray(jax.vmap(manifold.count)(clouds)).astype(int)
    numbers = np.bincount(counts, minlength=manifold.size + 1)[manifold.smallest :]
    with np.errstate(divide="ignore"):
        log_counts = np.maximum(np.log(numbers / numbers.sum()), -1e9)
    variance = spread**2 + 2 * t1
    return CloudPrior(manifold, middle, variance, jnp.asarray(log_counts, middle.dtype))


def point_scale(manifold: PointCloud, clouds: Float[Array, "m n ..."]) -> float:
    """The median distance of a point to the nearest one of its cloud."""

    @jax.jit
    @jax.vmap
    def nearest(x: Point) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        squared = manifold.squared_distances(x, x) + 1e30 * jnp.eye(manifold.size)
        return jnp.min(squared, axis=1), manifold.present(x)

    squared, present = map(np.asarray, nearest(clouds[:2000]))
    return float(np.sqrt(np.median(squared[present > 0])))


def _prior(kernel, clouds, scales, centres, key):
    return cloud_prior(kernel.manifold, clouds, scales.t1)


def _finest(manifold, clouds):
    return (_FINEST * point_scale(manifold, clouds)) ** 2 / 2


FAMILIES.register(PointCloud)(
    Family(CloudNetwork, CloudScore, CloudVelocity, _prior, _finest, ("diffusion",))
)
