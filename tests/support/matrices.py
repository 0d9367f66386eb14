"""Random matrices for tests."""

import numpy as np

from calor import metrics


def matrices(count, n, spread=0.3, seed=0):
    """Random matrices around one that is not the identity."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(count, n, n)) * spread
    middle = np.diag(np.geomspace(0.1, 10, n))
    root = np.sqrt(middle)
    made = metrics.matrix_function(noise + noise.transpose(0, 2, 1), np.exp)
    return root @ made @ root


def random_rotation(n):
    return np.linalg.qr(np.random.default_rng(n).normal(size=(n, n)))[0]
