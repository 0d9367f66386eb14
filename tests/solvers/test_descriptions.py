"""Every manifold of the table in `descriptions.py`, solved at a small budget, beside its truth."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import calor
from descriptions import CASES

# Small networks; what they leave is far below what a wrong factor in the equation would.
SMALL = {"points": 800, "steps": 10, "rounds": 2, "widths": (12, 12)}


def errors(kernel, truth, t, count=200):
    """Mean error of log p, and relative error of the score, at ends of Brownian motion."""
    manifold = kernel.manifold
    x0 = jax.jit(jax.vmap(manifold.draw_point))(jr.split(jr.key(3), count))
    t = jnp.asarray(t, x0.dtype)
    walk = jax.jit(jax.vmap(lambda x0, key: manifold.walk(t, x0, key, 32)))
    x = walk(x0, jr.split(jr.key(4), count))
    value, score = jax.jit(jax.vmap(lambda x, x0: kernel.both_at(t, x, x0)))(x, x0)
    wanted, truly = truth.log_prob_and_score(manifold, float(t), x, x0)
    square = jax.vmap(lambda x, v: manifold.inner_at(x, v, v))
    gap, size = square(x, score - truly), square(x, jnp.asarray(truly, x.dtype))
    relative = float(jnp.sqrt(jnp.mean(gap) / jnp.mean(size)))
    return float(np.mean(np.abs(value - wanted))), relative


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "functions", "t"),
    [("sphere3", 600, 0.6), ("torus", 300, 1.5), ("flat torus", 150, 1.0), ("rotations", 300, 4.0)],
)
def test_series(name, functions, t):
    make_manifold, make_truth = CASES[name]
    kernel = calor.solve_spectral(make_manifold(), key=jr.key(0), functions=functions)
    truth = make_truth()
    assert kernel.t0 < t
    # One number comes from small times, where so few functions are poor: the volume.  It is as far
    # off as the certificate says; nothing else is.
    volume = float(kernel.log_volume) - np.log(truth.volume)
    assert abs(volume) < min(kernel.certificate.estimate(t), 0.15)
    log_prob, score = errors(kernel, truth, t)
    assert log_prob < abs(volume) + 0.01
    assert score < 0.05


# At these budgets a certificate may call a kernel poor, and is right.
@pytest.mark.filterwarnings("ignore::calor.PoorKernelWarning")
@pytest.mark.slow
def test_network_on_positive_definite_matrices_given_by_their_metric():
    make_manifold, make_truth = CASES["spd"]
    kernel = calor.solve(make_manifold(), calor.recipes.pairs(t1=0.5, **SMALL), key=jr.key(0))
    log_prob, score = errors(kernel, make_truth(), 0.4)
    assert log_prob < 0.05
    assert score < 0.15


@pytest.mark.filterwarnings("ignore::calor.PoorKernelWarning")
@pytest.mark.slow
def test_network_on_a_stiefel_manifold():
    """Five dimensions and no truth: unit mass, and a certificate that says what it knows."""
    make_manifold, _ = CASES["stiefel"]
    kernel = calor.solve(make_manifold(), calor.recipes.pairs(**SMALL), key=jr.key(0))
    assert np.all(np.abs(np.expm1(kernel.certificate.log_mass)) < 0.15)
    assert 1e-4 < kernel.certificate.estimate(kernel.certificate.times[-1]) < 10
