"""Pictures of heat kernels: each function draws on a matplotlib axis and returns it."""

from collections.abc import Callable

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Circle

# Perceptually uniform; its first colors, almost black, are left out.
COLORS = ListedColormap(colormaps["magma"](np.linspace(0.1, 1, 256)))
_INK, _GRATICULE, _SOURCE = "#333333", "#8c8c8c", "#00c8ff"
# Okabe and Ito's blue, orange and green: told apart by every kind of color vision.
AXIS_COLORS = ("#0072B2", "#D55E00", "#009E73")
_PIXELS = 420

Density = Callable[[np.ndarray], np.ndarray]


def view_from(latitude: float, longitude: float) -> np.ndarray:
    """The rotation to screen coordinates (right, up, toward the eye) of an eye above a place.

    Args:
        latitude: degrees north of the place below the eye.
        longitude: degrees east of it.

    Returns:
        A matrix (3, 3) that takes points of the unit sphere to screen coordinates.
    """
    lat, lon = np.deg2rad([latitude, longitude])
    toward = [np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)]
    right = [-np.sin(lon), np.cos(lon), 0.0]
    return np.stack([right, np.cross(toward, right), toward])


def globe_density(axes: Axes, density: Density, source: np.ndarray, view: np.ndarray) -> Axes:
    """A density on the sphere, seen from far away, with its source marked.

    Args:
        axes: where to draw.
        density: takes points (m, 3) of the unit sphere to values (m,).
        source: the point (3,) to mark.
        view: as from `view_from`.
    """
    side = np.linspace(-1, 1, _PIXELS)
    right, up = np.meshgrid(side, side)
    # Pixels outside the disc take the value of its edge: the clip below cuts them off smoothly.
    squared = right**2 + up**2
    scale = 1 / np.sqrt(np.maximum(squared, 1))
    depth = np.sqrt(np.maximum(1 - squared, 0))
    points = np.stack([right * scale, up * scale, depth], axis=-1).reshape(-1, 3) @ view
    values = np.asarray(density(points)).reshape(right.shape)
    image = axes.imshow(
        values,
        extent=(-1, 1, -1, 1),
        origin="lower",
        cmap=COLORS,
        vmin=0,
        interpolation="bilinear",
    )
    image.set_clip_path(Circle((0, 0), 1, transform=axes.transData))
    _graticule(axes, view, color="white", alpha=0.28)
    spot = view @ source
    if spot[2] > 0:
        axes.plot(*spot[:2], "+", color=_SOURCE, markersize=7, markeredgewidth=1.3)
    return _frame_globe(axes)


def globe_points(axes: Axes, groups: list[np.ndarray], view: np.ndarray) -> Axes:
    """Groups of points on the sphere, one color each; those behind the sphere are not drawn.

    Args:
        axes: where to draw.
        groups: up to three arrays (m, 3) of unit vectors.
        view: as from `view_from`.
    """
    axes.add_patch(Circle((0, 0), 1, facecolor="#f6f6f6", edgecolor="none"))
    _graticule(axes, view, color=_GRATICULE, alpha=0.45)
    colors = [
        np.broadcast_to(color, len(group))
        for color, group in zip(AXIS_COLORS, groups, strict=False)
    ]
    points, colors = np.concatenate(groups) @ view.T, np.concatenate(colors)
    front = points[:, 2] > 0
    # In random order, so that no group hides another.
    order = np.random.default_rng(0).permutation(np.flatnonzero(front))
    axes.scatter(*points[order, :2].T, s=4, c=colors[order], linewidths=0, alpha=0.8)
    return _frame_globe(axes)


