r"""Events on the globe: volcanoes, earthquakes, floods and fires, as in the paper's table on S^2.

Test log-likelihoods in nats, in the volume of the unit sphere, on random splits 80/10/10.  Beside
the published figures: diffusion with the exact and with the learned heat kernel, flow matching, and
kernel density estimates, all on the same splits.  Two thirds of the volcano rows are repeats, so
that its likelihood mostly rewards remembering; `volcano (unique)` has each place once.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ..data import datasets
from ..manifolds import Sphere
from ..models.density import fit_density
from ..models.diffusion import fit
from ..models.flow import fit_flow
from ..models.network import Network
from ..solvers.choose import heat_kernel
from ..training.settings import Training
from . import experiment as _report
from .experiment import Plan, resumable, save_figure, timed

NAMES = ("floods", "quakes", "fires", "volcano", "volcano (unique)")
# As published: mean of five splits.
PUBLISHED = {
    "the paper": {"floods": -0.47, "quakes": 0.24, "fires": 1.08, "volcano": 3.56},
    "RSGM as published": {"floods": -0.48, "quakes": 0.19, "fires": 1.33, "volcano": 4.92},
    "RFM as published": {"floods": -0.42, "quakes": 0.28, "fires": 1.86, "volcano": 7.93},
}
_EXACT, _LEARNED, _FLOW = "calor, exact kernel", "calor, learned kernel", "flow matching, here"
_DENSITY, _ADAPTIVE = "kernel density, one bandwidth", "kernel density, adaptive"
METHODS = (_EXACT, _LEARNED, _FLOW, _DENSITY, _ADAPTIVE)


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
class Settings:
    """What is run."""

    names: tuple[str, ...]
    seeds: int
    effort: float = 1.0
    """Steps of training, in units of those of the default budget."""
    width: int = 192
    methods: tuple[str, ...] = METHODS

    @staticmethod
    def of(budget: str, only: Sequence[str] | None, seeds: int | None) -> "Settings":
        """The settings of a budget: `quick`, `default` or `full`."""
        names = _report.chosen("earth", only, NAMES, seeds)
        if budget == "quick":
            return Settings(names, seeds or 1, effort=0.03, width=32)
        if budget == "full":
            return Settings(names, seeds or 5, effort=3.0, width=256)
        return Settings(names, seeds or 2)


def run(settings: Settings, out: Path, progress: bool | None = None) -> dict:
    """Fit and score everything; results go to `out` as JSON and figures.

    A run that was interrupted goes on: what is in `out` already is not computed again.
    """
    identity = {"effort": settings.effort, "width": settings.width}
    identity["tasks"] = {name: dataclasses.asdict(task) for name, task in TASKS.items()}
    plan = Plan(settings.names, settings.seeds, settings.methods)

    def once(name, seed, method):
        return _once(settings, name, seed, method, out)

    report = resumable(out / "earth.json", identity, plan, once, progress)
    for name in settings.names:
        _draw_training(report["results"][name], name, out)
    return report


def load(name: str) -> np.ndarray:
    """The points of a data set."""
    if name == "volcano (unique)":
        return np.unique(datasets.earth("volcano"), axis=0)
    return datasets.earth(name)


def _once(settings, name, seed, method, out):
    train, held, test = datasets.split(load(name), seed)
    task, learned = TASKS[name], method == _LEARNED
    kernel = heat_kernel(Sphere(2), "pinn" if learned else "exact")
    key = jr.key(seed)
    if method in (_DENSITY, _ADAPTIVE):
        adaptive = method == _ADAPTIVE
        model, seconds = timed(
            lambda: fit_density(
                kernel, train, key=key, validation=held, adaptive=adaptive, t_min=task.t_min
            )
        )
        values, scoring = timed(lambda: np.asarray(model.log_prob(test)))
        result = {"bandwidths": [float(jnp.median(row)) for row in model.bandwidths]}
    else:
        steps = max(10, round(settings.effort * task.steps))
        batch = task.batch if settings.effort >= 1 else 128
        training = Training(steps, batch, validate_every=min(steps, 100))
        network = Network(settings.width, damping=task.damping, finest=task.finest)
        run = fit_flow if method == _FLOW else fit
        model, seconds = timed(
            lambda: run(
                kernel,
                train,
                key=key,
                validation=held,
                network=network,
                training=training,
                t_min=task.t_min,
                progress=False,
            )
        )
        values, scoring = timed(lambda: np.asarray(model.log_prob(test)))
        history = model.history
        result = {
            "stops": list(model.stops),
            "weights": list(model.weights),
            "steps": int(history.steps[-1]),
            "history": {
                "seconds": np.asarray(history.seconds).round(2).tolist(),
                "validations": np.asarray(history.validations).round(5).tolist(),
            },
        }
        if method == _LEARNED and seed == 0:
            _draw(model, train, name, out)
    return result | {
        "log_prob": float(np.mean(values)),
        "fit_seconds": round(seconds, 1),
        "score_seconds": round(scoring, 1),
    }


def _draw(model, train, name, out):
    """Data, draws and density on a map."""
    samples = np.asarray(model.sample(len(train), key=jr.key(0)))
    save_figure(
        out / f"earth-{_slug(name)}.png",
        lambda plots: plots.world(
            {"data": train, "samples of the model": samples},
            lambda x: np.asarray(model.log_prob(x, tolerance=1e-2)),
        ),
    )


def _draw_training(results, name, out):
    """Held out log-likelihood against the time of training, on the first split."""
    histories = {
        method: SimpleNamespace(**runs["0"]["history"])
        for method, runs in results.items()
        if "history" in runs.get("0", {})
    }
    if histories:
        path = out / f"earth-{_slug(name)}-training.png"
        save_figure(path, lambda plots: plots.histories(histories, name))


def _slug(name):
    return name.replace(" (", "-").replace(")", "")


def table(report: dict) -> str:
    """The results as a Markdown table, published figures first."""
    titles = {name: name for name in NAMES}
    return _report.table(report, titles, METHODS, PUBLISHED)
