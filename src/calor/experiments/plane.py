r"""Random points in the plane that repel each other: clouds whose law is known.

The eigenvalues of an n x n matrix of independent complex Gaussians (Ginibre 1965) are n unordered
points with the density prod_{i<j} |z_i - z_j|^2 exp(-sum |z_i|^2), a determinantal process; draws
are exact.  Models are judged by the energy distance between generated and real clouds, in their
sorted radii and sorted distances, beside that of two sets of real ones.
"""

import dataclasses
from typing import Any

import jax.random as jr
import numpy as np

from ..manifolds import PointCloud
from ..models.clouds import CloudNetwork
from ..training.settings import Training
from .experiment import Experiment, Job, Settings, markdown, measured
from .methods import CLOUD_EXACT, CLOUD_FLOW, CLOUD_LEARNED, CLOUD_MATCHED, fit_clouds

SIZES = ("6", "8", "10")
_REAL, _LABELLED = "real clouds", "labelled"
METHODS = (_REAL, CLOUD_EXACT, CLOUD_LEARNED, _LABELLED, CLOUD_FLOW, CLOUD_MATCHED)


@dataclasses.dataclass(frozen=True)
class Choices:
    """What the budget decides."""

    points: int
    network: CloudNetwork
    training: Training
    samples: int


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


def _once(job: Job[Choices]) -> dict[str, Any]:
    n, choices = int(job.name), job.choices
    rng = np.random.default_rng([n, job.seed])
    train, test = ginibre(rng, choices.points, n), ginibre(rng, choices.samples, n)
    result = {}
    if job.method == _REAL:
        drawn = ginibre(rng, choices.samples, n)
    else:
        key_fit, key_sample = jr.split(jr.key(job.seed))
        space = PointCloud(n, 2)
        model, result = fit_clouds(job, space, train, key=key_fit, t_min=1e-4, t1=20.0)
        drawn = np.asarray(model.sample(choices.samples, key=key_sample), float)
    distance = energy_distance(invariants(drawn), invariants(test))
    return result | {"energy_distance": distance}


def _cell(values: list[float]) -> str:
    thousands = [1e3 * value for value in values]
    return f"{np.mean(thousands):.2f} ({', '.join(f'{value:.2f}' for value in thousands)})"


def _table(report: dict[str, Any]) -> str:
    """A thousand times the energy distances."""
    names = list(report["results"])
    rows = measured(report, names, METHODS, "energy_distance", _cell)
    return markdown(["1000 × energy distance", *(f"n = {name}" for name in names)], rows)


EXPERIMENT = Experiment(
    "plane",
    SIZES,
    METHODS,
    budgets={
        "quick": Settings(
            1, Choices(300, CloudNetwork(16, 2), Training(20, 32, validate_every=20), 64)
        ),
        "default": Settings(
            2,
            Choices(
                10_000, CloudNetwork(32, 2), Training(1500, 64, 2e-3, validate_every=750), 1000
            ),
        ),
        "full": Settings(
            3,
            Choices(
                50_000, CloudNetwork(64, 4), Training(20_000, 128, 2e-3, validate_every=1000), 2000
            ),
        ),
    },
    once=_once,
    table=_table,
    kind="sizes",
)
