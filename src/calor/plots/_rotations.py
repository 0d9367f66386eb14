"""Rotations: where they take the x, y and z axis."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..core.pictures import picture
from ..manifolds import SO3
from . import _globe
from ._style import AXIS_COLORS, Density, Groups, named, panels, set_title

# Turns about an axis over which a density is averaged.
_TURNS = 36


def rotations(groups: Groups, *, axes: Axes | Sequence[Axes] | None = None) -> Figure:
    """Groups of rotations, each as the places where it takes the x, y and z axis.

    Args:
        groups: an array (m, 4) of unit quaternions, or several by the title of their panel.
        axes: where to draw, one for each group; by default a new figure.

    Returns:
        The figure.
    """
    groups = named(groups, "rotations")
    figure, found = panels(axes, len(groups), (3.4, 3.7))
    for one, (title, quaternions) in zip(found, groups.items(), strict=True):
        _globe.draw_ball(one, _globe.CORNER)
        _globe.draw_groups(one, list(np.moveaxis(_matrices(quaternions), 2, 0)), _globe.CORNER)
        set_title(one, f"{title} ({len(quaternions)})")
        _globe.frame(one)
        for place, color, name in zip((0.3, 0.5, 0.7), AXIS_COLORS, "xyz", strict=True):
            text = {"color": color, "ha": "center", "va": "top", "fontsize": 9}
            one.text(place, 0.0, f"{name} axis", transform=one.transAxes, **text)
    return figure


@picture(SO3)
def _points(values: Any, manifold: SO3, axes: Any) -> Figure:
    return rotations(values, axes=axes)


def rotation_density(
    density: Density, *, pixels: int = 61, axes: Sequence[Axes] | None = None
) -> Figure:
    """A density on SO(3): how likely each axis is taken to each place of a globe.

    Args:
        density: takes unit quaternions (m, 4) to values (m,); it is averaged over the turns about
            the place an axis is taken to.
        pixels: of a side of a globe, at which it is evaluated.
        axes: three of them, for the x, y and z axis; by default a new figure.

    Returns:
        The figure.
    """
    figure, found = panels(axes, 3, (3.4, 3.7))
    for number, one in enumerate(found):

        def marginal(places, number=number):
            quaternions = _fibres(places, number)
            values = np.asarray(density(quaternions.reshape(-1, 4)), float)
            return values.reshape(len(places), _TURNS).mean(axis=1)

        _globe.draw_density(one, marginal, _globe.CORNER, pixels, logarithmic=False)
        set_title(one, f"where the {'xyz'[number]} axis goes")
        _globe.frame(one)
    return figure


def _fibres(places, number):
    """Quaternions (m, turns, 4) of the rotations that take an axis to given places."""
    axis = np.eye(3)[number]
    # The shortest way there: the half-way quaternion (1 + a.n, a x n), its length set to one.  At
    # the antipode it is a half turn about another axis.
    shortest = np.concatenate([1 + places @ axis[:, None], np.cross(axis, places)], axis=1)
    antipodal = shortest[:, 0] < 1e-9
    shortest[antipodal] = np.concatenate([[0.0], np.roll(axis, 1)])
    shortest /= np.linalg.norm(shortest, axis=1, keepdims=True)
    half = np.arange(_TURNS) * np.pi / _TURNS
    turns = np.concatenate([np.cos(half)[:, None], np.sin(half)[:, None] * axis], axis=1)
    return _product(shortest[:, None], turns[None])


def _product(p, q):
    """Products of quaternions along the last axis."""
    scalar = p[..., :1] * q[..., :1] - np.sum(p[..., 1:] * q[..., 1:], axis=-1, keepdims=True)
    vector = p[..., :1] * q[..., 1:] + q[..., :1] * p[..., 1:] + np.cross(p[..., 1:], q[..., 1:])
    return np.concatenate([scalar, vector], axis=-1)


def _matrices(q):
    """Rotation matrices of unit quaternions."""
    w, x, y, z = q.T
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.moveaxis(np.array(rows), -1, 0)
