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
from collections.abc import Sequence
from pathlib import Path

import jax.random as jr
import numpy as np

from ..data import datasets
from ..manifolds import SPD, Euclidean
from ..models.diffusion import fit
from ..models.flow import fit_flow
from ..models.network import Network
from ..solvers.choose import heat_kernel
from ..training.settings import Training
from . import experiment as _report
from . import metrics
from . import rivals as _rivals
from .experiment import Plan, resumable, save_figure, timed

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
class Settings:
    """What is run."""

    names: tuple[str, ...]
    seeds: int | None
    """How many of the folds; all by default."""
    training: Training
    """The same for all models."""
    network: Network
    most: int | None = 1500
    """So many matrices of a data set, chosen at random; all if there are fewer."""
    steps: int = 40
    """Of generation."""
    methods: tuple[str, ...] = METHODS

    @staticmethod
    def of(budget: str, only: Sequence[str] | None, seeds: int | None) -> "Settings":
        """The settings of a budget: `quick`, `default` or `full`."""
        names = _report.chosen("eeg", only or NAMES, NAMES + MOABB, seeds)
        if budget == "quick":
            training = Training(steps=2, batch=16, validate_every=2)
            return Settings(names, seeds or 1, training, Network(16, 1), 200, steps=4)
        factor, most = (10, None) if budget == "full" else (1, 1500)
        training = Training(2000 * factor, 128, 2e-3, average=0.99, validate_every=50 * factor)
        return Settings(names, seeds, training, Network(128, 3), most)


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


def run(settings: Settings, out: Path, progress: bool | None = None) -> dict:
    """Fit and judge everything; results go to `out` as JSON and figures."""
    identity = {
        "training": dataclasses.asdict(settings.training),
        "network": dataclasses.asdict(settings.network),
        "most": settings.most,
        "steps": settings.steps,
        "put aside": "groups",
    }
    report: dict = {}
    for name in settings.names:
        loaded = load(name)
        order = np.random.default_rng(0).permutation(len(loaded[0]))[: settings.most]
        loaded = tuple(array[np.sort(order)] for array in loaded)
        parts = folds(name, loaded[2])[: settings.seeds]
        plan = Plan([name], len(parts), settings.methods)

        def once(name, fold, method):
            return _once(settings, loaded, parts[fold], name, fold, method, out)  # noqa: B023

        report = resumable(out / "eeg.json", identity, plan, once, progress)
    return report


def _once(settings, loaded, test, name, fold, method, out):
    matrices, labels, groups = loaded
    train = np.setdiff1d(np.arange(len(matrices)), test)
    real, real_labels = matrices[train], labels[train]
    made_labels = real_labels
    made, seconds = timed(lambda: draws(settings, method, real, real_labels, groups[train], fold))
    chart = _rivals.LogEuclidean(real)
    ours, theirs = chart.inside(made), chart.inside(matrices[test])
    precision, recall = metrics.alpha_precision(theirs, ours), metrics.beta_recall(theirs, ours)
    auc, f1 = classify(made, made_labels, matrices[test], labels[test])
    if method == _CALOR and fold == 0:
        _draw(chart, real, made, real_labels, name, out)
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


def draws(settings: Settings, method: str, matrices, labels, groups, seed: int) -> np.ndarray:
    """As many matrices as there are, with the same labels."""
    if method == _REAL:
        return matrices
    if method == _GUESS:
        return _rivals.first_guess(labels, matrices, labels, 1, seed, groups)[:, 0]
    if method == _GAUSS:
        return _rivals.gaussian_by_class(matrices, labels, seed)
    ask: dict = {"condition": labels, "key": jr.key(1000 + seed), "steps": settings.steps}
    choices: dict = {"condition": labels, "progress": False, "key": jr.key(seed)}
    if method not in (_CALOR_ROWS, _FLOW_ROWS):
        choices["groups"] = groups
    if method in (_CALOR, _CALOR_ROWS, _RAW):
        model = fit(
            heat_kernel(SPD(matrices.shape[1])),
            matrices,
            training=settings.training,
            network=settings.network,
            centred=method != _RAW,
            **choices,
        )
        return np.asarray(model.sample(len(labels), **ask), float)
    flow = method in (_FLOW, _FLOW_ROWS)
    chart = (_rivals.LogEuclidean if flow else _rivals.Triangle)(matrices)
    chart = _rivals.Standardized(chart, matrices)
    model = (fit_flow if flow else fit)(
        heat_kernel(Euclidean(chart.size)),
        chart.inside(matrices),
        training=settings.training,
        network=settings.network,
        **choices,
    )
    return chart.outside(np.asarray(model.sample(len(labels), **ask), float))


def classify(matrices, labels, test, test_labels) -> tuple[float, float]:
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


def _draw(chart, real, made, labels, name, out):
    """Spectra, mean matrices and logarithms of real and generated matrices."""
    slug = name.replace(" ", "-")
    groups = {"real": real, "generated": made}
    save_figure(out / f"eeg-{slug}-spectra.png", lambda plots: plots.spectra(groups))
    places = {title: chart.inside(matrices) for title, matrices in groups.items()}
    save_figure(out / f"eeg-{slug}-scatter.png", lambda plots: plots.scatter(places, labels))
    save_figure(out / f"eeg-{slug}-means.png", lambda plots: plots.mean_matrices(groups, labels))


def table(report: dict) -> str:
    """The results as Markdown, one table for each data set."""
    header = ["", "α-precision", "β-recall", "Q-F1", "AUC", "F1", "s"]
    parts = []
    for name, results in report["results"].items():
        rows, most = [], max(map(len, results.values()))
        for method in METHODS:
            runs = list(results.get(method, {}).values())
            if runs:
                cells = [_report.summary([run[column] for run in runs]) for column in COLUMNS]
                title = method if len(runs) == most else f"{method} ({len(runs)} of {most})"
                rows.append([title, *cells, f"{np.mean([run['seconds'] for run in runs]):.0f}"])
        parts.append(f"{name}, {most} folds\n\n")
        parts[-1] += _report.markdown(header, rows)
    return "\n\n".join(parts)
