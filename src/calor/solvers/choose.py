"""Which heat kernel for which manifold."""

import dataclasses
import warnings
from pathlib import Path
from typing import Any

import jax.random as jr
import numpy as np

from ..core import folders
from ..core.checks import random_key
from ..core.doors import warn
from ..core.types import Key
from ..heat import exact as exact  # imported for what it registers
from ..heat.certificate import Certificate
from ..heat.clouds.kernel import CloudKernel
from ..heat.early.geodesics import last_of_law, shortest_length
from ..heat.kernel import AbstractHeatKernel, UnsolvedError
from ..heat.methods import method, methods, with_key
from ..manifolds import (
    AbstractManifold,
    AbstractQuotient,
    AbstractSymmetricSpace,
    PointCloud,
    Submanifold,
)
from ..manifolds.names import name_of
from ..store.stored import load
from . import cache
from .elements.solve import check_compact, solve_elements
from .forms.clouds import CloudSolution
from .solve import solve
from .solved import LearnedKernel, learned_kernel
from .spectral.galerkin import LARGEST_DIMENSION, solve_spectral

# A typical error of log p with which `auto` is content.
_GOOD = 0.02
_SHIPPED = Path(__file__).with_name("shipped")

Place = str | Path | None
"""A folder for kernels, or None for the usual one."""


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
            a key, one solved now), `"elements"` (a closed surface in R^3 given by its equation,
            solved now), `"spectral"` (a compact `Submanifold` of up to three dimensions, solved
            now), `"short-time"` (the most accurate short-time law), or `"auto"`: exact if there is
            such a kernel, else solved now if there is a key, else shipped, else short-time.  A
            `Submanifold` is always solved now: by elements, or else by a series, and if the
            certificate of that is not good, by a network too: at every time what is best by
            certificate speaks, law, network or series.  On a `PointCloud` also `"bethe"`,
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
    known = methods(manifold)
    own = known.pop("auto", None)
    if method == "auto":
        if own is not None and own.ready(manifold, key):
            return own.build(key, cache)
        ready = [name for name, found in known.items() if found.ready(manifold, key)]
        method = min(ready, key=lambda name: known[name].rank, default=method)
    if not isinstance(method, str) or method not in known:
        names = ", ".join(repr(name) for name in known)
        raise ValueError(f"heat_kernel: {manifold} has no method {method!r}; it has {names}.")
    return known[method].build(key, cache)


# What ships with calor, or is solved now.


def _shipped(manifold):
    """The file of the kernel that ships with calor, if there is one."""
    try:
        file = _SHIPPED / f"{name_of(manifold).replace(':', '-')}.calor"
    except ValueError:  # a manifold without a name
        return None
    return file if file.is_file() else None


def _is_shipped(manifold):
    return _shipped(manifold) is not None


def _is_there(manifold, key):
    return with_key(manifold, key) or _is_shipped(manifold)


@method(AbstractSymmetricSpace, "pinn", rank=2, ready=_is_there)
@method(AbstractQuotient, "pinn", rank=2, ready=_is_there, when=_is_shipped)
def _solved(manifold: AbstractManifold, *, key: Key | None, cache: Place) -> AbstractHeatKernel:
    """The kernel that ships with calor or, with a key, one solved now."""
    if key is not None:
        return solve(manifold, key=key)
    file = _shipped(manifold)
    if file is None:
        raise ValueError(
            f"heat_kernel: no solved kernel of {manifold} ships with calor; give a key to solve it "
            "now, as in heat_kernel(manifold, 'pinn', key=jax.random.key(0))."
        )
    return load(file)


@method(PointCloud, "pinn", rank=2)
def _solved_cloud(manifold: PointCloud, *, key: Key | None, cache: Place) -> AbstractHeatKernel:
    """The network that ships with calor, which serves all clouds, or one trained now."""
    if key is not None:
        return solve(manifold, key=key)
    shipped = load(_SHIPPED / "cloud.calor")
    solution = CloudSolution(manifold, shipped.solution.matching)
    parts = shipped.certificate, shipped.record
    interval = shipped.t0, shipped.t1
    return learned_kernel(manifold, CloudKernel(manifold), solution, interval, *parts)


