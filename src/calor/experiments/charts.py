r"""What the simple rivals of the density experiment are made of: kernels without calor's.

Every kernel has a concentration k = 1 / (2t) and is written as

    log p(x | c) = volume(x, c) - k h(x, c) - log Z(k),

with h half a squared distance: of unit vectors (von Mises and Fisher on spheres and rotations, a
product of von Mises laws on tori), or along geodesics of SPD(n) (a Gaussian in the tangent space at
c, wrapped around the manifold by exp).  All are normalized in the Riemannian volume.
"""

from collections.abc import Iterator
from typing import Protocol

import numpy as np
from jaxtyping import Float
from scipy.special import ive

from .rivals import LogEuclidean

Array = np.ndarray
_PAIRS = 4_000_000
"""Numbers in memory at a time."""


class Family(Protocol):
    """Kernels on one kind of manifold."""

    dim: int
    images: int
    """How many points of the family's space are the same point."""
    space: str | None
    """`sphere` or `torus`, if it is one and no quotient of one."""

    def pairs(self, x: Array, centres: Array) -> tuple[Float[Array, "m n g"], Array | float]:
        """h and the volume for all images g of centres."""
        ...

    def log_norm(self, k: Array) -> Array:
        """log Z, elementwise."""
        ...

    def log_volume(self) -> float | None:
        """Of the whole space; None if it is infinite."""
        ...

    def log_broad(self, x: Array, points: Array) -> Array:
        """The log-density of the uniform law, or else of a law far wider than data."""
        ...

    def places(self, x: Array) -> Float[Array, "n g d"]:
        """All images in a Euclidean space, in which distances are about right at small scales."""
        ...

    def units(self, x: Array) -> Float[Array, "n g b p"]:
        """All images as blocks of unit vectors, on compact manifolds."""
        ...


class Directions:
    """Unit vectors of R^p, or their classes under a finite group of orthogonal matrices."""

    def __init__(self, size: int, group: Float[Array, "g p p"] | None = None):
        """Vectors of so many entries, modulo a group that has the identity first."""
        self.dim: int = size - 1
        self.size: int = size
        self.group: Array = np.eye(size)[None] if group is None else group
        self.images: int = len(self.group)
        self.space: str | None = "sphere" if self.images == 1 else None

    def pairs(self, x: Array, centres: Array) -> tuple[Float[Array, "m n g"], float]:
        """|x - g c|^2 / 2."""
        images = self.places(centres)
        return np.maximum(1 - np.tensordot(x, images, ([1], [2])), 0.0), 0.0

    def log_norm(self, k: Array) -> Array:
        """The von Mises-Fisher constant times e^-k."""
        order = self.size / 2 - 1
        return self.size / 2 * np.log(2 * np.pi) + np.log(ive(order, k)) - order * np.log(k)

    def log_volume(self) -> float:
        """That of the sphere divided by the order of the group."""
        k = np.array(1e-6)
        return float(self.log_norm(k) + k - np.log(len(self.group)))

    def log_broad(self, x: Array, points: Array) -> Array:
        """That of the uniform law."""
        return np.full(len(x), -self.log_volume())

    def places(self, x: Array) -> Float[Array, "n g d"]:
        """The images."""
        return np.einsum("gij,nj->ngi", self.group, x)

    def units(self, x: Array) -> Float[Array, "n g b p"]:
        """One vector."""
        return self.places(x)[:, :, None]


