"""Heat kernels of compact manifolds as sums over eigenfunctions."""
