"""Kernels of clouds of points modulo permutations: permanents and ways to match points."""
