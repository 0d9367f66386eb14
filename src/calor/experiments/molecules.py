"""Molecules of QM9, as in the paper's table: clouds modulo permutations beside EDM (VE).

All methods share data, network, budget and sampler, and differ in the target of the network: the
score of the quotient (exact permanents, or the learned kernel), that of points with labels, which
is EDM with a variance-exploding process, or the velocity of flow matching.  The default budget is
for a CPU: molecules of up to twelve atoms and a small network; `full` is the paper's.
"""

import dataclasses
import functools
from pathlib import Path
from typing import Any

import jax.random as jr
import numpy as np

from ..data import molecules, qm9
from ..models.clouds import CloudNetwork
from ..training.settings import Training
from .experiment import Experiment, Job, Settings, markdown, save_figure, timed
from .methods import CLOUD_EXACT, CLOUD_FLOW, CLOUD_LEARNED, CLOUD_MATCHED, fit_clouds

PUBLISHED = {
    "EDM (VE), published by the paper": (0.9520, 0.9813, 0.9912, 0.6330),
    "the paper": (0.9863, 0.9960, 0.8461, 0.4170),
}
_LABELLED = "EDM (VE), labelled"
METHODS = (CLOUD_EXACT, CLOUD_LEARNED, _LABELLED, CLOUD_FLOW, CLOUD_MATCHED)
_COLUMNS = {
    "molecule_stability": "molecules stable",
    "validity": "valid",
    "uniqueness": "unique",
    "novelty": "novel",
    "atom_stability": "atoms stable",
}


@dataclasses.dataclass(frozen=True)
class Choices:
    """What the budget decides."""

    largest: int
    """The number of atoms of the largest molecules."""
    network: CloudNetwork
    training: Training
    samples: int
    times: tuple[float, float] = (5e-5, 32.0)
    """Noise of a hundredth of an angstrom, and of eight."""
    steps: int = 200
    """Of generation."""


@functools.cache
def _data(largest: int) -> tuple[list[Any], list[Any], set[str]]:
    """Molecules to train on and to validate with, and how the former are written."""
    data = qm9.load()
    train, held = (data.molecules(data.chosen(part, largest)) for part in ("train", "validation"))
    return train, held, {text for text in map(molecules.smiles, train) if text is not None}


def _once(job: Job[Choices]) -> dict[str, Any]:
    choices = job.choices
    train, held, known = _data(choices.largest)
    manifold = molecules.molecule_space(choices.largest)
    clouds, validation = (molecules.to_clouds(part, manifold) for part in (train, held))
    key_fit, key_sample = jr.split(jr.key(job.seed))
    times = dict(zip(("t_min", "t1"), choices.times, strict=True))
    model, speed = fit_clouds(job, manifold, clouds, key=key_fit, validation=validation, **times)
    drawn, sampling = timed(
        lambda: np.asarray(model.sample(choices.samples, key=key_sample, steps=choices.steps))
    )
    made = molecules.from_clouds(drawn, manifold)
    if job.seed == 0:
        slug = job.method.translate(str.maketrans(" ", "-", ",()")).lower()
        model.save(job.out / f"qm9-{slug}.calor")
        molecules.write(job.out / f"qm9-{slug}.sdf", made[:100])
        save_figure(job.out / f"qm9-{slug}.png", lambda plots: plots.molecules(made[:12]))
    return {
        **molecules.measure(made, known),
        **speed,
        "sample_seconds": round(sampling, 1),
        "validations": np.asarray(model.history.validations).round(5).tolist(),
    }


def _finish(report: dict[str, Any], settings: Settings[Choices], out: Path) -> None:
    train, held, _ = _data(settings.choices.largest)
    report["data"] = {"training molecules": len(train), "held out": len(held)}


def _table(report: dict[str, Any]) -> str:
    """Per cent, published figures first."""
    rows = []
    for source, figures in PUBLISHED.items():
        rows.append([source, *(f"{100 * figure:.2f}" for figure in figures), "–", "–"])
    for name, methods in report["results"].items():
        for method, runs in methods.items():
            cells = []
            for column in _COLUMNS:
                values = 100 * np.array([run[column] for run in runs.values()])
                spread = f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
                cells.append(f"{np.mean(values):.1f}{spread}")
            rate = np.mean([run["steps_per_second"] for run in runs.values()])
            rows.append([f"{method}, {name}", *cells, f"{rate:.2f}"])
    return markdown(["per cent", *_COLUMNS.values(), "steps a second"], rows)


# The paper's denoiser; two million steps of 64 are about EDM's 1100 epochs.
_LONG = Training(2_000_000, 64, 1e-3, 0.9999, validate_every=10_000, patience=200)
EXPERIMENT = Experiment(
    "qm9",
    ("up to 12 atoms",),
    METHODS,
    budgets={
        "quick": Settings(
            1,
            Choices(
                9,
                CloudNetwork(16, 2),
                Training(steps=20, batch=16, validate_every=20),
                16,
                steps=20,
            ),
            names=("up to 9 atoms",),
        ),
        "default": Settings(
            3, Choices(12, CloudNetwork(64, 4), Training(8000, 64, validate_every=1000), 500)
        ),
        "full": Settings(
            3,
            Choices(29, CloudNetwork(256, 9), _LONG, 10_000, steps=1000),
            names=("all molecules",),
            methods=(CLOUD_LEARNED, _LABELLED),  # permanents of 29 points are out of reach
        ),
    },
    once=_once,
    table=_table,
    finish=_finish,
)
