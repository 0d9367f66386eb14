"""The first guess of a score: a mixture of Gaussians, noised."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.scipy.special import logsumexp

import calor
from calor.manifolds.names import manifold_named
from calor.models.fields import guessed
from calor.models.guesses.mixture import Mixture, fit_mixture
from calor.models.network import field_network

CENTRES = jnp.array([[0.0, 0.0], [2.0, 1.0], [-1.0, 3.0]])
TIMES = jnp.array([0.1, 0.02, 0.3])
WEIGHTS = jnp.array([0.5, 0.2, 0.3])
MIXTURE = Mixture(CENTRES, TIMES, jnp.log(WEIGHTS), 2)


def log_prob(z, t):
    """The truth: Gaussians that the heat kernel of the plane has widened."""
    plane = calor.heat_kernel(calor.Euclidean(2))
    parts = jax.vmap(lambda c, tau: plane.log_prob_at(t + tau, z, c))(CENTRES, TIMES)
    return logsumexp(parts + jnp.log(WEIGHTS))


@pytest.mark.parametrize("t", [0.01, 0.3, 4.0])
def test_score_of_a_noised_mixture(t):
    places = 3 * jr.normal(jr.key(0), (50, 2))
    found = jax.vmap(lambda z: MIXTURE.score(z, jnp.asarray(t), jnp.zeros(0)))(places)
    wanted = jax.vmap(jax.grad(lambda z: log_prob(z, jnp.asarray(t))))(places)
    np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-4)


def test_a_fitted_mixture_is_as_likely_as_the_true_one():
    def draw(key):
        key_part, key_noise = jr.split(key)
        part = jr.choice(key_part, 3, p=WEIGHTS)
        return CENTRES[part] + jnp.sqrt(2 * TIMES[part]) * jr.normal(key_noise, (2,))

    places = jax.vmap(draw)(jr.split(jr.key(1), 3000))
    fitted = fit_mixture(places[:2000], 2, 8, 1e-6, jr.key(2))
    now = jnp.zeros(())

    def density(z):
        parts = fitted.log_parts(z, now) - jnp.log(4 * jnp.pi)
        return logsumexp(parts) - logsumexp(fitted.log_weights)

    truth = jax.vmap(lambda z: log_prob(z, now))(places[2000:])
    gap = float(jnp.mean(truth - jax.vmap(density)(places[2000:])))
    assert -0.01 < gap < 0.04, gap


@pytest.mark.parametrize("name", ["sphere:2", "so3", "spd:2"])
def test_guess_around_one_point_is_the_score_of_the_kernel(name):
    manifold = manifold_named(name)
    kernel = calor.heat_kernel(manifold)
    x0 = manifold.random_point(jr.key(0))
    t, tau = jnp.asarray(1e-3), 1e-3
    guess = Mixture(manifold.embedding(x0)[None], jnp.full(1, tau), jnp.zeros(1), manifold.dim)

    def both(key):
        x = kernel.draw(t + tau, x0, key)
        coefficients = guessed(manifold, guess, t, x, jnp.zeros(0)) / jnp.sqrt(2 * t)
        found = jnp.tensordot(coefficients, manifold.frame(x), axes=1)
        return found, kernel.score_at(t + tau, x, x0)

    found, wanted = jax.jit(jax.vmap(both))(jr.split(jr.key(1), 100))
    # A flat guess on a curved manifold is right to some per cent where the noise is narrow; in
    # coordinates that are not isometric, a few more.
    assert float(jnp.linalg.norm(found - wanted)) < 0.15 * float(jnp.linalg.norm(wanted))


def test_the_guess_is_added_to_the_network_and_knows_the_group():
    so3, x0, none = calor.SO3(), jnp.array([0.5, 0.5, -0.5, 0.5]), jnp.zeros(0)
    guess = Mixture(so3.embedding(x0)[None], jnp.full(1, 0.01), jnp.zeros(1), 3)
    # Untrained, the network gives almost nothing: the guess alone is near the truth.
    size, places = calor.Network(16, 1, 4), jr.normal(jr.key(0), (9, 10))
    network = field_network(size, places, (0.1, 1.0), (1e-3, 1.0), 3, 3, key=jr.key(2))
    score = jax.jit(lambda x: calor.TangentScore(so3, network, guess)(jnp.asarray(0.01), x, none))
    kernel = calor.heat_kernel(so3)
    x = kernel.sample(0.02, x0, key=jr.key(1))
    wanted = kernel.score(0.02, x, x0)
    assert jnp.linalg.norm(score(x) - wanted) < 0.3 * jnp.linalg.norm(wanted)
    np.testing.assert_allclose(score(-x), -score(x), atol=1e-4)


@pytest.mark.slow
def test_a_model_with_a_guess_is_saved_and_loaded(tmp_path):
    kernel = calor.heat_kernel(calor.Sphere(2))
    x0 = jnp.array([0.6, 0.0, 0.8])
    data = jax.vmap(lambda key: kernel.sample(0.01, x0, key=key))(jr.split(jr.key(0), 200))
    model = calor.fit(
        kernel,
        data,
        parts="diffusion",
        key=jr.key(1),
        network=calor.Network(16, 1, 4, centres=4),
        training=calor.Training(steps=2, batch=64, validate_every=2),
    )
    assert model.field.guess is not None
    model.save(tmp_path / "model.calor")
    again = calor.load(tmp_path / "model.calor")
    t, none = jnp.asarray(0.01), jnp.zeros(0)
    np.testing.assert_array_equal(model.field(t, x0, none), again.field(t, x0, none))
