r"""How good generated points are: errors of predictions, scores of laws, coverage of the data.

Matrices are compared by their Frobenius norm and by the affine-invariant distance.  A law is judged
by the energy score, which is proper where the distance is of negative type.  The affine-invariant
distance is not for n >= 3 (an invariant kernel of negative type on SL(n, R)/SO(n) is bounded), so
scores and regions use the Frobenius distance of matrix logarithms, which is Euclidean.

Two samples of any manifold are compared by `classifier_auc` and `heat_discrepancy`.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.spatial.distance import cdist

from ..heat.kernel import AbstractHeatKernel
from ..models.verdict import classifier_auc as classifier_auc

Matrices = Float[np.ndarray, "... n n"]


def matrix_function(x: Matrices, function: Callable[[np.ndarray], np.ndarray]) -> Matrices:
    """A function of the eigenvalues of symmetric matrices."""
    w, q = np.linalg.eigh(x)
    return (q * function(w)[..., None, :]) @ np.swapaxes(q, -1, -2)


def logarithms(x: Matrices) -> Float[np.ndarray, "... d"]:
    """Matrix logarithms as vectors, their Euclidean norm being the Frobenius norm."""
    size = np.shape(x)[-1]
    i, j = np.tril_indices(size)
    scale = np.where(i == j, 1.0, np.sqrt(2.0))
    return matrix_function(np.asarray(x, float), np.log)[..., i, j] * scale


def frobenius(x: Matrices, y: Matrices) -> Float[np.ndarray, "..."]:
    """The Frobenius norm of the difference."""
    return np.linalg.norm(np.asarray(x, float) - np.asarray(y, float), axis=(-2, -1))


def affine_invariant(x: Matrices, y: Matrices) -> Float[np.ndarray, "..."]:
    """The geodesic distance, the norm of log(x^-1/2 y x^-1/2)."""
    inverse = np.linalg.inv(np.linalg.cholesky(np.asarray(x, float)))
    white = inverse @ np.asarray(y, float) @ np.swapaxes(inverse, -1, -2)
    return np.linalg.norm(np.log(np.linalg.eigvalsh(white)), axis=-1)


def frechet_means(samples: Float[np.ndarray, "m s n n"], steps: int = 30) -> Matrices:
    """The affine-invariant Frechet mean of each row of samples."""
    samples = np.asarray(samples, float)
    middle = matrix_function(np.mean(matrix_function(samples, np.log), axis=1), np.exp)
    for _ in range(steps):
        root = matrix_function(middle, np.sqrt)
        inverse = np.linalg.inv(root)[:, None]
        pull = np.mean(matrix_function(inverse @ samples @ inverse, np.log), axis=1)
        middle = root @ matrix_function(pull, np.exp) @ root
        if np.max(np.abs(pull)) < 1e-9:
            break
    return middle


def energy_score(
    draws: Float[np.ndarray, "m s d"], truth: Float[np.ndarray, "m d"]
) -> Float[np.ndarray, " m"]:
    """E |Z - z| - E |Z - Z'| / 2 for each row, Z and Z' independent draws; the lower the better."""
    count = draws.shape[1]
    first = np.linalg.norm(draws - truth[:, None], axis=-1).mean(axis=1)
    if count == 1:
        return first
    pairs = np.array([cdist(row, row).sum() for row in draws])
    return first - pairs / (2 * count * (count - 1))


def coverage(
    draws: Float[np.ndarray, "m s d"], truth: Float[np.ndarray, "m d"], level: float = 0.9
) -> tuple[float, float]:
    """How often the truth is inside the region of its draws, and how often it should be.

    Of the truth and its s draws each is as far from the mean of the others as it is.  If the law is
    right the rank of the truth among these s + 1 distances is uniform; it is inside if the rank is
    at most floor(level (s + 1)), which has exactly that probability over s + 1.
    """
    everything = np.concatenate([truth[:, None], draws], axis=1)
    count = everything.shape[1]
    # A point minus the mean of the others is count / (count - 1) times the one minus the mean.
    off = np.linalg.norm(everything - everything.mean(axis=1, keepdims=True), axis=-1)
    rank = 1 + np.sum(off[:, 1:] < off[:, :1], axis=1)
    most = int(np.floor(level * count))
    return float(np.mean(rank <= most)), most / count


# Alaa et al., "How faithful is your synthetic data?" (2022).

_LEVELS = np.linspace(0.05, 0.95, 19)


def alpha_precision(real: Float[np.ndarray, "n d"], made: Float[np.ndarray, "m d"]) -> float:
    """1 - 2 int |P_a - a| da: how well generated points fill the balls of the real ones.

    P_a is the share of generated points in the ball around the mean of the real points that holds a
    share a of those.
    """
    centre = real.mean(axis=0)
    return _faithful(_inside(real - centre, made - centre))


def beta_recall(
    real: Float[np.ndarray, "n d"], made: Float[np.ndarray, "m d"], neighbours: int = 5
) -> float:
    """1 - 2 int |R_b - b| db: how well generated points cover the real ones.

    R_b is the share of real points whose nearest generated point, of those in the ball that holds a
    share b of them, is at most as far as the real point's own k-th real neighbour.
    """
    offsets = made - made.mean(axis=0)
    lengths = np.linalg.norm(offsets, axis=1)
    between = cdist(real, real)
    reach = np.sort(between, axis=1)[:, min(neighbours, len(real) - 1)]
    across = cdist(real, made)
    shares = [
        np.mean(across[:, lengths <= np.quantile(lengths, level)].min(axis=1) <= reach)
        for level in _LEVELS
    ]
    return _faithful(np.array(shares))


def heat_discrepancy(
    kernel: AbstractHeatKernel,
    t: float,
    first: Float[Array, "n ..."],
    second: Float[Array, "m ..."],
) -> float:
    """The squared maximum mean discrepancy of two samples, for the heat kernel at a time.

    It is the squared L^2 distance of the two laws after noise of the time t/2, as a fraction of
    the squared norm of the first.  The estimate has no bias, so that it may be negative.
    """
    within = _mean_kernel(kernel, t, first, first)
    both = within + _mean_kernel(kernel, t, second, second)
    return (both - 2 * _mean_kernel(kernel, t, first, second, apart=False)) / within


def _mean_kernel(kernel, t, first, second, apart=True):
    """The mean of the kernel over pairs, or over those of different rows."""
    total = 0.0
    for start in range(0, len(first), 100):
        block = _kernel_values(kernel, jnp.asarray(t), first[start : start + 100], second)
        values = np.asarray(block, np.float64)
        if apart:
            values[np.arange(len(values)), np.arange(start, start + len(values))] = 0
        total += values.sum()
    return total / (len(first) * (len(second) - apart))


@eqx.filter_jit
def _kernel_values(kernel, t, first, second):
    def value(x, y):
        return jnp.exp(kernel.log_prob_at(t.astype(x.dtype), x, y))

    return jax.vmap(lambda x: jax.vmap(lambda y: value(x, y))(second))(first)


def _inside(ours, theirs):
    """The share of theirs in balls that hold given shares of ours."""
    radii = np.quantile(np.linalg.norm(ours, axis=1), _LEVELS)
    return np.mean(np.linalg.norm(theirs, axis=1)[:, None] <= radii, axis=0)


def _faithful(shares):
    return float(1 - np.sum(np.abs(shares - _LEVELS)) / np.sum(_LEVELS))


def harmonic(first: float, second: float) -> float:
    """The F1 of two shares, zero if one is not positive."""
    if min(first, second) <= 0:
        return 0.0
    return 2 * first * second / (first + second)
