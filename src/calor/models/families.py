"""What suits a family of manifolds: its networks, fields, prior and finest scale.

A family registers itself, with `FAMILIES.register(Manifold)(Family(...))`; what holds for most is
registered here for all.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from jaxtyping import Array, Float

from ..core.registry import Registry
from ..core.types import Key
from ..heat.kernel import AbstractHeatKernel
from ..manifolds import AbstractManifold
from .fields import AbstractField, TangentVelocity
from .network import AbstractNetwork, Network
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
    parts: tuple[str, ...] = ()
    """What `calor.fit` tries, if it is not all that there is."""
    smaller: AbstractNetwork | None = None
    """The usual network where a first guess is near, and leaves less to learn."""
    members: Mapping[str, AbstractNetwork] = dataclasses.field(default_factory=dict)
    """The usual networks of the members of an ensemble, by the name of the part."""


# Several small members are ahead of a large one; smoother scores overfit less.
_MEMBERS = {"diffusion": Network(width=128, depth=3, damping=1.5), "flow": Network(128, 3)}
FAMILIES = Registry("families of manifolds")
FAMILIES.register(AbstractManifold)(
    Family(
        Network,
        None,
        TangentVelocity,
        find_prior,
        time_of_neighbours,
        smaller=Network(128, 3, frequencies=0),
        members=_MEMBERS,
    )
)


def family_of(manifold: AbstractManifold) -> Family:
    """What suits a manifold."""
    found = FAMILIES.find(manifold)
    assert found is not None, "every manifold is an AbstractManifold"
    return found.made
