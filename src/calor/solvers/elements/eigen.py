r"""The lowest eigenpairs of K f = lambda M f, for the sparse matrices of finite elements.

Lanczos' method for (K - s M)^{-1} M with a negative shift s, in blocks: products of large matrices,
with complete orthogonalization and no restarts.  Per eigenvalue that is some three times faster
than one vector at a time.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from jaxtyping import Float
from scipy.sparse import csc_matrix
from scipy.sparse.linalg import splu

_BLOCK = 24
# Vectors for each eigenpair that is wanted.
_MORE = 2.2


class Eigenpairs(NamedTuple):
    """In increasing order."""

    values: Float[np.ndarray, " k"]
    vectors: Float[np.ndarray, "n k"]
    """In columns, orthonormal with respect to M."""
    residuals: Float[np.ndarray, " k"]
    """Of the shifted and inverted problem, relative to its eigenvalues."""


def lowest(stiffness: Any, mass: Any, count: int, area: float, *, seed: int = 0) -> Eigenpairs:
    """So many lowest eigenpairs.

    Args:
        stiffness: K, a sparse matrix, positive semi-definite.
        mass: M, a sparse matrix, positive definite.
        count: how many; less than the size of the matrices.
        area: of the surface, which scales the shift.
        seed: of the random start.
    """
    size, shift = len(stiffness.indptr) - 1, -4 * np.pi / area
    factors = splu(
        csc_matrix(stiffness - shift * mass),
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )
    blocks = min(-(-(int(_MORE * count) + 6 * _BLOCK) // _BLOCK), size // _BLOCK - 1)
    most = blocks * _BLOCK
    basis = np.empty((size, most + _BLOCK), order="F")
    images = np.empty((size, most + _BLOCK), order="F")
    small = np.zeros((most + _BLOCK, most + _BLOCK))

    def orthonormal(block, known):
        """The block without what is known, its parts along that, and its own triangular factor."""
        along = np.zeros((known, _BLOCK))
        for _ in range(2):
            parts = images[:, :known].T @ block
            block, along = block - basis[:, :known] @ parts, along + parts
        triangle = np.eye(_BLOCK)
        for _ in range(2):
            gram = block.T @ (mass @ block)
            lower = np.linalg.cholesky((gram + gram.T) / 2)
            block = scipy.linalg.solve_triangular(lower, block.T, lower=True).T
            triangle = lower.T @ triangle
        return block, along, triangle

    block = orthonormal(np.random.default_rng(seed).standard_normal((size, _BLOCK)), 0)[0]
    for start in range(0, most, _BLOCK):
        end = start + _BLOCK
        basis[:, start:end], images[:, start:end] = block, mass @ block
        block = factors.solve(np.asfortranarray(images[:, start:end]))
        block, along, triangle = orthonormal(block, end)
        small[:end, start:end], small[end : end + _BLOCK, start:end] = along, triangle
    upper = np.triu(small[:most, :most])
    inverse, rotation = np.linalg.eigh(upper + np.triu(upper, 1).T)
    chosen = np.argsort(-inverse)[:count]
    inverse, rotation = inverse[chosen], rotation[:, chosen]
    left = small[most:, most - _BLOCK : most] @ rotation[-_BLOCK:]
    residuals = np.linalg.norm(left, axis=0) / inverse
    values = np.maximum(shift + 1 / inverse, 0.0)
    return Eigenpairs(values, basis[:, :most] @ rotation, residuals)
