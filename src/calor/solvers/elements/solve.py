r"""The heat kernel of a closed surface, from its equations, by curved elements of high order.

The surface is found and meshed (`search`), triangles are made as large as elements of order eight
may be (`remesh`), and moved onto it exactly (`geometry`).  Eigenfunctions are continuous functions
that are polynomials on every triangle (`space`, `eigen`).  Low order is a false economy: at equal
time order 8 is a hundred times more accurate than order 4.

By Weyl's law lambda_k is about 4 pi k / area; the series of K terms is complete from a time t0 on
with lambda_K t0 = 20, where p is resolved down to some 1e-8 of its top.  Below speaks the law along
shot geodesics.
"""

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ...core.bar import bar
from ...core.checks import positive_integer, random_key
from ...core.types import Key
from ...heat.certificate import TIMES
from ...heat.early.geodesics import GeodesicLaw
from ...manifolds import Submanifold
from . import reference
from .certificate import ElementCertificate, MeasuredLaw, Table, errors
from .eigen import Eigenpairs, lowest
from .functions import Elements, elements_of
from .kernel import ElementKernel
from .level import Level, level_of
from .remesh import remesh
from .search import box_of, first_mesh, normals_of
from .space import Space, build
from .topology import MeshError

ORDER = 8
# Gauss points in each direction, more than for polynomials: the map of a triangle is none.
_GAUSS = ORDER + 6
# The lower order that the solution is compared with.
_LOWER = 6
# The series begins where its last term has this exponent.
_COMPLETE = 20.0
# Edges in units of the root of t0, and by how much tangent planes turn along them.
_EDGE, _TURN = 2.1, 0.65
# Eigenpairs with a larger residual are left out.
_CONVERGED = 1e-3
# Meshes are refined by a factor until the error at t0 where p > 1e-4 of its top is good.
_GOOD, _FINER, _ATTEMPTS, _MOST_NODES = 3e-3, 0.75, 3, 60_000
# Points that solutions are compared at, sources among them.
_POINTS, _SOURCES = 1500, 8
# Draws of the law that it is measured at.
_DRAWS = 256


class Solution(NamedTuple):
    """Eigenpairs on elements."""

    space: Space
    pairs: Eigenpairs

    def values_at(self, face: np.ndarray, point: np.ndarray, places: Space) -> Table:
        """At points of quadrature of some triangles, those of another space on the same mesh."""
        basis, slopes = (of[point] for of in reference.tabulated(self.space.order, _GAUSS))
        around = self.pairs.vectors[self.space.nodes[face]]
        metric, tangents = places.metric[face, point], places.tangents[face, point]
        raised = np.linalg.solve(metric, tangents)  # G^-1 x_u, as rows
        ambient = np.einsum("pan,pja->pnj", raised, slopes)
        values = np.einsum("pj,pjk->pk", basis, around)
        return Table(self.pairs.values, values, np.einsum("pnj,pjk->pnk", ambient, around))


def solve_elements(
    manifold: Submanifold,
    *,
    key: Key | None = None,
    functions: int = 400,
    progress: bool | None = None,
) -> ElementKernel:
    """The heat kernel of a closed surface in R^3 that is given by its equation.

    Args:
        manifold: the surface, of any genus.
        key: a random key, for the start of an iteration and for the points that are compared; by
            default always the same one, since the solution does not depend on it.
        functions: how many eigenfunctions there are; the series begins the earlier the more.
        progress: whether to show a progress bar; by default on a terminal only.
    """
    if not (manifold.is_compact() and manifold.dim == 2 and manifold.shape == (3,)):
        raise ValueError(
            f"solve_elements: elements are for closed surfaces in R^3, {manifold} is none; use "
            "'spectral' for compact manifolds of at most three dimensions, 'pinn' for others."
        )
    functions = positive_integer(functions, "functions", "solve_elements", at_least=16)
    key = jr.key(0) if key is None else random_key(key, "solve_elements")
    seed = int(jr.randint(key, (), 0, 2**31 - 1))
    with jax.enable_x64(True), bar(6, f"solving {manifold}", progress=progress) as shown:
        return _solve(manifold, seed, functions, shown)


