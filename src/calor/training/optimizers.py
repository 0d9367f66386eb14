"""The optimizer of a training, by default Muon for matrices and Adam for the rest."""

import jax
import jax.numpy as jnp
import optax

from .settings import Training


def optimizer(settings: Training) -> optax.GradientTransformation:
    """The optimizer that was asked for, or `muon_and_adam`."""
    return (settings.optimizer or muon_and_adam)(settings)


def muon_and_adam(settings: Training) -> optax.GradientTransformation:
    """Muon for the matrices inside the network, Adam for the rest; warm-up, then a cosine."""
    warm = min(500, max(1, settings.steps // 10))
    schedule = optax.warmup_cosine_decay_schedule(
        0.0,
        settings.learning_rate,
        warm,
        max(settings.steps, warm + 1),
        0.005 * settings.learning_rate,
    )

    def kind(parameters):
        return jax.tree.map(
            lambda p: "muon" if p.ndim == 2 and min(p.shape) >= 32 else "adam", parameters
        )

    return optax.chain(
        optax.clip_by_global_norm(settings.clip),
        optax.partition({"muon": muon(), "adam": optax.scale_by_adam(b2=0.99)}, kind),
        optax.scale_by_learning_rate(schedule),
    )


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
