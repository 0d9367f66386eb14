r"""Permanents of positive matrices and their matchings, from the logarithms L of the entries.

    perm(e^L) = sum over permutations s of prod_i e^(L_i,s(i)),     P_ij = d log perm / d L_ij,

P_ij being the probability that s(i) = j when s is drawn in proportion to its product.  All values
are of one matrix; `jax.vmap` batches.

* `exact`: dynamic programming over the subsets of columns that the first rows have taken,
  n 2^(n-1) products, for n up to 12 or so.
* `sinkhorn`: e^L scaled to a doubly stochastic matrix P = e^(L + f + g).  The bound
  perm <= e^(-sum f - sum g) becomes an equality as P becomes a permutation.
* `bethe`: belief propagation (Huang and Jebara 2009, Vontobel 2013), a lower bound.

A row that has its column to itself (all else in both minus infinity, here `NEVER`) leaves the rest
as it is: clouds of fewer points are padded by such rows.
"""

import functools
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp, xlogy
from jaxtyping import Array, Float

from ...core.types import Scalar

# The logarithm of an entry that is zero; finite, so that no difference of two is NaN.
NEVER = -1e9
# With more rows than this others are faster and accurate enough: the work doubles with each.
LARGEST_EXACT = 12

Matrix = Float[Array, "n n"]


# Exact.


@functools.lru_cache
def _subsets(n):
    """For each size m: the subsets of m columns, and how those of sizes m and m + 1 are linked.

    `below[m]` (subsets of m + 1, m + 1): the places, among subsets of m, of a subset without one
    of its columns; `columns[m]`: that column.  `above[m]` (n, subsets of m without j): the places
    of subsets of m that lack j, and of the same with j.
    """
    sets = [list(combinations(range(n), m)) for m in range(n + 1)]
    place = [{s: number for number, s in enumerate(level)} for level in sets]
    below, columns, lacking, having = [], [], [], []
    for m in range(n):
        larger = sets[m + 1]
        without = [[place[m][tuple(c for c in s if c != j)] for j in s] for s in larger]
        below.append(np.array(without, np.int32))
        columns.append(np.array(larger, np.int32))
        rows = [[s for s in sets[m] if j not in s] for j in range(n)]
        lacking.append(np.array([[place[m][s] for s in row] for row in rows], np.int32))
        joined = [[place[m + 1][tuple(sorted((*s, j)))] for s in row] for j, row in enumerate(rows)]
        having.append(np.array(joined, np.int32))
    return below, columns, lacking, having


def _forward(logits):
    """The log-permanents of the first m rows within every subset of m columns, for all m."""
    n = len(logits)
    below, columns, _, _ = _subsets(n)
    values = [jnp.zeros(1, logits.dtype)]
    for m in range(n):
        values.append(logsumexp(values[m][below[m]] + logits[m][columns[m]], axis=1))
    return values


def exact_posterior(logits: Matrix) -> Matrix:
    """P by a forward and a backward pass over subsets."""
    n = len(logits)
    _, _, lacking, having = _subsets(n)
    forward = _forward(logits)
    after = jnp.zeros(1, logits.dtype)
    rows = []
    for m in reversed(range(n)):
        # ways[j, s]: the columns s (without j) before row m, j for it, the others after it.
        rest = logits[m][:, None] + after[having[m]]
        rows.append(logsumexp(forward[m][lacking[m]] + rest, axis=1))
        after = _gathered(rest, lacking[m], len(forward[m]))
    return jnp.exp(jnp.stack(rows[::-1]) - forward[-1][0])


def _gathered(rest, lacking, count):
    """log of the sum of e^rest over the rows (columns j) in which each subset occurs."""
    n = len(lacking)
    # Every subset of m occurs in n - m rows; where, is known at compile time.
    order = np.argsort(lacking.ravel(), kind="stable").reshape(count, -1)
    assert order.shape[1] * count == n * lacking.shape[1]
    return logsumexp(rest.ravel()[order], axis=1)


@jax.custom_jvp
def exact(logits: Matrix) -> Scalar:
    """The log-permanent, by dynamic programming over subsets."""
    return _forward(logits)[-1][0]


@exact.defjvp
def _(primals, tangents):
    (logits,), (change,) = primals, tangents
    return exact(logits), jnp.sum(exact_posterior(logits) * change)


# Sinkhorn.

# Scalings of rows and columns in turn, then steps of Newton's method.
_SCALINGS, _NEWTON = 10, 12


