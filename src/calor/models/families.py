"""What suits a family of manifolds: its networks, fields, prior and finest scale.

A family registers itself, with `FAMILIES.register(Manifold)(Family(...))`; what holds for most is
registered here for all.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from jaxtyping import Array, Float

from ..core.registry import Registry
from ..core.types import Key
from ..heat.kernel import AbstractHeatKernel
from ..manifolds import AbstractManifold
from .fields import AbstractField, TangentVelocity
from .network import Network
from .prior import AbstractPrior, find_prior
from .times import Scales, time_of_neighbours


@dataclasses.dataclass(frozen=True)
class Family:
    """What models of points on the manifolds of a family are made of."""

    network: type[Any]
    """The class that says the size of a network."""
    score: type[AbstractField] | None
    """The class of scores, if there is only one."""
    velocity: type[AbstractField]
    """The class of velocities of flows."""
    prior: Callable[[AbstractHeatKernel, Float[Array, "n ..."], Scales, int, Key], AbstractPrior]
    """Where generation starts, from the kernel, data, scales, a number of centres and a key."""
    finest: Callable[[Any, Float[Array, "n ..."]], float]
    """The smallest time for points of a manifold."""


FAMILIES = Registry("families of manifolds")
FAMILIES.register(AbstractManifold)(
    Family(Network, None, TangentVelocity, find_prior, time_of_neighbours)
)


def family_of(manifold: AbstractManifold) -> Family:
    """What suits a manifold."""
    found = FAMILIES.find(manifold)
    assert found is not None, "every manifold is an AbstractManifold"
    return found.made
