"""Makes the pictures of the README and of these pages, with the library itself.

    calor demo && python docs/pictures.py [NAME ...] [--model calor_demo.calor]

Names are calor, figures and certificate; by default all.  The first needs the model that
`calor demo` saves.
"""

import argparse
import io
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from matplotlib.figure import Figure
from PIL import Image

import calor
from calor import plots

IMAGES = Path(__file__).with_name("images")
# Heat spreads over each manifold at its own pace.  On the last two all times are above t0, where
# the kernel is a series: below it the density at a given place is a boundary value problem.
TIMES = {
    "Sphere": (0.02, 0.1, 0.4, 1.5),
    "Torus": (0.5, 1.2, 3.0, 10.0),
    "Ellipsoid": (0.1, 0.25, 0.6, 2.0),
}
AXES = jnp.array([0.8, 1.1, 1.4])
TORUS = calor.Submanifold(
    lambda x: (jnp.hypot(x[0], x[1]) - 2.0) ** 2 + x[2] ** 2 - 1.0, ambient_dim=3
)
ELLIPSOID = calor.Submanifold(lambda x: jnp.sum((x / AXES) ** 2) - 1, ambient_dim=3)


def density_of(kernel, t, x0):
    """The density of heat at time t, as a function of an array of points."""
    log_prob = jax.jit(jax.vmap(lambda x: kernel.log_prob_at(jnp.float32(t), x, x0)))

    def density(points):
        points = jnp.asarray(points, jnp.float32)
        parts = [log_prob(points[i : i + 4096]) for i in range(0, len(points), 4096)]
        return np.nan_to_num(np.exp(np.concatenate(parts)))

    return density


def calor_picture(options):
    """Heat on three surfaces at four times, and airports beside draws of a model of them."""
    figure = Figure(figsize=(10, 10.2), dpi=130, facecolor="white")
    panels = figure.subplots(4, 4)
    figure.subplots_adjust(left=0.115, right=0.99, top=0.965, bottom=0.01, wspace=0.05, hspace=0.14)
    kernel = calor.heat_kernel(calor.Sphere(2))
    source = jnp.array([0.70, -0.36, 0.62])
    source = source / jnp.linalg.norm(source)
    for axes, t in zip(panels[0], TIMES["Sphere"], strict=True):
        density = density_of(kernel, t, source)
        plots.globe(density=density, source=source, view=(18, 0), title=f"t = {t:g}", axes=axes)
    surfaces = {
        "Torus": (TORUS, np.array([2.4, -1.5, 0.6]), (38, -20)),
        "Ellipsoid": (ELLIPSOID, np.array([0.6, 0.1, 0.8]), (18, 25)),
    }
    for row, (name, (surface, near, view)) in zip(panels[1:3], surfaces.items(), strict=True):
        kernel = calor.solve_spectral(surface, key=jr.key(0), functions=options.functions)
        source = surface.project(jnp.asarray(near, jnp.float32))
        print(name, kernel.certificate, sep="\n")
        for axes, t in zip(row, TIMES[name], strict=True):
            density = density_of(kernel, t, source)
            style = {"source": source, "view": view, "pixels": 180}
            plots.surface(surface, density=density, **style, title=f"t = {t:g}", axes=axes)
    airports, model = calor.datasets.airports(), calor.load(options.model)
    draws = np.asarray(model.sample(len(airports), key=jr.key(1)))
    places = {"airports": airports, "draws of a model": draws}
    pairs = [(places[name], view, name) for view in ((32, 12), (28, -98)) for name in places]
    for axes, (points, view, name) in zip(panels[3], pairs, strict=True):
        plots.globe(points, view=view, title=f"{len(points)} {name}", axes=axes)
    notes = {
        "Sphere": "exact kernel",
        "Torus": "from its equation",
        "Ellipsoid": "from its equation",
        "Airports": "learned kernel",
    }
    for row, (name, note) in zip(panels, notes.items(), strict=True):
        box = row[0].get_position()
        middle = (box.y0 + box.y1) / 2
        figure.text(0.008, middle + 0.012, name, fontsize=12.5, weight="bold", va="center")
        figure.text(0.008, middle - 0.014, note, fontsize=8.5, va="center", color="#666666")
    return figure


def figures_picture(options):
    """What `calor.plots` draws, one panel each."""
    figure = Figure(figsize=(11, 5.9), dpi=120, layout="constrained")
    panels = figure.subplots(2, 4)

    def draws(kernel, x0, t, count):
        return jax.vmap(lambda key: kernel.sample(t, x0, key=key))(jr.split(jr.key(0), count))

    sphere, turns, torus = (
        calor.heat_kernel(m) for m in (calor.Sphere(2), calor.SO3(), calor.Torus(2))
    )
    north = jnp.array([0.6, 0.0, 0.8])
    spots = draws(sphere, north, 0.1, 300)
    density = density_of(sphere, 0.1, north)
    plots.globe(spots, density=density, title="globe", axes=panels[0, 0])
    plots.world_map(spots, title="world_map", axes=panels[0, 1])
    identity = calor.SO3().identity()
    plots.rotations({"rotations": draws(turns, identity, 0.01, 300)}, axes=panels[0, 2])
    helix = jnp.deg2rad(jnp.array([-65.0, -40.0]))
    angles = {"angles": draws(torus, helix, 0.3, 300)}
    density = density_of(torus, 0.3, helix)
    plots.angles(angles, density=density, names=("φ", "ψ"), axes=panels[0, 3])
    u, v = np.random.default_rng(0).uniform(0, 2 * np.pi, (2, 500))
    ring = 2 + np.cos(v)
    points = np.stack([ring * np.cos(u), ring * np.sin(u), np.sin(v)], axis=1)
    plots.surface(TORUS, points, view=(38, -20), pixels=180, title="surface", axes=panels[1, 0])
    matrices = {n: draws(calor.heat_kernel(calor.SPD(n)), jnp.eye(n), 0.2, 49) for n in (2, 3)}
    plots.ellipses({"ellipses": matrices[2]}, axes=panels[1, 1])
    plots.ellipsoids({"ellipsoids": matrices[3]}, axes=panels[1, 2])
    plots.spectra({"t = 0.2": matrices[3]}, axes=panels[1, 3])
    panels[1, 3].set_title("spectra", fontsize=10)
    return figure


def certificate_picture(options):
    """The certificate of the learned kernel of the sphere."""
    figure = calor.heat_kernel(calor.Sphere(2), "pinn").certificate.plot()
    figure.set_dpi(120)
    return figure


PICTURES = {
    "calor": calor_picture,
    "figures": figures_picture,
    "certificate": certificate_picture,
}


def save(figure, path):
    """Write a figure as PNG, without an alpha channel; a palette would show as bands."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    Image.open(buffer).convert("RGB").save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1024:.0f} kB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--model", type=Path, default=Path("calor_demo.calor"))
    parser.add_argument("--functions", type=int, default=800, help="of the spectral kernels")
    chosen = parser.parse_args()
    for name in chosen.names or PICTURES:
        save(PICTURES[name](chosen), IMAGES / f"{name}.png")
