"""Networks of scores and velocities, and what says their size.

The usual one is a residual perceptron of place, time and condition; it knows no geometry.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from ..core.checks import positive_integer
from ..core.compiled import quickly
from ..core.types import Key, Scalar
from ..data.points import embedded
from ..manifolds import AbstractManifold
from ..store.stored import stored
from ..training.dense import Dense, dense
from ..training.fixed import Fixed
from .likelihood import is_quick
from .times import Scales

# Waves by default, and the dimension up to which there are any.
_WAVES, _MOST_WAVES = 128, 10


class Task(NamedTuple):
    """What a network is for."""

    manifold: Any
    points: Float[Array, "n ..."]
    """Examples of where it is asked."""
    scales: Scales
    features: int
    """How many numbers a condition has."""
    told: int = 0
    """How many numbers it is told by a first guess."""
    outputs: int = 1
    """How many numbers a field wants, if that is not up to the network."""
    smallest: float = 0.0
    """What places are divided by at least."""


class AbstractNetwork(ABC):
    """The size of a network; `build` makes one."""

    @abstractmethod
    def check(self, manifold: Any) -> None:
        """Raise unless there is such a network on a manifold."""

    @abstractmethod
    def build(self, task: Task, *, key: Key) -> Any:
        """A random network."""

    def has_gaussian(self) -> bool | None:
        """Whether it corrects a Gaussian; None leaves it to the manifold."""
        return False

    def mixture_size(self) -> int:
        """How many Gaussians the mixture has that it corrects; zero if it corrects none."""
        return 0

    def judges_by_likelihood(self, manifold: AbstractManifold) -> bool:
        """Whether the likelihood of held out points judges its training, or its loss there.

        In many dimensions a likelihood is an estimate that takes long, and so it does where a field
        is averaged over many images.
        """
        return is_quick(manifold)


def times_kept(times: tuple[float | Scalar, float | Scalar]) -> Fixed:
    """The logarithms of the first and the last time, as arrays: other times compile nothing."""
    return Fixed(jnp.log(jnp.asarray(times, float)))


def with_times(build: Callable[[], type[Any]]) -> dict[str, Any]:
    """How files hold a network that keeps times: logarithms are two numbers there."""

    def parts(network: Any) -> dict[str, Any]:
        kept = {field.name: getattr(network, field.name) for field in dataclasses.fields(network)}
        return kept | {"log_times": np.asarray(network.log_times.value, np.float64).tolist()}

    def built(log_times: tuple[float, float], **kept: Any) -> Any:
        return build()(log_times=Fixed(jnp.asarray(log_times, float)), **kept)

    return {"parts": parts, "build": built}


@stored("FieldNetwork", **with_times(lambda: FieldNetwork))
class FieldNetwork(eqx.Module):
    r"""A residual perceptron of a place z in a flat space, a time t and a condition.

    The place enters as it is, standardized, and through fixed random waves whose frequencies k are
    spread evenly in log |k|, damped as heat damps them,

        exp(-a |k|^2 t) (cos k.z, sin k.z),

    so that at time t the network does not see details finer than sqrt(t).
    """

    middle: Fixed
    spread: Fixed
    frequencies: Fixed
    damping: float = eqx.field(static=True)
    log_times: Fixed
    """Logarithms of the first and the last time."""
    layers: tuple[Dense, ...]
    out: Dense

    def __call__(
        self, z: Float[Array, " d"], t: Scalar, condition: Float[Array, " c"]
    ) -> Float[Array, " o"]:
        """The output at one place, time and condition."""
        z = z - self.middle.value
        waves = self.frequencies.value
        phases = z @ waves
        damped = jnp.exp(-self.damping * jnp.sum(waves**2, axis=0) * t)
        hidden = jnp.concatenate(
            [
                z / self.spread.value,
                jnp.sqrt(2.0) * damped * jnp.cos(phases),
                jnp.sqrt(2.0) * damped * jnp.sin(phases),
                time_waves(t, self.log_times, 8),
                condition,
            ]
        ).astype(z.dtype)
        hidden = jax.nn.silu(self.layers[0](hidden))
        for layer in self.layers[1:]:
            hidden = hidden + jax.nn.silu(layer(hidden))
        return self.out(hidden)


def time_waves(t: Scalar, log_times: Fixed, count: int) -> Float[Array, " w"]:
    """Where log t is between two others, from -1 to 1, and its cosines and sines."""
    start, end = log_times.value
    inside = 2 * (jnp.log(t) - start) / (end - start) - 1
    turns = jnp.pi / 2 * inside * jnp.arange(1, count + 1)
    return jnp.concatenate([inside[None], jnp.cos(turns), jnp.sin(turns)])


@dataclasses.dataclass(frozen=True)
class Network(AbstractNetwork):
    """The size of a `FieldNetwork`, and what it can resolve."""

    width: int = 192
    depth: int = 4
    frequencies: int | None = None
    """Waves; by default 128, and in `calor.fit` none on manifolds of more than ten dimensions."""
    centres: int = 0
    """Gaussians of the mixture whose score is the first guess that the network corrects."""
    gaussian: bool | None = None
    """Whether the first guess is one Gaussian around the mean that a regression on the condition
    gives; by default on SPD(n), where one chart covers the manifold."""
    damping: float = 0.7
    """How fast waves fade with time; more is smoother."""
    finest: float | None = None
    """The shortest wave, as 1/|k|; by default 2.5 sqrt(2 t_min)."""

    def __post_init__(self) -> None:
        for name, least in (("width", 1), ("depth", 1), ("frequencies", 0), ("centres", 0)):
            value = getattr(self, name)
            if value is None and name == "frequencies":
                continue
            value = positive_integer(value, name, "Network", at_least=least)
            object.__setattr__(self, name, value)
        object.__setattr__(self, "damping", float(self.damping))
        if self.finest is not None:
            object.__setattr__(self, "finest", float(self.finest))
        if not self.damping >= 0:
            raise ValueError(f"Network: damping must not be negative, got {self.damping!r}.")
        if self.finest is not None and not self.finest > 0:
            raise ValueError(f"Network: finest must be positive, got {self.finest!r}.")

    def check(self, manifold: Any) -> None:
        if self.gaussian and not manifold.has_chart():
            raise ValueError(
                "Network(gaussian=True) is for manifolds that one chart covers, such as SPD(n), "
                f"not for {manifold}."
            )

    def has_gaussian(self) -> bool | None:
        return self.gaussian

    def mixture_size(self) -> int:
        return self.centres

    def build(self, task: Task, *, key: Key) -> Any:
        """A random network of the embedded points of a manifold."""
        manifold, network = task.manifold, self
        # Compact manifolds are of size one, and late noise fills them however narrow the data are.
        smallest = max(0.1 if manifold.is_compact() else 1e-12, task.smallest)
        if network.frequencies is None and manifold.dim > _MOST_WAVES:
            # Waves in random directions do not fill many dimensions.
            network = dataclasses.replace(network, frequencies=0)
        return field_network(
            network,
            embedded(manifold, task.points),
            _numbers(task.scales.finest, task.scales.coarsest),
            _numbers(task.scales.t_min, task.scales.t1),
            task.features + task.told,
            task.outputs,
            *_numbers(smallest),
            key=key,
        )


def _numbers(*values: float) -> tuple[Any, ...]:
    """Numbers as arrays, so that others are no reason to compile anew."""
    return tuple(np.asarray(value, jnp.result_type(float)) for value in values)


@quickly
def field_network(
    network: Network,
    places: Float[Array, "n d"],
    scales: tuple[float, float],
    times: tuple[float, float],
    conditions: int,
    outputs: int,
    smallest: float = 1e-12,
    *,
    key: Key,
) -> FieldNetwork:
    """A random network.

    Args:
        network: its size.
        places: examples of the place, which are standardized.
        scales: the finest and the coarsest length to resolve.
        times: the smallest and the largest time.
        conditions: how many numbers the condition has.
        outputs: how many numbers the network returns.
        smallest: what places are divided by at least.
        key: a random key.
    """
    key_direction, key_layers, key_out = jr.split(key, 3)
    size = places.shape[1]
    count = _WAVES if network.frequencies is None else network.frequencies
    direction = jr.normal(key_direction, (size, count))
    finest, coarsest = scales
    finest = network.finest or finest
    lengths = jnp.exp(jnp.linspace(jnp.log(1 / coarsest), jnp.log(1 / finest), count))
    frequencies = direction / jnp.linalg.norm(direction, axis=0) * lengths
    keys = jr.split(key_layers, network.depth)
    # Layers start somewhat small, so that the first ones do not saturate.  Those of equal shape are
    # drawn together, since random numbers of every shape take long to compile.
    several = jax.vmap(lambda key: dense(key, network.width, network.width, 0.1, 0.6))(keys[1:])
    layers = [Dense(*layer) for layer in zip(several.weight, several.bias, strict=True)]
    layers = [dense(keys[0], size + 2 * count + 17 + conditions, network.width, 0.1, 0.6), *layers]
    middle, spread = jnp.mean(places, axis=0), jnp.std(places, axis=0)
    return FieldNetwork(
        Fixed(middle),
        Fixed(jnp.maximum(spread, 1e-3 * jnp.max(spread) + smallest)),
        Fixed(frequencies),
        float(network.damping),
        times_kept(times),
        tuple(layers),
        dense(key_out, network.width, outputs, spread=0.0, scale=0.01),
    )
