"""Mixtures in the chart as a first guess: their score, how heat spreads them, their draws."""

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import calor
from calor.data import prepare as data
from calor.models import guesses
from calor.models.fields import guessed
from calor.models.guesses.base import spread
from calor.models.guesses.em import Parts
from calor.models.guesses.parts import PartsPrior, noise_at, parts_law
from calor.store import stored as checkpoint
from matrices import matrices

SPD3 = calor.SPD(3)


def law(growth=0.0, noise=None):
    """Two parts in R^3 for two labels."""
    rng = np.random.default_rng(0)
    roots = 0.5 * rng.normal(size=(2, 3, 3))
    covariances = roots @ roots.transpose(0, 2, 1) + 0.1 * np.eye(3)
    means = np.array([[0.5, 0.2, -0.3], [-0.4, 0.1, 0.6]])
    return parts_law(Parts(np.log([[0.7, 0.3], [0.1, 0.9]]), means, covariances), noise, growth)


def two_clusters(count, seed=0):
    """Matrices of SPD(3) in two clusters of different shapes."""
    rng = np.random.default_rng(seed)
    label = rng.random(count) < 0.6
    z = rng.normal(size=(count, 6)) * [0.5, 0.2, 0.2, 0.4, 0.2, 0.3]
    z[label] = rng.normal(size=(label.sum(), 6)) * [0.2, 0.2, 0.5, 0.3, 0.3, 0.2]
    z += np.where(label[:, None], [0.8, 0.3, 0, 0.2, 0, -0.6], [-0.8, 0, -0.4, 0, 0.3, 0.7])
    return np.asarray(jax.jit(jax.vmap(SPD3.decode))(jnp.asarray(z)), float)


@pytest.mark.parametrize("growth", [0.0, 0.4])
def test_score_and_draws_are_those_of_the_density(growth, double):
    rng = np.random.default_rng(1)
    root = np.eye(3) + 0.2 * rng.normal(size=(2, 3, 3))
    found = law(growth, root @ root.transpose(0, 2, 1))
    z, t = jnp.array([0.3, -0.2, 0.4]), jnp.asarray(0.2)
    for label in range(2):
        features = jnp.eye(2)[label]
        slope = jax.grad(lambda z, f=features: found.log_prob(z, 2 * t, f))(z)
        np.testing.assert_allclose(found.score(z, t, features), slope, rtol=1e-9)
        draws = jax.vmap(lambda k, f=features: found.sample(k, 2 * t, f))(
            jr.split(jr.key(0), 20000)
        )
        ratio = jax.vmap(
            lambda z, f=features: jnp.exp(-jnp.sum(z**2)) / jnp.exp(found.log_prob(z, 2 * t, f))
        )(draws)
        np.testing.assert_allclose(jnp.mean(ratio), np.pi**1.5, rtol=0.1)
    total = found.axes @ (
        spread(found.variances, t, growth)[:, :, None] * jnp.swapaxes(found.axes, 1, 2)
    )
    noise = 2 * t if growth == 0 else 2 / growth * np.expm1(growth * t)
    covariances = found.axes @ (found.variances[:, :, None] * jnp.swapaxes(found.axes, 1, 2))
    expected = np.exp(growth * t) * covariances + noise * root @ root.transpose(0, 2, 1)
    np.testing.assert_allclose(total, expected, atol=1e-9)


def test_noise_at_a_mean_is_the_inverse_metric(double):
    z = 0.7 * np.random.default_rng(2).normal(size=(2, 6))
    for place, found in zip(z, noise_at(SPD3, z), strict=True):
        tangents = jnp.moveaxis(jax.jacfwd(SPD3.decode)(jnp.asarray(place)), -1, 0)
        inner = jax.vmap(jax.vmap(SPD3.inner, (None, None, 0)), (None, 0, None))
        metric = inner(SPD3.decode(jnp.asarray(place)), tangents, tangents)
        np.testing.assert_allclose(found, np.linalg.inv(metric), atol=1e-8)


def test_curvature_spreads_noise_at_its_rate():
    """The mean square of the places of Brownian motion from the identity."""
    for manifold in (SPD3, calor.Hyperbolic(3)):
        kernel, origin, t = calor.heat_kernel(manifold), manifold.origin(), 0.2
        draws = jax.jit(jax.vmap(lambda k, m=kernel, o=origin, t=t: m.draw(jnp.asarray(t), o, k)))(
            jr.split(jr.key(0), 8000)
        )
        found = jnp.mean(jax.vmap(manifold.embedding)(draws) ** 2)
        expected = spread(jnp.zeros(()), jnp.asarray(t), manifold.noise_growth())
        np.testing.assert_allclose(found, expected, rtol=0.03)
        assert manifold.noise_growth() > 0


