"""What `calor demo` shows: a picture of heat kernels, and their errors against reference formulas.

The errors are measured when the demo runs (`accuracy`), in the precision JAX is set to.
"""

import dataclasses
import io
import time
from collections.abc import Callable
from typing import BinaryIO

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from . import kernels, manifolds
from .accuracy import CHECKED_TIMES, MEASUREMENTS, Accuracy, rounded

# Times of the picture.  Heat spreads over each manifold at its own pace: the slowest modes decay
# like exp(-2t) on the sphere, exp(-8t) on rotations and exp(-t) on the torus.
SPHERE_TIMES = (0.02, 0.1, 0.4, 1.5)
ROTATION_TIMES = (0.003, 0.02, 0.08, 0.4)
TORUS_TIMES = (0.03, 0.2, 0.8, 2.5)
_DRAWS = 700  # rotations drawn for each panel


@dataclasses.dataclass(frozen=True)
class Report:
    """What the demo did."""

    precision: str
    times: tuple[float, float]
    """Smallest and largest time at which errors were measured."""
    accuracy: tuple[Accuracy, ...]
    seconds: float

    def table(self) -> str:
        """The errors, as a Markdown table."""
        rows = [
            ("manifold", "log p", "score", "distances", "points", "seconds"),
            ("---",) * 6,
            *(
                (
                    row.manifold,
                    f"{row.log_prob:.1e}",
                    f"{row.score:.1e}",
                    row.distances,
                    str(row.points),
                    f"{row.seconds:.1f}",
                )
                for row in self.accuracy
            ),
        ]
        widths = [max(len(row[i]) for row in rows) for i in range(6)]
        lines = [
            "| "
            + " | ".join(
                ("-" * width if cell == "---" else cell.ljust(width))
                for cell, width in zip(row, widths, strict=True)
            )
            + " |"
            for row in rows
        ]
        return "\n".join(lines)

    def __str__(self) -> str:
        return (
            f"Largest errors of the exact kernels, {self.precision}, "
            f"{self.times[0]:g} <= t <= {self.times[1]:g},\n"
            "as |error| / (1 + |value|), against series, image sums and integrals in float64:\n\n"
            f"{self.table()}"
        )


def run(out: BinaryIO, progress: Callable[[str], None] = lambda message: None) -> Report:
    """Draw the picture and measure the errors.

    Args:
        out: file, open for writing, that receives the picture as PNG.
        progress: called with a short message before each stage.

    Returns:
        The measured errors and the time it took.
    """
    start = time.perf_counter()
    draw(out, progress)
    rows = []
    for name, measure in MEASUREMENTS.items():
        progress(f"measuring {name}")
        rows.append(measure(name))
    return Report(
        precision=str(jnp.result_type(float)),
        times=(float(CHECKED_TIMES[0]), float(CHECKED_TIMES[-1])),
        accuracy=tuple(rows),
        seconds=time.perf_counter() - start,
    )


# The picture.


def draw(out: BinaryIO, progress: Callable[[str], None] = lambda message: None) -> None:
    """Draw the heat kernels of the sphere, of rotations and of the torus, as PNG."""
    # Only the picture needs matplotlib.  `Figure` without pyplot: no window, no global state.
    from matplotlib.figure import Figure

    from . import plots

    figure = Figure(figsize=(10, 6.95), dpi=160, facecolor="white")
    panels = figure.subplots(3, len(SPHERE_TIMES))
    figure.subplots_adjust(
        left=0.135, right=0.915, top=0.955, bottom=0.045, wspace=0.08, hspace=0.17
    )

    progress("drawing the sphere")
    kernel = kernels.heat_kernel(manifolds.Sphere(2))
    source, view = plots.view_from(38, -28)[2], plots.view_from(18, 0)
    log_prob = _batched(kernel, source)
    for axes, t in zip(panels[0], SPHERE_TIMES, strict=True):
        plots.globe_density(axes, lambda x, t=t: np.exp(log_prob(t, x)), source, view)

    progress("drawing rotations")
    kernel = kernels.heat_kernel(manifolds.SO3())
    view = plots.view_from(np.rad2deg(np.arctan(np.sqrt(0.5))), 45)  # all three axes in front
    keys = jr.split(jr.key(0), (len(ROTATION_TIMES), _DRAWS))
    for axes, t, row in zip(panels[1], ROTATION_TIMES, keys, strict=True):
        plots.globe_points(axes, _moved_axes(kernel, jnp.asarray(t), row), view)

    progress("drawing the torus")
    kernel = kernels.heat_kernel(manifolds.Torus(2))
    source = np.deg2rad([-65.0, -40.0])  # the torsion angles of an alpha helix
    log_prob = _batched(kernel, source)
    for axes, t in zip(panels[2], TORUS_TIMES, strict=True):
        plots.angle_map(axes, lambda x, t=t: np.exp(log_prob(t, x)), source)
        axes.label_outer()

    times = SPHERE_TIMES + ROTATION_TIMES + TORUS_TIMES
    for axes, t in zip(panels.ravel(), times, strict=True):
        axes.set_title(f"t = {t:g}", fontsize=10.5, color="#333333", pad=4)
    names = (("Sphere", "$S^2$"), ("Rotations", "$SO(3)$"), ("Torus", "$T^2$"))
    notes = ("density", f"{_DRAWS} draws", "density")
    for row, (name, symbol), note in zip(panels, names, notes, strict=True):
        box = row[0].get_position()
        middle = (box.y0 + box.y1) / 2
        figure.text(0.012, middle + 0.028, name, fontsize=12.5, weight="bold", va="center")
        figure.text(0.012, middle - 0.006, symbol, fontsize=12, va="center")
        figure.text(0.012, middle - 0.038, note, fontsize=9, va="center", color="#666666")
    for row in panels[[0, 2]]:
        box = row[-1].get_position()
        bar = figure.add_axes((0.935, box.y0 + 0.15 * box.height, 0.011, 0.7 * box.height))
        plots.color_bar(bar)
    box = panels[1, -1].get_position()
    for height, color, axis in zip((0.65, 0.5, 0.35), plots.AXIS_COLORS, "xyz", strict=True):
        place = box.y0 + height * box.height
        figure.text(0.935, place, f"{axis} axis", fontsize=9.5, color=color, va="center")
    _save_small(figure, out)


def _save_small(figure, out):
    """Write a figure as PNG with a palette, a third of the size of one without."""
    from PIL import Image  # matplotlib brings it

    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    picture = Image.open(buffer).convert("RGB")
    picture.quantize(256, kmeans=1, dither=Image.Dither.NONE).save(out, format="png", optimize=True)


def _batched(kernel, source):
    """The log-density as a function of a time and an array of points."""
    log_prob = jax.jit(jax.vmap(kernel.log_prob, (None, 0, None)))
    return lambda t, points: log_prob(t, rounded(points), rounded(source))


@eqx.filter_jit
def _moved_axes(kernel, t, keys):
    """Where draws around the identity take the x, y and z axis: three arrays of unit vectors."""
    rotations = kernel.manifold

    def draw_matrix(key):
        return rotations.to_matrix(kernel.sample(t, rotations.identity(), key=key))

    return list(jnp.moveaxis(jax.vmap(draw_matrix)(keys), 2, 0))
