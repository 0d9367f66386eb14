"""Recipes: how a network is made to solve the heat equation.

* `default`: calor's own.  A set network of some hundred parameters in float64 and
  Levenberg-Marquardt; on compact spaces in windows of time, on others in rounds of fresh points.
* `pairs`: the same without symmetry, for a manifold given by its equations; the network sees both
  points, and the initial law is shot along geodesics.
* `clouds`: point clouds modulo permutations, a network of doubly stochastic matrices.
* `paper`: the paper's appendix B, a modified multilayer perceptron trained by Adam.
"""

from ._clouds import Clouds as Clouds
from ._pairs import Pairs as Pairs
from ._paper import Paper as Paper
from ._windows import Default as Default
from .base import RECIPES as RECIPES
from .base import REVISION as REVISION
from .base import AbstractPlan as AbstractPlan
from .base import AbstractRecipe as AbstractRecipe
from .base import Done as Done

# A recipe is made by calling it with its settings.
default, pairs, clouds, paper = Default, Pairs, Clouds, Paper
