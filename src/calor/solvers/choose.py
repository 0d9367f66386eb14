"""Which heat kernel for which manifold."""

import dataclasses
import functools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.random as jr
import numpy as np

from ..core.checks import random_key
from ..core.types import Key
from ..heat.clouds.kernel import CloudKernel
from ..heat.clouds.matchings import Bethe, Exact, Labelled, Sinkhorn
from ..heat.clouds.permanents import LARGEST_EXACT
from ..heat.combined import ProductKernel, QuotientKernel
from ..heat.early.certify import certify_law
from ..heat.early.geodesics import GeodesicLaw, last_of_law, shortest_length
from ..heat.early.laws import short_time_law
from ..heat.exact.flat import EuclideanKernel, TorusKernel
from ..heat.exact.hyperbolic import HyperbolicKernel
from ..heat.exact.spd import SPD2Kernel
from ..heat.exact.sphere import SphereKernel
from ..heat.kernel import AbstractHeatKernel
from ..manifolds import (
    SPD,
    AbstractManifold,
    AbstractQuotient,
    AbstractSymmetricSpace,
    Euclidean,
    Hyperbolic,
    PointCloud,
    Product,
    Sphere,
    Submanifold,
    Torus,
)
from ..manifolds.names import name_of
from ..store import folders
from ..store.stored import load
from . import cache
from .forms.clouds import CloudSolution
from .solve import solve
from .solved import learned_kernel
from .spectral.galerkin import LARGEST_DIMENSION, solve_spectral

# A typical error of log p with which `auto` is content.
_GOOD = 0.01

_Builder = Callable[[Key | None], AbstractHeatKernel]


def heat_kernel(
    manifold: AbstractManifold,
    method: str = "auto",
    *,
    key: Key | None = None,
    cache: str | Path | None = None,
) -> AbstractHeatKernel:
    """The heat kernel of a manifold.

    Args:
        manifold: any manifold of calor.
        method: `"exact"`, `"pinn"` (solved by a network: the kernel that ships with calor, or, with
            a key, one solved now), `"spectral"` (a `Submanifold` of up to three dimensions, solved
            now), `"short-time"` (the most accurate short-time law), or `"auto"`: the first of
            exact, shipped, solved now if there is a key, and short-time.  On a `Submanifold` the
            series, and if its certificate is not good, a network too: at every time what is best
            by certificate speaks, law, network or series.  On a `PointCloud` also `"bethe"`,
            `"sinkhorn"` and `"labelled"`: how permutations are summed, see `calor.matchings`.
        key: a random key; it asks for solving now, which takes minutes.
        cache: a folder for solved kernels of a `Submanifold`, so that the second call is instant;
            by default the one that CALOR_CACHE names, or `~/.cache/calor`.

    Returns:
        A kernel with `log_prob`, `score` and `sample`.
    """
    if not isinstance(manifold, AbstractManifold):
        raise TypeError(
            f"heat_kernel: manifold must be a manifold such as calor.Sphere(2), got "
            f"{manifold!r:.80}."
        )
    builders = _builders(manifold, cache)
    if method == "auto":
        if isinstance(manifold, Submanifold) and key is not None:
            solver = functools.partial(_best_solved, cache=cache)
            return _kept(manifold, cache, "auto", solver, key)
        method = _best(manifold, builders, key)
    if not isinstance(method, str) or method not in builders:
        known = ", ".join(repr(name) for name in builders)
        raise ValueError(f"heat_kernel: {manifold} has no method {method!r}; it has {known}.")
    return builders[method](key)


def _best(manifold, builders, key):
    if "exact" in builders:
        return "exact"
    if "spectral" in builders and key is not None:  # a quotient or product of Submanifolds
        return "spectral"
    if "pinn" in builders and (key is not None or _is_shipped(manifold)):
        return "pinn"
    return "short-time" if "short-time" in builders else "bethe"


def _best_solved(manifold, *, key, cache):
    """The best by certificate, at every time: of the law along geodesics, a network, a series."""
    builders: dict[str, Any] = _builders(manifold, cache)
    series = builders["spectral"](key) if "spectral" in builders else None
    if series is not None and _last_error(series.certificate) < _GOOD:
        return series
    if "pinn" not in builders:
        raise ValueError(
            f"heat_kernel: {manifold} is an open set, which is not compact: say where its kernel "
            "is needed, as in Submanifold(None, n, metric, around=points), or ask for "
            "'short-time', which is good for small t."
        )
    network = _law_for_longer(builders["pinn"](key), key)
    if series is None:
        return network
    # A series is poor early, where it has too few terms, and a network late, by when its errors
    # have added up.
    both = min(series.certificate.times[-1], network.certificate.times[-1])
    switch = _better_from(series.certificate, network.certificate, network.t0, both)
    if switch is None:
        return network
    if switch <= max(network.t0, series.t0):
        return series
    early = dataclasses.replace(network, certificate=network.certificate.until(switch))
    certificate = series.certificate.after(switch, early.certificate)
    return dataclasses.replace(series, law=early, t0=switch, certificate=certificate)


