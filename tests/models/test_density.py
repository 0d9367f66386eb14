"""Kernel densities as models, and mixtures of models: saved, conditioned, grouped, stacked."""

import dataclasses

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import calor
from calor.data.prepare import Given, prepare
from calor.models.bandwidths import adaptive_widths
from calor.models.choice import Choice, mixed
from calor.models.density import KernelDensity, fit_folds
from calor.models.model import mixture_value, mixture_weights
from fits import points_of
from quotients import sphere_grid

SPHERE = calor.Sphere(2)
RNG = np.random.default_rng(0)
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
        own = np.flatnonzero(label == number)
        whitenings = density.whitenings
        alone = dataclasses.replace(
            density,
            points=density.points[own],
            bandwidths=density.bandwidths[:, own],
            whitenings=None if whitenings is None else whitenings[:, own],
            condition=None,
            rows=jnp.zeros((100, 0)),
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


def arcs(count, seed=0):
    """Points along an arc, much closer to it than to each other."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(-1.5, 1.5, count)
    points = np.stack([np.cos(angle), np.sin(angle), 0.02 * rng.normal(size=count)], axis=1)
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def test_directions_of_neighbours_help():
    known, new = arcs(150), arcs(300, 1)
    density = calor.fit_density(KERNEL, known, key=jr.key(0), adaptive=True)
    rounded = calor.fit_density(KERNEL, known, key=jr.key(0))
    assert density.wrapped
    assert density.whitenings is not None
    assert float(jnp.mean(density.log_prob(new) - rounded.log_prob(new))) > 0.1


def test_draws_have_the_density():
    """The mean of log p over draws is that of the density by quadrature, over a few thousand."""
    density = fit_density(arcs(80), adaptive=True)
    drawn = np.asarray(density.log_prob(density.sample(3000, key=jr.key(3))))
    x, weights = sphere_grid(200)
    values = np.asarray(density.log_prob(x), np.float64)
    np.testing.assert_allclose(np.sum(weights * np.exp(values)), 1, atol=1e-3)
    mean = np.sum(weights * np.exp(values) * values)
    assert abs(drawn.mean() - mean) < 4 * drawn.std() / np.sqrt(3000)


def test_nothing_knows_the_point_left_out(monkeypatch):
    """What is said of a place does not change when the other rows of the fold move there."""

    def equal(values, counts):
        rows = values[0].shape[2] - 1
        return Choice(0, np.arange(rows), np.full(rows + 1, 1 / (rows + 1)))

    monkeypatch.setattr("calor.models.density.mixed", equal)  # weights do know other folds
    data = points_of(SPHERE, 60)
    folds = prepare(SPHERE, Given(data), key=jr.key(0), centred=False, parts=3)
    density, values = fit_folds(KERNEL, folds, key=jr.key(1), t_min=1e-3)
    held = np.concatenate(folds.rows)
    assert values.shape == held.shape
    assert len(density.points) == 60
    assert np.mean(density.log_prob(data[held])) > values.mean() + 0.1
    moved, first = np.array(data), folds.rows[0]
    moved[first] = data[first[1]]
    whole = dataclasses.replace(folds.whole, points=jnp.asarray(moved, jnp.float32))
    again = dataclasses.replace(folds, whole=whole)
    _, changed = fit_folds(KERNEL, again, key=jr.key(1), t_min=1e-3)
    np.testing.assert_allclose(changed[: len(first)], values[1], atol=1e-4)


def test_rows_are_judged_by_what_other_blocks_choose():
    rng = np.random.default_rng(0)
    blocks = np.repeat([0, 1, 2], 40)
    columns = rng.normal(size=(120, 3)) + np.eye(3)[blocks]
    found = mixture_value(columns, blocks=blocks)
    for block in range(3):
        inside = blocks == block
        weights = mixture_weights(columns[~inside])
        alone = np.logaddexp.reduce(columns[inside] + np.log(weights), axis=1)
        np.testing.assert_allclose(found[inside], alone)
    assert found.mean() < mixture_value(columns).mean() - 0.01


def test_a_single_validation_part_is_judged_by_thirds(monkeypatch):
    seen = []

    def spy(values, counts):
        seen.append(sum(map(len, counts)))
        return mixed(values, counts)

    monkeypatch.setattr("calor.models.density.mixed", spy)
    data, new = points_of(SPHERE, 60), points_of(SPHERE, 20, 3)
    folds = prepare(SPHERE, Given(data, validation=new), key=jr.key(0), centred=False)
    density, values = fit_folds(KERNEL, folds, key=jr.key(1), t_min=1e-3)
    assert sorted(seen) == [13, 13, 14, 20]
    assert np.mean(values) < np.mean(density.log_prob(new))


@pytest.mark.parametrize("adaptive", [False, True])
def test_points_that_count_twice_are_like_two(adaptive):
    data, label = caps(60)
    twice = np.concatenate([data, data[label == 1]])
    weights = np.where(label == 1, 2.0, 1.0)
    held = caps(40, 5)[0]
    how = {"adaptive": adaptive, "validation": held}
    counted = fit_density(data, weights=weights, **how)
    np.testing.assert_allclose(
        counted.log_prob(held),
        fit_density(twice, **how).log_prob(held),
        atol=1e-3 if adaptive else 0.1,
    )
    drawn = np.asarray(counted.sample(2000, key=jr.key(0)))
    assert abs(np.mean(drawn[:, 2] < 0) - 2 / 3) < 0.05


def test_weights_of_rows_know_how_much_points_count():
    parts = np.log([[0.5, 0.1], [0.1, 0.5]])
    twice = mixture_weights(parts[[0, 0, 1]])
    np.testing.assert_allclose(mixture_weights(parts, counts=np.array([2.0, 1])), twice, rtol=1e-6)


@pytest.mark.parametrize("adaptive", [False, True])
def test_a_density_lives_around_a_centre(adaptive):
    """Moving data by an isometry and back changes nothing."""
    spd = calor.SPD(2)
    kernel = calor.heat_kernel(spd)
    data = np.asarray(points_of(spd, 50)) * 30
    found = []
    for centred in (False, True):
        folds = prepare(spd, Given(data), key=jr.key(0), centred=centred, parts=2)
        found.append(fit_folds(kernel, folds, key=jr.key(1), adaptive=adaptive, t_min=1e-3))
    (first, plain), (second, moved) = found
    assert second.centre is not None
    if adaptive:  # a single bandwidth is chosen by the spread in the chart
        np.testing.assert_allclose(plain, moved, atol=0.1)
    else:
        assert abs(plain.mean() - moved.mean()) < 0.2
    drawn = np.asarray(second.sample(200, key=jr.key(2)))
    assert 0.5 < np.median(drawn[:, 0, 0]) / np.median(data[:, 0, 0]) < 2
    assert np.mean(first.log_prob(drawn)) > np.mean(plain) - 1


def test_files_from_before_covariances_are_read(tmp_path, monkeypatch):
    """They have no whitenings, counts or centre."""
    data, _ = caps(40)
    density = fit_density(data)
    old = {
        name: getattr(density, name)
        for name in ("kernel points bandwidths broad weights condition rows width record".split())
    }
    again = KernelDensity(**old)
    np.testing.assert_array_equal(again.log_prob(data), density.log_prob(data))


def test_a_manifold_without_distortion_has_heat_kernels():
    clouds = calor.PointCloud(3, 2)
    kernel = calor.heat_kernel(clouds)
    data = np.random.default_rng(0).normal(size=(40, 3, 2))
    density = calor.fit_density(kernel, data, key=jr.key(0), adaptive=True)
    assert not density.wrapped
    assert density.whitenings is None
    assert np.all(np.isfinite(density.log_prob(data)))
    assert density.sample(5, key=jr.key(1)).shape == (5, 3, 2)


def test_folds_share_compiled_functions():
    """Training parts that differ by a row or so take no compilation of their own."""
    data = points_of(SPHERE, 200)
    folds = prepare(SPHERE, Given(data), key=jr.key(0), centred=False, parts=3)
    fit_folds(KERNEL, folds, key=jr.key(1), t_min=1e-3)
    other = prepare(SPHERE, Given(data[:198]), key=jr.key(0), centred=False, parts=3)
    seen = []
    jax.monitoring.register_event_duration_secs_listener(lambda name, *_, **__: seen.append(name))
    try:
        fit_folds(KERNEL, other, key=jr.key(1), t_min=1e-3)
    finally:
        jax.monitoring.clear_event_listeners()
    assert sum("backend_compile" in name for name in seen) <= 20


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


def test_points_that_are_doubled_have_shared_bandwidths_too():
    """Where every place is there twice but for a little noise, neighbours say nothing of it."""
    places = np.repeat(np.linspace(0, 2 * np.pi, 21)[:-1], 4)
    angles = (places + 5e-2 * RNG.normal(size=80))[:, None]
    prepared = prepare(calor.Torus(1), Given(angles), key=jr.key(0)).whole
    widths = adaptive_widths(calor.Torus(1), prepared, None, wrapped=True)
    shared = widths.times[np.ptp(widths.times, axis=1) == 0, 0]
    assert len(shared) == 8
    circle = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
    nearest = np.sort(np.linalg.norm(circle[:, None] - circle, axis=2), axis=1)[:, 1]
    smallest = max(1e-8, np.quantile(nearest, 0.1) ** 2 / 8)
    np.testing.assert_allclose([shared.min(), shared.max()], [smallest, 0.25], rtol=0.05)
