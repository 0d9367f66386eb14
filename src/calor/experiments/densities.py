r"""Densities of every data set, by `calor.fit`, its parts, and what a user would try instead.

Mean test log-likelihoods in nats, in the Riemannian volume, on the same splits for all.  One fit of
`calor.fit` gives the columns of its parts and of the whole.  Every method gets the training and the
validation rows; the simple rivals choose on the latter and then use both.  Another library trains
for as long as calor does, if it is asked for.

Differences are paired, test point by test point: how much likelier calor's whole model finds the
points than a rival does.  Two standard errors are given of their mean over the splits: one from how
the splits differ, and one from how points differ within each split, or whole groups of points where
they were put aside.  The first knows of the luck of the fits, the second of that of the points.
"""

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import jax.random as jr
import numpy as np
from jaxtyping import Float

from ..models.model import finite
from ..solvers.choose import heat_kernel
from . import paired
from .experiment import Experiment, Job, Settings, markdown, results_of, summary, timed
from .methods import ADAPTIVE, DENSITY, fit_everything
from .rival_kernels import adaptive, fit_kernels, one_bandwidth, several_bandwidths
from .rival_library import fit_library
from .rival_mixtures import fit_mixture
from .sets import SETS, Problem

UNIFORM, SEVERAL, MIXTURE = "uniform", "kernel density, several bandwidths", "mixture"
LIBRARY = "flow_matching"
CALOR = "calor"
EVERYTHING = "calor, everything"
PARTS = ("density", "mixture", "diffusion", "flow")
SIMPLE = (UNIFORM, DENSITY, SEVERAL, ADAPTIVE, MIXTURE)
RIVALS = (*SIMPLE, LIBRARY)
USUAL = (*SIMPLE, CALOR)
"""The methods that are run if none are asked for."""
METHODS = (*USUAL, LIBRARY)
_TITLE = "densities"
_RULES = {DENSITY: one_bandwidth, SEVERAL: several_bandwidths, ADAPTIVE: adaptive}


@dataclasses.dataclass(frozen=True)
class Choices:
    """What the budget decides."""

    minutes: float = 3.0
    """For which `calor.fit` plans."""
    most: int | None = None
    """So many rows of each part of a split at most; all if None."""


Columns = dict[str, Float[np.ndarray, " m"]]
"""Log-densities at test points, by the name of the model."""


def _once(job: Job[Choices]) -> dict[str, Any]:
    few = slice(job.choices.most)
    train, held, test = (
        part.rows(np.arange(len(part.points))[few]) for part in SETS[job.name]().split(job.seed)
    )
    run = _RUNS.get(job.method, _kernels)
    columns, about = run(job, train, held, test)
    paired.keep(job, columns, test.groups)
    means = {name: float(np.mean(values)) for name, values in columns.items()}
    return {"rows": [len(part.points) for part in (train, held, test)], "means": means, **about}


def _uniform(
    job: Job[Choices], train: Problem, held: Problem, test: Problem
) -> tuple[Columns, dict[str, Any]]:
    """The uniform law, where there is one."""
    volume = train.family.log_volume()
    return ({} if volume is None else {UNIFORM: np.full(len(test.points), -volume)}), {}


def _kernels(
    job: Job[Choices], train: Problem, held: Problem, test: Problem
) -> tuple[Columns, dict[str, Any]]:
    """A kernel density."""
    model, seconds = timed(lambda: fit_kernels(_RULES[job.method], train, held))
    values, scoring = timed(lambda: model.log_prob(test.points, test.condition))
    about = {
        **_seconds(seconds, scoring),
        "weights": np.round(model.weights, 4).tolist(),
        "times": [float(f"{np.median(row):.3g}") for row in model.times],
    }
    return {job.method: values}, about


def _mixture(
    job: Job[Choices], train: Problem, held: Problem, test: Problem
) -> tuple[Columns, dict[str, Any]]:
    """A mixture that suits the manifold."""
    model, seconds = timed(lambda: fit_mixture(train, held, job.seed))
    values, scoring = timed(lambda: model.log_prob(test.points, test.condition))
    return {MIXTURE: values}, {**_seconds(seconds, scoring), "parts": model.parts}


def _library(
    job: Job[Choices], train: Problem, held: Problem, test: Problem
) -> tuple[Columns, dict[str, Any]]:
    """Flow matching of another library, where it has the manifold."""
    if train.family.space is None:
        return {}, {}
    given = _given(job)
    model, seconds = timed(lambda: fit_library(train, held, given, job.seed))
    values, scoring = timed(lambda: model.log_prob(test.points))
    about = {"cpu_seconds": given, "steps": model.steps, "kept": model.kept}
    return {LIBRARY: values}, {**_seconds(seconds, scoring), **about}


def _given(job: Job[Choices]) -> float:
    """The seconds of one core that calor's fit of the split took, or else those it plans for."""
    path = job.out / f"{_TITLE}.json"
    results = json.loads(path.read_text())["results"] if path.is_file() else {}
    run = results.get(job.name, {}).get(CALOR, {}).get(str(job.seed))
    if run is None:
        return 60 * job.choices.minutes
    # Results that were kept before have the time on the clock alone.
    return run.get("cpu_seconds", run["fit_seconds"])


