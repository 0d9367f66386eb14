"""Fixtures shared by the tests: both precisions, and a training that is interrupted."""

import os

import jax
import pytest

from calor import recipes

# Tests compile much and compute little: code that is less optimized is ready sooner.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")


@pytest.fixture(params=["float32", "float64"])
def precision(request):
    """Run a test in single and in double precision; the value is the name of the dtype."""
    with jax.enable_x64(request.param == "float64"):
        yield request.param


@pytest.fixture
def double():
    """Run a test in double precision."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def interrupt_training(monkeypatch):
    """Call it with k: the k-th step of all trainings is interrupted. It returns the steps made."""

    def arm(number):
        advance, calls = recipes.Default.advance, []

        def interrupted(self, manifold):
            step = advance(self, manifold)

            def count(state, data):
                calls.append(1)
                if len(calls) == number:
                    raise KeyboardInterrupt
                return step(state, data)

            return count

        monkeypatch.setattr(recipes.Default, "advance", interrupted)
        return calls

    return arm