def angle_map(axes: Axes, density: Density, source: np.ndarray) -> Axes:
    """A density of two angles as a heat map, in degrees, with its source marked.

    Args:
        axes: where to draw.
        density: takes angles (m, 2) in radians to values (m,).
        source: the two angles, in radians, to mark.
    """
    cells = _PIXELS // 2
    side = (np.arange(cells) + 0.5) / cells * 2 * np.pi - np.pi
    first, second = np.meshgrid(side, side)
    values = np.asarray(density(np.stack([first, second], axis=-1).reshape(-1, 2)))
    axes.imshow(
        values.reshape(first.shape),
        extent=(-180, 180, -180, 180),
        origin="lower",
        cmap=COLORS,
        vmin=0,
        interpolation="bilinear",
    )
    axes.plot(*np.rad2deg(source), "+", color=_SOURCE, markersize=7, markeredgewidth=1.3)
    axes.set_xlim(-180, 180)
    axes.set_ylim(-180, 180)
    ticks, labels = [-120, 0, 120], ["−120°", "0°", "120°"]
    axes.set_xticks(ticks, labels)
    axes.set_yticks(ticks, labels)
    axes.tick_params(labelsize=8, length=2.5, color=_INK, labelcolor=_INK)
    return axes


def color_bar(axes: Axes) -> Axes:
    """The scale of the densities: from zero to the largest value of each panel."""
    axes.imshow(np.linspace(0, 1, 256)[:, None], origin="lower", aspect="auto", cmap=COLORS)
    axes.set_xticks([])
    axes.yaxis.tick_right()
    axes.set_yticks([0, 255], ["0", "max"])
    axes.tick_params(labelsize=9, length=0, labelcolor=_INK)
    for spine in axes.spines.values():
        spine.set_linewidth(0.5)
    return axes


def certificate(measured, axes: Axes | None = None) -> Figure:
    """Residual, estimated error and bound of a learned kernel against time.

    Args:
        measured: a `Certificate`.
        axes: where to draw; by default a new figure.

    Returns:
        The figure.
    """
    if axes is None:
        axes = Figure(figsize=(5.2, 3.4), layout="constrained").subplots()
    times = np.asarray(measured.times)
    blue, orange, green = AXIS_COLORS
    axes.loglog(times, measured.largest, ":", color=green, label="largest residual")
    axes.loglog(times, measured.mean, "--", color=green, label="mean residual")
    bounds = [measured.bound(t) for t in times]
    axes.loglog(times, bounds, color=orange, label="bound on |error of log p|")
    estimates = [measured.estimate(t) for t in times]
    axes.loglog(times, estimates, color=blue, label="estimate of it")
    axes.set_xlabel("time t")
    axes.set_title(f"heat kernel of {measured.manifold}", fontsize=10, color=_INK)
    axes.tick_params(labelsize=9)
    axes.grid(color="#dddddd", linewidth=0.5)
    axes.legend(fontsize=8, frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure = axes.get_figure()
    assert isinstance(figure, Figure)
    return figure


def _graticule(axes, view, color, alpha):
    """Meridians and parallels every 30 degrees, as far as they are in front."""
    along = np.deg2rad(np.linspace(-180, 180, 361))
    lines = [
        np.stack(
            [np.cos(lat) * np.cos(along), np.cos(lat) * np.sin(along), 0 * along + np.sin(lat)]
        )
        for lat in np.deg2rad(range(-60, 90, 30))
    ]
    half = along / 2  # from pole to pole
    lines += [
        np.stack([np.cos(half) * np.cos(lon), np.cos(half) * np.sin(lon), np.sin(half)])
        for lon in np.deg2rad(range(-180, 180, 30))
    ]
    for line in lines:
        right, up, depth = view @ line
        hidden = depth < 0
        axes.plot(
            np.where(hidden, np.nan, right),
            np.where(hidden, np.nan, up),
            color=color,
            alpha=alpha,
            linewidth=0.5,
        )


def _frame_globe(axes):
    axes.add_patch(Circle((0, 0), 1, fill=False, edgecolor=_INK, linewidth=0.7))
    axes.set_xlim(-1.02, 1.02)
    axes.set_ylim(-1.02, 1.02)
    axes.set_aspect("equal")
    axes.axis("off")
    return axes
