"""Real data, from the folder that CALOR_DATA names or from a package, and made-up data.

calor ships no data.  `earth` reads the four sets of events on the globe that Mathieu and Nickel
(2020) collected and De Bortoli et al. (2022) made a benchmark; `RotationMixture` draws the mixture
of wrapped normals on SO(3) of the latter; `taxi`, `eeg`, `emg` and `moabb` read matrices,
`proteins` and `rna` torsion angles in radians, `orientations` those of crystals.
"""

import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from ..core.doors import warn
from ..core.numerics import sinc
from ..core.types import Key
from ..manifolds import SO3, Sphere
from .columns import from_latitude_longitude
from .tables import read_points

EARTH = {"volcano": "volerup.csv", "quakes": "quakes_all.csv", "floods": "flood.csv"}
EARTH["fires"] = "fire.csv"


class DataError(FileNotFoundError):
    """Data are not where they should be; the message says what to do."""


def data_folder() -> Path:
    """The folder that CALOR_DATA names."""
    value = os.environ.get("CALOR_DATA")
    if not value:
        raise DataError(
            "the environment variable CALOR_DATA is not set; set it to the folder with the data "
            "sets, as in CALOR_DATA=~/data"
        )
    folder = Path(value).expanduser()
    if not folder.is_dir():
        raise DataError(f"CALOR_DATA names {folder}, which is no folder")
    return folder


def earth(name: str) -> Float[np.ndarray, "n 3"]:
    """Places of events on the globe: `volcano`, `quakes`, `floods` or `fires`."""
    if name not in EARTH:
        raise ValueError(f"earth: known are {', '.join(EARTH)}, got {name!r}.")
    path = data_folder() / "earth" / EARTH[name]
    if not path.is_file():
        raise DataError(f"there is no file {path}; it holds latitude and longitude of {name}")
    return read_points(path, Sphere(2))


def _arrays(folder: str, file: str) -> dict[str, np.ndarray]:
    """The arrays of an .npz file below the folder of the data."""
    path = data_folder() / folder / file
    if not path.is_file():
        raise DataError(f"there is no file {path}")
    with np.load(path, allow_pickle=False) as loaded:
        return {name: loaded[name] for name in loaded}


def taxi() -> tuple[Float[np.ndarray, "n 13"], Float[np.ndarray, "n 10 10"]]:
    """Predictors and matrices of traffic flows in New York, published by Li et al. (2024)."""
    arrays = _arrays("nyc_taxi_spd10", "nyc_taxi_spd10.npz")
    return arrays["predictors"], arrays["spd"]


def eeg() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Covariances (n, 13, 13) of one subject of PhysioNet's motor imagery, labels and runs.

    Labels: 0 rest, 1 left fist, 2 right fist, 3 both fists, 4 both feet.
    """
    arrays = _arrays("eeg_physionet_mmi_s001", "eeg_cov.npz")
    return arrays["cov13"], arrays["label"], arrays["run"]


def emg() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Covariances (n, 8, 8) of muscle signals of five gestures, labels and segments."""
    arrays = _arrays("spd8_emg", "emg_cov.npz")
    names = np.array(["rest", "rock", "paper", "scissors", "ok"])
    return arrays["cov"], names[arrays["label"]], arrays["segment"]


def proteins(residue: str, angles: int) -> tuple[Float[np.ndarray, "n d"], np.ndarray]:
    """Torsion angles of residues of proteins in radians, and the chain of each.

    Args:
        residue: `arg`, `lys`, `gln`, `met`, `cys`, `his`, `trp` or `cispro`.
        angles: how many of phi, psi, chi1 to chi4; residues that lack one are left out.
    """
    arrays = _arrays("torus_protein_top8000", "top8000_torsions.npz")
    names = arrays["residue_names"].tolist()
    if residue not in names:
        raise ValueError(f"proteins: known are {', '.join(names)}, got {residue!r}.")
    if not 1 <= angles <= 6:
        raise ValueError(f"proteins: angles must be from 1 to 6, got {angles}.")
    rows = arrays["residue_type"] == names.index(residue)
    degrees, chains = arrays["angles_deg"][rows, :angles], arrays["chain_id"][rows]
    kept = np.isfinite(degrees).all(axis=1)
    if not kept.any():
        raise ValueError(f"proteins: no {residue} has all of {angles} angles.")
    return _radians(degrees, "proteins"), chains[kept]


