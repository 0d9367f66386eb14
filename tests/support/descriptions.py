"""Manifolds that are given by their equations or metric alone, with the truth about their kernels.

Tests solve them at a small budget, `benchmarks/own.py` at the full one.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import calor
from calor.experiments.surface_oracles import Ellipsoid, TorusOfRevolution
from calor.manifolds import calculus
from equations import (
    AXES,
    SYMMETRIC,
    affine_invariant,
    ellipsoid,
    half_plane,
    near_i,
    sphere,
    torus,
)


class Mapped:
    """The exact kernel of a manifold of calor, as the truth for another way to write it.

    `embed` maps points to that manifold and stretches lengths by 1/sqrt(scale).
    """

    def __init__(self, model, embed=lambda x: x, scale=1.0):
        self.kernel, self.embed, self.scale = calor.heat_kernel(model), embed, scale
        self.volume = None
        if model.is_compact():
            self.volume = float(jnp.exp(model.log_volume())) * scale ** (model.dim / 2)

    def log_prob_and_score(self, manifold, t, x, x0):
        with jax.enable_x64(True):
            x, x0 = (jnp.asarray(np.asarray(y, np.float64)) for y in (x, x0))

            def value(x, x0):
                found = self.kernel.log_prob_at(
                    jnp.asarray(t / self.scale), self.embed(x), self.embed(x0)
                )
                return found - manifold.dim / 2 * np.log(self.scale)

            def slope(x, x0):
                return calculus.gradient(lambda x: value(x, x0), x, manifold.frame(x))

            run = jax.jit(jax.vmap(lambda x, x0: (value(x, x0), slope(x, x0))))
            return tuple(map(np.asarray, run(x, x0)))


class Solved:
    """An independent solve of the same equation (`surfaces.py`)."""

    def __init__(self, surface):
        self.surface, self.volume = surface, surface.volume

    def log_prob_and_score(self, manifold, t, x, x0):
        return self.surface.log_prob_and_score(t, x, x0)


def orthonormal_columns(rows, columns):
    """The equations of X^T X = I, for matrices (rows, columns)."""

    def equations(x):
        x = x.reshape(rows, columns)
        return (x.T @ x - jnp.eye(columns))[jnp.triu_indices(columns)]

    return equations


def rotations():
    """R^T R = I, on the side of the identity."""
    return calor.Submanifold(orthonormal_columns(3, 3), 9, component=jnp.eye(3).ravel())


def quaternion(x):
    """Of a rotation matrix (9,): the largest column of 4 q q^T."""
    r = x.reshape(3, 3)
    turn = jnp.stack([r[2, 1] - r[1, 2], r[0, 2] - r[2, 0], r[1, 0] - r[0, 1]])
    block = r + r.T + (1 - jnp.trace(r)) * jnp.eye(3)
    products = jnp.block([[1 + jnp.trace(r), turn[None]], [turn[:, None], block]])
    q = products[:, jnp.argmax(jnp.diag(products))]
    return q / jnp.linalg.norm(q)


def hyperboloid(x):
    """A point of the half-plane as one of the hyperboloid."""
    square = x @ x
    return jnp.stack([1 + square, 2 * x[0], square - 1]) / (2 * x[1])


def positive_definite():
    """A metric alone: positive definite matrices ((a, b), (b, c)), near the identity."""
    spd, identity = calor.SPD(2), jnp.eye(2)
    draw = lambda key: spd.exp(identity, 0.3 * spd.draw_tangent(key, identity))
    points = jax.vmap(draw)(jr.split(jr.key(5), 64))
    return calor.Submanifold(None, 3, affine_invariant, around=points[:, *jnp.triu_indices(2)])


def implicit(constraint, size):
    """How to make a manifold from its equations."""
    return lambda: calor.Submanifold(constraint, size)


def turn_ring(key):
    """A random symmetry of the torus: a turn about the axis, perhaps after a reflection."""
    key_angle, key_side = jr.split(key)
    angle = jr.uniform(key_angle, maxval=2 * jnp.pi)
    c, s, side = jnp.cos(angle), jnp.sin(angle), 2.0 * jr.bernoulli(key_side) - 1
    return lambda x: jnp.stack([c * x[0] - s * x[1], s * x[0] + c * x[1], side * x[2]])


CASES = {
    "sphere": (sphere, lambda: Mapped(calor.Sphere(2))),
    "sphere3": (lambda: sphere(3), lambda: Mapped(calor.Sphere(3))),
    "ellipsoid": (ellipsoid, lambda: Solved(Ellipsoid(AXES, 20))),
    "torus": (torus, lambda: Solved(TorusOfRevolution(waves=70))),
    "torus, symmetries": (
        lambda: torus(turn_ring),
        lambda: Solved(TorusOfRevolution(waves=70)),
    ),
    "flat torus": (
        implicit(lambda x: jnp.stack([x[:2] @ x[:2], x[2:] @ x[2:]]) - 1, 4),
        lambda: Mapped(calor.Torus(2), lambda x: jnp.arctan2(x[1::2], x[::2])),
    ),
    # |dR|^2 = 8 |dq|^2
    "rotations": (rotations, lambda: Mapped(calor.SO3(), quaternion, 8.0)),
    "stiefel": (implicit(orthonormal_columns(4, 2), 8), lambda: None),  # no truth is known
    "half-plane": (
        lambda: half_plane(around=near_i(64)),
        lambda: Mapped(calor.Hyperbolic(2), hyperboloid),
    ),
    "spd": (
        positive_definite,
        lambda: Mapped(calor.SPD(2), lambda x: jnp.tensordot(x, jnp.array(SYMMETRIC), axes=1)),
    ),
}
