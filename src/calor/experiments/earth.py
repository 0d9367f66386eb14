r"""Events on the globe: volcanoes, earthquakes, floods and fires, as in the paper's table on S^2.

Test log-likelihoods in nats, in the volume of the unit sphere, on random splits 80/10/10.  Beside
the published figures: diffusion with the exact and with the learned heat kernel, flow matching, and
kernel density estimates, all on the same splits.  Two thirds of the volcano rows are repeats, so
that its likelihood mostly rewards remembering; `volcano (unique)` has each place once.
"""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ..data import datasets
from ..manifolds import Sphere
from ..models.diffusion import Diffusion
from ..models.network import Network
from ..training.settings import Training
from .experiment import Experiment, Job, Settings, likelihoods, save_figure
from .methods import ADAPTIVE, DENSITY, EXACT, FLOW, LEARNED, fit_points, likelihood

NAMES = ("floods", "quakes", "fires", "volcano", "volcano (unique)")
# As published: mean of five splits.
PUBLISHED = {
    "the paper": {"floods": -0.47, "quakes": 0.24, "fires": 1.08, "volcano": 3.56},
    "RSGM as published": {"floods": -0.48, "quakes": 0.19, "fires": 1.33, "volcano": 4.92},
    "RFM as published": {"floods": -0.42, "quakes": 0.28, "fires": 1.86, "volcano": 7.93},
}
METHODS = (EXACT, LEARNED, FLOW, DENSITY, ADAPTIVE)


@dataclasses.dataclass(frozen=True)
class Task:
    """What is set for one data set: the finest scales, and the budget.

    The smallest time, also the smallest bandwidth of a kernel density, decides on data with
    repeated points; the others follow the density of the events.
    """

    t_min: float
    finest: float
    damping: float
    steps: int
    batch: int = 2048


TASKS = {
    "floods": Task(5e-6, 1 / 80, 1.0, 600),
    "quakes": Task(1e-6, 1 / 300, 0.7, 1300),
    "fires": Task(1e-7, 1 / 1000, 0.5, 1300, 4096),
    "volcano": Task(1e-7, 1 / 500, 0.7, 300),
    "volcano (unique)": Task(1e-5, 1 / 60, 1.0, 200),
}


@dataclasses.dataclass(frozen=True)
class Choices:
    """What the budget decides."""

    effort: float = 1.0
    """Steps of training, in units of those of the default budget."""
    width: int = 192


def load(name: str) -> np.ndarray:
    """The points of a data set."""
    if name == "volcano (unique)":
        return np.unique(datasets.earth("volcano"), axis=0)
    return datasets.earth(name)


def _once(job: Job[Choices]) -> dict[str, Any]:
    train, held, test = datasets.split(load(job.name), job.seed)
    task, effort = TASKS[job.name], job.choices.effort
    steps = max(10, round(effort * task.steps))
    batch = task.batch if effort >= 1 else 128
    model, seconds = fit_points(
        job.method,
        Sphere(2),
        train,
        key=jr.key(job.seed),
        validation=held,
        t_min=task.t_min,
        trained={
            "network": Network(job.choices.width, damping=task.damping, finest=task.finest),
            "training": Training(steps, batch, validate_every=min(steps, 100)),
            "progress": False,
        },
    )
    found = likelihood(model, test, seconds)
    if job.method in (DENSITY, ADAPTIVE):
        return {"bandwidths": [float(jnp.median(row)) for row in model.bandwidths], **found}
    if job.method == LEARNED and job.seed == 0:
        _draw(model, train, job)
    history = model.history
    return {
        "stops": list(model.stops),
        "weights": list(model.weights),
        "steps": int(history.steps[-1]),
        "history": {
            "seconds": np.asarray(history.seconds).round(2).tolist(),
            "validations": np.asarray(history.validations).round(5).tolist(),
        },
        **found,
    }


def _draw(model: Diffusion, train: np.ndarray, job: Job[Choices]) -> None:
    """Data, draws and density on a map."""
    samples = np.asarray(model.sample(len(train), key=jr.key(0)))
    save_figure(
        job.out / f"earth-{_slug(job.name)}.png",
        lambda plots: plots.world(
            {"data": train, "samples of the model": samples},
            lambda x: np.asarray(model.log_prob(x, tolerance=1e-2)),
        ),
    )


def _draw_training(report: dict[str, Any], settings: Settings[Choices], out: Path) -> None:
    """Held out log-likelihood against the time of training, on the first split."""
    for name in settings.names:
        results = report["results"][name]
        histories = {
            method: SimpleNamespace(**runs["0"]["history"])
            for method, runs in results.items()
            if "history" in runs.get("0", {})
        }
        if histories:
            path = out / f"earth-{_slug(name)}-training.png"
            save_figure(path, lambda plots: plots.histories(histories, name))  # noqa: B023


def _slug(name: str) -> str:
    return name.replace(" (", "-").replace(")", "")


EXPERIMENT = Experiment(
    "earth",
    NAMES,
    METHODS,
    budgets={
        "quick": Settings(1, Choices(effort=0.03, width=32)),
        "default": Settings(2, Choices()),
        "full": Settings(5, Choices(effort=3.0, width=256)),
    },
    once=_once,
    table=lambda report: likelihoods(report, {name: name for name in NAMES}, METHODS, PUBLISHED),
    identity=lambda choices: {
        **dataclasses.asdict(choices),
        "tasks": {name: dataclasses.asdict(task) for name, task in TASKS.items()},
    },
    finish=_draw_training,
)
