r"""Traffic flows in New York on SPD(10) given thirteen predictors, as in the paper's table.

The 1159 matrices and predictors that Li et al. published with SPD-DDPM, by five-fold
cross-validation: random folds, and contiguous ones.  Reported are Frobenius distances to the truth
of one draw and of the Frechet mean of twenty, the affine-invariant distance of that mean, the
energy score of the law and the coverage of its regions of 90 %.
"""

import dataclasses
from collections.abc import Iterable
from typing import Any

import jax.random as jr
import numpy as np

from ..data import datasets
from ..heat.early.laws import Varadhan
from ..manifolds import SPD, Euclidean
from ..models.denoisers import SPDNetScore
from ..models.fitting import fit
from ..models.flow import fit_flow
from ..models.network import Network
from ..solvers.choose import heat_kernel
from ..training.settings import Training
from . import metrics, rivals
from .experiment import Experiment, Job, Settings, markdown, results_of, save_figure, timed

NAMES = ("random", "contiguous")
FOLDS, DRAWS = 5, 20
# Steps of models that have everything to learn for each step of one that corrects a first guess;
# those in flat space are the faster ones.
_FLAT, _BARE = 50, 5
_FLAT_RATE, _BARE_RATE = 2e-3, 1e-3
_LEARNED, _VARADHAN = "calor, learned kernel", "calor, Varadhan's kernel"
_FLOW, _GUESS = "flow matching of logarithms", "calor's first guess alone"
_LINEAR, _TREES = "log-Gaussian regression", "extra-trees on logarithms"
_SPDNET = "SPD-DDPM, here"
METHODS = (_LEARNED, _VARADHAN, _GUESS, _FLOW, _SPDNET, _LINEAR, _TREES)
# Mean and quartiles of the Frobenius distance of the Frechet mean of twenty.
PUBLISHED = {
    "the paper (other folds)": (5.21, 1.70, 3.12, 6.31),
    "SPD-DDPM as published": (6.54, 1.82, 3.60, 7.96),
    "Fréchet regression as published": (6.72, 3.13, 5.21, 8.37),
}


@dataclasses.dataclass(frozen=True)
class Choices:
    """What the budget decides."""

    training: Training
    network: Network = Network(96, 2)
    steps: int = 40
    """Of generation."""


def _training(steps: int) -> Training:
    return Training(steps, batch=256, learning_rate=5e-4, average=0.98, validate_every=20)


def folds(name: str, count: int) -> list[np.ndarray]:
    """The rows of each test part."""
    order = np.arange(count)
    if name == "random":
        order = np.random.default_rng(0).permutation(count)
    return np.array_split(order, FOLDS)


def _once(job: Job[Choices]) -> dict[str, Any]:
    predictors, matrices = datasets.taxi()
    test = folds(job.name, len(matrices))[job.seed]
    train = np.setdiff1d(np.arange(len(matrices)), test)
    given = predictors[train], matrices[train], predictors[test]
    (draws, mean), seconds = timed(lambda: _draws(job, *given))
    truth = matrices[test]
    mean = metrics.frechet_means(draws) if mean is None else mean
    logs, true = metrics.logarithms(draws), metrics.logarithms(truth)
    if (job.name, job.seed, job.method) == ("random", 0, _LEARNED):
        groups = {"test": truth, "drawn": draws[:, 0]}
        save_figure(job.out / "taxi-spectra.png", lambda plots: plots.spectra(groups))
    return {
        "one": _rounded(metrics.frobenius(draws[:, 0], truth)),
        "mean": _rounded(metrics.frobenius(mean, truth)),
        "affine": _rounded(metrics.affine_invariant(mean, truth)),
        "energy": _rounded(metrics.energy_score(logs, true)),
        "covered": metrics.coverage(logs, true)[0],
        "seconds": round(seconds, 1),
    }


def _rounded(values: np.ndarray) -> list[float]:
    return [round(float(value), 4) for value in values]


