"""Recipes: how a network is made to solve the heat equation.

* `default`: calor's own.  A set network of some hundred parameters in float64 and
  Levenberg-Marquardt; on compact spaces in windows of time, on others in rounds of fresh points.
* `pairs`: the same without symmetry, for a manifold given by its equations; the network sees both
  points, and the initial law is shot along geodesics.
* `clouds`: point clouds modulo permutations, a network of doubly stochastic matrices.
* `paper`: the paper's appendix B, a modified multilayer perceptron trained by Adam.
"""

from ._clouds import Clouds as Clouds
from ._clouds import clouds as clouds
from ._pairs import Pairs as Pairs
from ._pairs import pairs as pairs
from ._paper import Paper as Paper
from ._paper import paper as paper
from ._windows import Default as Default
from ._windows import default as default
from .base import REVISION as REVISION
from .base import AbstractRecipe as AbstractRecipe
from .base import Done as Done
