r"""Covariances of brain and muscle signals by class, as in the paper's tables on BNCI data.

Models are fitted to matrices with their labels, and draw as many as there were of each.  Quality is
alpha-precision and beta-recall of the draws against test data, their harmonic mean Q-F1, in
logarithms around the mean of the training data.  Use is the classification accuracy score: logistic
regression in the tangent space, trained on draws and tested on real matrices, by AUC and F1; beside
it the same classifier trained on the real training data.

Test data come from other runs or segments than training data, and so does the part of the training
data that decides when to stop: models are told which matrices belong together, but for two rows
that show what this does.
"""

import dataclasses
import functools
from typing import Any

import jax.random as jr
import numpy as np

from ..data import datasets
from ..manifolds import SPD, Euclidean
from ..models.fitting import fit
from ..models.network import Network
from ..solvers.choose import heat_kernel
from ..training.settings import Training
from . import metrics, rivals
from .experiment import Experiment, Job, Settings, markdown, results_of, save_figure, summary, timed

NAMES = ("fists or feet", "task or rest", "gestures")
MOABB = ("BNCI2014-002", "BNCI2015-001")
"""Data sets that are downloaded, run only when they are asked for."""
FOLDS = 5
_CALOR, _RAW, _REAL = "calor", "calor, not centred", "real data"
_GUESS = "calor's first guess alone"
_FLOW, _TRIANGLE, _GAUSS = "DiffeoCFM, here", "LowTriDDPM, here", "log-Gaussian by class"
_CALOR_ROWS, _FLOW_ROWS = "calor, rows put aside", "DiffeoCFM, rows put aside"
"""As above, but for early stopping rows are put aside at random, not whole runs or segments."""
METHODS = (_CALOR, _GUESS, _RAW, _FLOW, _TRIANGLE, _GAUSS, _CALOR_ROWS, _FLOW_ROWS, _REAL)
COLUMNS = ("precision", "recall", "quality", "auc", "f1")


@dataclasses.dataclass(frozen=True)
class Choices:
    """What the budget decides."""

    training: Training
    """The same for all models."""
    network: Network = Network(128, 3)
    most: int | None = 1500
    """So many matrices of a data set, chosen at random; all if there are fewer."""
    steps: int = 40
    """Of generation."""


