"""Metrics against laws where the answer is known."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import calor
from calor import metrics

RNG = np.random.default_rng(0)


def test_energy_score_of_a_gaussian():
    """In one dimension it is the continuous ranked probability score, known for a Gaussian."""
    truth, width = 0.7, 1.5
    draws = width * RNG.normal(size=(200, 100, 1))
    z = truth / width
    expected = width * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))
    found = metrics.energy_score(draws, np.full((200, 1), truth))
    assert abs(found.mean() - expected) < 4 * found.std() / np.sqrt(200)


def test_energy_score_is_proper():
    """The true law has the lowest mean score, a wider, a narrower and a shifted one a higher."""
    truth = RNG.normal(size=(4000, 3))
    noise = RNG.normal(size=(4000, 20, 3))
    scores = [
        metrics.energy_score(noise * width + shift, truth).mean()
        for width, shift in ((1, 0), (1.5, 0), (0.6, 0), (1, 0.5))
    ]
    assert np.argmin(scores) == 0


def test_coverage_is_exact_for_the_true_law():
    truth, draws = RNG.normal(size=(20000, 2)), RNG.normal(size=(20000, 20, 2))
    found, expected = metrics.coverage(draws, truth)
    assert expected == 18 / 21
    assert abs(found - expected) < 4 * np.sqrt(expected * (1 - expected) / 20000)
    assert metrics.coverage(0.5 * draws, truth)[0] < 0.6
    assert metrics.coverage(2 * draws, truth)[0] > 0.97


@pytest.mark.parametrize("scale", [0.7, 1.0, 1.5])
def test_alpha_precision_of_gaussians(scale):
    """In the plane a ball of share a of the real law holds 1 - (1 - a)^(1/s^2) of a wider one."""
    real, made = RNG.normal(size=(20000, 2)), scale * RNG.normal(size=(20000, 2))
    levels = np.linspace(0.05, 0.95, 19)
    shares = 1 - (1 - levels) ** (1 / scale**2)
    expected = 1 - np.sum(np.abs(shares - levels)) / np.sum(levels)
    assert abs(metrics.alpha_precision(real, made) - expected) < 0.02


def test_precision_and_recall_of_extreme_laws():
    real = RNG.normal(size=(500, 2))
    far, point = real + 100, np.zeros((500, 2)) + 1e-3 * RNG.normal(size=(500, 2))
    assert metrics.alpha_precision(real, far) == pytest.approx(0)
    assert metrics.beta_recall(real, far) == pytest.approx(0)
    assert metrics.alpha_precision(real, point) == pytest.approx(0, abs=0.02)
    assert metrics.beta_recall(real, point) < 0.2
    # Of the law itself both are one in the limit; recall gets there like n^(-1/2) in the plane.
    real, again = RNG.normal(size=(2, 1500, 2))
    assert metrics.alpha_precision(real, again) > 0.95
    assert metrics.beta_recall(real, again) > 0.87
    assert metrics.beta_recall(real, again) > metrics.beta_recall(real[:400], again[:400])
    # Half of the law that is missing is seen by recall.
    half = again[again[:, 0] > 0]
    assert metrics.beta_recall(real, half) < metrics.beta_recall(real, again) - 0.2


def test_f1():
    assert metrics.harmonic(0.5, 1.0) == pytest.approx(2 / 3)
    assert metrics.harmonic(-0.1, 1.0) == 0


def test_distances_and_means_of_matrices():
    a = np.diag([1.0, np.e])
    b = np.diag([np.e, np.e**3])
    assert metrics.affine_invariant(a, b) == pytest.approx(np.sqrt(1 + 4))
    assert metrics.frobenius(a, 2 * a) == pytest.approx(np.sqrt(1 + np.e**2))
    mixing = RNG.normal(size=(2, 2))
    moved = [mixing @ m @ mixing.T for m in (a, b)]
    assert metrics.affine_invariant(*moved) == pytest.approx(np.sqrt(5))
    mean = metrics.frechet_means(np.stack(moved)[None])[0]
    expected = mixing @ np.diag(np.exp([0.5, 2.0])) @ mixing.T
    np.testing.assert_allclose(mean, expected, rtol=1e-9)
    logs = metrics.logarithms(np.stack(moved))
    first = metrics.matrix_function(moved[0], np.log)
    assert np.linalg.norm(logs[0]) == pytest.approx(np.linalg.norm(first))


def test_trees_tell_two_gaussians_apart_as_well_as_can_be():
    """The best classifier of laws a distance m apart has an area of Phi(m / sqrt(2))."""
    first, second = RNG.normal(size=(3000, 2)), RNG.normal(size=(3000, 2)) + [1.0, 0.0]
    mean, error = metrics.classifier_auc(first, second)
    best = norm.cdf(1 / np.sqrt(2))
    assert best - 0.03 < mean < best + 3 * error
    same, error = metrics.classifier_auc(first, RNG.normal(size=(3000, 2)))
    assert abs(same - 0.5) < 4 * error + 0.01


def test_the_discrepancy_of_gaussians():
    """E k(x, y) of the heat kernel is the density of x - y after more noise."""
    kernel = calor.heat_kernel(calor.Euclidean(2))
    first, second = RNG.normal(size=(1500, 2)), 0.5 * RNG.normal(size=(1500, 2)) + [1.0, 0.0]
    t = 0.1

    def mean(variance, gap):
        return np.exp(-(gap**2) / (2 * variance)) / (2 * np.pi * variance)

    within, other = mean(2 + 2 * t, 0), mean(0.5 + 2 * t, 0)
    truth = (within + other - 2 * mean(1.25 + 2 * t, 1)) / within
    found = metrics.heat_discrepancy(kernel, t, jnp.asarray(first), jnp.asarray(second))
    assert abs(found - truth) < 0.15 * truth
    again = jnp.asarray(RNG.normal(size=(1500, 2)))
    assert abs(metrics.heat_discrepancy(kernel, t, jnp.asarray(first), again)) < 0.02
