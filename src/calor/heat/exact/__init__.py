"""Exact heat kernels."""
