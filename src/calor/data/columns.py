"""Columns of the manifolds that have some of their own: the sphere, rotations, tori.

On S^2 two columns are latitude and longitude in degrees and three are x, y, z; on SO(3) four are a
quaternion (w, x, y, z), nine a matrix row by row, and three Euler angles if their axes are named;
on a torus columns are angles in radians.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial.transform import Rotation

from ..manifolds import SO3, Sphere, Torus
from .forms import Angles, BadRow, Form, form


def from_latitude_longitude(degrees: np.ndarray) -> np.ndarray:
    """Unit vectors (n, 3) from latitudes and longitudes (n, 2) in degrees."""
    lat, lon = np.deg2rad(np.asarray(degrees, float)).T
    return np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], axis=1)


def to_latitude_longitude(points: np.ndarray) -> np.ndarray:
    """Latitudes and longitudes (n, 2) in degrees of unit vectors (n, 3)."""
    x, y, z = np.asarray(points, float).T
    return np.rad2deg(np.stack([np.arctan2(z, np.hypot(x, y)), np.arctan2(y, x)], axis=1))


@form(Sphere, when=lambda sphere: sphere.dim == 2)
def _globe(sphere: Sphere) -> Form:
    return Form(
        sphere,
        columns={2: _places},
        to_rows=to_latitude_longitude,
        header=("lat", "lon"),
        wanted="lat, lon or x, y, z",
        names=(
            (("lat", "latitude"), ("lon", "long", "lng", "longitude")),
            (("x",), ("y",), ("z",)),
        ),
    )


def _places(rows: np.ndarray, angles: Angles) -> np.ndarray:
    for values, limit, what in zip(rows.T, (90, 360), ("latitude", "longitude"), strict=True):
        bad = np.abs(values) > limit
        if bad.any():
            row = int(np.argmax(bad))
            raise BadRow(row, f"a {what} of {values[row]:g} is outside -{limit} to {limit} degrees")
    return from_latitude_longitude(rows)


@form(SO3)
def _rotations(manifold: SO3) -> Form:
    def from_euler(rows: np.ndarray, angles: Angles) -> np.ndarray:
        axes = angles.euler
        if axes is None:
            raise BadRow(
                0, "three columns are Euler angles; name their axes, as in --euler ZXZ --degrees"
            )
        turn = jax.vmap(lambda row: manifold.from_euler(axes, row, degrees=angles.degrees))
        return np.asarray(turn(jnp.asarray(rows)))

    def from_matrices(rows: np.ndarray, angles: Angles) -> np.ndarray:
        matrices = rows.reshape(-1, 3, 3)
        _check_matrices(matrices)
        return np.asarray(jax.jit(jax.vmap(manifold.from_matrix))(jnp.asarray(matrices)))

    return Form(
        manifold,
        columns={3: from_euler, 9: from_matrices},
        header=("w", "x", "y", "z"),
        wanted="w, x, y, z, a matrix, or Euler angles",
        names=((("w",), ("x",), ("y",), ("z",)),),
        angles=("euler",),
        take=_quaternions,
    )


def _check_matrices(matrices):
    products = np.einsum("nji,njk->nik", matrices, matrices)
    errors = np.max(np.abs(products - np.eye(3)), axis=(1, 2))
    bad = (errors > 1e-3) | (np.linalg.det(matrices) < 0)
    if bad.any():
        row = int(np.argmax(bad))
        raise BadRow(
            row,
            f"not a rotation matrix, R^T R is {errors[row]:.3g} off I and "
            f"det R = {np.linalg.det(matrices[row]):.3g}",
        )


def _quaternions(data: Any) -> np.ndarray | None:
    """Unit quaternions of rotations of scipy, one of them, or a list."""
    found: Any = data
    if isinstance(data, list | tuple) and data and all(isinstance(r, Rotation) for r in data):
        found = Rotation.concatenate(data)
    if not isinstance(found, Rotation):
        return None
    return np.atleast_2d(found.as_quat(scalar_first=True))


@form(Torus)
def _angles(torus: Torus) -> Form:
    def from_angles(rows: np.ndarray, angles: Angles) -> np.ndarray:
        return np.deg2rad(rows) if angles.degrees else rows

    return Form(torus, columns={torus.dim: from_angles}, angles=("degrees",))
