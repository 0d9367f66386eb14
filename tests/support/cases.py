"""The table of manifolds that the contract tests run over, with an isometry of each."""

from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
import jax.random as jr

import calor
from equations import ellipsoid


@dataclass(frozen=True)
class Case:
    """A manifold, a length inside its injectivity radius, and a random isometry of it."""

    make: Callable
    reach: float
    isometry: Callable


def rotate(key, x):
    """A random orthogonal map of the ambient space."""
    q, _ = jnp.linalg.qr(jr.normal(key, (x.size, x.size)))
    return q @ x


def shift(key, x):
    """A random translation."""
    return x + jr.normal(key, x.shape)


def boost(key, x):
    """A rotation, then a boost, of the hyperboloid."""
    n = x.size - 1
    q, _ = jnp.linalg.qr(jr.normal(key, (n, n)))
    s = q @ x[1:]
    rapidity = 0.7
    first = jnp.cosh(rapidity) * s[0] + jnp.sinh(rapidity) * x[0]
    time = jnp.cosh(rapidity) * x[0] + jnp.sinh(rapidity) * s[0]
    return jnp.concatenate([time[None], first[None], s[1:]])


def congruence(key, x):
    """x -> A x A^T."""
    a = jnp.eye(len(x)) + 0.3 * jr.normal(key, x.shape)
    return a @ x @ a.T


def both(key, x):
    """An isometry of SO(3) x R^3."""
    return jnp.concatenate([rotate(key, x[:4]), shift(key, x[4:])])


def swap_sign(x):
    return -x


def identity(x):
    return x


def glide(x):
    """(a, b) -> (a + pi, -b): the torus divided by it is the Klein bottle."""
    return calor.Torus(2).project(jnp.stack([x[0] + jnp.pi, -x[1]]))


def slide(key, x):
    """A translation that commutes with the glide reflection."""
    return x.at[0].add(jr.normal(key, ()))


MANIFOLDS = {
    "Euclidean(3)": Case(lambda: calor.Euclidean(3), 2.0, shift),
    "Sphere(1)": Case(lambda: calor.Sphere(1), 2.8, rotate),
    "Sphere(2)": Case(lambda: calor.Sphere(2), 2.8, rotate),
    "Sphere(5)": Case(lambda: calor.Sphere(5), 2.8, rotate),
    "SO3": Case(calor.SO3, 1.4, rotate),
    "Torus(1)": Case(lambda: calor.Torus(1), 2.8, shift),
    "Torus(3)": Case(lambda: calor.Torus(3), 2.8, shift),
    "Hyperbolic(2)": Case(lambda: calor.Hyperbolic(2), 2.0, boost),
    "Hyperbolic(4)": Case(lambda: calor.Hyperbolic(4), 2.0, boost),
    "SPD(1)": Case(lambda: calor.SPD(1), 2.0, congruence),
    "SPD(2)": Case(lambda: calor.SPD(2), 2.0, congruence),
    "SPD(4)": Case(lambda: calor.SPD(4), 2.0, congruence),
    "SO3 x R^3": Case(lambda: calor.Product(calor.SO3(), calor.Euclidean(3)), 1.4, both),
    "projective plane": Case(
        lambda: calor.Quotient(calor.Sphere(2), [identity, swap_sign]), 1.4, rotate
    ),
    "Klein bottle": Case(lambda: calor.Quotient(calor.Torus(2), [identity, glide]), 1.0, slide),
    "ellipsoid": Case(
        ellipsoid,
        0.8,
        lambda key, x: x * jnp.where(jr.bernoulli(key, shape=(3,)), 1.0, -1.0),
    ),
}


def pair(case, key):
    """A manifold, a point, a tangent vector of at most the case's reach, and where it leads."""
    manifold = case.make()
    key_x, key_v, key_r = jr.split(key, 3)
    x = manifold.random_point(key_x)
    v = manifold.random_tangent(key_v, x)
    v = v * (case.reach * jr.uniform(key_r) / manifold.norm(x, v))
    return manifold, x, v, manifold.exp(x, v)