def check_compact(manifold: Submanifold) -> None:
    """Raise an error that says what to do if a set given by equations does not seem compact."""
    with jax.enable_x64(True):
        level = level_of(manifold)
        box_of(level, level.project(np.asarray(manifold.anchors, float), 20))


def _solve(manifold, seed, functions, shown):
    def say(stage):
        shown.set_postfix_str(stage)
        shown.update()

    say("finding the surface")
    level = level_of(manifold)
    points = np.asarray(manifold.anchors, float)
    coarse = first_mesh(level, level.project(points, 20))
    area = _first_area(level, *coarse)
    size = _EDGE * np.sqrt(_COMPLETE * area / (4 * np.pi * functions))
    best, problem = None, None
    badness = lambda kernel: kernel.certificate.largest[1][0]
    for attempt in range(_ATTEMPTS):
        finer = _FINER**attempt
        say("mesh")
        try:
            found = _solutions(level, coarse, size * finer, finer, functions, seed, say)
        except MeshError as error:
            problem = error
            continue
        say("certificate")
        made = _certified(manifold, *found, seed)
        best = made if best is None or badness(made) < badness(best) else best
        if badness(best) < _GOOD or found[0].space.size > _FINER**2 * _MOST_NODES:
            break
        shown.total += 4
    if best is None:
        raise MeshError(f"no mesh of {manifold} was fine enough: {problem}") from problem
    say("law for small times")
    return _joined(best, jr.key(seed))


def _first_area(level, points, faces):
    """About the area, in the metric."""
    flat = np.linalg.norm(normals_of(points, faces), axis=1) / 2
    return float(np.sum(flat * level.stretch(points[faces[:, 0]]) ** 2))


