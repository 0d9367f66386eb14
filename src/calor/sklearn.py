"""`calor.sklearn`: models as estimators of scikit-learn."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax.random as jr
import numpy as np

try:
    from sklearn.base import BaseEstimator, DensityMixin
    from sklearn.utils.validation import check_is_fitted
except ImportError as _error:
    raise ImportError(
        "calor.sklearn needs scikit-learn, which is not installed; run: "
        "pip install 'calor[sklearn]'"
    ) from _error

from .heat.kernel import AbstractHeatKernel
from .manifolds import AbstractManifold
from .manifolds.names import manifold_named
from .models.fitting import fit
from .models.network import Network
from .solvers.choose import heat_kernel
from .training.settings import Training

if TYPE_CHECKING:  # scikit-learn says nothing of its types

    class Estimator:
        """What has parameters, and a score for cross-validation."""
else:

    class Estimator(DensityMixin, BaseEstimator):
        """What has parameters, and a score for cross-validation."""


class AbstractDensity(Estimator):
    """What estimators of densities share; each says what to fit by `_model`."""

    manifold: str | AbstractManifold
    kernel: str | AbstractHeatKernel
    random_state: int
    model_: Any

    def _heat(self) -> AbstractHeatKernel:
        """The kernel, or the one of its name."""
        kernel, manifold = self.kernel, self.manifold
        if isinstance(kernel, AbstractHeatKernel):
            return kernel
        if isinstance(manifold, str):
            manifold = manifold_named(manifold)
        return heat_kernel(manifold, kernel)

    def score_samples(self, X: Any) -> np.ndarray:
        """The log-density of each point, in the Riemannian volume."""
        check_is_fitted(self)
        return np.asarray(self.model_.log_prob(X))

    def score(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, X: Any, y: Any = None
    ) -> float:
        """The mean log-density of points."""
        return float(np.mean(self.score_samples(X)))

    def sample(self, n_samples: int = 1, random_state: int | None = None) -> np.ndarray:
        """Draw points.

        Args:
            n_samples: how many.
            random_state: a seed; by default the one of the estimator.
        """
        check_is_fitted(self)
        seed = self.random_state if random_state is None else random_state
        return np.asarray(self.model_.sample(n_samples, key=jr.key(seed)))


class DiffusionDensity(AbstractDensity):
    """The density of points of a manifold, by a diffusion model.

    Cross-validation and grid search work as for every density estimator: `score` is the mean
    log-likelihood, the higher the better.

    After `fit`, `model_` is the `calor.Diffusion` (or `calor.Flow`) itself.
    """

    def __init__(
        self,
        manifold: str | AbstractManifold = "sphere:2",
        *,
        kernel: str | AbstractHeatKernel = "auto",
        flow: bool = False,
        steps: int = 2000,
        batch: int = 2048,
        learning_rate: float = 5e-3,
        width: int = 192,
        depth: int = 4,
        t_min: float | None = None,
        validation: float = 0.1,
        random_state: int = 0,
    ):
        """Settings of the fit; everything else is as in `calor.fit`.

        Args:
            manifold: where the points are, by name, such as `"sphere:2"`, or the manifold itself.
            kernel: which heat kernel, as for `calor.heat_kernel`, or the kernel itself.
            flow: flow matching instead of diffusion.
            steps: of training.
            batch: points a step.
            learning_rate: of training.
            width: of the network.
            depth: of the network.
            t_min: the smallest time.
            validation: the fraction of the data that is put aside for early stopping.
            random_state: the seed of the random numbers.
        """
        self.manifold = manifold
        self.kernel = kernel
        self.flow = flow
        self.steps = steps
        self.batch = batch
        self.learning_rate = learning_rate
        self.width = width
        self.depth = depth
        self.t_min = t_min
        self.validation = validation
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> "DiffusionDensity":
        """Fit the model.

        Args:
            X: points along the first axis: an array of NumPy or JAX, a data frame, or rotations of
                scipy.
            y: not used.
        """
        self.model_: Any = fit(
            self._heat(),
            X,
            parts="flow" if self.flow else "diffusion",
            key=jr.key(self.random_state),
            validation=self.validation,
            network=Network(width=self.width, depth=self.depth),
            training=Training(
                self.steps,
                self.batch,
                learning_rate=self.learning_rate,
                validate_every=min(self.steps, 200),
            ),
            t_min=self.t_min,
            progress=False,
        )
        return self


class Density(AbstractDensity):
    """The density of points of a manifold, by all kinds of models that help, weighed together.

    After `fit`, `model_` is the model that `calor.fit` makes.
    """

    def __init__(
        self,
        manifold: str | AbstractManifold = "sphere:2",
        *,
        kernel: str | AbstractHeatKernel = "auto",
        parts: str | Sequence[str] | None = None,
        minutes: float = 3.0,
        steps: int | None = None,
        random_state: int = 0,
    ):
        """Settings of the fit; everything else is as in `calor.fit`.

        Args:
            manifold: where the points are, by name, such as `"sphere:2"`, or the manifold itself.
            kernel: which heat kernel, as for `calor.heat_kernel`, or the kernel itself.
            parts: the kinds of models to try; by default all that suit the manifold.
            minutes: about how long a fit may take.
            steps: of training, instead of what fits into these minutes.
            random_state: the seed of the random numbers.
        """
        self.manifold = manifold
        self.kernel = kernel
        self.parts = parts
        self.minutes = minutes
        self.steps = steps
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> "Density":
        """Fit the model.

        Args:
            X: points along the first axis: an array of NumPy or JAX, a data frame, or rotations of
                scipy.
            y: not used.
            sample_weight: how much each point counts.
        """
        self.model_: Any = fit(
            self._heat(),
            X,
            parts=self.parts,
            minutes=self.minutes,
            weights=sample_weight,
            key=jr.key(self.random_state),
            training=None if self.steps is None else Training(self.steps),
            progress=False,
        )
        return self