def rna() -> tuple[Float[np.ndarray, "n 7"], np.ndarray]:
    """Seven torsion angles of nucleotides of RNA in radians, and the PDB entry of each."""
    path = data_folder() / "torus_rna7" / "rna.tsv"
    if not path.is_file():
        raise DataError(f"there is no file {path}; it holds torsion angles of RNA")
    table = np.genfromtxt(path, dtype=str, delimiter="\t")
    degrees = np.genfromtxt(path, delimiter="\t", usecols=range(2, 9))
    return _radians(degrees, "rna"), table[np.isfinite(degrees).all(axis=1), 0]


def _radians(degrees: np.ndarray, what: str) -> Float[np.ndarray, "n d"]:
    """Angles in [-pi, pi) of the rows that have all of them; it is said how many have not."""
    kept = np.asarray(np.isfinite(degrees).all(axis=1))
    if not kept.all():
        warn(f"{what}: {np.sum(~kept)} of {len(kept)} rows lack an angle and are left out.")
    return np.deg2rad((degrees[kept].astype(float) + 180) % 360 - 180)


def orientations() -> tuple[Float[np.ndarray, "n 4"], np.ndarray]:
    """Orientations of titanium crystals as unit quaternions, and the grain of each.

    A rotation takes the axes of the crystal to those of the specimen; a symmetry of the crystal
    acts from the right, see `hexagonal_turns`.
    """
    arrays = _arrays("so3_ebsd", "titanium.npz")
    quaternions = arrays["quat_wxyz"].astype(float)
    return quaternions / np.linalg.norm(quaternions, axis=1, keepdims=True), arrays["grain"]


def hexagonal_turns() -> Float[np.ndarray, "12 4 4"]:
    """x -> x g for the twelve rotations g of the point group 622, as matrices on quaternions.

    Six turns about the axis z and six half turns about axes across: `Quotient(SO3(),
    hexagonal_turns())` is the space of orientations of a hexagonal crystal.
    """
    half = np.pi / 6 * np.arange(6)
    none = np.zeros(6)
    about = np.stack([np.cos(half), none, none, np.sin(half)], axis=1)
    across = np.stack([none, np.cos(half), np.sin(half), none], axis=1)
    return np.stack([_right_factor(*g) for g in np.concatenate([about, across])])


def _right_factor(w, a, b, c):
    """The matrix of the product with the quaternion (w, a, b, c) from the right."""
    return np.array([[w, -a, -b, -c], [a, w, c, -b], [b, -c, w, a], [c, b, -a, w]])


