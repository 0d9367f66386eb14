"""Small networks of time and of unordered items, for solutions of the heat equation."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from ..core.types import Key, Scalar
from ..store.stored import stored
from .dense import Dense, dense


@stored("SetNetwork")
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