def _law_for_longer(network, key):
    """The network, from when on its certificate is better than that of the law before it."""
    last = min(network.t1, last_of_law(shortest_length(network.manifold)))
    if last <= network.t0:
        return network
    law = certify_law(network.law, last, key=jr.fold_in(key, 1))
    switch = _better_from(network.certificate, law, network.t0, law.times[-1]) or law.times[-1]
    if switch <= network.t0:
        return network
    certificate = network.certificate.after(switch, law.until(switch))
    return dataclasses.replace(network, t0=switch, certificate=certificate)


def _better_from(late, early, start, end):
    """The first time from which on one certificate is better than the other, until an end."""
    times = np.geomspace(start, max(start, end), 200)
    worse = [i for i, t in enumerate(times) if not late.estimate(t) < early.estimate(t)]
    if len(times) - 1 in worse:
        return None
    return float(times[worse[-1] + 1 if worse else 0])


def _last_error(certificate):
    return certificate.estimate(certificate.times[-1])


def _builders(manifold: AbstractManifold, cache: str | Path | None) -> dict[str, _Builder]:
    """The methods that a manifold has, best first."""
    if isinstance(manifold, Product):
        parts = [_builders(factor, cache) for factor in manifold.manifolds]
        return {
            method: functools.partial(_product, manifold, [part[method] for part in parts])
            for method in parts[0]
            if all(method in part for part in parts)
        }
    if isinstance(manifold, AbstractQuotient):
        builders = {
            method: functools.partial(_quotient, manifold, builder)
            for method, builder in _builders(manifold.cover, cache).items()
        }
        if "pinn" in builders and _is_shipped(manifold):
            builders["pinn"] = functools.partial(_solved, manifold)
        return builders
    if isinstance(manifold, PointCloud):
        return _cloud_builders(manifold)
    exact: Any = {
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
        builders["exact"] = lambda key: exact(manifold)
    if isinstance(manifold, AbstractSymmetricSpace):
        builders["pinn"] = functools.partial(_solved, manifold)
    if isinstance(manifold, Submanifold):
        if manifold.is_compact() and manifold.dim <= LARGEST_DIMENSION:
            builders["spectral"] = functools.partial(
                _kept, manifold, cache, "spectral", solve_spectral
            )
        if manifold.anchors:
            builders["pinn"] = functools.partial(_kept, manifold, cache, "pinn", solve)
        builders["short-time"] = lambda key: GeodesicLaw(manifold)
        return builders
    builders["short-time"] = lambda key: short_time_law(manifold)
    return builders


def _cloud_builders(manifold):
    """The ways of matching points: one network serves clouds of any size."""
    matchings = {"bethe": Bethe, "sinkhorn": Sinkhorn, "labelled": Labelled}
    if manifold.size <= LARGEST_EXACT:
        matchings = {"exact": Exact, **matchings}
    builders: dict[str, _Builder] = {
        method: functools.partial(_matched, manifold, matching)
        for method, matching in matchings.items()
    }
    return {**builders, "pinn": functools.partial(_solved_cloud, manifold)}


def _matched(manifold, matching, key):
    return CloudKernel(manifold, matching())


def _solved_cloud(manifold, key):
    """The network that ships with calor, which serves all clouds, or one trained now."""
    if key is not None:
        return solve(manifold, key=key)
    shipped = load(_shipped_file(manifold))
    solution = CloudSolution(manifold, shipped.solution.matching)
    parts = shipped.certificate, shipped.record
    interval = shipped.t0, shipped.t1
    return learned_kernel(manifold, CloudKernel(manifold), solution, interval, *parts)


def _kept(manifold, place, method, solver, key):
    """The kernel that was solved before, or one solved now."""
    if key is None:
        raise ValueError(
            f"heat_kernel: {manifold} is solved now, from random points; give a key, as in "
            "heat_kernel(manifold, key=jax.random.key(0))."
        )
    key = random_key(key, "heat_kernel")
    name = cache.fingerprint(manifold, key, {"method": method})
    path = folders.folder(place) / f"{name}.calor"
    found = cache.find(path, manifold)
    if found is None:
        found = solver(manifold, key=key)
        try:
            cache.store(path, found)
        except (OSError, ValueError) as error:
            warnings.warn(f"heat_kernel: the kernel is not kept in {path}: {error}", stacklevel=4)
    return found


def _solved(manifold, key):
    """The kernel that ships with calor or, with a key, one solved now."""
    if key is not None:
        return solve(manifold, key=key)
    if not _is_shipped(manifold):
        raise ValueError(
            f"heat_kernel: no solved kernel of {manifold} ships with calor; give a key to solve it "
            "now, as in heat_kernel(manifold, 'pinn', key=jax.random.key(0))."
        )
    return load(_shipped_file(manifold))


def _shipped_file(manifold):
    if isinstance(manifold, PointCloud):  # one network serves clouds of any size
        return Path(__file__).with_name("shipped") / "cloud.calor"
    return Path(__file__).with_name("shipped") / f"{name_of(manifold).replace(':', '-')}.calor"


def _is_shipped(manifold):
    try:
        return _shipped_file(manifold).is_file()
    except ValueError:  # a manifold without a name
        return False


def _product(manifold, builders, key):
    keys = [None] * len(builders) if key is None else jr.split(key, len(builders))
    parts = zip(builders, keys, strict=True)
    return ProductKernel(manifold, tuple(builder(k) for builder, k in parts))


def _quotient(manifold, builder, key):
    return QuotientKernel(manifold, builder(key))
