"""Geometry, for one point at a time: what a manifold is, those that calor knows, their names.

Open `base` first: what one implements, and what follows from it.
"""

from ..core import compiled
from .base import AbstractCompactManifold as AbstractCompactManifold
from .base import AbstractManifold as AbstractManifold
from .cloud import PointCloud as PointCloud
from .euclidean import Euclidean as Euclidean
from .hyperbolic import Hyperbolic as Hyperbolic
from .product import Product as Product
from .quotient import AbstractQuotient as AbstractQuotient
from .quotient import Quotient as Quotient
from .rotations import SO3 as SO3
from .spd import SPD as SPD
from .sphere import Sphere as Sphere
from .submanifold import Submanifold as Submanifold
from .symmetric import AbstractSymmetricSpace as AbstractSymmetricSpace
from .torus import Torus as Torus

SEES = ("core", "store")

compiled.keep()  # whoever uses calor comes by here
