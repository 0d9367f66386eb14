"""Molecules of QM9, as in the paper's table: clouds modulo permutations beside EDM (VE).

All methods share data, network, budget and sampler, and differ in the target of the network: the
score of the quotient (exact permanents, or the learned kernel), that of points with labels, which
is EDM with a variance-exploding process, or the velocity of flow matching.  The default budget is
for a CPU: molecules of up to twelve atoms and a small network; `full` is the paper's.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import jax.random as jr
import numpy as np

from ..data import molecules, qm9
from ..models.clouds import CloudNetwork
from ..training.settings import Training
from . import experiment as _report
from ._clouds import EXACT, FLOW, LEARNED, MATCHED, fit_clouds
from .experiment import Plan, markdown, resumable, save_figure, timed

PUBLISHED = {
    "EDM (VE), published by the paper": (0.9520, 0.9813, 0.9912, 0.6330),
    "the paper": (0.9863, 0.9960, 0.8461, 0.4170),
}
_LABELLED = "EDM (VE), labelled"
METHODS = (EXACT, LEARNED, _LABELLED, FLOW, MATCHED)
_COLUMNS = {
    "molecule_stability": "molecules stable",
    "validity": "valid",
    "uniqueness": "unique",
    "novelty": "novel",
    "atom_stability": "atoms stable",
}


@dataclasses.dataclass(frozen=True)
class Settings:
    """What is run."""

    names: tuple[str, ...]
    seeds: int
    largest: int
    """The number of atoms of the largest molecules."""
    network: CloudNetwork
    training: Training
    samples: int
    methods: tuple[str, ...] = METHODS
    t_min: float = 5e-5
    """Noise of a hundredth of an angstrom."""
    t1: float = 32.0
    """Noise of eight angstrom."""
    steps: int = 200
    """Of generation."""

    @staticmethod
    def of(budget: str, only: Sequence[str] | None, seeds: int | None) -> "Settings":
        """The settings of a budget, `quick`, `default` or `full`, each with its own molecules."""
        name = {"quick": "up to 9 atoms", "full": "all molecules"}.get(budget, "up to 12 atoms")
        names = _report.chosen("qm9", only, (name,), seeds)
        if budget == "quick":
            training = Training(steps=20, batch=16, validate_every=20)
            small = CloudNetwork(16, 2)
            return Settings(names, seeds or 1, 9, small, training, 16, steps=20)
        if budget == "full":
            # The paper's denoiser; two million steps of 64 are about EDM's 1100 epochs.
            training = Training(2_000_000, 64, 1e-3, 0.9999, validate_every=10_000, patience=200)
            methods = LEARNED, _LABELLED  # permanents of 29 points are out of reach
            large = CloudNetwork(256, 9)
            return Settings(names, seeds or 3, 29, large, training, 10_000, methods, steps=1000)
        training = Training(8000, 64, validate_every=1000)
        small = CloudNetwork(64, 4)
        return Settings(names, seeds or 3, 12, small, training, 500)


def run(settings: Settings, out: Path, progress: bool | None = None) -> dict:
    """Fit, generate and measure; results go to `out` as JSON, molecules and figures."""
    identity = {
        "largest": settings.largest,
        "network": dataclasses.asdict(settings.network),
        "training": dataclasses.asdict(settings.training),
        "samples": settings.samples,
        "times": [settings.t_min, settings.t1],
        "steps": settings.steps,
    }
    plan = Plan(settings.names, settings.seeds, settings.methods)
    data = qm9.load(progress)
    train = data.molecules(data.chosen("train", settings.largest))
    held = data.molecules(data.chosen("validation", settings.largest))
    known = {smiles for smiles in map(molecules.smiles, train) if smiles is not None}

    def once(name, seed, method):
        return _once(settings, seed, method, out, (train, held, known))

    report = resumable(out / "qm9.json", identity, plan, once, progress)
    report["data"] = {"training molecules": len(train), "held out": len(held)}
    return report


def _once(settings, seed, method, out, data):
    train, held, known = data
    manifold = molecules.molecule_space(settings.largest)
    clouds, validation = (molecules.to_clouds(part, manifold) for part in (train, held))
    key_fit, key_sample = jr.split(jr.key(seed))
    model, speed = fit_clouds(
        method,
        manifold,
        data=clouds,
        key=key_fit,
        validation=validation,
        network=settings.network,
        training=settings.training,
        t_min=settings.t_min,
        t1=settings.t1,
    )
    drawn, sampling = timed(
        lambda: np.asarray(model.sample(settings.samples, key=key_sample, steps=settings.steps))
    )
    made = molecules.from_clouds(drawn, manifold)
    slug = method.replace(",", "").replace(" ", "-").replace("(", "").replace(")", "").lower()
    if seed == 0:
        model.save(out / f"qm9-{slug}.calor")
        molecules.write(out / f"qm9-{slug}.sdf", made[:100])
        save_figure(out / f"qm9-{slug}.png", lambda plots: plots.molecules(made[:12]))
    return {
        **molecules.measure(made, known),
        **speed,
        "sample_seconds": round(sampling, 1),
        "validations": np.asarray(model.history.validations).round(5).tolist(),
    }


def table(report: dict) -> str:
    """The results in per cent as a Markdown table, published figures first."""
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
