"""What of a model is trained, and what is not."""

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
from jaxtyping import Array, Float

from ..store.stored import stored

M = TypeVar("M")


@stored("Fixed")
class Fixed(eqx.Module):
    """Numbers inside a network that are not trained."""

    value: Float[Array, "..."]


def everything(model: Any) -> Any:
    """The whole model: all of it is trained, but for what is `Fixed`."""
    return model


def trainable(model: M, part: Callable[[M], Any] = everything) -> tuple[Any, Any]:
    """The parameters that are trained, and the rest; `eqx.combine` joins them.

    Args:
        model: an equinox module.
        part: of the model, whose real arrays are trained unless they are `Fixed`.
    """
    none = jax.tree.map(lambda leaf: False, model)
    some = jax.tree.map(
        eqx.is_inexact_array, part(model), is_leaf=lambda node: isinstance(node, Fixed)
    )
    return eqx.partition(model, eqx.tree_at(part, none, some))
