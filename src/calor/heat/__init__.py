"""The heat equation, and kernels that are known: exact, at early times, of clouds.

Open `kernel` first: what a heat kernel is, and the convention that everything follows.
"""

SEES = ("core", "store", "training", "manifolds")
