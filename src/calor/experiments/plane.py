r"""Random points in the plane that repel each other: clouds whose law is known.

The eigenvalues of an n x n matrix of independent complex Gaussians (Ginibre 1965) are n unordered
points with the density prod_{i<j} |z_i - z_j|^2 exp(-sum |z_i|^2), a determinantal process; draws
are exact.  Models are judged by the energy distance between generated and real clouds, in their
sorted radii and sorted distances, beside that of two sets of real ones.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import jax.random as jr
import numpy as np

from ..manifolds import PointCloud
from ..models.clouds import CloudNetwork
from ..training.settings import Training
from . import experiment as _report
from ._clouds import EXACT, FLOW, LEARNED, MATCHED, fit_clouds
from .experiment import Plan, markdown, resumable

SIZES = ("6", "8", "10")
_REAL, _LABELLED = "real clouds", "labelled"
METHODS = (_REAL, EXACT, LEARNED, _LABELLED, FLOW, MATCHED)


@dataclasses.dataclass(frozen=True)
class Settings:
    """What is run."""

    names: tuple[str, ...]
    seeds: int
    points: int
    network: CloudNetwork
    training: Training
    samples: int
    methods: tuple[str, ...] = METHODS

    @staticmethod
    def of(budget: str, only: Sequence[str] | None, seeds: int | None) -> "Settings":
        """The settings of a budget: `quick`, `default` or `full`; `only` names values of n."""
        names = _report.chosen("plane", only, SIZES, seeds, "sizes")
        if budget == "quick":
            training = Training(steps=20, batch=32, validate_every=20)
            return Settings(names, seeds or 1, 300, CloudNetwork(16, 2), training, 64)
        if budget == "full":
            training = Training(20_000, 128, 2e-3, validate_every=1000)
            return Settings(names, seeds or 3, 50_000, CloudNetwork(64, 4), training, 2000)
        training = Training(1500, 64, 2e-3, validate_every=750)
        return Settings(names, seeds or 2, 10_000, CloudNetwork(32, 2), training, 1000)


def ginibre(rng: np.random.Generator, count: int, n: int) -> np.ndarray:
    """Clouds (count, n, 2): eigenvalues of complex Gaussian matrices, in random order."""
    parts = rng.normal(size=(2, count, n, n)) / np.sqrt(2)
    values = np.linalg.eigvals(parts[0] + 1j * parts[1])
    clouds = np.stack([values.real, values.imag], axis=-1)
    order = np.argsort(rng.random((count, n)), axis=1)
    return np.take_along_axis(clouds, order[..., None], axis=1)


def invariants(clouds: np.ndarray) -> np.ndarray:
    """Sorted radii and sorted distances of each cloud, as one vector."""
    n = clouds.shape[1]
    radii = np.sort(np.linalg.norm(clouds, axis=-1), axis=1)
    i, j = np.triu_indices(n, 1)
    distances = np.sort(np.linalg.norm(clouds[:, i] - clouds[:, j], axis=-1), axis=1)
    return np.concatenate([radii / np.sqrt(n), distances / np.sqrt(len(i))], axis=1)


def energy_distance(first: np.ndarray, second: np.ndarray) -> float:
    """2 E|X - Y| - E|X - X'| - E|Y - Y'| of two sets of vectors, without bias."""

    def mean(a, b, same):
        squared = np.sum(a**2, axis=1)[:, None] + np.sum(b**2, axis=1) - 2 * a @ b.T
        distances = np.sqrt(np.maximum(squared, 0))
        if same:
            np.fill_diagonal(distances, 0)
            return np.sum(distances) / (len(a) * (len(a) - 1))
        return np.mean(distances)

    between = mean(first, second, False)
    return float(2 * between - mean(first, first, True) - mean(second, second, True))


def run(settings: Settings, out: Path, progress: bool | None = None) -> dict:
    """Fit, generate and compare; results go to `out` as JSON."""
    identity = {
        "points": settings.points,
        "network": dataclasses.asdict(settings.network),
        "training": dataclasses.asdict(settings.training),
        "samples": settings.samples,
    }
    plan = Plan(settings.names, settings.seeds, settings.methods)

    def once(name, seed, method):
        return _once(settings, int(name), seed, method)

    return resumable(out / "plane.json", identity, plan, once, progress)


def _once(settings, n, seed, method):
    rng = np.random.default_rng([n, seed])
    train, test = ginibre(rng, settings.points, n), ginibre(rng, settings.samples, n)
    result = {}
    if method == _REAL:
        drawn = ginibre(rng, settings.samples, n)
    else:
        key_fit, key_sample = jr.split(jr.key(seed))
        model, result = fit_clouds(
            method,
            PointCloud(n, 2),
            data=train,
            key=key_fit,
            network=settings.network,
            training=settings.training,
            t_min=1e-4,
            t1=20.0,
        )
        drawn = np.asarray(model.sample(settings.samples, key=key_sample), float)
    distance = energy_distance(invariants(drawn), invariants(test))
    return result | {"energy_distance": distance}


def _cell(values):
    if not values:
        return "–"
    return f"{np.mean(values):.2f} ({', '.join(f'{value:.2f}' for value in values)})"


def table(report: dict) -> str:
    """A thousand times the energy distances as a Markdown table."""
    results = report["results"]
    rows = []
    for method in METHODS:
        cells = [
            [1e3 * run["energy_distance"] for run in results[name].get(method, {}).values()]
            for name in results
        ]
        if any(cells):
            rows.append([method, *map(_cell, cells)])
    return markdown(["1000 × energy distance", *(f"n = {name}" for name in results)], rows)
