r"""Orthonormal polynomials of the ambient coordinates on a set of weighted points.

On a submanifold many polynomials of R^N agree, so a basis cannot be written down; it is found.  Let
B_k be the new functions of degree k, orthonormal to each other and to all of lower degree in

    <f, g> = sum_i w_i f(x_i) g(x_i).

Products z_i B_{k-1} with the coordinates span the next degree.  Multiplication by a coordinate is
symmetric, so these products are orthogonal to all but the last two degrees, and

    B_k = (z_1 B_{k-1}, ..., z_N B_{k-1}) P_k - B_{k-1} Q_k - B_{k-2} R_k,

a three-term recurrence in blocks.  P_k keeps the directions that are independent on the points.
Values follow from the same recurrence anywhere, and derivatives by differentiating it; all numbers
in it are of order one.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...core.types import Point
from ...store.stored import stored

# Directions whose squared length, relative to the longest, is below this are dependent.
_DEPENDENT = 1e-9


@stored("Block")
class Block(eqx.Module):
    """How the functions of one degree follow from those of the two before."""

    products: Float[Array, "m s"]
    last: Float[Array, "a s"]
    before: Float[Array, "b s"]


@stored("Polynomials")
class Polynomials(eqx.Module):
    """Orthonormal polynomials, in the order of their degree; the first is one."""

    middle: Float[Array, " N"]
    half: Float[Array, " N"]
    """The coordinates are shifted by `middle` and divided by `half`, to be between -1 and 1."""
    blocks: tuple[Block, ...]

    def __call__(self, x: Point) -> Float[Array, " k"]:
        """The values at one point."""
        z = (x.ravel() - self.middle) / self.half
        before, last = jnp.zeros(0, z.dtype), jnp.ones(1, z.dtype)
        values = [last]
        for block in self.blocks:
            products = jnp.outer(z, last).ravel()
            new = products @ block.products - last @ block.last - before @ block.before
            before, last = last, new
            values.append(new)
        return jnp.concatenate(values)

    def sizes(self) -> list[int]:
        """How many functions there are up to each degree."""
        return np.cumsum([1, *(block.products.shape[1] for block in self.blocks)]).tolist()

    def up_to(self, degree: int) -> "Polynomials":
        """Those of a degree and below."""
        return Polynomials(self.middle, self.half, self.blocks[:degree])


def orthonormal_polynomials(
    points: Float[np.ndarray, "n N"], weights: Float[np.ndarray, " n"], degree: int, most: int
) -> Polynomials:
    """Polynomials up to a degree, orthonormal on weighted points.

    Args:
        points: in double precision.
        weights: positive, of sum one.
        degree: the largest.
        most: stop before there are more functions than this.
    """
    low, high = points.min(axis=0), points.max(axis=0)
    extent = high - low
    middle, half = (low + high) / 2, np.maximum(extent, 1e-4 * extent.max()) / 2
    z = (points - middle) / half
    before, last = np.zeros((len(z), 0)), np.ones((len(z), 1))
    blocks, count = [], 1
    for _ in range(degree):
        products = (z[:, :, None] * last[:, None, :]).reshape(len(z), -1)
        weighted = weights[:, None] * products
        to_last, to_before = last.T @ weighted, before.T @ weighted
        rest = products - last @ to_last - before @ to_before
        squares, directions = np.linalg.eigh(rest.T @ (weights[:, None] * rest))
        keep = squares > _DEPENDENT * max(squares[-1], 1e-30)
        if squares[-1] < 1e-20 or count + int(keep.sum()) > most:
            break
        turn = directions[:, keep] / np.sqrt(squares[keep])
        blocks.append(Block(*map(jnp.asarray, (turn, to_last @ turn, to_before @ turn))))
        before, last = last, rest @ turn
        count += last.shape[1]
    return Polynomials(jnp.asarray(middle), jnp.asarray(half), tuple(blocks))


def derivatives(
    functions: Polynomials, x: Point, frame: Float[Array, "m N"], drift: Float[Array, " N"]
) -> tuple[Float[Array, "m k"], Float[Array, " k"]]:
    """Derivatives of all functions along a frame, and Laplacians, see `manifolds.calculus`."""

    def second(e):
        return jax.jvp(lambda y: jax.jvp(functions, (y,), (e,))[1], (x,), (e,))

    first, bends = jax.vmap(second)(frame)
    return first, jnp.sum(bends, axis=0) + jax.jvp(functions, (x,), (drift,))[1]
