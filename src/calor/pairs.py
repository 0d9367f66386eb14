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

The constant c is the logarithm of the volume.  At early times any guess of it will do; at late
times vol p has the mean one over the manifold, and tells it.  On a manifold that is not compact
lambda = 0 and w = 1/4t; c plays no role.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from . import calculus
from ._numerics import cholesky_rows
from ._types import Key, Point, Scalar
from .manifolds import Submanifold
from .networks import SetNetwork, set_network
from .solutions import AbstractSolution, in_window


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
        features = size + size * (size + 1) // 2 + (0 if self.manifold.constraint is None else 2)
        network = set_network(key, features, 1, 1, widths[:1], widths[1:])
        return eqx.tree_at(lambda n: n.out.weight, network, 0.3 * network.out.weight)

    def weight(self, t: Scalar) -> Scalar:
        """w(t)."""
        if self.rate == 0:
            return 1 / (4 * t)
        return self.rate / (4 * jnp.expm1(self.rate * t))

    def late(self, t: Scalar) -> Scalar:
        """How small log(vol p) has become, one until about 1/rate."""
        if self.rate == 0:
            return jnp.ones_like(t)
        reference = self.weight(jnp.asarray(1 / self.rate, t.dtype))
        return jnp.clip(self.weight(t) / reference, 1e-3, 1.0)

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
        first, second = self.manifold._projector(x), self.manifold._projector(x0)
        middle, v = (x + x0) / 2, x - x0
        normal = [self._measured(middle, v - projector @ v) for projector in (first, second)]
        return sum(w @ w for w in normal) / 2, jnp.sum(first * second.T)  # pyright: ignore

    def squared_distance(self, x: Point, x0: Point) -> Scalar:
        """|z|^2 + q/3, about the squared distance of points that are not far from each other."""
        chord = self.chord(x, x0)
        if self.manifold.constraint is None:
            return chord @ chord
        return chord @ chord + self.bend(x, x0)[0] / 3

    def __call__(
        self,
        network: SetNetwork,
        c: Scalar,
        t: Scalar,
        x: Point,
        x0: Point,
        start: Scalar,
        end: Scalar,
    ) -> Scalar:
        """c + log p, in the window of time from `start` to `end`."""
        chord, n = self.chord(x, x0), self.manifold.dim
        i, j = np.triu_indices(len(x))
        middle = ((x + x0) / 2 - jnp.asarray(self.centre, x.dtype)) / self.spread
        items = [middle, chord[i] * chord[j] / (4 * self.width**2)]
        square = chord @ chord
        if self.manifold.constraint is not None:
            q, a = self.bend(x, x0)
            items.append(jnp.stack([q / self.width**2, a - n + 1]))
            square = square + q / 3
        items = jnp.concatenate(items)
        inside = 2 * jnp.log(t / start) / jnp.log(end / start) - 1
        value = network(items[None], jnp.ones((1, 1), x.dtype), inside[None])
        base = -square - 2 * n * t * jnp.log(4 * jnp.pi * t) + 4 * c * t
        return self.weight(t) * (base + self.width**2 * value)


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

    def log_prob(self, t, x, x0):
        """log p."""
        (network, c), ends = in_window(self.edges, (self.networks, self.constants), t)
        return self.form(network, c, t, x, x0, *ends) - c

    def log_prob_and_score(self, t, x, x0):
        """By automatic differentiation."""
        frame, value = self.manifold.frame(x), lambda y: self.log_prob(t, y, x0)
        return value(x), calculus.gradient(value, x, frame)
