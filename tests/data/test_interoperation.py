"""What users have already: arrays, frames, rotations of scipy, and the tools of scikit-learn."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pandas as pd
import pytest
from scipy.spatial.transform import Rotation
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score

import calor
import calor.data.points
import calor.sklearn
from calor.data import tables
from processes import python, seeing

SPHERE, SO3 = calor.Sphere(2), calor.SO3()
PLACES = pd.DataFrame({"name": ["a", "b"], "lon": [0.0, 90.0], "lat": [45.0, 0.0]})
VECTORS = np.array([[np.sqrt(0.5), 0, np.sqrt(0.5)], [0, 1, 0]])
DATA = np.asarray(jax.vmap(SPHERE.random_point)(jr.split(jr.key(0), 60)))


def points(data, manifold=SPHERE):
    return np.asarray(calor.data.points.checked_points(manifold, data))


def test_arrays_and_frames_are_points_of_the_sphere():
    for data in (
        VECTORS,
        VECTORS.astype(np.float32),
        jnp.asarray(VECTORS),
        VECTORS.tolist(),
        pd.DataFrame(VECTORS),
        pd.DataFrame(VECTORS, columns=list("xyz")).assign(id=["a", "b"]),
        PLACES,
        PLACES.set_index("name"),
    ):
        np.testing.assert_allclose(points(data), VECTORS, atol=1e-6)


def test_rotations_of_scipy_are_points_of_so3():
    turns = Rotation.random(5, random_state=0)
    expected = turns.as_quat(scalar_first=True)
    for data in (turns, list(turns), expected, pd.DataFrame(expected, columns=list("wxyz"))):
        overlap = np.abs(np.sum(points(data, SO3) * expected, axis=1))
        np.testing.assert_allclose(overlap, 1, atol=1e-6)
    assert points(turns[0], SO3).shape == (1, 4)


def test_frames_of_other_manifolds():
    np.testing.assert_allclose(
        points(pd.DataFrame({"phi": [1.0], "psi": [2.0]}), calor.Torus(2)), [[1, 2]]
    )
    flat = pd.DataFrame([[2.0, 0.5, 0.5, 1.0]])
    assert points(flat, calor.SPD(2)).shape == (1, 2, 2)


@pytest.mark.parametrize(
    ("data", "manifold", "error", "message"),
    [
        (Rotation.identity(), SPHERE, TypeError, r"points of SO3\(\), not of Sphere\(2\)"),
        (PLACES[["name", "lat"]], SPHERE, tables.TableError, "are not all numbers"),
        (PLACES.assign(lat=[1, 95]), SPHERE, tables.TableError, "row 1: a latitude of 95"),
        (PLACES[["lat"]], SPHERE, tables.TableError, "1 columns, but a point of"),
        (PLACES.assign(lat=[1, np.nan]), SPHERE, ValueError, "NaN or infinite"),
    ],
)
def test_bad_frames_and_rotations(data, manifold, error, message):
    with pytest.raises(error, match=message):
        points(data, manifold)


@pytest.fixture
def quick(monkeypatch):
    """Estimators that fit a kernel density, which takes no time, in place of a diffusion model."""

    def fit(kernel, data, *, key, validation, t_min, **settings):
        return calor.fit_density(kernel, data, key=key, validation=validation, t_min=t_min)

    monkeypatch.setattr(calor.sklearn, "fit", fit)


def test_parameters_and_clones():
    estimator = calor.sklearn.DiffusionDensity(SO3, steps=5)
    again = clone(estimator)
    assert again.get_params()["steps"] == 5
    assert str(again.manifold) == "SO3()"
    assert again.set_params(width=8).width == 8
    assert "steps=5" in repr(estimator)
    with pytest.raises(NotFittedError):
        estimator.score_samples(DATA)


def test_cross_validation_and_grid_search(quick):
    estimator = calor.sklearn.DiffusionDensity()
    scores = cross_val_score(estimator, DATA, cv=2)  # parts of one size compile once
    assert scores.shape == (2,)
    assert np.isfinite(scores).all()
    search = GridSearchCV(estimator, {"t_min": [1e-3, 0.3]}, cv=2).fit(DATA)
    assert search.best_params_ == {"t_min": 0.3}  # uniform points: the broader, the better
    best = search.best_estimator_
    assert best.score(DATA) == pytest.approx(best.score_samples(DATA).mean())
    assert best.sample(4).shape == (4, 3)
    angles = np.rad2deg(np.stack([np.arcsin(DATA[:, 2]), np.arctan2(DATA[:, 1], DATA[:, 0])], 1))
    frame = pd.DataFrame(angles, columns=["lat", "lon"])
    np.testing.assert_allclose(cross_val_score(estimator, frame, cv=2), scores, atol=1e-3)


def test_a_diffusion_model_as_an_estimator():
    estimator = calor.sklearn.DiffusionDensity(steps=2, batch=16, width=8, depth=1)
    estimator.fit(DATA)
    assert isinstance(estimator.model_, calor.Diffusion)
    assert estimator.score_samples(DATA[:3]).shape == (3,)
    first, second = estimator.sample(2), estimator.sample(2, random_state=1)
    assert not np.allclose(first, second)


@pytest.mark.slow
def test_grid_search_over_diffusion_models():
    estimator = calor.sklearn.DiffusionDensity(steps=20, batch=64, width=8, depth=1)
    search = GridSearchCV(estimator, {"flow": [False, True]}, cv=2, error_score="raise").fit(DATA)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_without_scikit_learn_the_message_says_what_to_install(tmp_path):
    (tmp_path / "sklearn.py").write_text("raise ImportError('hidden')\n")
    done = python("-c", "import calor.sklearn", env=seeing(tmp_path))
    assert "pip install 'calor[sklearn]'" in done.stderr.splitlines()[-1]