def _calor(
    job: Job[Choices], train: Problem, held: Problem, test: Problem
) -> tuple[Columns, dict[str, Any]]:
    """calor's whole model and each of its parts, of one fit."""
    start = time.process_time()
    model, seconds = timed(
        lambda: fit_everything(
            heat_kernel(train.manifold),
            np.concatenate([train.points, held.points]),
            condition=_joined(train.condition, held.condition),
            groups=_joined(train.groups, held.groups),
            minutes=job.choices.minutes,
            key=jr.key(job.seed),
        )
    )
    used = round(time.process_time() - start, 1)
    parts, scoring = timed(lambda: _log_parts(model, test))
    weights, names = np.asarray(model.weights, float), np.array(model.names)
    columns = {EVERYTHING: _mixed(parts, weights)}
    shares = {}
    for name in dict.fromkeys(model.names):
        rows = names == name
        shares[name] = round(float(weights[rows].sum()), 4)
        own = weights[rows] if shares[name] > 0 else np.ones(rows.sum())
        columns[_column(name)] = _mixed(parts[:, rows], own / own.sum())
    about = {**_seconds(seconds, scoring), "cpu_seconds": used}
    return columns, {**about, "shares": shares, "plan": model.plan}


def _joined(first: np.ndarray | None, second: np.ndarray | None) -> np.ndarray | None:
    return None if first is None or second is None else np.concatenate([first, second])


def _log_parts(model: Any, test: Problem) -> Float[np.ndarray, "m k"]:
    """The log-density of each model in the whole at test points."""
    given = {} if test.condition is None else {"condition": test.condition}
    columns = [
        each.log_prob(test.points, **(given if each.condition is not None else {}))
        for each in model.models
    ]
    # A point that a flow lost has no density there, not an unknown one.
    return finite(np.stack([np.asarray(column, float) for column in columns], axis=1))


def _mixed(parts: Float[np.ndarray, "m k"], weights: Float[np.ndarray, " k"]) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.logaddexp.reduce(parts + np.log(weights), axis=1)


def _seconds(fitting: float, scoring: float) -> dict[str, float]:
    return {"fit_seconds": round(fitting, 1), "score_seconds": round(scoring, 1)}


def _column(part: str) -> str:
    return f"calor, {part}"


_RUNS = {UNIFORM: _uniform, MIXTURE: _mixture, LIBRARY: _library, CALOR: _calor}
COLUMNS = {
    **{method: (method, method) for method in RIVALS},
    **{_column(part): (CALOR, _column(part)) for part in PARTS},
    EVERYTHING: (CALOR, EVERYTHING),
}
"""The method that a column of the table comes from, and its name there."""


def _compare(report: dict[str, Any], settings: Settings[Choices], out: Path) -> None:
    """Differences of what was kept; those of data sets whose points are gone stay as they were."""
    found = paired.differences(report, out, EVERYTHING)
    report["differences"] = {**report.get("differences", {}), **found}


def _means(report: dict[str, Any], name: str, column: str) -> list[float]:
    """The mean test log-likelihoods of a column, one for each split."""
    method, key = COLUMNS[column]
    runs = results_of(report, name, method)
    return [run["means"][key] for run in runs if key in run["means"]]


def _table(report: dict[str, Any]) -> str:
    """Log-likelihoods, differences to the best rival, and seconds."""
    results = report["results"]
    names = [name for name in SETS if name in results]
    columns = [each for each in COLUMNS if any(_means(report, name, each) for name in names)]
    most = {name: max(map(len, results[name].values())) for name in names}

    def cell(name: str, column: str) -> str:
        values = _means(report, name, column)
        few = f" ({len(values)} of {most[name]})" if 0 < len(values) < most[name] else ""
        return summary(values) + few if values else "–"

    rows = [[name, *(cell(name, column) for column in columns)] for name in names]
    tables = ["Mean test log-likelihood in nats ± standard error over the splits"]
    tables.append(markdown(["", *columns], rows))
    if rows := [_row(report, name, most[name]) for name in names if name in _compared(report)]:
        tables.append(
            "How much likelier test points are by calor's whole model than by the best rival: the "
            "mean difference ± its standard error by splits / by points within splits, and how "
            "many of the larger of the two it is"
        )
        header = ["", "best rival", "difference", "errors", "splits", "weights of the parts"]
        tables.append(markdown(header, rows))
    tables.append("Seconds of a fit")
    timed_at = [each for name in names for each in results[name] if results[name][each]]
    methods = [each for each in METHODS if each != UNIFORM and each in timed_at]
    rows = [[name, *(_time(report, name, each) for each in methods)] for name in names]
    return "\n\n".join([*tables, markdown(["", *methods], rows)])


def _compared(report: dict[str, Any]) -> dict[str, Any]:
    """The data sets on which there is a rival to compare with."""
    found = report.get("differences", {})
    return {name: made for name, made in found.items() if any(each in made for each in RIVALS)}


def _row(report: dict[str, Any], name: str, splits: int) -> list[str]:
    """The difference to the rival of the largest mean."""
    made = _compared(report)[name]
    rivals = [each for each in RIVALS if each in made]
    best = max(rivals, key=lambda each: np.mean(_means(report, name, each)))
    difference = paired.overall(made[best])
    runs = results_of(report, name, CALOR)
    shares = {part: np.mean([run["shares"].get(part, 0.0) for run in runs]) for part in PARTS}
    listed = ", ".join(f"{part} {share:.2f}" for part, share in shares.items() if share > 0)
    return [
        name,
        best,
        str(difference),
        f"{difference.errors():+.1f}",
        f"{difference.splits}",
        listed,
    ]


def _time(report: dict[str, Any], name: str, method: str) -> str:
    runs = results_of(report, name, method)
    seconds = [run["fit_seconds"] for run in runs if "fit_seconds" in run]
    return f"{np.mean(seconds):.0f}" if seconds else "–"


EXPERIMENT = Experiment(
    _TITLE,
    tuple(SETS),
    METHODS,
    budgets={
        "quick": Settings(1, Choices(0.05, most=300), methods=USUAL),
        "default": Settings(5, Choices(), methods=USUAL),
        "full": Settings(5, Choices(10.0), methods=USUAL),
    },
    once=_once,
    table=_table,
    finish=_compare,
)
