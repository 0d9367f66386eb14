"""What of a model is trained, and what is not."""

from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float

from ..store.stored import stored


@stored("Fixed")
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
