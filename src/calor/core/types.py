"""Names for the arrays that travel through calor."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

Scalar = Float[Array, ""]
"""One real number."""
Point = Float[Array, "..."]
"""One point of a manifold, in the manifold's `shape`."""
Points = Array | np.ndarray
"""Points of a manifold along the first axis, of either library."""
Tangent = Float[Array, "..."]
"""One tangent vector, in the same ambient coordinates as the point it sits at."""
Key = PRNGKeyArray
"""A random key, as `jax.random.key` makes it."""
ScalarField = Callable[[Point], Scalar]
"""A function on a manifold, written in ambient coordinates."""
VectorField = Callable[[Point], Tangent]
"""A tangent vector field on a manifold, written in ambient coordinates."""
