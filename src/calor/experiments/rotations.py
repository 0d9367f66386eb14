r"""Mixtures of wrapped normals on SO(3), as in the paper's last column on S^2 and SO(3).

K components with uniform means; a million draws to train on, since the published models draw fresh
points at every step, and 5,000 to score.  Log-likelihoods are in the total mass 8 pi^2 of the
published table.  The true density is the ceiling.
"""

import dataclasses
from typing import Any

import jax.random as jr
import numpy as np

from ..core.types import Points
from ..data.datasets import RotationMixture
from ..manifolds import SO3
from ..models.diffusion import Diffusion
from ..models.network import Network
from ..training.settings import Training
from .experiment import Experiment, Job, Settings, likelihoods, save_figure
from .methods import DENSITY, EXACT, FLOW, LEARNED, fit_points, likelihood

COMPONENTS = ("16", "32", "64")
PUBLISHED = {"the paper": {"32": 0.21}, "RSGM as published": {"32": 0.20}}
_TRUE = "the true density"
METHODS = (_TRUE, EXACT, LEARNED, FLOW, DENSITY)


@dataclasses.dataclass(frozen=True)
class Choices:
    """What the budget decides."""

    points: int
    training: Training
    # The guess sees the components, whose width is 0.035; the waves correct what is wider.
    network: Network = Network(frequencies=192, finest=0.1, centres=256)
    t_min: float = 3e-5
    """Noise of this time widens the components by two per cent."""


def _once(job: Job[Choices]) -> dict[str, Any]:
    choices, seed = job.choices, job.seed
    mixture = RotationMixture(int(job.name), seed)
    key_train, key_held, key_test, key_fit = jr.split(jr.key(1000 + seed), 4)
    train = mixture.sample(choices.points, key=key_train)
    held = mixture.sample(min(choices.points // 4, 5000), key=key_held)
    test = mixture.sample(5000 if choices.points > 1000 else 200, key=key_test)
    model: Any = mixture
    seconds, result = 0.0, {}
    if job.method != _TRUE:
        model, seconds = fit_points(
            job.method,
            SO3(),
            train[:10000] if job.method == DENSITY else train,
            key=key_fit,
            validation=held,
            trained={
                "network": choices.network,
                "training": choices.training,
                "t_min": choices.t_min,
                "progress": False,
            },
        )
    if job.method in (EXACT, LEARNED, FLOW):
        result = {"stops": list(model.stops), "steps": int(model.history.steps[-1])}
    if job.method == LEARNED and seed == 0:
        _draw(model, train, job)
    result |= likelihood(model, test, seconds)
    return result | {"log_prob": result["log_prob"] - mixture.OFFSET}


def _draw(model: Diffusion, train: Points, job: Job[Choices]) -> None:
    """Data and draws, by the images of the three axes."""
    clouds = {
        "data": np.asarray(train[:600]),
        "samples of the model": np.asarray(model.sample(600, key=jr.key(0))),
    }
    save_figure(job.out / f"so3-{job.name}.png", lambda plots: plots.rotations(clouds))


_TITLES = {name: f"K = {name}" for name in COMPONENTS}
EXPERIMENT = Experiment(
    "so3",
    COMPONENTS,
    METHODS,
    budgets={
        "quick": Settings(
            1, Choices(400, Training(steps=30, batch=128), Network(32, 2, 16, centres=16))
        ),
        "default": Settings(2, Choices(1_000_000, Training(steps=1500, validate_every=250))),
        "full": Settings(5, Choices(1_000_000, Training(steps=8000, validate_every=250))),
    },
    once=_once,
    table=lambda report: likelihoods(report, _TITLES, METHODS, PUBLISHED),
)
