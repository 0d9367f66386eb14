"""How to train: a budget and the settings of the optimizer."""

import dataclasses
from collections.abc import Callable
from typing import Any

import optax

from ..core.checks import positive_integer


@dataclasses.dataclass(frozen=True)
class Training:
    """How to train: a budget and the settings of the optimizer."""

    steps: int = 2000
    batch: int = 2048
    learning_rate: float = 5e-3
    average: float = 0.999
    """Decay of the moving average of the weights, which is what is kept."""
    clip: float = 1.0
    """Largest norm of a gradient."""
    validate_every: int = 200
    patience: int = 8
    """Validations without a new best one after which training stops."""
    reuse: int | None = None
    """The steps that noise is used in, in the mean; by default one, and more where geodesics are
    solved numerically, which takes longer than a step of the network."""
    optimizer: Callable[["Training"], optax.GradientTransformation] | None = None
    """A function that makes an optimizer of these settings; by default Muon for matrices and Adam
    for the rest.  One function for many fits lets them share what is compiled."""
    skip_nonfinite: bool = False
    """Whether a step whose gradient is not finite counts as one of gradient zero."""

    def __post_init__(self):
        for name in ("steps", "batch", "validate_every", "patience", "reuse"):
            if name == "reuse" and self.reuse is None:
                continue
            value = positive_integer(getattr(self, name), name, "Training")
            object.__setattr__(self, name, value)
        for name in ("learning_rate", "average", "clip"):
            object.__setattr__(self, name, float(getattr(self, name)))
        for name in ("learning_rate", "clip"):
            if not getattr(self, name) > 0:
                raise ValueError(f"Training: {name} must be positive, got {getattr(self, name)!r}.")
        if not 0 <= self.average < 1:
            raise ValueError(f"Training: average must be in [0, 1), got {self.average!r}.")
        if self.optimizer is not None and not callable(self.optimizer):
            raise TypeError(
                "Training: optimizer must be a function of these settings, got "
                f"{self.optimizer!r:.80}."
            )

    def record(self) -> dict[str, Any]:
        """The settings as JSON, an optimizer by its name."""
        named = None if self.optimizer is None else repr(self.optimizer).split(" at 0x")[0]
        return {**vars(self), "optimizer": named}