def test_the_guess_at_a_point_has_the_volume_term(double):
    """Its coefficients are the slopes of the density of points along the frame."""
    parts = Parts(np.zeros((1, 1)), np.full((1, 6), 0.3), 0.4 * np.eye(6)[None])
    found, x, t = parts_law(parts), jnp.asarray(matrices(1, 3)[0]), jnp.asarray(0.1)

    def log_density(x):
        value = found.log_prob(SPD3.embedding(x), 2 * t, jnp.zeros(0))
        return value - SPD3.log_chart_volume(x)

    frame = SPD3.frame(x)
    slopes = jnp.tensordot(frame, jax.grad(log_density)(x), axes=2)
    told = guessed(SPD3, found, t, x, jnp.zeros(0))
    np.testing.assert_allclose(told, jnp.sqrt(2 * t) * slopes, atol=1e-9)
    some = jnp.asarray(np.random.default_rng(0).normal(size=6))
    np.testing.assert_allclose(
        SPD3.along_frame(x, some), jnp.tensordot(some, frame, axes=1), atol=1e-9
    )


def test_a_mixture_is_the_guess_where_there_are_clusters():
    for points, several in ((two_clusters(400), True), (matrices(300, 3), False)):
        prepared = data.prepare(SPD3, data.Given(points), key=jr.key(0)).part(0)
        found, law = guesses.find_gaussian(None, SPD3, prepared)
        assert law is not None
        assert law.has_volume()
        assert (law.count() > 1) == several
        assert found.features.shape == (len(found.points), 0)


def test_mixtures_of_several_parts_of_the_data_have_one_shape(monkeypatch):
    """Members are trained together, however many Gaussians the data of each call for."""
    points, counts = two_clusters(400), iter((1, 4, 2))
    folds = data.prepare(SPD3, data.Given(points), key=jr.key(0), parts=3)
    several = [folds.part(number) for number in range(3)]
    choose = guesses.choose_by_label
    monkeypatch.setattr(
        guesses, "choose_by_label", lambda *given: choose(*given[:-1], (next(counts),))
    )
    alone = [guesses._find_parts(SPD3, part) for part in several]
    assert len({law.count() for law in alone}) > 1
    laws = iter(alone)
    monkeypatch.setattr(guesses, "_find_parts", lambda manifold, part: next(laws))
    found = [law for _, law in guesses.find_gaussians(None, SPD3, several)]
    assert len({law.means.shape for law in found}) == 1
    z, nothing = jr.normal(jr.key(1), (6,)), jnp.zeros(0)
    for law, before in zip(found, alone, strict=True):
        assert law.count() == before.count()
        for t in (jnp.asarray(0.0), jnp.asarray(0.3)):
            np.testing.assert_allclose(
                law.log_prob(z, t, nothing), before.log_prob(z, t, nothing), rtol=1e-5
            )
            np.testing.assert_allclose(
                law.score(z, t, nothing), before.score(z, t, nothing), rtol=1e-4, atol=1e-5
            )
        drawn = jax.vmap(lambda key: law.sample(key, jnp.asarray(0.1), nothing))  # noqa: B023
        assert np.isfinite(np.asarray(drawn(jr.split(jr.key(0), 50)))).all()


def test_the_prior_survives_a_file():
    prior = PartsPrior(SPD3, law(0.3), 0.2)
    arrays = {}
    code = json.loads(json.dumps(checkpoint._encode(prior, arrays, set())))
    assert eqx.tree_equal(checkpoint._decode(code, arrays, None), prior)


@pytest.mark.slow
def test_draws_of_the_guess_alone_have_the_spread_of_the_data():
    """Spectra of logarithms, determinants and traces, within the sampling error."""
    points = two_clusters(3000)
    model = calor.fit(
        calor.heat_kernel(SPD3),
        points,
        parts="diffusion",
        key=jr.key(0),
        training=calor.Training(steps=1, batch=8, learning_rate=1e-9, validate_every=1),
        network=calor.Network(width=8, depth=1, frequencies=0),
    )
    drawn = np.asarray(model.sample(2000, key=jr.key(1)), float)
    spectra, traces, volumes = [], [], []
    for x in (points, drawn):
        z = np.asarray(jax.vmap(SPD3.embedding)(jnp.asarray(x)), float)
        spectra.append(np.linalg.eigvalsh(np.cov(z.T)))
        traces.append(np.trace(x, axis1=1, axis2=2))
        volumes.append(np.linalg.slogdet(x)[1])
    np.testing.assert_allclose(spectra[1], spectra[0], rtol=0.15)
    for data_values, values in (traces, volumes):
        error = np.std(values) / np.sqrt(len(values)) + np.std(data_values) / np.sqrt(3000)
        assert abs(values.mean() - data_values.mean()) < 4 * error
