"""Which heat kernel for which manifold."""

import functools
from collections.abc import Callable

from ._types import Key
from .exact.combined import ProductKernel, QuotientKernel
from .exact.flat import EuclideanKernel, TorusKernel
from .exact.hyperbolic import HyperbolicKernel
from .exact.spd import SPD2Kernel
from .exact.sphere import SphereKernel
from .heat import AbstractHeatKernel
from .manifolds import (
    SPD,
    AbstractManifold,
    AbstractQuotient,
    AbstractSymmetricSpace,
    Euclidean,
    Hyperbolic,
    Product,
    Sphere,
    Torus,
)
from .shorttime import FirstOrder, Parametrix, Varadhan

_Builder = Callable[[], AbstractHeatKernel]


def heat_kernel(
    manifold: AbstractManifold, method: str = "auto", *, key: Key | None = None
) -> AbstractHeatKernel:
    """The heat kernel of a manifold.

    Args:
        manifold: any manifold of calor.
        method: `"exact"`, `"short-time"` (the most accurate short-time law the manifold has), or
            `"auto"`: exact if it is known, else short-time.
        key: a random key, for methods that solve for the kernel; those here do not.

    Returns:
        A kernel with `log_prob`, `score` and `sample`.
    """
    del key
    if not isinstance(manifold, AbstractManifold):
        raise TypeError(
            f"heat_kernel: manifold must be a manifold such as calor.Sphere(2), got "
            f"{manifold!r:.80}."
        )
    builders = _builders(manifold)
    if method == "auto":
        method = next(iter(builders))
    if not isinstance(method, str) or method not in builders:
        known = ", ".join(repr(name) for name in builders)
        raise ValueError(f"heat_kernel: {manifold} has no method {method!r}; it has {known}.")
    return builders[method]()


def _builders(manifold: AbstractManifold) -> dict[str, _Builder]:
    """The methods that a manifold has, best first."""
    if isinstance(manifold, Product):
        parts = [_builders(factor) for factor in manifold.manifolds]
        return {
            method: functools.partial(_product, manifold, [part[method] for part in parts])
            for method in parts[0]
            if all(method in part for part in parts)
        }
    if isinstance(manifold, AbstractQuotient):
        return {
            method: functools.partial(_quotient, manifold, builder)
            for method, builder in _builders(manifold.cover).items()
        }
    exact = {
        Euclidean: EuclideanKernel,
        Torus: TorusKernel,
        Sphere: SphereKernel,
    }.get(type(manifold))
    if isinstance(manifold, Hyperbolic) and manifold.dim in (2, 3):
        exact = HyperbolicKernel
    if isinstance(manifold, SPD) and manifold.size == 2:
        exact = SPD2Kernel
    builders: dict[str, _Builder] = {}
    if exact is not None:
        builders["exact"] = functools.partial(exact, manifold)
    builders["short-time"] = functools.partial(_short_time, manifold)
    return builders


def _short_time(manifold):
    if isinstance(manifold, Sphere | Euclidean | Torus):
        return Parametrix(manifold, order=3)
    if isinstance(manifold, AbstractSymmetricSpace):
        return FirstOrder(manifold)
    return Varadhan(manifold)


def _product(manifold, builders):
    return ProductKernel(manifold, tuple(builder() for builder in builders))


def _quotient(manifold, builder):
    return QuotientKernel(manifold, builder())
