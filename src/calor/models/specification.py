"""What a user may choose about a fit, beside data and kernel, and the kinds of models there are."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Generic

import numpy as np

from ..core.checks import positive_integer
from ..heat.kernel import AbstractHeatKernel
from ..manifolds import AbstractManifold
from ..training.settings import Training
from .families import Family
from .fields import AbstractField
from .flow_model import FlowModel
from .network import AbstractNetwork
from .objectives import AbstractObjective
from .prior import AbstractPrior
from .times import Scales, Times

# Stops that are tried, in units of t_min.
_STOPS = (1.0, 5.0, 50.0, 1000.0)

# The budget where the first guess is near.
_SHORT = Training(steps=1000, batch=256, learning_rate=2e-3, validate_every=50, patience=4)


def check_kernel(kernel: object) -> None:
    """Raise unless it is a heat kernel."""
    if not isinstance(kernel, AbstractHeatKernel):
        raise TypeError(
            f"kernel must come from calor.heat_kernel or calor.solve, got {kernel!r:.80}."
        )


def _is_near(manifold: AbstractManifold) -> bool:
    """Whether the first guess is usually a law in a chart, which leaves less to learn."""
    return manifold.has_chart() and manifold.moves_to_origin()


@dataclasses.dataclass(frozen=True)
class Choices:
    """How to fit a model; `calor.fit` explains it."""

    network: AbstractNetwork | None = None
    training: Training | None = None
    t_min: float | None = None
    t1: float | None = None
    time_power: float = 0.0
    centres: int = 1
    stops: Sequence[float] | None = None
    centred: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "time_power", float(self.time_power))
        object.__setattr__(self, "centres", positive_integer(self.centres, "centres"))

    def network_for(
        self,
        family: Family,
        manifold: AbstractManifold,
        usual: AbstractNetwork | None = None,
    ) -> AbstractNetwork:
        """The network that was chosen, if it is one for the manifold, or the usual one.

        Args:
            family: of the manifold.
            manifold: where the points are.
            usual: the one for points that no law in a chart is near to.
        """
        if self.network is not None and not isinstance(self.network, family.network):
            raise TypeError(
                f"network on {manifold} must be a calor.{family.network.__name__}, got "
                f"{self.network!r:.80}."
            )
        smaller = family.smaller if _is_near(manifold) else None
        return self.network or smaller or usual or family.network()

    def training_for(self, manifold: AbstractManifold, usual: Training | None = None) -> Training:
        """The budget: what was chosen, a short one where a law is near, or the usual one."""
        return self.training or (_SHORT if _is_near(manifold) else usual or Training())

    def training_with(self, manifold: AbstractManifold) -> Training:
        """The budget, with what a manifold says of how long noise takes to draw."""
        training = self.training_for(manifold)
        if training.reuse is not None:
            return training
        return dataclasses.replace(training, reuse=manifold.noise_reuse())

    def stops_within(self, scales: Scales, by_likelihood: bool) -> tuple[float, ...]:
        """The stops to try, in increasing order; one if no likelihood chooses among them."""
        t_min, t1 = scales.t_min, scales.t1
        if self.stops is None and not by_likelihood:
            return (t_min,)
        if self.stops is None:
            return tuple(f * t_min for f in _STOPS if f * t_min < t1 / 10) or (t_min,)
        stops = tuple(sorted(float(stop) for stop in np.ravel(self.stops)))
        if not stops or not t_min <= stops[0] or not stops[-1] < t1:
            raise ValueError(
                f"stops must be times from t_min = {t_min:g} to below t1 = {t1:g}, got "
                f"{self.stops!r:.80}."
            )
        return stops


@dataclasses.dataclass(frozen=True)
class Kind(Generic[FlowModel]):
    """A kind of model: what is trained, and to do what."""

    model: type[FlowModel]
    field: Callable[[Family], type[AbstractField]]
    """The class of the field that suits a family of manifolds."""
    objective: Callable[[Times, AbstractHeatKernel, AbstractPrior], AbstractObjective]
