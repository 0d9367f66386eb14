r"""Regression of places in a flat space on conditions: the mean of a conditional law.

Numbers c: a Gaussian process for every principal component of the places, with the kernel

    k(c, c') = 1 / (1 + sum_j ((c_j - c'_j) / l_j)^2 / 2),

a length l_j for every number, found on the leading components, and noise of its own for every
component, all by their marginal likelihood.  Labels: the mean of each.

How far places are off varies with the condition too.  The logarithms of the squares of residuals
are regressed in the same way, with the same lengths.

A model that learns from predictions must not see those that were fitted to the very row: rows of
the training data are predicted by all others (leave-one-out), which has a closed form.  Rows that
belong together, such as those of one recording, say more of each other than of new ones: a group is
predicted by all other groups.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, Int

from ...store.stored import stored

# Rows that lengths are found on, and rows that predictions are made from.
_ROWS_LENGTHS, _ROWS = 700, 2000
# Components that lengths are found on (the others are mostly noise, which makes all lengths long),
# steps of Adam, and their size in log l.
_COMPONENTS, _STEPS, _RATE = 2, 80, 0.1
# Variances of noise, in units of that of the signal, that are tried for each component.
_NOISES = np.geomspace(0.01, 1000, 36)


@stored("Regression")
class Regression(eqx.Module):
    """The posterior mean of the processes."""

    rows: Float[Array, "n c"]
    inverse_lengths: Float[Array, " c"]
    weights: Float[Array, "n d"]
    mean: Float[Array, " d"]

    def __call__(self, condition: Float[Array, " c"]) -> Float[Array, " d"]:
        """The prediction for one condition."""
        gaps = (self.rows - condition) * self.inverse_lengths
        return self.mean + _falling(jnp.sum(gaps**2, axis=1)) @ self.weights

    def beside(self, other: "Regression") -> "Regression":
        """Both predictions, one after the other, from the same rows with the same lengths."""
        weights = jnp.concatenate([self.weights, other.weights], axis=1)
        mean = jnp.concatenate([self.mean, other.mean])
        return Regression(self.rows, self.inverse_lengths, weights, mean)


@stored("LabelMeans")
class LabelMeans(eqx.Module):
    """The mean of the places of each label."""

    means: Float[Array, "k d"]

    def __call__(self, condition: Float[Array, " k"]) -> Float[Array, " d"]:
        """The prediction for a one-hot label."""
        return condition @ self.means


def regress_on_labels(
    labels: Float[np.ndarray, "n k"],
    places: Float[np.ndarray, "n d"],
    groups: Int[np.ndarray, " n"] | None = None,
) -> tuple[LabelMeans, Float[np.ndarray, "n d"]]:
    """Means of labels, and what the other rows, or groups, predict for each.

    One more row at the mean of all is counted with each label.

    Args:
        labels: one-hot.
        places: the data.
        groups: numbers of the groups of the rows.
    """
    everything = places.mean(axis=0)
    counts, sums = labels.sum(axis=0), labels.T @ places
    means = (sums + everything) / (counts + 1)[:, None]
    found = LabelMeans(jnp.asarray(means, jnp.result_type(float)))
    without = (labels @ sums - places + everything) / (labels @ counts)[:, None]
    if groups is None:
        return found, without
    others = np.empty_like(places)
    for group in np.unique(groups):
        rows = groups == group
        own, count = labels[rows], counts - labels[rows].sum(axis=0)
        rest = (sums - own.T @ places[rows] + everything) / (count + 1)[:, None]
        others[rows] = own @ rest
    # Of a label that occurs in one group only the others say nothing: the other rows are asked.
    only = [len(np.unique(groups[labels[:, k] > 0])) == 1 for k in range(labels.shape[1])]
    alone = labels @ np.asarray(only, float) > 0
    others[alone] = without[alone]
    return found, others


def regress_on_numbers(
    rows: Float[np.ndarray, "n c"],
    places: Float[np.ndarray, "n d"],
    groups: Int[np.ndarray, " n"] | None = None,
    inverse: Float[np.ndarray, " c"] | None = None,
) -> tuple[Regression, Float[np.ndarray, "n d"]]:
    """The posterior mean, and what the other rows, or groups, predict for each row.

    Args:
        rows: conditions of order one.
        places: the data.
        groups: numbers of the groups of the rows.
        inverse: one over the lengths, if they were found before.
    """
    dtype = jnp.result_type(float)
    rows, places = np.asarray(rows, np.float64), np.asarray(places, np.float64)
    mean = places.mean(axis=0)
    vectors = np.linalg.svd(places - mean, full_matrices=False)[2]
    chosen = np.random.default_rng(0).permutation(len(rows))
    few, most = chosen[:_ROWS_LENGTHS], chosen[:_ROWS]
    if inverse is None:
        inverse = _inverse_lengths(rows[few], (places[few] - mean) @ vectors[:_COMPONENTS].T)

    inside = rows[most] * inverse
    values = (places[most] - mean) @ vectors.T
    spectrum, q = np.linalg.eigh(_kernel_matrix(inside, inside))
    noises = _noises(np.maximum(spectrum, 0), q.T @ values)
    shares = 1 / (np.maximum(spectrum, 0)[:, None] + noises)  # of (K + noise)^-1, by component
    weights = q @ (shares * (q.T @ values))

    predicted = mean + _kernel_matrix(rows * inverse, inside) @ weights @ vectors
    if groups is None:
        # (K + noise)^-1 y over the diagonal of (K + noise)^-1 is what a row is off by without
        # itself.
        predicted[most] = places[most] - weights / (q**2 @ shares) @ vectors
    else:
        ones = q @ (shares * q.sum(axis=0)[:, None])  # (K + noise)^-1 1, by component
        for group in np.unique(groups):
            own, asked = groups[most] == group, groups == group
            if asked.all():
                break  # there are no others
            # The mean of the others is taken off, not that of all.
            middle = places[~asked].mean(axis=0)
            moved = weights + ones * (vectors @ (mean - middle))
            left = _without(own, q, shares, moved)
            kernel = _kernel_matrix(rows[asked] * inverse, inside)
            predicted[asked] = middle + kernel @ left @ vectors
    found = (rows[most], inverse, weights @ vectors, mean)
    return Regression(*(jnp.asarray(a, dtype) for a in found)), predicted


def _without(rows, q, shares, weights):
    r"""The weights if some rows are left out, for which they are zero.

    With A = (K + noise)^-1 and w = A y, leaving out the rows B gives w - A_{.B} A_BB^-1 w_B.
    """
    few = q[rows]
    off = np.zeros((len(few), weights.shape[1]))
    for k, share in enumerate(shares.T):
        off[:, k] = np.linalg.solve((few * share) @ few.T, weights[rows, k])
    return weights - q @ (shares * (few.T @ off))


def regress_factors(
    rows: Float[np.ndarray, "n c"],
    squares: Float[np.ndarray, "n d"],
    regression: Regression,
    groups: Int[np.ndarray, " n"] | None = None,
) -> tuple[Regression, Float[np.ndarray, "n d"]]:
    """Logarithms of factors f of variances, and what other rows or groups predict of them.

    Squares divided by their factors have the mean that the squares have.

    Args:
        rows: conditions of order one.
        squares: of residuals, all positive.
        regression: which left the residuals; its lengths are used.
        groups: numbers of the groups of the rows.
    """
    inverse = np.asarray(regression.inverse_lengths, np.float64)
    found, logs = regress_on_numbers(rows, np.log(squares), groups, inverse)
    shift = np.log(np.mean(squares * np.exp(-logs), axis=0) / np.mean(squares, axis=0))
    mean = found.mean + jnp.asarray(shift, found.mean.dtype)
    return Regression(found.rows, found.inverse_lengths, found.weights, mean), logs + shift


def _falling(squares):
    """The kernel of a squared distance, of arrays of either library."""
    return 1 / (1 + squares / 2)


def _kernel_matrix(a, b):
    """The kernel of all pairs of rows (n, c) and (m, c), of either library."""
    squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * a @ b.T
    return _falling(squares.clip(0))


def _noises(spectrum, rotated):
    """For each component the noise of the largest marginal likelihood."""
    count = len(spectrum)
    totals = spectrum[:, None] + _NOISES
    fits = np.stack([((rotated[:, k, None] ** 2) / totals).sum(0) for k in range(rotated.shape[1])])
    values = count * np.log(fits / count + 1e-300) + np.log(totals).sum(axis=0)
    return _NOISES[np.argmin(values, axis=1)]


def _inverse_lengths(rows, components):
    """1 / l_j of the largest marginal likelihood, one noise and one kernel for all components."""
    with jax.enable_x64(True):
        start = jnp.full(rows.shape[1], -1.5), jnp.log(jnp.asarray(0.3))
        return np.exp(np.asarray(_ascend(start, jnp.asarray(rows), jnp.asarray(components))))


@jax.jit
def _ascend(start, rows, components):
    count, steps = len(rows), optax.adam(_RATE)

    def value(parameters):
        log_inverse, log_noise = parameters
        scaled = rows * jnp.exp(log_inverse)
        matrix = _kernel_matrix(scaled, scaled) + jnp.exp(log_noise) * jnp.eye(count)
        factor = jnp.linalg.cholesky(matrix)
        white = solve_triangular(factor, components, lower=True)
        fits = count / 2 * jnp.sum(jnp.log(jnp.sum(white**2, axis=0)))
        return fits + components.shape[1] * jnp.sum(jnp.log(jnp.diagonal(factor)))

    def improve(_, state):
        parameters, inner = state
        updates, inner = steps.update(jax.grad(value)(parameters), inner)
        return optax.apply_updates(parameters, updates), inner

    (log_inverse, _), _ = jax.lax.fori_loop(0, _STEPS, improve, (start, steps.init(start)))
    return log_inverse
