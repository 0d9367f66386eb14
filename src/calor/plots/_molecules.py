"""Molecules: balls and sticks in space and, with RDKit, drawn flat."""

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.image import imread

from ..core.pictures import picture
from ..data.molecules import (
    Molecule,
    bond_orders,
    from_clouds,
    is_molecule_space,
    rdkit_molecule,
    stable_atoms,
)
from ..manifolds import PointCloud
from ._style import INK, set_title

# The usual colors of elements, and the areas of their balls.
_LOOK = {
    1: ("#e8e8e8", 60.0),
    6: ("#555555", 130.0),
    7: ("#3a5fcd", 130.0),
    8: ("#d62728", 130.0),
    9: ("#2ca02c", 120.0),
}


def molecules(values: Sequence[Molecule], columns: int = 6) -> Figure:
    """A grid of molecules: in space, and below flat as RDKit reads them where it is installed.

    Args:
        values: molecules; stable ones have their formula in the title, others are marked.
        columns: how many side by side.
    """
    values = list(values)
    if not values:
        raise ValueError("plots: there are no molecules to draw.")
    columns = min(columns, len(values))
    rows = -(-len(values) // columns)
    figure = Figure(figsize=(1.9 * columns, 3.7 * rows), layout="constrained")
    grid = figure.add_gridspec(2 * rows, columns, height_ratios=[1.15, 1] * rows)
    for number, molecule in enumerate(values):
        row, column = divmod(number, columns)
        _draw_space(figure.add_subplot(grid[2 * row, column], projection="3d"), molecule)
        _draw_flat(figure.add_subplot(grid[2 * row + 1, column]), molecule)
    return figure


@picture(PointCloud, when=is_molecule_space)
def _points(values: Any, manifold: PointCloud, axes: Any) -> Figure:
    return molecules(from_clouds(np.asarray(values)[:12], manifold))


def _draw_space(axes: Any, molecule):
    places = molecule.places - molecule.places.mean(axis=0)
    # Along the directions in which it is longest, so that it is seen from its broad side.
    places = places @ np.linalg.svd(places, full_matrices=False)[2].T
    for i, j in np.argwhere(np.triu(bond_orders(molecule)) > 0):
        axes.plot(*places[[i, j]].T, color="#888888", linewidth=2.2, zorder=1)
    colors = [_LOOK[int(number)][0] for number in molecule.numbers]
    sizes = [_LOOK[int(number)][1] for number in molecule.numbers]
    axes.scatter(
        *places.T, c=colors, s=sizes, edgecolors=INK, linewidths=0.5, depthshade=False, zorder=2
    )
    reach = max(float(np.abs(places).max()), 1.0)
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), zlim=(-reach, reach))
    axes.set_box_aspect((1, 1, 1), zoom=1.45)
    axes.view_init(elev=60, azim=-90)
    axes.set_axis_off()
    stable = bool(np.all(stable_atoms(molecule)))
    set_title(axes, _formula(molecule) + ("" if stable else " (not stable)"))


def _formula(molecule):
    symbols = {6: "C", 1: "H", 7: "N", 8: "O", 9: "F"}
    counts = {symbol: int(np.sum(molecule.numbers == z)) for z, symbol in symbols.items()}
    return "".join(f"{s}{_subscript(c)}" for s, c in counts.items() if c)


def _subscript(count):
    return "" if count == 1 else f"$_{{{count}}}$"


def _draw_flat(axes, molecule):
    axes.set_axis_off()
    try:
        from rdkit import Chem
        from rdkit.Chem import rdDepictor
        from rdkit.Chem.Draw import rdMolDraw2D
    except ImportError:
        return
    made = rdkit_molecule(molecule)
    if made is None:
        axes.text(0.5, 0.5, "not valid", ha="center", va="center", fontsize=9, color=INK)
        return
    made = Chem.RemoveHs(made, sanitize=False)
    rdDepictor.Compute2DCoords(made)
    drawer = rdMolDraw2D.MolDraw2DCairo(300, 240)
    drawer.DrawMolecule(made)
    drawer.FinishDrawing()
    axes.imshow(imread(io.BytesIO(drawer.GetDrawingText()), format="png"))
