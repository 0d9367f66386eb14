"""Real data, from the folder that CALOR_DATA names or from a package, and made-up data.

calor ships no data.  `earth` reads the four sets of events on the globe that Mathieu and Nickel
(2020) collected and De Bortoli et al. (2022) made a benchmark; `rotation_mixture` draws the mixture
of wrapped normals on SO(3) of the latter.
"""

import os
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from ._numerics import sinc
from ._types import Key
from .manifolds import SO3, Sphere
from .tables import from_latitude_longitude, read_points

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
        self.manifold = SO3()
        self.means = jax.vmap(self.manifold.random_point)(jr.split(key_mean, components))
        # The precision is that of the Frobenius norm of the logarithm of a rotation matrix, sqrt(2)
        # times the angle; calor's distance is half the angle.
        precisions = jr.gamma(key_precision, 100.0, (components,))
        self.scales = 0.5 / jnp.sqrt(2 * precisions)

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
            distances = jax.vmap(lambda mean: self.manifold._dist(x, mean))(self.means)
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
