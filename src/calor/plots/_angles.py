"""Pairs of angles, points of the torus T^2, as in a Ramachandran plot."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..core.pictures import picture
from ..manifolds import Torus
from ._style import (
    INK,
    Density,
    Groups,
    draw_values,
    mark,
    named,
    one_of,
    panels,
    points_over,
    set_title,
)


def angles(
    groups: Groups | None = None,
    *,
    density: Density | None = None,
    log_density: Density | None = None,
    source: np.ndarray | None = None,
    pixels: int = 180,
    names: tuple[str, str] = ("", ""),
    axes: Axes | Sequence[Axes] | None = None,
) -> Figure:
    """Groups of pairs of angles, a density of two angles, or both, in degrees.

    Args:
        groups: an array (m, 2) in radians, or several by the title of their panel.
        density: takes angles (m, 2) in radians to values (m,); it is drawn below every group.
        log_density: or its logarithm, colored over eight nats below the peak.
        source: two angles to mark.
        pixels: of a side, at which the density is evaluated.
        names: of the two angles, such as φ and ψ.
        axes: where to draw, one for each group; by default a new figure.

    Returns:
        The figure.
    """
    function, logarithmic = one_of(density, log_density)
    parts = {"": None} if groups is None else named(groups, "points")
    figure, found = panels(axes, len(parts), (3.5, 3.6))
    values = None if function is None else _on_grid(function, pixels)
    for one, (title, points) in zip(found, parts.items(), strict=True):
        if values is not None:
            draw_values(one, values, (-180, 180, -180, 180), logarithmic)
        if points is not None:
            wrapped = np.rad2deg(np.mod(points + np.pi, 2 * np.pi) - np.pi)
            one.scatter(*wrapped.T, **points_over(values is not None))
            set_title(one, f"{title} ({len(points)})")
        if source is not None:
            mark(one, np.rad2deg(np.asarray(source, float)))
        _frame(one, names)
    return figure


@picture(Torus, when=lambda torus: torus.dim == 2)
def _points(values: Any, manifold: Torus, axes: Any) -> Figure:
    return angles(values, axes=axes)


def _on_grid(function, cells):
    side = (np.arange(cells) + 0.5) / cells * 2 * np.pi - np.pi
    first, second = np.meshgrid(side, side)
    pairs = np.stack([first, second], axis=-1).reshape(-1, 2)
    return np.asarray(function(pairs), float).reshape(first.shape)


def _frame(axes, names):
    axes.set(xlim=(-180, 180), ylim=(-180, 180), aspect="equal")
    ticks, labels = [-120, 0, 120], ["−120°", "0°", "120°"]
    axes.set_xticks(ticks, labels)
    axes.set_yticks(ticks, labels)
    axes.tick_params(labelsize=8, length=2.5, color=INK, labelcolor=INK)
    axes.set_xlabel(names[0], color=INK)
    axes.set_ylabel(names[1], color=INK)
