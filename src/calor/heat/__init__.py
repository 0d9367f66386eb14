"""The heat equation, and kernels that are known: exact, at early times, of clouds.

Open `kernel` first: what a heat kernel is, and the convention that everything follows.  `exact`,
`early` and `clouds` are the kernels; `methods` is where they register, once `solvers.choose` has
imported them.
"""

SEES = ("core", "store", "training", "manifolds")
