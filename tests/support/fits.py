"""Small fits that several tests share."""

import functools

import jax
import jax.random as jr
import numpy as np

import calor
from calor.manifolds.names import manifold_named

SMALL = calor.Network(width=32, depth=2, frequencies=16)


SHORT = calor.Training(steps=30, batch=128, validate_every=15)


def points_of(manifold, count, seed=0):
    """Clustered data."""
    centre = manifold.random_point(jr.key(seed))
    if not manifold.is_compact():
        centre = manifold.exp(manifold.origin(), 0.2 * manifold.log(manifold.origin(), centre))

    def one(key):
        return manifold.exp(centre, 0.4 * manifold.random_tangent(key, centre))

    return np.asarray(jax.vmap(one)(jr.split(jr.key(seed + 1), count)))


@functools.cache
def fitted(name, again=0):
    """A model after a few steps; fitted once for all tests (and `again`, if asked)."""
    manifold = manifold_named(name)
    kernel = calor.heat_kernel(manifold)
    data = points_of(manifold, 300)
    return calor.fit(
        kernel,
        data,
        parts="diffusion",
        key=jr.key(0),
        network=SMALL,
        training=SHORT,
        progress=False,
    )
