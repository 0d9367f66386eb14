"""Exact heat kernels; what is imported here is known to `calor.heat_kernel`."""

from .flat import EuclideanKernel as EuclideanKernel
from .flat import TorusKernel as TorusKernel
from .hyperbolic import HyperbolicKernel as HyperbolicKernel
from .spd import SPD2Kernel as SPD2Kernel
from .sphere import SphereKernel as SphereKernel
