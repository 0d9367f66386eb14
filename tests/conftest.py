"""Fixtures shared by the tests: both precisions."""

import jax
import pytest


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
