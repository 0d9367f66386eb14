"""What `calor demo` does: a model of the world's airports, beside the densities to beat.

The airports are split at random into a part to fit to and one to test.  `calor.fit` weighs several
kinds of models together; the rival is a kernel density whose bandwidths adapt to how close airports
are, the best of the simple ones.
"""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax.random as jr
import numpy as np

from ..models.fitting import fit
from ..models.model import AbstractModel
from ..models.network import Network
from ..models.plan import Plan
from ..solvers.choose import heat_kernel
from .experiment import markdown
from .methods import ADAPTIVE, DENSITY
from .rival_kernels import adaptive, fit_kernels, one_bandwidth
from .sets import SETS

WHOLE = "calor, all parts together"
UNIFORM = -float(np.log(4 * np.pi))
"""The log-density of the uniform law."""
_RIVALS = {DENSITY: one_bandwidth, ADAPTIVE: adaptive}

# Eyes above the Mediterranean and above Mexico: most airports are seen from one of them.
_VIEWS = ((32.0, 12.0), (28.0, -98.0))


@dataclasses.dataclass(frozen=True)
class Budget:
    """How much the demo does."""

    airports: int | None
    """How many airports; all of them if None."""
    minutes: float
    """For which the fit is planned."""
    plan: Plan | None
    """What to do instead."""
    network: Network | None
    pixels: int
    """Of a side of a globe, at which the density is evaluated."""
    draws: int


FULL = Budget(None, 0.5, None, None, 32, 3000)
QUICK = Budget(1500, 1.0, Plan(("density", "flow"), 1, 30), Network(32, 2, 32), 17, 300)


@dataclasses.dataclass(frozen=True)
class Score:
    """How well a model predicts airports that it has not seen."""

    model: str
    log_prob: float
    """The mean log-density, in nats, in the area of the unit sphere."""
    ahead: float
    """How much likelier the whole model finds them, in the mean."""
    standard_error: float
    """Of that, paired airport by airport."""
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
        rows = []
        for score in self.scores:
            ahead = f"{score.ahead:+.3f} ± {score.standard_error:.3f}"
            first = score.model == WHOLE
            seconds = f"{score.seconds:.0f} s" if score.seconds else ""
            rows.append([score.model, f"{score.log_prob:.3f}", "" if first else ahead, seconds])
        heads = ["model", "log-likelihood", "calor is ahead by", "fitted in"]
        return (
            f"{self.airports} airports of the world; log-likelihood of {self.test} that no model "
            "has seen\n(nats each, higher is better):\n\n" + markdown(heads, rows)
        )


def run(
    budget: Budget, progress: Callable[[str], None] = lambda message: None
) -> tuple[Report, AbstractModel, Any]:
    """Fit and score the models, and draw the whole one.

    Args:
        budget: `FULL` or `QUICK`.
        progress: called with a short message before each stage.

    Returns:
        The scores, the model, and the figure.
    """
    start = time.perf_counter()
    progress("1/4  loading the airports")
    problem = SETS["airports"]()
    if budget.airports is not None:
        few = np.random.default_rng(0).permutation(len(problem.points))[: budget.airports]
        problem = problem.rows(few)
    train, held, test = problem.split(0)
    progress("2/4  fitting a density, diffusions and flows, and weighing them")
    began = time.perf_counter()
    model = fit(
        heat_kernel(problem.manifold),
        np.concatenate([train.points, held.points]),
        minutes=budget.minutes,
        plan=budget.plan,
        network=budget.network,
        key=jr.key(0),
    )
    seconds = {WHOLE: time.perf_counter() - began}
    values = {WHOLE: np.asarray(model.log_prob(test.points), float)}
    for name in model.names:
        values[f"its {name} alone"] = np.asarray(model.part(name).log_prob(test.points), float)
    progress("3/4  fitting the densities to beat")
    for name, rule in _RIVALS.items():
        began = time.perf_counter()
        values[name] = fit_kernels(rule, train, held).log_prob(test.points, None)
        seconds[name] = time.perf_counter() - began
    values["uniform on the globe"] = np.full(len(test.points), UNIFORM)
    scores = []
    for name, found in values.items():
        gain = values[WHOLE] - found
        error = float(gain.std(ddof=1) / np.sqrt(len(gain)))
        taken = round(seconds.get(name, 0.0), 1)
        scores.append(Score(name, float(found.mean()), float(gain.mean()), error, taken))
    progress("4/4  drawing new airports, and the picture")
    figure = draw(model, problem.points, scores[0].log_prob, budget)
    taken = round(time.perf_counter() - start, 1)
    return Report(len(problem.points), len(test.points), tuple(scores), taken), model, figure


def draw(model: AbstractModel, points: np.ndarray, typical: float, budget: Budget) -> Any:
    """Data, draws of the model, and its log-density, on globes seen from two sides.

    Args:
        model: of points of the sphere.
        points: the data.
        typical: a usual log-density, in the middle of the colors.
        budget: how many draws and pixels.
    """
    from matplotlib.figure import Figure

    from .. import plots

    samples = np.asarray(model.sample(budget.draws, key=jr.key(1), steps=50))
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