@jax.custom_jvp
def potentials(logits: Matrix) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """f and g such that e^(L + f + g) is doubly stochastic."""

    def scaled(g):
        f = -logsumexp(logits + g, axis=1)
        return -logsumexp(logits + f[:, None], axis=0)

    def objective(g):
        return jnp.sum(logsumexp(logits + g, axis=1)) - jnp.sum(g)

    def step(g, _):
        matching = jax.nn.softmax(logits + g, axis=1)
        excess = jnp.sum(matching, axis=0) - 1
        newton = g - _solve(matching, excess, jnp.max(jnp.abs(excess)))
        plain = scaled(g)
        better = objective(newton) < objective(plain)  # also not if it is NaN
        return jnp.where(better, newton, plain), None

    g = jax.lax.fori_loop(0, _SCALINGS, lambda _, g: scaled(g), jnp.zeros_like(logits[0]))
    g = jax.lax.scan(step, g, None, _NEWTON)[0]
    g = scaled(g)
    return -logsumexp(logits + g, axis=1), g


@potentials.defjvp
def _(primals, tangents):
    (logits,), (change,) = primals, tangents
    f, g = potentials(logits)
    matching = jnp.exp(logits + f[:, None] + g)
    moved = matching * change
    rows, columns = jnp.sum(moved, axis=1), jnp.sum(moved, axis=0)
    dg = _solve(matching, matching.T @ rows - columns)
    df = -(rows + matching @ dg)
    return (f, g), (df, dg)


def _solve(matching, values, damping: Scalar | float = 0.0):
    """The Hessian of the dual problem, diag(column sums) - P^T P, inverted.

    It does not see constants, nor, if rows and columns fall apart into blocks, constants on a
    block, which do not change P either; a little of the identity is added.
    """
    n = len(matching)
    small = 1e-3 * damping + 10 * jnp.finfo(matching.dtype).eps
    sums = jnp.sum(matching, axis=0)
    hessian = jnp.diag(sums + small) - matching.T @ matching + 1 / n
    factor = jax.scipy.linalg.cho_factor(hessian)
    return jax.scipy.linalg.cho_solve(factor, values)


def sinkhorn(logits: Matrix) -> tuple[Scalar, Matrix]:
    """An upper bound of the log-permanent, and its derivative, a doubly stochastic matrix."""
    f, g = potentials(logits)
    return -jnp.sum(f) - jnp.sum(g), jnp.exp(logits + f[:, None] + g)


# Bethe.


def bethe(logits: Matrix, iterations: int = 100) -> tuple[Scalar, Matrix]:
    """The Bethe log-permanent and its beliefs.

    Messages of rows and columns, damped by one half, a fixed number of times.
    """
    return _bethe_value(logits, iterations), _propagate(logits, iterations)


def _propagate(logits, iterations):
    if len(logits) == 1:
        return jnp.ones_like(logits)

    def step(state, _):
        by_row, by_column = state
        by_row = (by_row - _others(logits + by_column)) / 2
        by_column = (by_column - _others((logits + by_row).T).T) / 2
        return (by_row, by_column), None

    start = jnp.zeros_like(logits), jnp.zeros_like(logits)
    (by_row, by_column), _ = jax.lax.scan(step, start, None, iterations)
    return jax.nn.sigmoid(logits + by_row + by_column)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _bethe_value(logits, iterations):
    """Minus the Bethe free energy, whose derivative at the fixed point are the beliefs."""
    beliefs = _propagate(logits, iterations)
    entropy = xlogy(1 - beliefs, 1 - beliefs) - xlogy(beliefs, beliefs)
    return jnp.sum(beliefs * logits + entropy)


@_bethe_value.defjvp
def _(iterations, primals, tangents):
    (logits,), (change,) = primals, tangents
    beliefs = _propagate(logits, iterations)
    return _bethe_value(logits, iterations), jnp.sum(beliefs * change)


def _others(values):
    """For each entry of a row, log of the sum of e^values over the other entries."""
    first = jnp.max(values, axis=1, keepdims=True)
    is_first = jnp.arange(values.shape[1]) == jnp.argmax(values, axis=1)[:, None]
    rest = jnp.where(is_first, NEVER, values)
    second = jax.lax.stop_gradient(jnp.max(rest, axis=1, keepdims=True))
    weights = jnp.exp(values - jax.lax.stop_gradient(first))
    # Without the largest entry the sum is taken anew; without another one the largest is left.
    left = jnp.sum(weights, axis=1, keepdims=True) - weights
    safe = jnp.where(is_first, 1.0, left)
    without_first = second + jnp.log(jnp.sum(jnp.exp(rest - second), axis=1, keepdims=True))
    return jnp.where(is_first, without_first, jax.lax.stop_gradient(first) + jnp.log(safe))
