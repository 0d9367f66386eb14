"""Denoisers of the paper on SPD(n)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import calor
from calor.models import denoisers
from calor.models.network import Network
from calor.training.settings import Training
from matrices import matrices

RNG = np.random.default_rng(0)
TINY = Training(steps=2, batch=8, validate_every=2)


def test_lifting_eigenvalues_has_derivatives_where_they_meet(double):
    e = RNG.normal(size=(3, 3))
    e = jnp.asarray(e + e.T)
    for x in (jnp.eye(3), jnp.diag(jnp.array([2.0, -1.0, -1.0]))):
        lifted = lambda h, x=x: denoisers.rectify(x + h * e)
        h = 1e-5
        found = jax.jvp(lifted, (0.0,), (1.0,))[1]
        np.testing.assert_allclose(found, (lifted(h) - lifted(-h)) / (2 * h), atol=1e-8)
        slope = jax.grad(lambda h: jnp.sum(lifted(h) * e))(0.0)
        np.testing.assert_allclose(slope, jnp.sum(found * e), rtol=1e-8)


def test_spd_net_has_the_sizes_of_the_paper_and_names_matrices():
    network = denoisers.spd_net(jr.key(0), calor.SPD(10), 2, (1e-3, 0.1))
    sizes = [network.maps[0].shape[1], *(weight.shape[0] for weight in network.maps)]
    assert sizes == [10, 10, 6, 6, 3, 3, 6, 6, 10, 10]
    network = denoisers.spd_net(jr.key(0), calor.SPD(4), 2, (1e-3, 0.1))
    x = jnp.asarray(matrices(1, 4, 0.05)[0], jnp.float32)
    total = lambda network: jnp.sum(network(x, jnp.asarray(0.01), jnp.ones(2)))
    value, slope = eqx.filter_jit(eqx.filter_value_and_grad(total))(network)
    assert np.isfinite(value)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(slope))
    made = eqx.filter_jit(network)(x, jnp.asarray(0.01), jnp.ones(2))
    np.testing.assert_allclose(made, made.T, atol=1e-5)
    assert np.linalg.eigvalsh(made)[0] > 0
    with pytest.raises(ValueError, match=r"for SPD\(n\), not for Sphere"):
        denoisers.spd_net(jr.key(0), calor.Sphere(2), 0, (1e-3, 0.1))


@pytest.mark.slow
@pytest.mark.parametrize("score", [calor.SPDNetScore, calor.TriangularScore])
def test_denoisers_of_the_paper_are_fitted_and_kept(score, tmp_path):
    kernel, values = calor.heat_kernel(calor.SPD(3)), matrices(60, 3)
    options = {"network": Network(width=16, depth=1), "training": TINY, "key": jr.key(0)}
    labels = np.repeat(["a", "b"], 30)
    model = calor.fit(kernel, values, condition=labels, score=score, **options)
    model.save(tmp_path / "model.calor")
    again = calor.load(tmp_path / "model.calor")
    drawn = again.sample(8, condition="a", key=jr.key(1), steps=5)
    np.testing.assert_array_equal(drawn, model.sample(8, condition="a", key=jr.key(1), steps=5))
    assert np.all(np.linalg.eigvalsh(drawn) > 0)
