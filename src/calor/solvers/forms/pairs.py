r"""Solutions on a manifold without symmetry: log p as a network of time and of both points.

No isometry carries x0 to an origin, so a network sees the pair.  It is symmetric in x and x0 by
construction, since it sees their middle m = (x + x0)/2 and the products of the entries of the chord
z = L(m)^T (x - x0), with L L^T the ambient metric.  As `Settling` on symmetric spaces,

    log p = -c + w(t) [ base + N(t, m, z z^T, q, a) ],
    w = lambda / (4 (e^(lambda t) - 1)),    base = -|z|^2 - q/3 - 2 n t log 4 pi t + 4 c t,

so that N is of order one: at first it turns the chord into the distance, at last it is the first
eigenfunctions.  q is the mean of the squares of the normal parts of z at both ends: it tells how
much the manifold bends below the chord, and |z|^2 + q/3 is the squared distance on spheres up to
the sixth order in |z|.  a = tr(P P0) compares the tangent planes.

On an open set coordinates may be stretched without end, as on the half-plane, and straight lines
are bent.  Let e be the square of v = x - x0 in the metric of the middle and f the mean of its
squares in those of both ends.  If lengths along the line are exponential, as they are along the
axis of the half-plane and between multiples of a matrix of SPD(n), then, at whatever rate k,

    2 f / e = C (1 + C),   C = cosh(k l),   l^2 = e (1 + s) arcsinh(sqrt(s))^2 / s,   s = (C - 1)/2

is the square of its length.  Its ends are nearer than that if it is bent, by the normal part of
the Christoffel symbols Gamma(v, v) = e b; if it is a horocycle, which has b = 1, their distance is

    d = (2 / b) arcsinh(b l / 2).

This d^2 takes the place of |z|^2 + q/3; in flat space s = b = 0.  The network sees the inverse
hyperbolic sines of what it sees elsewhere and of (b l)^2, and log f/e.

The constant c is the logarithm of the volume.  At early times any guess of it will do; at late
times vol p has the mean one over the manifold, and tells it.  On a manifold that is not compact
lambda = 0 and w = 1/4t; c plays no role.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...core.numerics import arcsinh_ratio, cholesky_rows
from ...core.types import Key, Point, Scalar
from ...manifolds import Submanifold
from ...store.stored import stored
from ...training.sets import SetNetwork, set_network
from ..draws import AbstractDraws, CorrectedWalk, Phi
from .base import AbstractSolution, in_window, remaining, settling


class Window(NamedTuple):
    """A window of time."""

    c: Scalar
    """The logarithm of the volume, as far as it is known then."""
    start: Scalar
    end: Scalar


@stored("PairForm")
class PairForm(eqx.Module):
    """How log p is written in terms of a network."""

    manifold: Submanifold
    rate: float = eqx.field(static=True)
    """About the first eigenvalue of the Laplacian, zero if there is none."""
    width: float = eqx.field(static=True)
    """About how far points are from each other."""
    centre: tuple[float, ...] = eqx.field(static=True)
    """The middle of the points, in coordinates."""
    spread: float = eqx.field(static=True)
    """How far their coordinates are from it."""

    def network(self, key: Key, widths: tuple[int, ...]) -> SetNetwork:
        """A random network: one item in one group, so a perceptron."""
        size = self.manifold.shape[0]
        features = size + size * (size + 1) // 2 + 2
        network = set_network(key, features, 1, 1, widths[:1], widths[1:])
        return eqx.tree_at(lambda n: n.out.weight, network, 0.3 * network.out.weight)

    def late(self, t: Scalar) -> Scalar:
        """How small log(vol p) has become, one until about 1/rate."""
        return remaining(self.rate, t)

    def chord(self, x: Point, x0: Point) -> Float[Array, " N"]:
        """x - x0, with the length that the metric in the middle between them gives it."""
        return self._measured((x + x0) / 2, x - x0)

    def _measured(self, middle, v):
        """L^T v, with L L^T the metric in the middle."""
        metric = self.manifold.metric
        if metric is None:
            return v
        rows = cholesky_rows(metric(middle))
        size = len(rows)
        return jnp.stack([sum(rows[i][j] * v[i] for i in range(j, size)) for j in range(size)])

    def bend(self, x: Point, x0: Point) -> tuple[Scalar, Scalar]:
        """q and a, how the manifold turns between the points."""
        first, second = self.manifold.projector_at(x), self.manifold.projector_at(x0)
        middle, v = (x + x0) / 2, x - x0
        normal = [self._measured(middle, v - projector @ v) for projector in (first, second)]
        return sum(w @ w for w in normal) / 2, jnp.sum(first * second.T)  # pyright: ignore

    def straight(self, x: Point, x0: Point) -> tuple[Scalar, Scalar, Scalar]:
        """f/e, (b l)^2 and l^2 of the straight line between two points of an open set."""
        manifold, v, middle = self.manifold, x - x0, (x + x0) / 2
        e = manifold.inner_at(middle, v, v)
        ends = (manifold.inner_at(x, v, v) + manifold.inner_at(x0, v, v)) / 2
        apart = e > 0
        safe = jnp.where(apart, e, 1.0)
        stretch = jnp.where(apart, ends / safe, 1.0)
        s = ((jnp.sqrt(1 + 8 * stretch) - 1) / 2 - 1) / 2
        length = e * (1 + s) * arcsinh_ratio(s)
        turn = manifold.ambient_acceleration_at(middle, v)
        turn = turn - v * jnp.where(apart, manifold.inner_at(middle, turn, v) / safe, 0.0)
        turn = turn / safe  # e is never squared, which single precision might not hold
        bent = jnp.where(apart, manifold.inner_at(middle, turn, turn), 0.0) * length
        return stretch, bent, length

    def squared_distance(self, x: Point, x0: Point) -> Scalar:
        """About the squared distance; of two points of a surface, if they are near each other."""
        if self.manifold.constraint is None:
            _, bent, length = self.straight(x, x0)
            return length * arcsinh_ratio(bent / 4)
        chord = self.chord(x, x0)
        return chord @ chord + self.bend(x, x0)[0] / 3

    def __call__(
        self, network: SetNetwork, window: Window, t: Scalar, x: Point, x0: Point
    ) -> Scalar:
        """c + log p, in a window of time."""
        n, (c, start, end) = self.manifold.dim, window
        inside = 2 * jnp.log(t / start) / jnp.log(end / start) - 1
        value = network(self._features(x, x0)[None], jnp.ones((1, 1), x.dtype), inside[None])
        base = -self.squared_distance(x, x0) - 2 * n * t * jnp.log(4 * jnp.pi * t) + 4 * c * t
        return settling(self.rate, t) * (base + self.width**2 * value)

    def _features(self, x, x0):
        """What the network sees of two points, of order one."""
        chord = self.chord(x, x0)
        i, j = np.triu_indices(len(x))
        middle = ((x + x0) / 2 - jnp.asarray(self.centre, x.dtype)) / self.spread
        items = jnp.concatenate([middle, chord[i] * chord[j] / (4 * self.width**2)])
        if self.manifold.constraint is None:
            stretch, bent, _ = self.straight(x, x0)
            return jnp.append(jnp.arcsinh(items), jnp.stack([jnp.log(stretch), jnp.arcsinh(bent)]))
        q, a = self.bend(x, x0)
        return jnp.append(items, jnp.stack([q / self.width**2, a - self.manifold.dim + 1]))


@stored("PairSolution")
class PairSolution(AbstractSolution):
    """A solution with one network for each window of time."""

    manifold: Submanifold
    form: PairForm
    edges: tuple[float, ...] = eqx.field(static=True)
    """The ends of the windows of time, increasing."""
    networks: SetNetwork
    """Their networks, stacked along the first axis."""
    constants: Float[Array, " w"]
    """The constant c of each window."""

    def log_prob(self, t: Scalar, x: Point, x0: Point) -> Scalar:
        """log p."""
        (network, c), ends = in_window(self.edges, (self.networks, self.constants), t)
        return self.form(network, Window(c, *ends), t, x, x0) - c

    def draws(self, phi: Phi, last: float) -> AbstractDraws:
        """By random walks that are set right."""
        return CorrectedWalk(self.manifold.width)

    def settles(self) -> bool:
        """If the manifold is compact."""
        return self.manifold.is_compact()
