"""The optimizer of a training, by default Muon for matrices and Adam for the rest."""

import jax
import jax.numpy as jnp
import optax

from .settings import Training


def optimizer(settings: Training) -> optax.GradientTransformationExtraArgs:
    """The optimizer that was asked for, or `muon_and_adam`."""
    return optax.with_extra_args_support((settings.optimizer or muon_and_adam)(settings))


def muon_and_adam(settings: Training) -> optax.GradientTransformationExtraArgs:
    """Muon for the matrices inside the network, Adam for the rest; warm-up, then a cosine."""

    def kind(parameters):
        return jax.tree.map(
            lambda p: "muon" if p.ndim == 2 and min(p.shape) >= 32 else "adam", parameters
        )

    return optax.chain(
        optax.clip_by_global_norm(settings.clip),
        optax.partition({"muon": muon(), "adam": optax.scale_by_adam(b2=0.99)}, kind),
        warm_up_and_cosine(settings.learning_rate),
    )


def warm_up_and_cosine(rate: float) -> optax.GradientTransformationExtraArgs:
    """The learning rate: up to `rate` in a tenth of all steps, 500 at most, then down to almost 0.

    The number of all steps is an argument of the update, so that trainings of different lengths
    share what is compiled.
    """

    def start(parameters):
        return jnp.zeros((), int)

    def update(updates, count, parameters=None, *, total, **more):
        warm = jnp.clip(total // 10, 1, 500)
        down = jnp.clip((count - warm) / jnp.maximum(total - warm, 1), 0.0, 1.0)
        cosine = 0.005 + 0.995 * (1 + jnp.cos(jnp.pi * down)) / 2
        now = -rate * jnp.where(count < warm, count / warm, cosine)
        return jax.tree.map(lambda u: (now * u).astype(u.dtype), updates), count + 1

    return optax.GradientTransformationExtraArgs(start, update)  # pyright: ignore


# A step of Muon moves every singular value of a matrix by this times the learning rate.
_MUON_SCALE, _MOMENTUM = 5.0, 0.95
# Coefficients of an odd polynomial that moves singular values toward one, of the first steps of
# Polar Express (Amsel et al. 2025).  More steps make them more equal, and training slower.
_POLAR = ((4.0848, -6.8946, 2.9270), (3.9505, -6.3029, 2.6377), (3.7418, -5.5913, 2.3037))


def muon() -> optax.GradientTransformation:
    """Steepest descent in the spectral norm: momentum, its singular values set to about one."""

    def update(gradients, momentum, parameters=None):
        momentum = jax.tree.map(lambda m, g: _MOMENTUM * m + g, momentum, gradients)
        ahead = jax.tree.map(lambda m, g: _MOMENTUM * m + g, momentum, gradients)
        return jax.tree.map(lambda a: _MUON_SCALE * _orthogonal(a), ahead), momentum

    def start(parameters):
        return jax.tree.map(jnp.zeros_like, parameters)

    return optax.GradientTransformation(start, update)  # pyright: ignore


def _orthogonal(matrix):
    """A matrix with the same singular vectors, singular values about sqrt(max(1, o/i))."""
    inputs, outputs = matrix.shape
    wide = inputs <= outputs
    x = matrix if wide else matrix.T
    x = x / (jnp.linalg.norm(x) + 1e-7)
    identity = jnp.eye(len(x), dtype=x.dtype)
    for a, b, c in _POLAR:
        gram = x @ x.T
        x = (a * identity + b * gram + c * gram @ gram) @ x
    return (x if wide else x.T) * max(1.0, outputs / inputs) ** 0.5