def _solutions(
    level: Level, coarse: Any, size: float, finer: float, functions: int, seed: int, say: Any
) -> tuple[Solution, Solution]:
    """The solution and one of lower order on the same mesh."""
    points, faces = remesh(level, coarse[0], coarse[1], size, _TURN * finer)
    found = []
    # Fewer points of quadrature for the lower order show what they are good for.
    for order, gauss in ((ORDER, _GAUSS), (_LOWER, _GAUSS - 3)):
        space = build(level, points, faces, order, gauss)
        if space.size > _MOST_NODES:
            raise MeshError(f"{len(faces)} triangles and {space.size} nodes are too many")
        say(f"eigenfunctions, order {order}")
        count = min(functions, space.size // 3)
        try:
            pairs = lowest(space.stiffness, space.mass, count, space.area, seed=seed)
        except (np.linalg.LinAlgError, RuntimeError) as error:
            raise MeshError(f"no eigenfunctions on {level.manifold}: {error}") from error
        found.append(Solution(space, pairs))
    return found[0], found[1]


def _certified(manifold: Submanifold, fine: Solution, low: Solution, seed: int) -> ElementKernel:
    """The kernel in single precision, with what the comparison says of it."""
    good = (fine.pairs.residuals < _CONVERGED) & (low.pairs.residuals < _CONVERGED)
    count = len(good) if good.all() else max(int(np.argmin(good)), 2)
    values, vectors = fine.pairs.values[:count], fine.pairs.vectors[:, :count]
    space, t0 = fine.space, float(_COMPLETE / values[-1])
    law = GeodesicLaw(manifold, t0)
    unfinished: Any = None
    kernel = ElementKernel(
        manifold=manifold,
        law=law,
        elements=elements_of(manifold, space),
        eigenvalues=jnp.asarray(values),
        functions=jnp.asarray(vectors),
        integrals=jnp.asarray(_integrals(space, vectors)),
        factors=jnp.asarray(space.factors),
        log_volume=jnp.asarray(np.log(space.area)),
        t0=t0,
        certificate=unfinished,
    )
    kernel = jax.tree.map(lambda a: a.astype(jnp.float32) if eqx.is_inexact_array(a) else a, kernel)
    random = np.random.default_rng(seed)
    share = space.weights.ravel() / space.area
    chosen = random.choice(len(share), _POINTS, p=share)
    face, point = np.divmod(chosen, space.weights.shape[1])
    lower = Solution(
        low.space, Eigenpairs(low.pairs.values[:count], low.pairs.vectors[:, :count], good)
    )
    times = np.geomspace(t0, max(6 / values[1], 4 * t0), TIMES)
    own = _as_used(kernel, space.places[face, point])
    smallest = 32 * float(np.finfo(np.float32).eps)
    measured = errors(own, lower.values_at(face, point, space), times, _SOURCES, smallest)
    if not np.isfinite([measured["mean"], measured["score"]]).all():
        raise MeshError(f"the kernel of {manifold} is NaN or infinite at some points")
    certificate = ElementCertificate(
        manifold=manifold,
        t0=t0,
        times=tuple(times.tolist()),
        points=_POINTS * _SOURCES,
        elements=len(space.faces),
        nodes=space.size,
        functions=count,
        area_error=abs(low.space.area / space.area - 1),
        method=f"elements of order {space.order}",
        **measured,
    )
    return dataclasses.replace(kernel, certificate=certificate)


def _joined(kernel: ElementKernel, key: Key) -> ElementKernel:
    """The kernel with the law up to the time at which its scores differ least from the series'.

    The law is the poorer the later, the series the earlier: there both are about as good.
    """
    late = kernel.t0
    times = late * np.geomspace(1 / 16, 1, 9)
    with jax.enable_x64(False):
        key_source, key_draw = jr.split(key)
        walk = jax.jit(jax.vmap(kernel.late_draw, (None, None, 0)))
        # So late that they are nearly uniform.
        sources = walk(
            jnp.exp(kernel.log_volume), kernel.elements.points[0], jr.split(key_source, _DRAWS)
        )
        keys = jr.split(key_draw, _DRAWS)
        rows = np.array([_law_errors(kernel, jnp.asarray(t), sources, keys) for t in times], float)
    known = np.isfinite(rows).all(axis=1)
    last = int(np.argmin(np.where(known, rows[:, 2], np.inf))) if known.any() else len(times) - 1
    columns = np.clip(np.nan_to_num(rows[max(last - 1, 0) : last + 1], nan=1e9), 1e-9, 1e9).T
    largest, mean, score = (tuple(column.tolist()) for column in columns)
    law = MeasuredLaw(
        manifold=kernel.manifold,
        times=tuple(times[max(last - 1, 0) : last + 1].tolist()),
        largest=largest,
        mean=mean,
        score=score,
        points=_DRAWS,
    )
    t0 = float(times[last])
    certificate = kernel.certificate.since(t0, largest[-1], mean[-1], score[-1], law)
    law = GeodesicLaw(kernel.manifold, t0)
    return dataclasses.replace(kernel, law=law, t0=t0, certificate=certificate)


@eqx.filter_jit
def _law_errors(kernel: ElementKernel, t: Any, sources: Any, keys: Any):
    def one(x0, key):
        x, value, score = kernel.law.known_draw(t, x0, key)
        series, slope = kernel.late_both(t, x, x0)
        size = lambda v: kernel.manifold.inner_at(x, v, v)
        return jnp.abs(value - series), size(score - slope), size(slope)

    gaps, off, sizes = jax.vmap(one)(sources, keys)
    return jnp.nanmax(gaps), jnp.nanmean(gaps), jnp.sqrt(jnp.nanmean(off) / jnp.nanmean(sizes))


def _integrals(space: Space, vectors: np.ndarray) -> np.ndarray:
    """Of eigenfunctions over triangles."""
    basis, _ = reference.tabulated(space.order, _GAUSS)
    return np.einsum("mj,mjk->mk", space.weights @ basis, vectors[space.nodes])


def _as_used(kernel: ElementKernel, places: np.ndarray) -> Table:
    """Eigenfunctions at points whose triangles are searched for, in single precision."""
    with jax.enable_x64(False):
        points = jnp.asarray(np.asarray(places, np.float32))
        faces, basis, slopes = map(np.asarray, _found(kernel.elements, points))
    around = np.asarray(kernel.functions)[np.asarray(kernel.elements.nodes)[faces]]
    return Table(
        np.asarray(kernel.eigenvalues),
        np.einsum("pj,pjk->pk", basis, around),
        np.einsum("pnj,pjk->pnk", slopes, around),
    )


@eqx.filter_jit
def _found(elements: Elements, points: Any):
    def one(x):
        place = elements.find(x)
        return place.face, place.basis, elements.slopes(place)

    return jax.vmap(one)(points)
