"""Pictures of heat kernels, points and models, with matplotlib."""

from collections.abc import Callable

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Ellipse

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
    return _frame_angles(axes)


def world(groups: dict[str, np.ndarray], log_density: Density) -> Figure:
    """Groups of points on maps of the globe, and a density, all in Mollweide's projection.

    Args:
        groups: arrays (m, 3) of unit vectors, by the title of their map.
        log_density: takes points (m, 3) to logarithms of a density (m,).
    """
    figure = Figure(figsize=(4.4 * (len(groups) + 1), 2.75), layout="constrained")
    panels = figure.subplots(1, len(groups) + 1)
    for axes, (title, points) in zip(panels, groups.items(), strict=False):
        axes.scatter(*_mollweide(points), s=1.2, c=AXIS_COLORS[0], linewidths=0, alpha=0.55)
        axes.set_title(f"{title} ({len(points)})", fontsize=10, color=_INK)
    axes = panels[-1]
    up, right = np.mgrid[-1:1:49j, -2:2:97j] * np.sqrt(2)
    # Cells just outside take the value of the edge, and the clip below cuts them off smoothly.
    radius = np.hypot(right / 2, up) / np.sqrt(2)
    near, shrink = radius < 1.06, np.minimum(1, 0.999 / np.maximum(radius, 1e-9))
    values = np.full(right.shape, np.nan)
    values[near] = log_density(_from_mollweide((right * shrink)[near], (up * shrink)[near]))
    peak = np.nanquantile(values, 0.995)
    image = axes.imshow(
        values,
        extent=np.array([-2, 2, -1, 1]) * np.sqrt(2),
        origin="lower",
        cmap=COLORS,
        vmin=peak - 9,
        vmax=peak,
        interpolation="bilinear",
    )
    outline = Ellipse((0, 0), 4 * np.sqrt(2), 2 * np.sqrt(2), transform=axes.transData)
    image.set_clip_path(outline)
    bar = figure.colorbar(image, ax=axes, shrink=0.72, pad=0.01)
    bar.ax.tick_params(labelsize=8, labelcolor=_INK)
    axes.set_title("log-density of the model", fontsize=10, color=_INK)
    for axes in panels:
        _frame_map(axes)
    return figure


def rotations(groups: dict[str, np.ndarray]) -> Figure:
    """Groups of rotations, each as the places where it takes the x, y and z axis.

    Args:
        groups: arrays (m, 4) of unit quaternions, by the title of their panel.
    """
    figure = Figure(figsize=(3.4 * len(groups), 3.7), layout="constrained")
    panels = np.atleast_1d(figure.subplots(1, len(groups)))
    view = view_from(np.rad2deg(np.arctan(np.sqrt(0.5))), 45)  # all three axes in front
    for axes, (title, quaternions) in zip(panels, groups.items(), strict=True):
        matrices = _matrices(np.asarray(quaternions, float))
        globe_points(axes, list(np.moveaxis(matrices, 2, 0)), view)
        axes.set_title(f"{title} ({len(quaternions)})", fontsize=10, color=_INK)
    for place, color, name in zip((0.4, 0.5, 0.6), AXIS_COLORS, "xyz", strict=True):
        figure.text(place, 0.012, f"{name} axis", color=color, ha="center", fontsize=9)
    return figure


def angles(groups: dict[str, np.ndarray]) -> Figure:
    """Groups of pairs of angles, in degrees, as in a Ramachandran plot.

    Args:
        groups: arrays (m, 2) of angles in radians, by the title of their panel.
    """
    figure = Figure(figsize=(3.5 * len(groups), 3.6), layout="constrained")
    panels = np.atleast_1d(figure.subplots(1, len(groups)))
    for axes, (title, points) in zip(panels, groups.items(), strict=True):
        wrapped = np.rad2deg(np.mod(np.asarray(points) + np.pi, 2 * np.pi) - np.pi)
        axes.scatter(*wrapped.T, s=2, c=AXIS_COLORS[0], linewidths=0, alpha=0.5)
        axes.set_title(f"{title} ({len(points)})", fontsize=10, color=_INK)
        _frame_angles(axes)
        axes.set_aspect("equal")
    return figure


def points(values: np.ndarray, manifold) -> Figure:
    """Points of S^2 on a map, of SO(3) by their axes, of T^2 as angles."""
    from .manifolds import SO3, Sphere, Torus

    if isinstance(manifold, Sphere) and manifold.dim == 2:
        figure = Figure(figsize=(6.4, 3.5), layout="constrained")
        axes = figure.subplots()
        axes.scatter(*_mollweide(values), s=2.5, c=AXIS_COLORS[0], linewidths=0, alpha=0.6)
        axes.set_title(f"{len(values)} points", fontsize=10, color=_INK)
        _frame_map(axes)
        return figure
    if isinstance(manifold, SO3):
        return rotations({"rotations": values})
    if isinstance(manifold, Torus) and manifold.dim == 2:
        return angles({"points": values})
    raise ValueError(f"points of {manifold} cannot be drawn; those of S^2, SO(3) and T^2 can.")


def histories(models: dict, title: str = "") -> Figure:
    """The log-likelihood of held out data against the time of training.

    Args:
        models: models, or their histories, by name.
        title: of the figure.
    """
    figure = Figure(figsize=(5.2, 3.4), layout="constrained")
    axes = figure.subplots()
    for name, model in models.items():
        history = getattr(model, "history", model)
        likelihoods = -np.asarray(history.validations)
        axes.plot(history.seconds, likelihoods, marker=".", linewidth=1.2, label=name)
    axes.set_xlabel("seconds of training")
    axes.set_ylabel("held out log-likelihood")
    axes.set_title(title, fontsize=10, color=_INK)
    axes.grid(color="#dddddd", linewidth=0.5)
    axes.legend(fontsize=8, frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure


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


def _frame_angles(axes):
    axes.set_xlim(-180, 180)
    axes.set_ylim(-180, 180)
    ticks, labels = [-120, 0, 120], ["−120°", "0°", "120°"]
    axes.set_xticks(ticks, labels)
    axes.set_yticks(ticks, labels)
    axes.tick_params(labelsize=8, length=2.5, color=_INK, labelcolor=_INK)
    return axes


def _matrices(q):
    """Rotation matrices of unit quaternions."""
    w, x, y, z = q.T
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.moveaxis(np.array(rows), -1, 0)


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


def _frame_map(axes):
    """The outline of the map and its graticule, every 30 degrees."""
    along = np.deg2rad(np.linspace(-89.9, 89.9, 181))
    for longitude in np.deg2rad([-179.99, *range(-150, 180, 30), 179.99]):
        edge = abs(longitude) > 3.1
        line = np.stack(
            [np.cos(along) * np.cos(longitude), np.cos(along) * np.sin(longitude), np.sin(along)],
            -1,
        )
        color, width = (_INK, 0.8) if edge else (_GRATICULE, 0.35)
        axes.plot(*_mollweide(line), color=color, linewidth=width, zorder=0.5 if not edge else 3)
    turn = np.deg2rad(np.linspace(-179.99, 179.99, 361))
    for latitude in np.deg2rad(range(-60, 90, 30)):
        line = np.stack(
            [
                np.cos(latitude) * np.cos(turn),
                np.cos(latitude) * np.sin(turn),
                0 * turn + np.sin(latitude),
            ],
            -1,
        )
        axes.plot(*_mollweide(line), color=_GRATICULE, linewidth=0.35, zorder=0.5)
    axes.set_aspect("equal")
    axes.axis("off")
    return axes


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