# A user's own manifolds, in the order in which ways to their kernels are tried.


def _is_surface(manifold):
    return manifold.is_compact() and manifold.dim == 2 and manifold.shape == (3,)


@method(Submanifold, "elements", rank=1, when=_is_surface)
def _elements(manifold: Submanifold, *, key: Key | None, cache: Place) -> Any:
    return _kept(manifold, cache, "elements", solve_elements, key)


@method(
    Submanifold,
    "spectral",
    rank=1,
    ready=with_key,
    when=lambda manifold: manifold.is_compact() and manifold.dim <= LARGEST_DIMENSION,
)
def _series(manifold: Submanifold, *, key: Key | None, cache: Place) -> Any:
    return _kept(manifold, cache, "spectral", solve_spectral, key)


@method(Submanifold, "pinn", rank=2, ready=with_key, when=lambda manifold: bool(manifold.anchors))
def _network(manifold: Submanifold, *, key: Key | None, cache: Place) -> Any:
    return _kept(manifold, cache, "pinn", solve, key)


@method(Submanifold, "auto")
def _best(manifold: Submanifold, *, key: Key | None, cache: Place) -> AbstractHeatKernel:
    """The best by certificate: elements, a series, a network, or at each time one of them."""
    best = lambda manifold, *, key: _best_solved(manifold, key, cache)
    return _kept(manifold, cache, "auto", best, key)


def _best_solved(manifold, key, cache):
    known = methods(manifold)
    if "pinn" not in known:
        raise ValueError(
            f"heat_kernel: {manifold} is an open set, which is not compact: say where its kernel "
            "is needed, as in Submanifold(None, n, metric, around=points), or ask for "
            "'short-time', which is good for small t."
        )
    if manifold.is_compact():
        check_compact(manifold)
    series: Any = None
    for name in ("elements", "spectral"):
        if name not in known:
            continue
        try:
            found: Any = known[name].build(key, cache)
        except UnsolvedError as error:
            warn(f"heat_kernel: another way is tried, since {name!r} failed: {error}")
            continue
        if series is None or found.certificate.typical() < series.certificate.typical():
            series = found
        if series.certificate.typical() < _GOOD:
            return series
    return _with_network(known["pinn"].build(key, cache), series)


def _with_network(solved: Any, series: Any) -> AbstractHeatKernel:
    """A network, and at the times at which a series is better by certificate that one."""
    network = _law_for_longer(solved)
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


def _law_for_longer(network: LearnedKernel) -> LearnedKernel:
    """The network, from when on its certificate is better than that of the law before it."""
    own: Any = network.manifold
    last = min(network.t1, last_of_law(shortest_length(own)))
    law = network.law.certified(last) if last > network.t0 else None
    if law is None:
        return network
    switch = _better_from(network.certificate, law, network.t0, law.times[-1]) or law.times[-1]
    if switch <= network.t0:
        return network
    certificate = network.certificate.after(switch, law.until(switch))
    return dataclasses.replace(network, t0=switch, certificate=certificate)


def _better_from(late: Certificate, early: Certificate, start: float, end: float) -> float | None:
    """The first time from which on one certificate is better than the other, until an end."""
    times = np.geomspace(start, max(start, end), 200)
    worse = [i for i, t in enumerate(times) if not late.estimate(t) < early.estimate(t)]
    if len(times) - 1 in worse:
        return None
    return float(times[worse[-1] + 1 if worse else 0])


# What is kept on disk.


def _kept(manifold, place, method, solver, key):
    """The kernel that was solved before, or one solved now."""
    key = None if key is None else random_key(key, "heat_kernel")
    name = cache.fingerprint(manifold, key, {"method": method})
    path = folders.folder(place) / f"{name}.calor"
    found = cache.find(path, manifold)
    if found is None:
        # Without a key what is random follows from the equations: the same ones, the same kernel.
        found = solver(manifold, key=jr.key(int(name[:7], 16)) if key is None else key)
        try:
            cache.store(path, found)
        except (OSError, ValueError) as error:
            warnings.warn(f"heat_kernel: the kernel is not kept in {path}: {error}", stacklevel=5)
    return found
