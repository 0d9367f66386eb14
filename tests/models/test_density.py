"""Kernel densities as models, and mixtures of models: saved, conditioned, grouped, stacked."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import calor
from calor.models.density import KernelDensity
from calor.models.model import mixture_weights
from fits import points_of
from quotients import sphere_grid

SPHERE = calor.Sphere(2)
KERNEL = calor.heat_kernel(SPHERE)
BOTH = [False, pytest.param(True, marks=pytest.mark.slow)]


def fit_density(data, **options):
    """With bandwidths that the quadrature can see."""
    return calor.fit_density(KERNEL, data, key=jr.key(0), t_min=2e-3, **options)


def caps(count=200, seed=0):
    """Points around two poles, and which one."""
    rng = np.random.default_rng(seed)
    label = np.arange(count) % 2
    points = np.array([[0, 0, 1.0], [0, 0, -1]])[label] + 0.3 * rng.normal(size=(count, 3))
    return points / np.linalg.norm(points, axis=1, keepdims=True), label


@pytest.mark.parametrize("adaptive", [False, True])
def test_a_density_survives_a_file(adaptive, tmp_path):
    data, label = caps()
    density = fit_density(data, condition=label, adaptive=adaptive)
    density.save(tmp_path / "density.calor")
    again = calor.load(tmp_path / "density.calor")
    assert isinstance(again, KernelDensity)
    np.testing.assert_array_equal(
        again.log_prob(data[:5], condition=1), density.log_prob(data[:5], condition=1)
    )
    np.testing.assert_array_equal(
        again.sample(5, condition=label[:5], key=jr.key(1)),
        density.sample(5, condition=label[:5], key=jr.key(1)),
    )
    assert again.about["manifold"] == "Sphere(2)"
    assert again.about["adaptive"] == adaptive


@pytest.mark.parametrize("adaptive", BOTH)
def test_every_label_has_a_density_of_its_own(adaptive):
    """That of its points alone, with the bandwidths that were chosen for all."""
    data, label = caps()
    names = np.array(["north", "south"])[label]
    density = fit_density(
        data, condition=names, adaptive=adaptive, validation=(data[:40], names[:40])
    )
    x, weights = sphere_grid(127)
    for number, name in enumerate(("north", "south")):
        values = np.exp(density.log_prob(x, condition=name))
        np.testing.assert_allclose(np.sum(weights * values), 1, atol=0.01)
        alone = KernelDensity(
            kernel=KERNEL,
            points=density.points[label == number],
            bandwidths=density.bandwidths[:, label == number],
            broad=density.broad,
            weights=density.weights,
            condition=None,
            rows=jnp.zeros((100, 0)),
            width=density.width,
            record="{}",
        )
        np.testing.assert_allclose(np.log(values), alone.log_prob(x), atol=1e-4)
    drawn = density.sample(200, condition="south", key=jr.key(1))
    assert float(jnp.mean(drawn[:, 2] < 0)) > 0.95
    with pytest.raises(ValueError, match="log_prob: the model was fitted with conditions"):
        density.log_prob(x)


@pytest.mark.parametrize("adaptive", BOTH)
def test_numbers_move_a_density(adaptive):
    """Points go around the equator with the number that comes with them."""
    rng = np.random.default_rng(1)
    number = rng.uniform(-1, 1, size=300)
    place = np.stack([np.cos(2 * number), np.sin(2 * number), 0 * number], axis=1)
    data = place + 0.1 * rng.normal(size=(300, 3))
    data /= np.linalg.norm(data, axis=1, keepdims=True)
    density = fit_density(data, condition=number, adaptive=adaptive, validation=0.2)
    assert 0.03 <= float(density.width) < 1
    x, weights = sphere_grid(127)
    for value in (-0.8, 0.0, 0.8):
        values = np.exp(density.log_prob(x, condition=value))
        np.testing.assert_allclose(np.sum(weights * values), 1, atol=0.02)
        drawn = np.asarray(density.sample(300, condition=value, key=jr.key(1)))
        middle = drawn.mean(axis=0) / np.linalg.norm(drawn.mean(axis=0))
        assert middle @ [np.cos(2 * value), np.sin(2 * value), 0] > 0.97
    plain = fit_density(data, adaptive=adaptive, validation=0.2)
    known = density.log_prob(data, condition=number)
    assert float(jnp.mean(known)) > float(jnp.mean(plain.log_prob(data))) + 0.5


def test_whole_groups_are_put_aside():
    """The bandwidth is that of new groups: groups that are narrow do not make it narrow."""
    rng = np.random.default_rng(2)
    centres = rng.normal(size=(12, 3))
    groups = np.repeat(np.arange(12), 20)
    data = centres[groups] / np.linalg.norm(centres[groups], axis=1, keepdims=True)
    data = data + 0.02 * rng.normal(size=data.shape)
    data /= np.linalg.norm(data, axis=1, keepdims=True)
    apart = fit_density(data, groups=groups, validation=0.25)
    mixed = fit_density(data, validation=0.25)
    assert len(apart.points) % 20 == 0
    assert float(apart.bandwidths[0, 0]) > 4 * float(mixed.bandwidths[0, 0])
    with pytest.raises(ValueError, match="fit_density: groups must name one group"):
        fit_density(data, groups=groups[:5])


def test_a_stack_is_the_weighted_mean(tmp_path):
    first, second = (fit_density(points_of(SPHERE, 100, seed)) for seed in (0, 5))
    new = np.concatenate([points_of(SPHERE, 400, 0)[100:], points_of(SPHERE, 200, 5)[100:]])
    both = calor.stack([first, second], new)
    np.testing.assert_allclose(both.weights, [0.75, 0.25], atol=0.12)
    x, weights = sphere_grid(127)
    values = np.exp(both.log_prob(x))
    parts = np.stack([np.exp(model.log_prob(x)) for model in (first, second)])
    np.testing.assert_allclose(values, np.asarray(both.weights) @ parts, rtol=1e-4)
    np.testing.assert_allclose(np.sum(weights * values), 1, atol=0.01)
    # The share of the draws near the second bump is its weight.
    drawn = np.asarray(both.sample(2000, key=jr.key(1)))
    share = np.mean(second.log_prob(drawn) > first.log_prob(drawn))
    truth = np.sum(weights * values * (parts[1] > parts[0]))
    assert abs(share - truth) < 4 * np.sqrt(truth * (1 - truth) / 2000)
    both.save(tmp_path / "both.calor")
    again = calor.load(tmp_path / "both.calor")
    np.testing.assert_array_equal(again.log_prob(x[:7]), both.log_prob(x[:7]))
    np.testing.assert_array_equal(again.sample(7, key=jr.key(2)), both.sample(7, key=jr.key(2)))
    assert [m["manifold"] for m in again.about["models"]] == ["Sphere(2)"] * 2


def test_a_stack_of_models_with_and_without_conditions():
    data, label = caps()
    blind, knowing = fit_density(data), fit_density(data, condition=label)
    new, asked = caps(100, 1)
    both = calor.stack([blind, knowing], new, condition=asked)
    assert both.weights[1] > 0.9
    drawn = np.asarray(both.sample(300, condition=np.arange(300) % 2, key=jr.key(0)))
    assert np.mean((drawn[:, 2] < 0) == np.arange(300) % 2) > 0.9
    np.testing.assert_allclose(sum(both.weights), 1, atol=1e-6)


def test_stacks_that_are_refused():
    data = points_of(SPHERE, 30)
    density = fit_density(data)
    flat = calor.fit_density(
        calor.heat_kernel(calor.Euclidean(3)), data, key=jr.key(0), validation=0.2
    )
    with pytest.raises(ValueError, match="stack: at least one model"):
        calor.stack([], data)
    with pytest.raises(ValueError, match=r"stack: models must live on the same manifold"):
        calor.stack([density, flat], data)
    with pytest.raises(ValueError, match="stack: no model was fitted with conditions"):
        calor.stack([density], data, condition=np.zeros(30))
    with pytest.raises(ValueError, match="sample: method must be one of 'exact', got 'walk'"):
        density.sample(3, key=jr.key(0), method="walk")


def test_parts_that_were_lost_count_as_no_density():
    parts = np.log([[0.5, 0.1], [0.1, 0.5], [0.3, 0.3]])
    parts[0, 0] = np.nan
    assert mixture_weights(parts)[0] < 0.5
