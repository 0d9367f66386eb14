r"""Solutions of the heat equation of point clouds, and clouds to look at it.

Each point of a cloud moves by itself, so p solves a heat equation for every point i alone, each
with a time of its own.  With L_ij = -|x_i - x0_j|^2 / 4t and Phi = log perm(e^L) it reads, for any
direction u of space and w_j = u . (x0_j - x_i) / 2t,

    sum_jk w_j w_k d^2 Phi / dL_ij dL_ik = variance of w_j under P_ij = dPhi / dL_ij.      (row)

Summed over points and directions it is the log heat equation.  A function that solves it for all L,
and that scales with rows and columns and is the same for all their orders as a permanent does, is
linear in every row of e^L, hence a multiple of the permanent; t -> 0 says which.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from ...core.types import Key, Point, Scalar, Tangent
from ...heat.clouds.kernel import CloudKernel
from ...heat.clouds.matchings import AbstractMatching, Learned, Matrix
from ...manifolds import PointCloud
from ...store.stored import stored
from ...training.dense import Dense, dense
from ..draws import AbstractDraws, Exact, Phi
from .base import AbstractSolution


@stored("CloudSolution")
class CloudSolution(AbstractSolution):
    """log p by a matching that was learned."""

    manifold: PointCloud
    matching: AbstractMatching

    @property
    def kernel(self) -> CloudKernel:
        """As a kernel, which draws too."""
        return CloudKernel(self.manifold, self.matching)

    def log_prob(self, t: Scalar, x: Point, x0: Point) -> Scalar:
        """log p."""
        return self.kernel.log_prob_at(t, x, x0)

    def draws(self, phi: Phi, last: float) -> AbstractDraws:
        """Those of the points by themselves."""
        return Exact()

    def trained(self) -> AbstractMatching:
        """The matching."""
        return self.matching

    def log_prob_and_score(self, t: Scalar, x: Point, x0: Point) -> tuple[Scalar, Tangent]:
        """The score is from the posterior over matchings."""
        return self.kernel.both_at(t, x, x0)


def row_residual(
    matching: Learned,
    t: Scalar,
    x: Float[Array, "n k"],
    x0: Float[Array, "n k"],
    row: Scalar,
    direction: Float[Array, " k"],
) -> tuple[Scalar, Scalar]:
    """Equation (row) for one point and direction: its residual, and the variance, both times t."""
    count = jnp.asarray(len(x), x.dtype)
    logits = -jnp.sum((x[:, None] - x0) ** 2, axis=-1) / (4 * t)
    w = (x0 - x[row]) @ direction / (2 * jnp.sqrt(t))
    move = jnp.where((jnp.arange(len(x)) == row)[:, None], w, 0.0)
    slope = jax.grad(lambda logits: matching.of_logits(logits, count))
    posterior, change = jax.jvp(slope, (logits,), (move,))
    apart = w - jnp.sum(posterior[row] * w)
    variance = jnp.sum(posterior[row] * apart**2)
    return variance - jnp.sum(apart * change[row]), variance


# The paper's.


@stored("PairGraph")
class PairGraph(AbstractMatching):
    """The paper's network of R_ij = |x_i - x0_j|, appendix B: nodes on the diagonal, edges off it.

    It is the same if both clouds are relabeled in the same way, not if one of them is.
    """

    edge_layers: tuple[tuple[Dense, ...], ...]
    node_layers: tuple[tuple[Dense, ...], ...]
    out: Dense
    log_times: tuple[float, float] = eqx.field(static=True)

    def log_permanent(self, t: Scalar, squared: Matrix, count: Scalar) -> Scalar:
        """log perm, as the network has it."""
        lengths = jnp.sqrt(squared + 1e-6)  # smooth where two points meet
        begin, end = self.log_times
        inside = (2 * (jnp.log(t) - begin) / (end - begin) - 1)[None]
        nodes, edges = jnp.diag(lengths)[:, None], lengths[..., None]
        others = 1 - jnp.eye(len(squared), dtype=squared.dtype)
        for edge, node in zip(self.edge_layers, self.node_layers, strict=True):
            n, size = nodes.shape
            ends = jnp.broadcast_to(nodes[:, None], (n, n, size))
            times = jnp.broadcast_to(inside, (n, n, 1))
            edges = _mlp(edge, jnp.concatenate([edges, ends, ends.swapaxes(0, 1), times], -1))
            received = jnp.einsum("ij,ijd->id", others, edges)
            times = jnp.broadcast_to(inside, (n, 1))
            nodes = _mlp(node, jnp.concatenate([nodes, received, times], -1))
        return jnp.sum(self.out(nodes)) / t

    def posterior(self, t: Scalar, squared: Matrix, count: Scalar) -> Matrix:
        """The derivative in L = -R^2 / 4t."""
        return -4 * t * jax.grad(lambda squared: self.log_permanent(t, squared, count))(squared)


def _mlp(layers, x):
    for layer in layers[:-1]:
        x = jnp.tanh(layer(x))
    return layers[-1](x)


def pair_graph(
    key: Key, width: int, times: tuple[float, float], depth: int = 2, hidden: int = 2
) -> PairGraph:
    """A random network of the paper's shape: `depth` layers of perceptrons with `hidden` layers."""
    keys = iter(jr.split(key, 2 * depth * (hidden + 1) + 1))
    edge_layers, node_layers, size = [], [], 1
    for _ in range(depth):
        for layers, inputs in ((edge_layers, 3 * size + 1), (node_layers, size + width + 1)):
            sizes = [inputs, *[width] * (hidden + 1)]
            pairs = zip(sizes, sizes[1:], strict=False)
            layers.append(tuple(dense(next(keys), i, o, 0.1) for i, o in pairs))
        size = width
    logs = (float(np.log(times[0])), float(np.log(times[1])))
    return PairGraph(tuple(edge_layers), tuple(node_layers), dense(next(keys), width, 1, 0.0), logs)
