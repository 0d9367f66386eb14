"""Names of manifolds, for files and the command line: `sphere:2`, `so3*euclidean:3`, `spd:10`.

Clouds of 9 points of R^3 are `cloud:9x3`, of 3 to 29 points of R^8 whose first three coordinates
are centred `cloud:3-29x8c3`.
"""

import re

from . import SO3, SPD, AbstractManifold, Euclidean, Hyperbolic, PointCloud, Product, Sphere, Torus

_SIZED = {
    "euclidean": Euclidean,
    "sphere": Sphere,
    "torus": Torus,
    "hyperbolic": Hyperbolic,
    "spd": SPD,
}


def manifold_named(name: str) -> AbstractManifold:
    """The manifold with a name such as `sphere:2`."""
    if "*" in name:
        return Product(*(manifold_named(part) for part in name.split("*")))
    kind, colon, size = name.strip().lower().partition(":")
    if kind == "so3" and not colon:
        return SO3()
    if kind == "cloud":
        return _cloud(name, size)
    if kind not in _SIZED:
        known = ", ".join(f"{kind}:N" for kind in _SIZED) + ", cloud:NxK"
        raise ValueError(f"unknown manifold {name!r}; known are so3, {known}")
    if not size.isdecimal() or not 1 <= int(size) <= 1000:
        raise ValueError(
            f"{kind} needs its size, a whole number from 1 to 1000, as in {kind}:2; got {name!r}"
        )
    return _SIZED[kind](int(size))


def _cloud(name, size):
    parts = re.fullmatch(r"(?:(\d{1,3})-)?(\d{1,3})x(\d{1,3})(?:c(\d{1,3}))?", size)
    if parts is None:
        raise ValueError(
            f"a cloud needs its number of points and of coordinates, as in cloud:9x3, or "
            f"cloud:3-29x8c3 for 3 to 29 points, three coordinates centred; got {name!r}"
        )
    smallest, n, k, centred = (None if part is None else int(part) for part in parts.groups())
    return PointCloud(n or 0, k or 0, smallest=smallest, centred=centred or 0)


def name_of(manifold: AbstractManifold) -> str:
    """The name of a manifold; the inverse of `manifold_named`."""
    if type(manifold) is SO3:
        return "so3"
    if type(manifold) is Product:
        return "*".join(name_of(factor) for factor in manifold.manifolds)
    if type(manifold) is PointCloud:
        fewest = f"{manifold.smallest}-" if manifold.is_varying else ""
        centred = f"c{manifold.centred}" if manifold.centred else ""
        return f"cloud:{fewest}{manifold.size}x{manifold.features}{centred}"
    for kind, manifold_class in _SIZED.items():
        if type(manifold) is manifold_class:
            return f"{kind}:{manifold.size if isinstance(manifold, SPD) else manifold.dim}"
    raise ValueError(
        f"{manifold} has no name to be saved under; Euclidean, Sphere, Torus, Hyperbolic, SPD, "
        "SO3, PointCloud and products of them have."
    )
