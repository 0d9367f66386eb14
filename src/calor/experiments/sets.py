"""The data sets on which densities are compared, and how each of them is split.

Rows are split 80/10/10 at random, as the published figures on the earth and on RNA are; where new
points will come from other chains, grains, segments, runs or entries, whole ones are put aside.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from ..data import datasets
from ..manifolds import SO3, SPD, AbstractManifold, Quotient, Sphere, Torus
from .charts import Angles, Directions, Family, Matrices


class Problem(NamedTuple):
    """Points of a manifold to estimate the density of."""

    manifold: AbstractManifold
    points: Float[np.ndarray, "n ..."]
    family: Family
    """What the simple rivals are made of."""
    groups: np.ndarray | None = None
    """What points belong to, if whole ones are put aside."""
    condition: Float[np.ndarray, "n c"] | None = None
    """What each point is to be predicted from."""

    def rows(self, rows: Int[np.ndarray, " m"]) -> "Problem":
        """Some of the points."""
        groups = None if self.groups is None else self.groups[rows]
        condition = None if self.condition is None else self.condition[rows]
        return self._replace(points=self.points[rows], groups=groups, condition=condition)

    def split(self, seed: int) -> tuple["Problem", "Problem", "Problem"]:
        """Training, validation and test part."""
        if self.groups is None:
            parts = datasets.split(np.arange(len(self.points)), seed)
        else:
            parts = split_groups(self.groups, seed)
        train, held, test = (self.rows(part) for part in parts)
        return train, held, test


def split_groups(groups: np.ndarray, seed: int) -> tuple[Int[np.ndarray, " m"], ...]:
    """Rows for training, validation and test: whole groups, about 80/10/10 of the rows.

    Test and validation part take random groups as long as each brings them nearer to their size.
    """
    names, numbers, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    left = list(np.random.default_rng(seed).permutation(len(names)))
    found = []
    for _ in range(2):
        missing, taken = 0.1 * len(groups), []
        for group in left:
            if abs(missing - sizes[group]) < abs(missing):
                taken.append(group)
                missing -= sizes[group]
        left = [group for group in left if group not in taken]
        found.append(np.flatnonzero(np.isin(numbers, taken)))
    test, held = found
    return np.flatnonzero(np.isin(numbers, left)), held, test


def _earth(name: str) -> Problem:
    points = datasets.airports() if name == "airports" else datasets.earth(name.split(" (")[0])
    if name.endswith("(unique)"):
        points = np.unique(points, axis=0)
    return Problem(Sphere(2), points, Directions(3))


def _protein(residue: str, angles: int) -> Problem:
    points, chains = datasets.proteins(residue, angles)
    return Problem(Torus(angles), points, Angles(angles), chains)


def _rna(by_entry: bool) -> Problem:
    points, entries = datasets.rna()
    return Problem(Torus(7), points, Angles(7), entries if by_entry else None)


def _orientations(symmetric: bool, by_grain: bool) -> Problem:
    points, grains = datasets.orientations()
    turns = datasets.hexagonal_turns()
    manifold = Quotient(SO3(), jnp.asarray(turns)) if symmetric else SO3()
    images = turns if symmetric else np.eye(4)[None]
    family = Directions(4, np.concatenate([images, -images]))
    return Problem(manifold, points, family, grains if by_grain else None)


def _muscle(channels: int) -> Problem:
    matrices, _, segments = datasets.emg()
    return Problem(SPD(channels), matrices[:, :channels, :channels], Matrices(channels), segments)


def _brain() -> Problem:
    matrices, _, runs = datasets.eeg()
    return Problem(SPD(13), matrices, Matrices(13), runs)


def _taxi() -> Problem:
    predictors, matrices = datasets.taxi()
    return Problem(SPD(10), matrices, Matrices(10), condition=predictors)


EVENTS = ("floods", "quakes", "quakes (unique)", "fires", "volcano (unique)", "volcano")
SETS: dict[str, Callable[[], Problem]] = {
    **{name: functools.partial(_earth, name) for name in (*EVENTS, "airports")},
    **{
        f"torsions {residue}": functools.partial(_protein, residue, 2)
        for residue in ("lys", "cys", "trp", "cispro")
    },
    "torsions arg T^6": functools.partial(_protein, "arg", 6),
    "rna": functools.partial(_rna, False),
    "rna by entry": functools.partial(_rna, True),
    "orientations": functools.partial(_orientations, True, False),
    "orientations by grain": functools.partial(_orientations, True, True),
    "rotations": functools.partial(_orientations, False, False),
    "rotations by grain": functools.partial(_orientations, False, True),
    "muscle, 3 channels": functools.partial(_muscle, 3),
    "muscle": functools.partial(_muscle, 8),
    "brain": _brain,
    "taxi": _taxi,
}
"""By the name on the command line.

`rotations` are the same orientations without the symmetry of the crystal; torsions of proteins are
split by chain, muscle signals by segment, brain signals by run."""
