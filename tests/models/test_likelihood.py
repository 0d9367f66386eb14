"""Following a flow: against one that is known, in both paces, forward and back."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import calor
from calor.models import likelihood

PLANE = calor.Euclidean(2)
TURN, GROWTH = 2.0, 0.3


def spiral(tau, x):
    """Turning and growing, faster and faster."""
    return tau * (TURN * jnp.stack([-x[1], x[0]]) + GROWTH * x)


def ends(pace, start, end, velocity=spiral):
    x = jnp.asarray([[1.0, 0.0], [0.3, -2.0]])
    times = jnp.asarray(start, x.dtype), jnp.asarray(end, x.dtype)
    follow = lambda x, pace: likelihood.follow(velocity, PLANE, x, *times, pace=pace)
    return x, jax.jit(jax.vmap(follow, (0, None)))(x, pace)


def error(x, way, start, end):
    """How far off the end and the divergence are."""
    passed = (end**2 - start**2) / 2
    z = np.asarray(x[:, 0] + 1j * x[:, 1]) * np.exp((GROWTH + 1j * TURN) * passed)
    place = np.max(np.abs(np.asarray(way.end) - np.stack([z.real, z.imag], axis=1)))
    return max(place, np.max(np.abs(np.asarray(way.divergence) - 2 * GROWTH * passed)))


@pytest.mark.parametrize(("start", "end"), [(0.5, 3.0), (3.0, 0.5)])
def test_steps_are_as_long_as_their_error_allows(start, end, double):
    errors, steps = [], []
    for tolerance in (1e-4, 1e-7):
        x, way = ends(likelihood.by_tolerance(tolerance), start, end)
        assert np.all(way.reached)
        errors.append(error(x, way, start, end))
        steps.append(int(np.max(way.steps)))
    assert errors[0] < 1e-2
    assert errors[1] < 1e-5
    # Of order five: a thousandth of the tolerance takes four times as many steps.
    assert 2 < steps[1] / steps[0] < 6


@pytest.mark.parametrize(("start", "end"), [(0.5, 3.0), (3.0, 0.5)])
def test_the_midpoint_rule_is_of_order_two(start, end, double):
    errors = [error(*ends(likelihood.by_steps(n), start, end), start, end) for n in (100, 200)]
    assert 3.5 < errors[0] / errors[1] < 4.5
    _, way = ends(likelihood.by_steps(100), start, end)
    assert way.steps.tolist() == [100, 100]
    assert np.all(way.reached)


def test_a_flow_that_has_no_end_is_lost():
    _, way = ends(likelihood.by_tolerance(1e-4), 0.0, 3.0, lambda tau, x: x**2)
    assert way.reached.tolist() == [False, True]
