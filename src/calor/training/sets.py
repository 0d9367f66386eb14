"""Small networks of time and of unordered items, for solutions of the heat equation."""

from collections.abc import Sequence
from itertools import pairwise

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
        groups = grouping @ _through(self.item_layers, items, times) / len(grouping)
        shared = times
        if len(grouping) > 1:
            shared = jnp.concatenate([jnp.mean(groups, axis=0), times])
        hidden = _through(self.group_layers, groups, shared)
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
    of_items = [features + times, *item_widths]
    of_groups = [of_items[-1] * (2 if groups > 1 else 1) + times, *group_widths]
    return SetNetwork(
        tuple(dense(next(keys), *sizes) for sizes in pairwise(of_items)),
        tuple(dense(next(keys), *sizes) for sizes in pairwise(of_groups)),
        dense(next(keys), of_groups[-1] + times, 1, spread=0.0),
    )


def _through(layers, rows, shared):
    """Rows after tanh-layers, the first of which sees the same numbers appended to every row."""
    for layer in layers:
        own, common = jnp.split(layer.weight, [rows.shape[-1]])
        rows, shared = jnp.tanh(rows @ own + (shared @ common + layer.bias)), jnp.zeros(0)
    return rows
