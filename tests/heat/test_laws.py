"""The law along shot geodesics: what it leaves of the equation, and for how long it speaks."""

import dataclasses

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import calor
from calor.heat.certificate import Certificate
from calor.heat.early.certify import certify_law
from calor.heat.early.geodesics import GeodesicLaw, last_of_law
from calor.heat.early.laws import SchwingerDeWitt
from calor.heat.equation import log_heat_residual
from calor.heat.kernel import UnsolvedError
from calor.solvers import choose as kernels
from calor.solvers.solved import learned_kernel
from descriptions import CASES, half_plane, hyperboloid
from equations import ellipsoid, sphere, untrained


@pytest.mark.parametrize("curvature", [1, -1])
def test_what_is_left_of_the_equation_is_what_the_closed_form_leaves(double, curvature):
    manifold = sphere() if curvature > 0 else half_plane()
    model = calor.Sphere(2) if curvature > 0 else calor.Hyperbolic(2)
    place = (lambda x: x) if curvature > 0 else hyperboloid
    # With constant curvature (R(x) + R(x0)) / 12 is R / 6.
    law, closed = GeodesicLaw(manifold), SchwingerDeWitt(model)
    x0 = jnp.array([0.6, 0.0, 0.8]) if curvature > 0 else jnp.array([0.1, 1.3])
    basis, t = manifold.basis(x0), jnp.asarray(0.2)
    for v in jnp.array([[0.3, 0.5], [1.0, -0.7]]):
        found, largest = jax.jit(lambda v: law.residual(t, x0, basis, v))(v)
        x = manifold.exp(x0, v @ basis)
        wanted = log_heat_residual(closed, t, place(x), place(x0))
        np.testing.assert_allclose(found, wanted, rtol=1e-2)  # of twelve steps
        slope = law.score(t, x, x0)
        assert largest >= 0.99 * manifold.inner(x, slope, slope)  # one of its terms


def test_what_is_left_of_the_equation_where_the_curvature_varies(double):
    """By differences of log p and of the metric, in the coordinates v."""
    manifold, t, h = ellipsoid(), jnp.asarray(0.2), 4e-3
    law, x0 = GeodesicLaw(manifold), manifold.project(jnp.array([0.5, 0.4, 0.9]))
    basis, v = manifold.basis(x0), jnp.array([0.35, -0.4])

    @jax.jit
    @jax.vmap
    def at(v):
        value, (x, jacobian) = law._value(t, x0, basis, v)
        later = law._value(t + h, x0, basis, v)[0] - law._value(t - h, x0, basis, v)[0]
        return value, jacobian.T @ jacobian, later / (2 * h)

    steps = jnp.stack(jnp.meshgrid(*[h * jnp.arange(-2, 3)] * 2, indexing="ij"), axis=-1)
    value, metric, change = at((v + steps).reshape(-1, 2))
    value, metric = value.reshape(5, 5), metric.reshape(5, 5, 2, 2)
    slope = np.stack([np.gradient(value, h, axis=i) for i in (0, 1)], axis=-1)
    raised = np.linalg.solve(metric, slope[..., None])[..., 0]
    volume = np.sqrt(np.linalg.det(metric))
    spread = [np.gradient(volume * raised[..., i], h, axis=i)[2, 2] for i in (0, 1)]
    terms = change[12], sum(spread) / volume[2, 2], raised[2, 2] @ slope[2, 2]
    found, largest = jax.jit(lambda v: law.residual(t, x0, basis, v))(v)
    np.testing.assert_allclose(found, terms[0] - terms[1] - terms[2], rtol=0.02)
    np.testing.assert_allclose(largest, np.max(np.abs(terms)), rtol=1e-3)


def test_the_certificate_of_the_law_tells_its_error():
    manifold, truth = CASES["half-plane"][0](), CASES["half-plane"][1]()
    law, t = GeodesicLaw(manifold), 0.3
    certificate = certify_law(law, t, key=jr.key(0))
    x0 = jax.jit(jax.vmap(manifold.draw_point))(jr.split(jr.key(1), 200))
    draw = jax.jit(jax.vmap(lambda x0, key: law.known_draw(jnp.asarray(t), x0, key)))
    x, value, _ = draw(x0, jr.split(jr.key(2), 200))
    error = np.abs(value - truth.log_prob_and_score(manifold, t, x, x0)[0])
    np.testing.assert_allclose(certificate.estimate(t), np.mean(error), rtol=0.15)
    assert certificate.bound(t) > np.max(error)
    assert certificate.initial_error == 0


@pytest.mark.slow
def test_the_law_ends_where_rounding_decides_about_it():
    """Coordinates of SPD(2) stretch without end: single precision ends before the law does."""
    manifold = CASES["spd"][0]()
    certificate = certify_law(GeodesicLaw(manifold), 3.0, key=jr.key(0))
    assert 0.3 < certificate.times[-1] < 1.5
    assert certificate.estimate(3.0) == np.inf