def load(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Matrices, labels and groups that are not to be split."""
    if name in MOABB:
        return datasets.moabb(name)
    if name == "gestures":
        return datasets.emg()
    matrices, labels, runs = datasets.eeg()
    if name == "task or rest":
        return matrices, np.where(labels > 0, "task", "rest"), runs
    kept = labels >= 3
    return matrices[kept], np.where(labels[kept] == 3, "fists", "feet"), runs[kept]


def folds(name: str, groups: np.ndarray) -> list[np.ndarray]:
    """The rows of each test part: a run each, or a fifth of the segments or groups."""
    each = np.unique(groups)
    if name in ("fists or feet", "task or rest"):
        return [np.flatnonzero(groups == group) for group in each]
    order = np.random.default_rng(0).permutation(each)
    return [np.flatnonzero(np.isin(groups, part)) for part in np.array_split(order, FOLDS)]


@functools.cache
def _data(name: str, most: int | None) -> tuple[tuple[np.ndarray, ...], list[np.ndarray]]:
    """Matrices, labels and groups, so many at most, and the rows of each test part."""
    loaded = load(name)
    kept = np.sort(np.random.default_rng(0).permutation(len(loaded[0]))[:most])
    loaded = tuple(array[kept] for array in loaded)
    return loaded, folds(name, loaded[2])


def _once(job: Job[Choices]) -> dict[str, Any]:
    (matrices, labels, groups), parts = _data(job.name, job.choices.most)
    test = parts[job.seed]
    train = np.setdiff1d(np.arange(len(matrices)), test)
    real, real_labels = matrices[train], labels[train]
    made, seconds = timed(lambda: draws(job, real, real_labels, groups[train]))
    chart = rivals.LogEuclidean(real)
    ours, theirs = chart.inside(made), chart.inside(matrices[test])
    precision, recall = metrics.alpha_precision(theirs, ours), metrics.beta_recall(theirs, ours)
    auc, f1 = classify(made, real_labels, matrices[test], labels[test])
    if job.method == _CALOR and job.seed == 0:
        _draw(chart, {"real": real, "generated": made}, real_labels, job)
    return {
        "precision": precision,
        "recall": recall,
        "quality": metrics.harmonic(precision, recall),
        "auc": auc,
        "f1": f1,
        "smallest_eigenvalue": float(np.min(np.linalg.eigvalsh(made))),
        "rows": [len(train), len(test)],
        "seconds": round(seconds, 1),
    }


def draws(
    job: Job[Choices], matrices: np.ndarray, labels: np.ndarray, groups: np.ndarray
) -> np.ndarray:
    """As many matrices as there are, with the same labels."""
    method, seed = job.method, job.seed
    if method == _REAL:
        return matrices
    if method == _GUESS:
        return rivals.first_guess(labels, matrices, labels, 1, seed, groups)[:, 0]
    if method == _GAUSS:
        return rivals.gaussian_by_class(matrices, labels, seed)
    choices: dict[str, Any] = {"condition": labels, "progress": False, "key": jr.key(seed)}
    choices |= {"training": job.choices.training, "network": job.choices.network}
    if method not in (_CALOR_ROWS, _FLOW_ROWS):
        choices["groups"] = groups
    flow = method in (_FLOW, _FLOW_ROWS)
    chart, manifold, points = None, SPD(matrices.shape[1]), matrices
    if method in (_CALOR, _CALOR_ROWS, _RAW):
        choices["centred"] = method != _RAW
    else:
        chart = (rivals.LogEuclidean if flow else rivals.Triangle)(matrices)
        chart = rivals.Standardized(chart, matrices)
        manifold, points = Euclidean(chart.size), chart.inside(matrices)
    parts = "flow" if flow else "diffusion"
    model = fit(heat_kernel(manifold), points, parts=parts, **choices)
    key, steps = jr.key(1000 + seed), job.choices.steps
    made = np.asarray(model.sample(len(labels), condition=labels, key=key, steps=steps), float)
    return made if chart is None else chart.outside(made)


def classify(
    matrices: np.ndarray, labels: np.ndarray, test: np.ndarray, test_labels: np.ndarray
) -> tuple[float, float]:
    """AUC and macro F1 on test data of logistic regression in the tangent space."""
    try:
        from pyriemann.tangentspace import TangentSpace
        from sklearn.linear_model import LogisticRegression
        from sklearn.metrics import f1_score, roc_auc_score
        from sklearn.pipeline import make_pipeline
    except ImportError as error:
        raise ValueError(
            "eeg: the classifier needs pyriemann and scikit-learn; run: pip install 'calor[eeg]'"
        ) from error
    model = make_pipeline(TangentSpace(), LogisticRegression(max_iter=2000))
    model.fit(matrices, labels)
    chances = model.predict_proba(test)
    several = len(model.classes_) > 2
    auc = roc_auc_score(
        test_labels,
        chances if several else chances[:, 1],
        labels=model.classes_,
        multi_class="ovr" if several else "raise",
    )
    f1 = f1_score(test_labels, model.predict(test), average="macro")
    return float(auc), float(f1)


def _draw(
    chart: rivals.LogEuclidean, groups: dict[str, np.ndarray], labels: np.ndarray, job: Job[Choices]
) -> None:
    """Spectra, mean matrices and logarithms of real and generated matrices."""
    places = {title: chart.inside(matrices) for title, matrices in groups.items()}
    figures = {
        "spectra": lambda plots: plots.spectra(groups),
        "scatter": lambda plots: plots.scatter(places, labels),
        "means": lambda plots: plots.mean_matrices(groups, labels),
    }
    for title, draw in figures.items():
        save_figure(job.out / f"eeg-{job.name.replace(' ', '-')}-{title}.png", draw)


def _table(report: dict[str, Any]) -> str:
    """One table for each data set."""
    header = ["", "α-precision", "β-recall", "Q-F1", "AUC", "F1", "s"]
    parts = []
    for name, results in report["results"].items():
        rows, most = [], max(map(len, results.values()))
        for method in METHODS:
            if runs := results_of(report, name, method):
                cells = [summary([run[column] for run in runs]) for column in COLUMNS]
                title = method if len(runs) == most else f"{method} ({len(runs)} of {most})"
                rows.append([title, *cells, f"{np.mean([run['seconds'] for run in runs]):.0f}"])
        parts.append(f"{name}, {most} folds\n\n" + markdown(header, rows))
    return "\n\n".join(parts)


def _training(factor: int) -> Training:
    return Training(2000 * factor, 128, 2e-3, average=0.99, validate_every=50 * factor)


EXPERIMENT = Experiment(
    "eeg",
    NAMES,
    METHODS,
    budgets={
        "quick": Settings(
            1, Choices(Training(steps=2, batch=16, validate_every=2), Network(16, 1), 200, steps=4)
        ),
        "default": Settings(None, Choices(_training(1))),
        "full": Settings(None, Choices(_training(10), most=None)),
    },
    once=_once,
    table=_table,
    on_demand=MOABB,
    folds=lambda name, choices: len(_data(name, choices.most)[1]),
    identity=lambda choices: {**dataclasses.asdict(choices), "put aside": "groups"},
)