def _draws(
    job: Job[Choices], predictors: np.ndarray, matrices: np.ndarray, asked: np.ndarray
) -> tuple[np.ndarray, np.ndarray | None]:
    """Twenty draws for each row that is asked for, and a prediction if it is not their mean."""
    method, seed = job.method, job.seed
    if method == _LINEAR:
        return rivals.linear_regression(predictors, matrices, asked, DRAWS, seed), None
    if method == _TREES:
        return rivals.extra_trees(predictors, matrices, asked, DRAWS, seed)
    if method == _GUESS:
        return rivals.first_guess(predictors, matrices, asked, DRAWS, seed), None
    network, training = job.choices.network, job.choices.training
    if method in (_FLOW, _SPDNET):
        factor, rate = (_FLAT, _FLAT_RATE) if method == _FLOW else (_BARE, _BARE_RATE)
        steps = factor * training.steps
        network = dataclasses.replace(network, gaussian=False)
        training = dataclasses.replace(
            training, steps=steps, learning_rate=rate, validate_every=max(1, steps // 10)
        )
    choices: dict[str, Any] = {"condition": predictors, "network": network, "training": training}
    choices |= {"key": jr.key(seed), "progress": False}
    chart = None
    if method == _FLOW:
        chart = rivals.Standardized(rivals.LogEuclidean(matrices), matrices)
        model = fit_flow(heat_kernel(Euclidean(chart.size)), chart.inside(matrices), **choices)
    else:
        manifold = SPD(matrices.shape[1])
        kernel = heat_kernel(manifold, "pinn") if method == _LEARNED else Varadhan(manifold)
        if method == _SPDNET:
            choices["score"] = SPDNetScore
        model = fit(kernel, matrices, parts="diffusion", **choices)
    rows, key = np.repeat(asked, DRAWS, axis=0), jr.key(1000 + seed)
    drawn = model.sample(len(rows), condition=rows, key=key, steps=job.choices.steps)
    drawn = np.asarray(drawn, float)
    drawn = drawn if chart is None else chart.outside(drawn)
    return drawn.reshape(len(asked), DRAWS, *matrices.shape[1:]), None


def _table(report: dict[str, Any]) -> str:
    """One table for each kind of folds, published figures first."""
    header = ["", "mean of 20", "quartiles", "one draw", "quartiles"]
    header += ["affine", "energy", "90 %", "s"]
    parts = []
    for name in (name for name in NAMES if name in report["results"]):
        rows = [
            [source, f"{mean:.2f}", _quartiles(quarters), *["–"] * 6]
            for source, (mean, *quarters) in PUBLISHED.items()
        ]
        for method in METHODS:
            if runs := results_of(report, name, method):
                rows.append([method, *_cells(runs)])
        parts.append(f"{name} folds\n\n" + markdown(header, rows))
    return "\n\n".join(parts)


def _cells(runs: list[dict[str, Any]]) -> list[str]:
    pooled = {
        key: np.concatenate([run[key] for run in runs])
        for key in ("one", "mean", "affine", "energy")
    }
    rows = np.array([len(run["one"]) for run in runs])
    covered = np.sum(rows * [run["covered"] for run in runs]) / np.sum(rows)
    cells = []
    for key in ("mean", "one"):
        quarters = np.quantile(pooled[key], [0.25, 0.5, 0.75])
        cells += [f"{np.mean(pooled[key]):.2f}", _quartiles(quarters)]
    seconds = np.mean([run["seconds"] for run in runs])
    means = [f"{np.mean(pooled[key]):.3f}" for key in ("affine", "energy")]
    return [*cells, *means, f"{100 * covered:.0f} %", f"{seconds:.0f}"]


def _quartiles(values: Iterable[float]) -> str:
    return " / ".join(f"{value:.2f}" for value in values)


EXPERIMENT = Experiment(
    "taxi",
    NAMES,
    METHODS,
    budgets={
        "quick": Settings(
            1, Choices(Training(steps=2, batch=16, validate_every=2), Network(16, 1), steps=4)
        ),
        "default": Settings(None, Choices(_training(40))),
        "full": Settings(None, Choices(_training(1000))),
    },
    once=_once,
    table=_table,
    # The slowest.
    sparing={_SPDNET: ("random",)},
    folds=lambda name, choices: FOLDS,
    identity=lambda choices: {
        **dataclasses.asdict(choices),
        "flow": {"steps": _FLAT * choices.training.steps, "learning_rate": _FLAT_RATE},
    },
)