def moabb(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Covariances of `BNCI2014-002` or `BNCI2015-001`, labels and groups.

    The protocol of DiffeoCFM (Collas et al. 2025): motor imagery with the defaults of moabb,
    covariances by OAS; the third session of BNCI2015-001, which few subjects have, is left out.
    Groups are subject and run, for 2015-001 subject and session.  moabb downloads the
    recordings when they are first asked for.
    """
    if name not in ("BNCI2014-002", "BNCI2015-001"):
        raise ValueError(f"moabb: known are BNCI2014-002 and BNCI2015-001, got {name!r}.")
    try:
        import moabb.datasets  # pyright: ignore
        import moabb.paradigms  # pyright: ignore
    except ImportError as error:
        raise DataError(
            "the recordings come through the package moabb, which is not installed; run: pip "
            "install 'calor[eeg]'"
        ) from error
    recordings = getattr(moabb.datasets, name.replace("-", "_"))()
    signals, labels, about = moabb.paradigms.MotorImagery().get_data(recordings)
    return from_recordings(np.asarray(signals), labels, about, by_session=name == "BNCI2015-001")


def from_recordings(
    signals: Float[np.ndarray, "n c s"], labels: Any, about: Any, *, by_session: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Covariances, labels and groups from what a paradigm of moabb returns.

    Args:
        signals: channels by samples of each trial.
        labels: one for each trial.
        about: a table with the columns subject, session and run.
        by_session: groups are sessions, of which the first two are kept, and not runs.
    """
    from sklearn.covariance import oas  # comes with calor[eeg]

    labels = np.asarray(labels)
    about = {name: np.asarray(about[name]).astype(str) for name in ("subject", "session", "run")}
    kept = np.ones(len(labels), bool)
    if by_session:
        kept = np.isin(about["session"], np.unique(about["session"])[:2])
    inner = about["session"] if by_session else np.char.add(about["session"], about["run"])
    groups = np.char.add(np.char.add(about["subject"], "/"), inner)
    covariances = np.stack([oas(trial.T)[0] for trial in np.asarray(signals, float)[kept]])
    return covariances, labels[kept], groups[kept]


def split(points: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Training, validation and test part, 80/10/10, by a permutation of the rows."""
    count = len(points)
    order = np.random.default_rng(seed).permutation(count)
    first, second = int(0.8 * count), int(0.8 * count) + int(0.1 * count)
    return points[order[:first]], points[order[first:second]], points[order[second:]]


class RotationMixture:
    """A mixture of wrapped normals on SO(3), uniform means, precisions from Gamma(100).

    The density is with respect to the volume pi^2 of calor's SO(3); published figures refer to the
    total mass 8 pi^2, `OFFSET` lower.
    """

    OFFSET = float(np.log(8 * np.pi**2) - np.log(np.pi**2))

    def __init__(self, components: int, seed: int):
        """Draw the components."""
        key_mean, key_precision = jr.split(jr.key(seed))
        self.manifold: SO3 = SO3()
        self.means: Float[Array, "k 3 3"] = jax.vmap(self.manifold.random_point)(
            jr.split(key_mean, components)
        )
        # The precision is that of the Frobenius norm of the logarithm of a rotation matrix, sqrt(2)
        # times the angle; calor's distance is half the angle.
        precisions = jr.gamma(key_precision, 100.0, (components,))
        self.scales: Float[Array, " k"] = 0.5 / jnp.sqrt(2 * precisions)

    def sample(self, n: int, *, key: Key) -> Float[Array, "n 4"]:
        """Draw rotations."""
        key_part, key_noise = jr.split(key)
        parts = jr.randint(key_part, (n,), 0, len(self.means))

        def one(mean, scale, key):
            return self.manifold.exp(mean, scale * self.manifold.random_tangent(key, mean))

        return jax.vmap(one)(self.means[parts], self.scales[parts], jr.split(key_noise, n))

    def log_prob(self, x: Float[Array, "n 4"]) -> Float[Array, " n"]:
        """The log-density; wrapping around, forty standard deviations away, is left out."""

        def one(x):
            distances = jax.vmap(lambda mean: self.manifold.dist_at(x, mean))(self.means)
            normal = -(distances**2) / (2 * self.scales**2) - 3 * jnp.log(self.scales)
            values = normal - 1.5 * jnp.log(2 * jnp.pi) - 2 * jnp.log(sinc(distances))
            return logsumexp(values) - jnp.log(len(self.means))

        return jax.jit(jax.vmap(one))(x)


def airports() -> Float[np.ndarray, "n 3"]:
    """Places of the world's airports with an IATA code, from the package `airportsdata`."""
    try:
        import airportsdata
    except ImportError as error:
        raise DataError(
            "the airports come with the package airportsdata, which is not installed; run: "
            "pip install 'calor[demo]'"
        ) from error
    found = airportsdata.load("IATA").values()
    places = np.array([(airport["lat"], airport["lon"]) for airport in found])
    return np.unique(from_latitude_longitude(places), axis=0)
