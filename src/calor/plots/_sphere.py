"""Points and densities on the sphere: a globe seen from far away, and maps of all of it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse

from ..core.pictures import picture
from ..manifolds import Sphere
from . import _globe
from ._style import (
    GRATICULE,
    INK,
    PAPER,
    Density,
    bare,
    draw_values,
    mark,
    on_some,
    one_of,
    panels,
    points_over,
    set_title,
)


def globe(
    points: np.ndarray | None = None,
    *,
    density: Density | None = None,
    log_density: Density | None = None,
    source: np.ndarray | None = None,
    view: tuple[float, float] = (20.0, 0.0),
    pixels: int = 420,
    limits: tuple[float, float] | None = None,
    title: str = "",
    axes: Axes | None = None,
) -> Figure:
    """Points of the sphere, a density on it, or both, seen from far away.

    Args:
        points: unit vectors (m, 3); those behind the globe are not drawn.
        density: takes points (m, 3) to values (m,), colored from zero to the largest.
        log_density: or its logarithm, colored over eight nats below the peak.
        source: a point (3,) to mark.
        view: latitude and longitude, in degrees, of the place below the eye.
        pixels: of a side of the picture, at which the density is evaluated.
        limits: the values of the first and the last color, instead of those above.
        title: of the panel.
        axes: where to draw; by default a new figure.

    Returns:
        The figure.
    """
    figure, [axes] = panels(axes, 1, (3.6, 3.7))
    function, logarithmic = one_of(density, log_density)
    rotation = _globe.view_from(*view)
    if function is None:
        _globe.draw_ball(axes, rotation)
    else:
        _globe.draw_density(axes, function, rotation, pixels, logarithmic, limits)
    if points is not None:
        dots = points_over(function is not None)
        _globe.draw_groups(axes, [np.asarray(points, float)], rotation, [dots["c"]], dots)
    if source is not None:
        spot = rotation @ np.asarray(source, float)
        if spot[2] > 0:
            mark(axes, spot[:2])
    set_title(axes, title)
    _globe.frame(axes)
    return figure


def world_map(
    points: np.ndarray | None = None,
    *,
    density: Density | None = None,
    log_density: Density | None = None,
    pixels: int = 97,
    title: str = "",
    axes: Axes | None = None,
) -> Figure:
    """Points, a density, or both on a map of the whole sphere, in Mollweide's projection.

    Args:
        points: unit vectors (m, 3).
        density: takes points (m, 3) to values (m,), colored from zero to the largest.
        log_density: or its logarithm, colored over eight nats below the peak, with a scale.
        pixels: of the equator, at which the density is evaluated.
        title: of the panel.
        axes: where to draw; by default a new figure.

    Returns:
        The figure.
    """
    figure, [axes] = panels(axes, 1, (6.4, 3.5))
    function, logarithmic = one_of(density, log_density)
    if function is not None:
        image = _draw_map_density(axes, function, pixels, logarithmic)
        bar = figure.colorbar(image, ax=axes, shrink=0.72, pad=0.01)
        bar.ax.tick_params(labelsize=8, labelcolor=INK)
    else:
        axes.add_patch(_outline(axes, facecolor=PAPER, zorder=0))
    if points is not None:
        axes.scatter(*_mollweide(points), **{**points_over(function is not None), "s": 2.5})
    set_title(axes, title)
    _frame_map(axes, over_density=function is not None)
    return figure


@picture(Sphere, when=lambda sphere: sphere.dim == 2)
def _points(values: Any, manifold: Sphere, axes: Any) -> Figure:
    return world_map(values, title=f"{len(values)} points", axes=axes)


def world(
    groups: Mapping[str, np.ndarray],
    log_density: Density,
    *,
    axes: Sequence[Axes] | None = None,
) -> Figure:
    """Groups of points on maps side by side, and the log-density of a model beside them.

    Args:
        groups: arrays (m, 3) of unit vectors, by the title of their map.
        log_density: takes points (m, 3) to logarithms of a density (m,).
        axes: one for each map and one for the density; by default a new figure.

    Returns:
        The figure.
    """
    figure, found = panels(axes, len(groups) + 1, (4.4, 2.75))
    for one, (title, points) in zip(found, groups.items(), strict=False):
        world_map(points, title=f"{title} ({len(points)})", axes=one)
    world_map(log_density=log_density, title="log-density of the model", axes=found[-1])
    return figure


def _draw_map_density(axes, function, pixels, logarithmic):
    side = float(np.sqrt(2))
    up, right = np.mgrid[-1 : 1 : 1j * (pixels // 2 + 1), -2 : 2 : 1j * pixels] * side
    # Cells just outside take the value of the edge, and the clip below cuts them off smoothly.
    radius = np.hypot(right / 2, up) / np.sqrt(2)
    shrink = np.minimum(1, 0.999 / np.maximum(radius, 1e-9))
    points = _from_mollweide(right * shrink, up * shrink)
    values = on_some(function, points, radius < 1 + 6 / pixels)
    image = draw_values(axes, values, (-2 * side, 2 * side, -side, side), logarithmic)
    image.set_clip_path(_outline(axes))
    return image


def _outline(axes, **style):
    size = 4 * np.sqrt(2), 2 * np.sqrt(2)
    return Ellipse((0, 0), *size, transform=axes.transData, **style)


def _mollweide(points):
    """Plane coordinates of unit vectors; areas are kept.

    With latitude a: 2 b + sin 2b = pi sin a, right = (2 sqrt(2)/pi) longitude cos b,
    up = sqrt(2) sin b.  Newton's method for b, from a start that is exact at the poles.
    """
    x, y, z = np.asarray(points, float).T
    longitude, target = np.arctan2(y, x), np.pi * np.clip(z, -1, 1)
    b = np.sign(z) * (
        np.pi / 2 - (3 * np.pi / 4 * (np.pi - np.abs(target))) ** (1 / 3) / 2 ** (1 / 3)
    )
    b = np.where(np.abs(z) < 0.9, np.arcsin(np.clip(z, -1, 1)) * 0.8, b)
    for _ in range(30):
        slope = 2 + 2 * np.cos(2 * b)
        step = (2 * b + np.sin(2 * b) - target) / np.maximum(slope, 1e-9)
        b = np.clip(b - step, -np.pi / 2, np.pi / 2)
    return 2 * np.sqrt(2) / np.pi * longitude * np.cos(b), np.sqrt(2) * np.sin(b)


def _from_mollweide(right, up):
    """Unit vectors of plane coordinates inside the map."""
    b = np.arcsin(np.clip(up / np.sqrt(2), -1, 1))
    z = np.clip((2 * b + np.sin(2 * b)) / np.pi, -1, 1)
    longitude = np.pi * right / (2 * np.sqrt(2) * np.cos(b))
    radius = np.sqrt(1 - z**2)
    return np.stack([radius * np.cos(longitude), radius * np.sin(longitude), z], axis=-1)


def _frame_map(axes, over_density):
    """The outline of the map and its graticule, every 30 degrees."""
    thin = {"color": "white" if over_density else GRATICULE, "linewidth": 0.35}
    thin |= {"alpha": 0.28 if over_density else 1.0, "zorder": 1.5 if over_density else 0.5}
    along = np.deg2rad(np.linspace(-89.9, 89.9, 181))
    for longitude in np.deg2rad(range(-150, 180, 30)):
        axes.plot(*_mollweide(_globe.place(along, longitude)), **thin)
    turn = np.deg2rad(np.linspace(-179.99, 179.99, 361))
    for latitude in np.deg2rad(range(-60, 90, 30)):
        axes.plot(*_mollweide(_globe.place(latitude, turn)), **thin)
    axes.add_patch(_outline(axes, fill=False, edgecolor=INK, linewidth=0.8, zorder=3))
    bare(axes, (-2.02 * np.sqrt(2), 2.02 * np.sqrt(2)), (-1.02 * np.sqrt(2), 1.02 * np.sqrt(2)))
