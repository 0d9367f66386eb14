"""Pictures of points, densities, kernels and models, with matplotlib.

Every function returns a figure, and draws on `axes` if they are given.  Open `_sphere` first: like
it, the file of each family registers how its points are drawn, and is imported here.
"""

from collections.abc import Sequence
from typing import Any

try:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
except ImportError as _error:
    raise ImportError(
        "calor.plots needs matplotlib, which is not installed; run: pip install 'calor[demo]'"
    ) from _error

from ..core.pictures import PICTURES
from ..manifolds import AbstractManifold
from ._angles import angles as angles
from ._curves import certificate as certificate
from ._curves import histories as histories
from ._matrices import ellipses as ellipses
from ._matrices import ellipsoids as ellipsoids
from ._matrices import spectra as spectra
from ._molecules import molecules as molecules
from ._populations import mean_matrices as mean_matrices
from ._populations import scatter as scatter
from ._rotations import rotation_density as rotation_density
from ._rotations import rotations as rotations
from ._sphere import globe as globe
from ._sphere import world as world
from ._sphere import world_map as world_map
from ._style import AXIS_COLORS as AXIS_COLORS
from ._style import COLORS as COLORS
from ._style import color_bar as color_bar
from ._surfaces import surface as surface


def points(
    values: Any, manifold: AbstractManifold, axes: Axes | Sequence[Axes] | None = None
) -> Figure:
    """Points of a manifold, in the way that suits it.

    S^2 as a map, SO(3) by where axes go, T^2 as angles, SPD(2) and SPD(3) as ellipses and
    ellipsoids, SPD(n) by eigenvalues, a `Submanifold` of R^3 as a surface, molecules (the first
    twelve) as balls and sticks.

    Args:
        values: points along the first axis.
        manifold: where they are.
        axes: where to draw; by default a new figure.

    Returns:
        The figure.
    """
    found = PICTURES.find(manifold)
    if found is not None:
        return found.made(values, manifold, axes)
    raise ValueError(
        f"points of {manifold} cannot be drawn; those of S^2, SO(3), T^2, SPD(n), of surfaces in "
        "R^3 and molecules can."
    )


SEES = ("core", "manifolds", "data")
