"""What `calor demo` does: a diffusion model of the world's airports, beside simpler models.

The airports are split at random into a part to train on, one to validate and one to test.  The
diffusion model is fitted with the heat kernel of the sphere that a network solved; flow matching
has the same network and budget.
"""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax.random as jr
import numpy as np

from ..data import datasets
from ..manifolds import Sphere
from ..models.diffusion import Diffusion
from ..models.network import Network
from ..training.settings import Training
from .experiment import markdown
from .methods import ADAPTIVE, DENSITY, FLOW, LEARNED, fit_points

DIFFUSION = "diffusion, learned kernel"
_METHODS = {DIFFUSION: LEARNED, "flow matching": FLOW, DENSITY: DENSITY, ADAPTIVE: ADAPTIVE}
UNIFORM = -float(np.log(4 * np.pi))
"""The log-density of the uniform law."""

# Eyes above the Mediterranean and above Mexico: most airports are seen from one of them.
_VIEWS = ((32.0, 12.0), (28.0, -98.0))


@dataclasses.dataclass(frozen=True)
class Budget:
    """How much the demo does."""

    airports: int | None
    """How many airports; all of them if None."""
    network: Network
    training: Training
    pixels: int
    """Of a side of a globe, at which the density is evaluated."""
    draws: int


FULL = Budget(None, Network(128), Training(400, 1024, validate_every=100), 45, 4000)
QUICK = Budget(1500, Network(32, 2, 32), Training(60, 256, validate_every=60), 17, 300)


@dataclasses.dataclass(frozen=True)
class Score:
    """How well a model predicts airports that it has not seen."""

    model: str
    log_prob: float
    """The mean log-density, in nats, in the area of the unit sphere."""
    standard_error: float
    seconds: float
    """To fit it, compilation included."""


@dataclasses.dataclass(frozen=True)
class Report:
    """What the demo did."""

    airports: int
    test: int
    """How many of them were put aside to test."""
    scores: tuple[Score, ...]
    seconds: float

    def __str__(self) -> str:
        rows = [
            [
                score.model,
                f"{score.log_prob:.3f} ± {score.standard_error:.3f}",
                f"{score.seconds:.0f} s",
            ]
            for score in self.scores
        ]
        rows.append(["uniform on the globe", f"{UNIFORM:.3f}", ""])
        return (
            f"{self.airports} airports of the world; log-likelihood of {self.test} that no model "
            "has seen\n(nats each, higher is better):\n\n"
            + markdown(["model", "log-likelihood", "fitted in"], rows)
        )


def run(
    budget: Budget, progress: Callable[[str], None] = lambda message: None
) -> tuple[Report, Diffusion, Any]:
    """Fit and score the models, and draw the diffusion model.

    Args:
        budget: `FULL` or `QUICK`.
        progress: called with a short message before each stage.

    Returns:
        The scores, the diffusion model, and the figure.
    """
    start = time.perf_counter()
    progress("1/6  loading the airports and the learned heat kernel of the sphere")
    points = datasets.airports()
    if budget.airports is not None:
        points = np.random.default_rng(0).permutation(points)[: budget.airports]
    train, held, test = datasets.split(points, seed=0)
    models, scores = {}, []
    for number, (name, method) in enumerate(_METHODS.items(), start=2):
        progress(f"{number}/6  fitting and scoring: {name}")
        chosen = {"network": budget.network, "training": budget.training}
        given: dict = {"key": jr.key(0), "validation": held, "trained": chosen}
        models[name], seconds = fit_points(method, Sphere(2), train, **given)
        values = np.asarray(models[name].log_prob(test), float)
        error = float(values.std(ddof=1) / np.sqrt(len(values)))
        scores.append(Score(name, float(values.mean()), error, round(seconds, 1)))
    progress("6/6  drawing new airports, and the picture")
    figure = draw(models[DIFFUSION], points, scores[0].log_prob, budget)
    seconds = round(time.perf_counter() - start, 1)
    report = Report(len(points), len(test), tuple(scores), seconds)
    return report, models[DIFFUSION], figure


def draw(model: Diffusion, points: np.ndarray, typical: float, budget: Budget) -> Any:
    """Data, draws of the model, and its log-density, on globes seen from two sides.

    Args:
        model: of points of the sphere.
        points: the data.
        typical: a usual log-density, in the middle of the colors.
        budget: how many draws and pixels.
    """
    from matplotlib.figure import Figure

    from .. import plots

    samples = np.asarray(model.sample(budget.draws, key=jr.key(1)))
    figure = Figure(figsize=(9.6, 6.8), dpi=150, layout="constrained")
    limits = typical - 5, typical + 2.5

    def log_density(x):
        return np.asarray(model.log_prob(x, tolerance=1e-2))

    for row, view in zip(figure.subplots(2, 3), _VIEWS, strict=True):
        plots.globe(points, view=view, axes=row[0])
        plots.globe(samples, view=view, axes=row[1])
        detail: Any = {"pixels": budget.pixels, "limits": limits}
        plots.globe(log_density=log_density, view=view, **detail, axes=row[2])
    titles = f"{len(points)} airports", f"{len(samples)} draws of the model", "its log-density"
    for axes, title in zip(figure.axes, titles, strict=False):
        axes.set_title(title, fontsize=11, color="#333333")
    return figure