def promise(first, rate, t0=0.1, t1=2.0):
    """A certificate whose estimate is first + rate (t - t0)."""
    times = np.geomspace(t0 or t1 / 50, t1, 12).tolist()
    rows = {"largest": 2 * rate, "mean": rate, "normalized": rate, "log_mass": 0.0, "radius": 1.0}
    rows = {name: (value,) * 12 for name, value in rows.items()}
    start = {"initial_error": 2 * first, "initial_mean": first}
    return Certificate(calor.Sphere(2), t0, times=tuple(times), points=64, **start, **rows)


def test_certificates_are_cut_and_joined():
    early, late = promise(0.0, 0.01, t0=0.0, t1=1.0), promise(0.003, 0.001)
    joined = late.after(0.5, early.until(0.5))
    assert joined.t0 == joined.times[0] == 0.5
    np.testing.assert_allclose(joined.estimate(0.4), 0.004, rtol=1e-6)  # of the law
    np.testing.assert_allclose(joined.estimate(0.6), late.estimate(0.6), rtol=1e-6)
    np.testing.assert_allclose(joined.bound(2.0), late.bound(2.0), rtol=1e-6)
    assert joined.earlier.estimate(0.7) == np.inf  # it was cut
    assert "below t = 0.5 a law for small times speaks: estimate 2.5e-03" in str(joined)


def network_kernel(manifold, certificate):
    return learned_kernel(
        manifold, GeodesicLaw(manifold), untrained(manifold), (0.1, 2.0), certificate, "{}"
    )


def fails(manifold, *, key):
    raise UnsolvedError("no mesh")


# Estimates of series and network from 0.1 to 2; the series is good if it is below 0.01.
@pytest.mark.parametrize(
    ("of_series", "of_network", "switch"),
    [
        ((0.001, 0.0), (0.0, 0.0), "series"),
        ((0.05, 0.0), (0.01, 0.01), "network"),
        ((0.02, 0.0), (0.01, 0.02), 0.6),
    ],
)
def test_auto_takes_the_best_at_every_time(
    solved_sphere, monkeypatch, tmp_path, of_series, of_network, switch
):
    manifold = solved_sphere.manifold
    # That of the network ends first, which says nothing about the network.
    certificates = {"series": promise(*of_series, t1=3.0), "network": promise(*of_network)}
    solved = dataclasses.replace(solved_sphere, t0=0.1, certificate=certificates["series"])
    network = network_kernel(manifold, certificates["network"])
    monkeypatch.setattr(kernels, "solve_elements", fails)
    monkeypatch.setattr(kernels, "solve_spectral", lambda manifold, *, key: solved)
    monkeypatch.setattr(kernels, "solve", lambda manifold, *, key: network)
    monkeypatch.setattr(kernels, "_law_for_longer", lambda network: network)
    with pytest.warns(UserWarning, match="another way is tried, since 'elements' failed: no mesh"):
        found = calor.heat_kernel(manifold, key=jr.key(0), cache=tmp_path)
    again = calor.heat_kernel(manifold, key=jr.key(0), cache=tmp_path)  # from the cache
    x0, x = jnp.array([0.0, 0.0, 1.0]), jnp.array([0.6, 0.0, 0.8])
    for t in (0.3, 1.5):
        wanted = {"series": solved, "network": network}.get(switch, network if t < 0.6 else solved)
        for kernel in (found, again):
            assert kernel.log_prob(t, x, x0) == wanted.log_prob(t, x, x0)
        assert found.certificate.estimate(t) == pytest.approx(wanted.certificate.estimate(t))
    if switch == 0.6:
        assert found.t0 == pytest.approx(0.6, rel=0.03)


def test_the_law_speaks_for_as_long_as_it_is_the_better_one(monkeypatch):
    manifold = sphere()
    network = network_kernel(manifold, promise(0.01, 0.001))
    law = promise(0.0, 0.02, t0=0.0)
    monkeypatch.setattr(GeodesicLaw, "certified", lambda self, last: law.until(last))
    monkeypatch.setattr(kernels, "shortest_length", lambda manifold: np.inf)
    longer = kernels._law_for_longer(network)
    # 0.02 t = 0.01 + 0.001 (t - 0.1)
    assert longer.t0 == pytest.approx(0.0099 / 0.019, rel=0.03)
    assert longer.certificate.estimate(0.3) == pytest.approx(0.006)
    # Geodesics that are not shortest any more end it.
    radius = 5 * np.sqrt(2 * 0.2)
    assert last_of_law(radius) == pytest.approx(0.2)
    monkeypatch.setattr(kernels, "shortest_length", lambda manifold: radius)
    assert kernels._law_for_longer(network).t0 == pytest.approx(0.2, rel=0.03)
