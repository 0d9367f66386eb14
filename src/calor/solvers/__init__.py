"""Kernels that are solved for, and which kernel for which manifold.

Open `choose` first: `calor.heat_kernel`; then `solve`.
"""

SEES = ("core", "store", "training", "manifolds", "heat")
