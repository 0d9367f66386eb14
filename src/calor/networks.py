"""Networks; they know nothing of geometry.

For solutions of the heat equation: a small set network, calor's own, and the modified perceptron of
Wang et al., "An expert's guide to training physics-informed neural networks" (2023), which the
paper uses.  For scores and velocities: a residual perceptron of place, time and condition.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from ._checks import positive_integer
from ._types import Key, Scalar


class Dense(eqx.Module):
    """An affine map x -> x W + b, with random weights that keep variances and spread biases."""

    weight: Float[Array, "i o"]
    bias: Float[Array, " o"]

    def __call__(self, x: Float[Array, "... i"]) -> Float[Array, "... o"]:
        """Apply it along the last axis."""
        return x @ self.weight + self.bias


def dense(key: Key, inputs: int, outputs: int, spread: float = 1.0) -> Dense:
    """A random affine map; its biases are uniform in [-spread, spread]."""
    key_weight, key_bias = jr.split(key)
    weight = jr.normal(key_weight, (inputs, outputs)) / jnp.sqrt(max(inputs, 1))
    return Dense(weight, jr.uniform(key_bias, (outputs,), minval=-spread, maxval=spread))


class SetNetwork(eqx.Module):
    """A smooth function of time and of unordered groups of unordered items.

    Items are seen one by one, summed within each group, groups are seen one by one and averaged:

        h_i = tanh-layers(item_i, t),  g_a = tanh-layers(sum of h_i over group a, mean, t),
        N = affine(mean of g_a, t).

    With one item in one group it is an ordinary multilayer perceptron.
    """

    item_layers: tuple[Dense, ...]
    group_layers: tuple[Dense, ...]
    out: Dense

    def __call__(
        self,
        items: Float[Array, "m f"],
        grouping: Float[Array, "g m"],
        times: Float[Array, " s"],
    ) -> Scalar:
        """The value for given items, groups and functions of time."""
        hidden, shared = items, times
        for layer in self.item_layers:
            hidden, shared = jnp.tanh(_split_apply(layer, hidden, shared)), jnp.zeros(0)
        groups = grouping @ hidden / len(grouping)
        hidden, shared = groups, times
        if len(grouping) > 1:
            shared = jnp.concatenate([jnp.mean(groups, axis=0), times])
        for layer in self.group_layers:
            hidden, shared = jnp.tanh(_split_apply(layer, hidden, shared)), jnp.zeros(0)
        return self.out(jnp.concatenate([jnp.mean(hidden, axis=0), times]))[0]


def set_network(
    key: Key,
    features: int,
    groups: int,
    times: int,
    item_widths: Sequence[int],
    group_widths: Sequence[int],
) -> SetNetwork:
    """A random set network for items of `features` numbers in `groups` groups."""
    keys = iter(jr.split(key, len(item_widths) + len(group_widths) + 1))
    item_layers, size = [], features + times
    for width in item_widths:
        item_layers.append(dense(next(keys), size, width))
        size = width
    group_layers, size = [], size * (2 if groups > 1 else 1) + times
    for width in group_widths:
        group_layers.append(dense(next(keys), size, width))
        size = width
    out = dense(next(keys), size + times, 1, spread=0.0)
    return SetNetwork(tuple(item_layers), tuple(group_layers), out)


def _split_apply(layer, rows, shared):
    """A layer applied to every row with the same numbers appended to it."""
    own, common = jnp.split(layer.weight, [rows.shape[-1]])
    return rows @ own + (shared @ common + layer.bias)


class ModifiedMLP(eqx.Module):
    """A perceptron whose layers are gated between two encodings of the input.

    With U, V two layers applied to the input, each hidden layer h becomes h U + (1 - h) V.
    """

    gates: tuple[Dense, Dense]
    layers: tuple[Dense, ...]
    log_scales: tuple[Float[Array, " o"], ...]
    """Random weight factorization: the columns of a layer's weights are scaled by exp(these)."""
    out: Dense

    def __call__(self, x: Float[Array, " i"]) -> Scalar:
        """The value at one input."""
        first, second = (jnp.tanh(gate(x)) for gate in self.gates)
        hidden = x
        for layer, log_scale in zip(self.layers, self.log_scales, strict=True):
            hidden = jnp.tanh((hidden @ layer.weight) * jnp.exp(log_scale) + layer.bias)
            hidden = hidden * first + (1 - hidden) * second
        return self.out(hidden)[0]


def modified_mlp(key: Key, inputs: int, width: int, depth: int, factorize: bool) -> ModifiedMLP:
    """A random modified perceptron of `depth` hidden layers.

    With `factorize`, weights are written as exp(s) V with s ~ N(1, 0.1) and both are trained.
    """
    key_gates, key_layers, key_scales, key_out = jr.split(key, 4)
    first, second = (dense(k, inputs, width, spread=0.0) for k in jr.split(key_gates))
    sizes = [inputs, *[width] * depth]
    layers, log_scales = [], []
    for k, k_scale, before, after in zip(
        jr.split(key_layers, depth), jr.split(key_scales, depth), sizes, sizes[1:], strict=False
    ):
        layer = dense(k, before, after, spread=0.0)
        log_scale = (1 + 0.1 * jr.normal(k_scale, (after,))) if factorize else jnp.zeros(after)
        layers.append(Dense(layer.weight * jnp.exp(-log_scale), layer.bias))
        log_scales.append(log_scale)
    return ModifiedMLP(
        (first, second), tuple(layers), tuple(log_scales), dense(key_out, width, 1, spread=0.0)
    )


