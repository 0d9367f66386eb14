r"""A surface given by equations as a mesher sees it: in double precision, many points at a time.

At a point x with Jacobian J of the equations the tangent plane is told, with its orientation, by
the unit bivector e_1 ^ e_2, e_1 and e_2 an orthonormal basis of the plane that makes a positive
determinant together with the rows of J.  In R^3 it is the normal.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

# Numbers of points that functions are compiled for.
_SIZES = (512, 8192, 131072)


class Level:
    """The equations of a `Submanifold`, of which points are evaluated and projected."""

    manifold: Any
    pairs: tuple[np.ndarray, np.ndarray]
    """Of coordinates, for bivectors."""

    def __init__(self, manifold: Any):
        """Of a surface."""
        self.manifold = manifold
        size = manifold.shape[0]
        self.pairs = np.triu_indices(size, 1)

        @jax.jit
        @jax.vmap
        def evaluate(x):
            value = lambda y: (manifold.equations(y),) * 2
            jacobian, values = jax.jacrev(value, has_aux=True)(x)
            return values, jacobian

        self._evaluate = evaluate
        self._values = jax.jit(jax.vmap(manifold.equations))
        self._metric = jax.jit(jax.vmap(manifold.metric_at))

    def values(self, points: Float[np.ndarray, "n N"]) -> Float[np.ndarray, "n k"]:
        """The values of the equations."""
        return in_pieces(self._values, points)

    def evaluate(self, points: Float[np.ndarray, "n N"]) -> tuple[np.ndarray, np.ndarray]:
        """The values of the equations and their Jacobians."""
        return in_pieces(self._evaluate, points)

    def metric(self, points: Float[np.ndarray, "n N"]) -> Float[np.ndarray, "n N N"]:
        """The metric of the ambient space."""
        return in_pieces(self._metric, points)

    def project(
        self, points: Float[np.ndarray, "n N"], steps: int = 5, longest: float = np.inf
    ) -> Float[np.ndarray, "n N"]:
        """Points of the surface nearby, by Newton's method."""
        for _ in range(steps):
            values, jacobian = self.evaluate(points)
            gram = jacobian @ jacobian.swapaxes(1, 2)
            move = np.linalg.solve(_regular(gram), values[..., None])[..., 0]
            move = np.einsum("nk,nki->ni", move, jacobian)
            length = np.linalg.norm(move, axis=1, keepdims=True)
            move *= np.minimum(1.0, longest / np.maximum(length, 1e-300))
            points = points - move
            if length.max(initial=0.0) < 1e-13 * np.abs(points).max(initial=1.0):
                break
        return points

    def offset(self, points: Float[np.ndarray, "n N"]) -> Float[np.ndarray, " n"]:
        """About how far points are from the surface."""
        values, jacobian = self.evaluate(points)
        return np.linalg.norm(values, axis=1) / np.linalg.norm(jacobian, axis=(1, 2))

    def normals(self, points: Float[np.ndarray, "n N"]) -> Float[np.ndarray, "n k N"]:
        """The gradients of the equations, each of unit length."""
        jacobian = self.evaluate(points)[1]
        return jacobian / np.linalg.norm(jacobian, axis=2, keepdims=True)

    def planes(self, points: Float[np.ndarray, "n N"]) -> Float[np.ndarray, "n b"]:
        """The oriented tangent planes, as unit bivectors."""
        jacobian = self.evaluate(points)[1]
        count = jacobian.shape[1]
        complete = np.linalg.qr(jacobian.swapaxes(1, 2), mode="complete")[0]
        first, second = complete[..., count], complete[..., count + 1]
        basis = np.concatenate([jacobian, first[:, None], second[:, None]], axis=1)
        turn = np.sign(np.linalg.det(basis))
        return turn[:, None] * self.wedge(first, second)

    def wedge(self, a: Float[np.ndarray, "n N"], b: Float[np.ndarray, "n N"]) -> np.ndarray:
        """The bivectors a ^ b."""
        i, j = self.pairs
        return a[:, i] * b[:, j] - a[:, j] * b[:, i]

    def stretch(self, points: Float[np.ndarray, "n N"]) -> Float[np.ndarray, " n"]:
        """How much longer lengths are in the metric than in flat space, at most."""
        if self.manifold.metric is None:
            return np.ones(len(points))
        return np.sqrt(np.linalg.eigvalsh(self.metric(points))[:, -1])


def _regular(gram):
    """Where gradients vanish nothing moves far, and nothing breaks."""
    size = gram.shape[-1]
    return (
        gram
        + 1e-14 * np.trace(gram, axis1=1, axis2=2)[:, None, None] * np.eye(size)
        + (1e-300 * np.eye(size))
    )


def in_pieces(function: Any, points: np.ndarray) -> Any:
    """A compiled function of points along the first axis, for few different numbers of them."""
    count = len(points)
    size = next((size for size in _SIZES if count <= size), _SIZES[-1])
    found = []
    for start in range(0, max(count, 1), size):
        piece = points[start : start + size]
        fill = np.broadcast_to(points[:1], (size - len(piece), *points.shape[1:]))
        values = function(jnp.asarray(np.concatenate([piece, fill])))
        found.append(jax.tree.map(np.asarray, values))
    return jax.tree.map(lambda *parts: np.concatenate(parts)[:count], *found)


@functools.lru_cache(maxsize=4)
def level_of(manifold: Any) -> Level:
    """One for each manifold, so that its functions are compiled once."""
    return Level(manifold)
