r"""Mixtures of wrapped normals on SO(3), as in the paper's last column on S^2 and SO(3).

K components with uniform means; a million draws to train on, since the published models draw fresh
points at every step, and 5,000 to score.  Log-likelihoods are in the total mass 8 pi^2 of the
published table.  The true density is the ceiling.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import jax.random as jr
import numpy as np

from ..data.datasets import RotationMixture
from ..manifolds import SO3
from ..models.density import fit_density
from ..models.diffusion import fit
from ..models.flow import fit_flow
from ..models.network import Network
from ..solvers.choose import heat_kernel
from ..training.settings import Training
from . import experiment as _report
from .experiment import Plan, resumable, save_figure, timed

COMPONENTS = ("16", "32", "64")
PUBLISHED = {"the paper": {"32": 0.21}, "RSGM as published": {"32": 0.20}}
_TRUE, _EXACT, _LEARNED = "the true density", "calor, exact kernel", "calor, learned kernel"
_FLOW, _DENSITY = "flow matching, here", "kernel density, one bandwidth"
METHODS = (_TRUE, _EXACT, _LEARNED, _FLOW, _DENSITY)
# The guess sees the components, whose width is 0.035; the waves correct what is wider.
_NETWORK = Network(frequencies=192, finest=0.1, centres=256)


@dataclasses.dataclass(frozen=True)
class Settings:
    """What is run."""

    names: tuple[str, ...]
    seeds: int
    points: int
    training: Training
    network: Network
    t_min: float = 3e-5
    """Noise of this time widens the components by two per cent."""
    methods: tuple[str, ...] = METHODS

    @staticmethod
    def of(budget: str, only: Sequence[str] | None, seeds: int | None) -> "Settings":
        """The settings of a budget: `quick`, `default` or `full`."""
        names = _report.chosen("so3", only, COMPONENTS, seeds)
        if budget == "quick":
            training = Training(steps=30, batch=128)
            return Settings(names, seeds or 1, 400, training, Network(32, 2, 16, centres=16))
        training = Training(steps=8000 if budget == "full" else 1500, validate_every=250)
        count = 5 if budget == "full" else 2
        return Settings(names, seeds or count, 1_000_000, training, _NETWORK)


def run(settings: Settings, out: Path, progress: bool | None = None) -> dict:
    """Fit and score everything; results go to `out` as JSON and figures."""
    identity = {
        "points": settings.points,
        "t_min": settings.t_min,
        "training": dataclasses.asdict(settings.training),
        "network": dataclasses.asdict(settings.network),
    }
    plan = Plan(settings.names, settings.seeds, settings.methods)

    def once(name, seed, method):
        return _once(settings, int(name), seed, method, out)

    return resumable(out / "so3.json", identity, plan, once, progress)


def _once(settings, components, seed, method, out):
    mixture = RotationMixture(components, seed)
    key_train, key_held, key_test, key_fit = jr.split(jr.key(1000 + seed), 4)
    train = mixture.sample(settings.points, key=key_train)
    held = mixture.sample(min(settings.points // 4, 5000), key=key_held)
    test = mixture.sample(5000 if settings.points > 1000 else 200, key=key_test)
    kernel = heat_kernel(SO3(), "pinn" if method == _LEARNED else "exact")
    result = {}
    if method == _TRUE:
        model, seconds = mixture, 0.0
    elif method == _DENSITY:
        model, seconds = timed(
            lambda: fit_density(kernel, train[:10000], key=key_fit, validation=held)
        )
    else:
        run = fit_flow if method == _FLOW else fit
        model, seconds = timed(
            lambda: run(
                kernel,
                train,
                key=key_fit,
                validation=held,
                network=settings.network,
                training=settings.training,
                t_min=settings.t_min,
                progress=False,
            )
        )
        result = {"stops": list(model.stops), "steps": int(model.history.steps[-1])}
        if method == _LEARNED and seed == 0:
            _draw(model, train, components, out)
    values, scoring = timed(lambda: np.asarray(model.log_prob(test)))
    return result | {
        "log_prob": float(np.mean(values)) - mixture.OFFSET,
        "fit_seconds": round(seconds, 1),
        "score_seconds": round(scoring, 1),
    }


def _draw(model, train, components, out):
    """Data and draws, by the images of the three axes."""
    clouds = {
        "data": np.asarray(train[:600]),
        "samples of the model": np.asarray(model.sample(600, key=jr.key(0))),
    }
    save_figure(out / f"so3-{components}.png", lambda plots: plots.rotations(clouds))


def table(report: dict) -> str:
    """The results as a Markdown table, published figures first."""
    titles = {name: f"K = {name}" for name in COMPONENTS}
    return _report.table(report, titles, METHODS, PUBLISHED)