class FourierEmbedding(eqx.Module):
    """cos(B z) and sin(B z) for random frequencies B."""

    frequencies: Float[Array, "i m"]

    def __call__(self, z: Float[Array, " i"]) -> Float[Array, " o"]:
        """The features of one input."""
        phases = z @ self.frequencies
        return jnp.concatenate([jnp.cos(phases), jnp.sin(phases)])


class PowerEmbedding(eqx.Module):
    """S_k(r) = (sum |r_i|^k)^(1/k) and A_k(r) = (sum over pairs |r_i - r_j|^k)^(1/k)."""

    exponents: Float[Array, " m"]

    def __call__(self, r: Float[Array, " n"]) -> Float[Array, " o"]:
        """The features of one unordered set of numbers."""
        i, j = jnp.triu_indices(len(r), 1)
        return jnp.concatenate([self._norms(r), self._norms(r[i] - r[j])])

    def _norms(self, values):
        # |r| is rounded off below 0.01, where the powers below two have no second derivative.  The
        # scale, which cancels, only keeps powers in range.
        sizes = jnp.sqrt(values**2 + 1e-4)
        scale = jax.lax.stop_gradient(jnp.max(sizes))
        powers = jax.vmap(lambda k: jnp.sum((sizes / scale) ** k) ** (1 / k))
        return scale * powers(self.exponents)


class Fixed(eqx.Module):
    """Numbers inside a network that are not trained."""

    value: Float[Array, "..."]


def trainable(model: Any) -> tuple[Any, Any]:
    """The trained parameters of `model.network`, and the rest; `eqx.combine` joins them."""
    none = jax.tree.map(lambda leaf: False, model)
    some = jax.tree.map(
        eqx.is_inexact_array, model.network, is_leaf=lambda node: isinstance(node, Fixed)
    )
    return eqx.partition(model, eqx.tree_at(lambda m: m.network, none, some))


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
    log_times: tuple[float, float] = eqx.field(static=True)
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
        start, end = self.log_times
        inside = 2 * (jnp.log(t) - start) / (end - start) - 1
        turns = jnp.pi / 2 * inside * jnp.arange(1, 9)
        hidden = jnp.concatenate(
            [
                z / self.spread.value,
                jnp.sqrt(2.0) * damped * jnp.cos(phases),
                jnp.sqrt(2.0) * damped * jnp.sin(phases),
                inside[None],
                jnp.cos(turns),
                jnp.sin(turns),
                condition,
            ]
        ).astype(z.dtype)
        hidden = jax.nn.silu(self.layers[0](hidden))
        for layer in self.layers[1:]:
            hidden = hidden + jax.nn.silu(layer(hidden))
        return self.out(hidden)


@dataclasses.dataclass(frozen=True)
class Network:
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

    judge: ClassVar[str] = "likelihood"
    """Training is judged by the likelihood of held out points."""

    def __post_init__(self):
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

    def build(
        self,
        key: Key,
        places: Float[Array, "n d"],
        scales: tuple[float, float],
        times: tuple[float, float],
        conditions: int,
        outputs: int,
        smallest: float = 1e-12,
    ) -> FieldNetwork:
        """A random network.

        Args:
            key: a random key.
            places: examples of the place, which are standardized.
            scales: the finest and the coarsest length to resolve.
            times: the smallest and the largest time.
            conditions: how many numbers the condition has.
            outputs: how many numbers the network returns.
            smallest: what places are divided by at least.
        """
        return _build(self, key, jnp.asarray(places), scales, times, conditions, outputs, smallest)


_WAVES = 128


@eqx.filter_jit
def _build(network, key, places, scales, times, conditions, outputs, smallest):
    key_direction, key_layers, key_out = jr.split(key, 3)
    size = places.shape[1]
    count = _WAVES if network.frequencies is None else network.frequencies
    direction = jr.normal(key_direction, (size, count))
    finest, coarsest = scales
    finest = network.finest or finest
    lengths = jnp.exp(jnp.linspace(jnp.log(1 / coarsest), jnp.log(1 / finest), count))
    frequencies = direction / jnp.linalg.norm(direction, axis=0) * lengths
    sizes = [size + 2 * count + 17 + conditions, *[network.width] * network.depth]
    pairs = zip(jr.split(key_layers, network.depth), sizes, sizes[1:], strict=False)
    # Layers start somewhat small, so that the first ones do not saturate.
    layers = [dense(k, before, after, spread=0.1) for k, before, after in pairs]
    layers = tuple(Dense(0.6 * layer.weight, layer.bias) for layer in layers)
    out = dense(key_out, network.width, outputs, spread=0.0)
    middle, spread = jnp.mean(places, axis=0), jnp.std(places, axis=0)
    return FieldNetwork(
        Fixed(middle),
        Fixed(jnp.maximum(spread, 1e-3 * jnp.max(spread) + smallest)),
        Fixed(frequencies),
        float(network.damping),
        (math.log(times[0]), math.log(times[1])),
        layers,
        Dense(out.weight * 0.01, out.bias),
    )
