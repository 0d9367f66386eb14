"""Differences of two models, test point by test point, and their standard errors.

Log-densities at test points are kept in files of their own beside the report, so that a method that
is run later is compared with those that were run before.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..store.atomic import replacing
from .experiment import Job

_FEWEST = 5
"""Groups that a standard error can be had from."""


class Difference(NamedTuple):
    """The mean over splits of a difference, with its two standard errors."""

    mean: float
    splits: int
    by_splits: float
    """From how the splits differ; NaN of one split."""
    by_points: float
    """From how points, or groups of points, differ within each split."""

    def __str__(self) -> str:
        by_splits = "–" if np.isnan(self.by_splits) else f"{self.by_splits:.3f}"
        return f"{self.mean:+.3f} ± {by_splits} / {self.by_points:.3f}"

    def errors(self) -> float:
        """How many standard errors it is from zero, the larger of the two."""
        return self.mean / max(np.nan_to_num(self.by_splits), self.by_points, 1e-12)


def keep(
    job: Job[Any], columns: dict[str, Float[np.ndarray, " m"]], groups: np.ndarray | None
) -> None:
    """Write log-densities at the test points of a split.

    Args:
        job: what was run.
        columns: by the name of the model.
        groups: what points belong to, if whole groups were put aside.
    """
    path = _file(job.out, job.name, job.seed, job.method)
    path.parent.mkdir(exist_ok=True)
    arrays: dict[str, Any] = {f"model {name}": values for name, values in columns.items()}
    if groups is not None:
        arrays["groups"] = np.unique(groups, return_inverse=True)[1]
    with replacing(path) as file:
        np.savez_compressed(file, **arrays)


def differences(
    report: dict[str, Any], out: Path, whole: str
) -> dict[str, dict[str, dict[str, dict[str, float]]]]:
    """How much likelier the whole model finds test points than others, in each split.

    Args:
        report: what was run.
        out: the folder with the log-densities; what is not there is left out.
        whole: the model that others are compared with.

    Returns:
        The mean difference and its standard error, by data set, model and split.
    """
    found: dict[str, Any] = {}
    for name, results in report["results"].items():
        seeds = sorted({int(seed) for runs in results.values() for seed in runs})
        for seed in seeds:
            columns, groups = _kept(out, name, seed, list(results))
            ours = columns.pop(whole, None)
            for model, theirs in columns.items() if ours is not None else ():
                made = found.setdefault(name, {}).setdefault(model, {})
                made[str(seed)] = _difference(ours - theirs, groups)
    return found


def overall(runs: dict[str, dict[str, float]]) -> Difference:
    """The mean over the splits of one model."""
    means = np.array([run["mean"] for run in runs.values()])
    within = np.array([run["standard_error"] for run in runs.values()])
    count = len(means)
    between = np.std(means, ddof=1) / np.sqrt(count) if count > 1 else np.nan
    # As if the test parts of different splits had no points in common; a tenth of them are.
    points = np.sqrt(np.sum(within**2)) / count
    return Difference(float(means.mean()), count, float(between), float(points))


def _difference(values: Float[np.ndarray, " m"], groups: np.ndarray | None) -> dict[str, float]:
    """A mean and its standard error; the points of a group count as one, if there are enough."""
    off = values - values.mean()
    if groups is not None and np.max(groups) >= _FEWEST - 1:
        off = np.bincount(groups, off)
    count = max(len(off) - 1, 1)
    error = np.sqrt(len(off) / count * np.sum(off**2)) / len(values)
    return {"mean": round(float(values.mean()), 6), "standard_error": round(float(error), 6)}


def _kept(
    out: Path, name: str, seed: int, methods: list[str]
) -> tuple[dict[str, Float[np.ndarray, " m"]], np.ndarray | None]:
    columns, groups = {}, None
    for method in methods:
        path = _file(out, name, seed, method)
        if path.is_file():
            with np.load(path, allow_pickle=False) as loaded:
                groups = loaded["groups"] if "groups" in loaded else groups
                names = [each for each in loaded if each.startswith("model ")]
                columns |= {each.removeprefix("model "): loaded[each] for each in names}
    return columns, groups


def _file(out: Path, name: str, seed: int, method: str) -> Path:
    plain = "-".join("".join(c if c.isalnum() else " " for c in f"{name} {method}").split())
    return out / "points" / f"{plain}-{seed}.npz"
