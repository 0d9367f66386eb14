"""Names of manifolds, for files and the command line: `sphere:2`, `so3*euclidean:3`, `spd:10`."""

from .manifolds import SO3, SPD, AbstractManifold, Euclidean, Hyperbolic, Product, Sphere, Torus

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
    if kind not in _SIZED:
        known = ", ".join(f"{kind}:N" for kind in _SIZED)
        raise ValueError(f"unknown manifold {name!r}; known are so3, {known}")
    if not size.isdecimal() or not 1 <= int(size) <= 1000:
        raise ValueError(
            f"{kind} needs its size, a whole number from 1 to 1000, as in {kind}:2; got {name!r}"
        )
    return _SIZED[kind](int(size))


def name_of(manifold: AbstractManifold) -> str:
    """The name of a manifold; the inverse of `manifold_named`."""
    if type(manifold) is SO3:
        return "so3"
    if type(manifold) is Product:
        return "*".join(name_of(factor) for factor in manifold.manifolds)
    for kind, manifold_class in _SIZED.items():
        if type(manifold) is manifold_class:
            return f"{kind}:{manifold.size if isinstance(manifold, SPD) else manifold.dim}"
    raise ValueError(
        f"{manifold} has no name to be saved under; Euclidean, Sphere, Torus, Hyperbolic, SPD, SO3 "
        "and products of them have."
    )