class Angles:
    """Points of the torus, by the cosines and sines of their angles."""

    def __init__(self, size: int):
        """So many angles."""
        self.dim: int = size
        self.images: int = 1
        self.space: str | None = "torus"

    def pairs(self, x: Array, centres: Array) -> tuple[Float[Array, "m n g"], float]:
        """The sum of 1 - cos of differences."""
        cosines = self.places(x)[:, 0] @ self.places(centres)[:, 0].T
        return np.maximum(self.dim - cosines, 0.0)[:, :, None], 0.0

    def log_norm(self, k: Array) -> Array:
        """That of the von Mises law for each angle, times e^-k."""
        return self.dim * (np.log(2 * np.pi) + np.log(ive(0, k)))

    def log_volume(self) -> float:
        """n log(2 pi)."""
        return self.dim * float(np.log(2 * np.pi))

    def log_broad(self, x: Array, points: Array) -> Array:
        """That of the uniform law."""
        return np.full(len(x), -self.log_volume())

    def places(self, x: Array) -> Float[Array, "n g d"]:
        """Cosines and sines, scaled so that squared distances are sums over angles."""
        return np.concatenate([np.cos(x), np.sin(x)], axis=1)[:, None]

    def units(self, x: Array) -> Float[Array, "n g b p"]:
        """One vector of the plane for each angle."""
        return np.stack([np.cos(x), np.sin(x)], axis=-1)[:, None]


class Matrices:
    """Positive definite matrices with the affine-invariant metric."""

    def __init__(self, size: int):
        """Matrices of so many rows."""
        self.dim: int = size * (size + 1) // 2
        self.images: int = 1
        self.space: str | None = None

    def pairs(self, x: Array, centres: Array) -> tuple[Float[Array, "m n g"], Array]:
        """r^2 / 2, and minus the logarithm of the volume that exp makes of a unit cube."""
        inverse = np.linalg.inv(np.linalg.cholesky(centres))
        white = inverse @ x[:, None] @ np.swapaxes(inverse, -1, -2)
        logs = np.log(np.maximum(np.linalg.eigvalsh(white), 1e-300))
        return np.sum(logs**2, axis=-1)[..., None] / 2, -log_distortion(logs)[..., None]

    def log_norm(self, k: Array) -> Array:
        """The Gaussian's."""
        return self.dim / 2 * np.log(2 * np.pi / k)

    def log_volume(self) -> None:
        """Infinite."""
        return

    def log_broad(self, x: Array, points: Array) -> Array:
        """A kernel around the mean, of twice the variance of the data."""
        chart = LogEuclidean(points)
        variance = np.mean(np.sum(chart.inside(points) ** 2, axis=1)) / self.dim
        k = np.asarray(1 / (2 * variance))
        halves, volume = self.pairs(x, chart.outside(np.zeros((1, self.dim))))
        return np.ravel(volume - k * halves - self.log_norm(k))

    def places(self, x: Array) -> Float[Array, "n g d"]:
        """Logarithms around the mean."""
        return LogEuclidean(x).inside(x)[:, None]

    def units(self, x: Array) -> Float[Array, "n g b p"]:
        """None: the space is not compact."""
        raise ValueError(f"positive definite matrices of size {x.shape[-1]} are no unit vectors.")


def log_distortion(logs: Float[Array, "... n"]) -> Float[Array, "..."]:
    """Sum over pairs of log(sinh(d/2) / (d/2)), d the difference of two log-eigenvalues."""
    i, j = np.triu_indices(logs.shape[-1], 1)
    half = np.maximum(np.abs(logs[..., i] - logs[..., j]) / 2, 1e-6)
    return np.sum(half + np.log1p(-np.exp(-2 * half)) - np.log(2 * half), axis=-1)


def in_blocks(
    family: Family, x: Array, centres: Array
) -> Iterator[tuple[slice, Float[Array, "b n g"], Array | float]]:
    """`pairs`, so many points at a time."""
    each = (
        len(centres) * family.images * (int(np.prod(centres.shape[1:])) if centres.ndim > 2 else 1)
    )
    step = max(1, _PAIRS // each)
    for start in range(0, len(x), step):
        rows = slice(start, start + step)
        yield rows, *family.pairs(x[rows], centres)


def log_sum_exp(values: Float[Array, "b ..."]) -> Float[Array, " b"]:
    """log of the sum of exponentials of each row; the values are used up."""
    values = values.reshape(len(values), -1)
    largest = np.maximum(values.max(axis=1), -1e300)
    values -= largest[:, None]
    np.exp(values, out=values)
    return np.log(values.sum(axis=1)) + largest
