"""Manifolds by their equations that several tests share."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import calor
from calor.solvers.forms.pairs import PairForm, PairSolution

AXES = (0.8, 1.1, 1.4)
SYMMETRIC = ((1.0, 0), (0, 0)), ((0, 1), (1, 0)), ((0, 0), (0, 1))


def unit_sphere(x):
    return x @ x - 1


def sphere(n=2):
    return calor.Submanifold(unit_sphere, n + 1)


def ellipsoid():
    return calor.Submanifold(lambda x: jnp.sum((x / jnp.asarray(AXES)) ** 2) - 1, 3)


def ring(x):
    """The torus of revolution with radii 2 and 1."""
    return (jnp.hypot(x[0], x[1]) - 2.0) ** 2 + x[2] ** 2 - 1.0


def torus(symmetries=None):
    return calor.Submanifold(ring, 3, symmetries=symmetries)


def half_plane_metric(x):
    return jnp.eye(2) / x[1] ** 2


def half_plane(**options):
    return calor.Submanifold(None, 2, half_plane_metric, **options)


def near_i(count=40):
    """Points of the half-plane near (0, 1)."""
    z = jr.normal(jr.key(5), (count, 2))
    return jnp.stack([0.4 * z[:, 0], jnp.exp(0.3 * z[:, 1])], axis=1)


def relative(score, truth):
    """The error of scores, relative to their size."""
    gap, size = np.sum((score - truth) ** 2, axis=1), np.sum(truth**2, axis=1)
    return float(np.sqrt(np.mean(gap) / np.mean(size)))


def affine_invariant(x):
    """The metric tr(X^-1 U X^-1 V) of positive definite matrices ((a, b), (b, c))."""
    a, b, c = x
    basis, inverse = jnp.array(SYMMETRIC), jnp.array([[c, -b], [-b, a]]) / (a * c - b * b)
    return jnp.einsum("ij,ajk,kl,bli->ab", inverse, basis, inverse, basis)


def untrained(manifold, windows=2):
    form = PairForm(manifold, 1.5, 1.2, (0.1, 0.2, 0.3), 0.9)
    networks = jax.vmap(lambda key: form.network(key, (8, 8)))(jr.split(jr.key(0), windows))
    edges = (0.1, 0.3, 2.0)[: windows + 1]
    return PairSolution(manifold, form, edges, networks, jnp.full(windows, 2.5))
