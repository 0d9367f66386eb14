"""calor: heat kernels and diffusion models on Riemannian manifolds."""

__version__ = "0.1.0"

from . import datasets as datasets
from . import recipes as recipes
from .certificate import Certificate as Certificate
from .checkpoint import load as load
from .checkpoint import save as save
from .density import KernelDensity as KernelDensity
from .density import fit_density as fit_density
from .diffusion import Diffusion as Diffusion
from .diffusion import fit as fit
from .files import FileError as FileError
from .fitting import PriorWarning as PriorWarning
from .flow import Flow as Flow
from .flow import fit_flow as fit_flow
from .geodesics import GeodesicLaw as GeodesicLaw
from .heat import AbstractHeatKernel as HeatKernel
from .heat import log_heat_residual as log_heat_residual
from .kernels import heat_kernel as heat_kernel
from .learned import LearnedKernel as LearnedKernel
from .learned import PoorKernelWarning as PoorKernelWarning
from .manifolds import SO3 as SO3
from .manifolds import SPD as SPD
from .manifolds import AbstractManifold as Manifold
from .manifolds import Euclidean as Euclidean
from .manifolds import Hyperbolic as Hyperbolic
from .manifolds import Product as Product
from .manifolds import Quotient as Quotient
from .manifolds import Sphere as Sphere
from .manifolds import Submanifold as Submanifold
from .manifolds import Torus as Torus
from .networks import Network as Network
from .prior import frechet_mean as frechet_mean
from .score import DenoisedScore as DenoisedScore
from .score import TangentScore as TangentScore
from .shorttime import FirstOrder as FirstOrder
from .shorttime import Parametrix as Parametrix
from .shorttime import SchwingerDeWitt as SchwingerDeWitt
from .shorttime import Varadhan as Varadhan
from .shorttime import ZerothOrder as ZerothOrder
from .solver import solve as solve
from .spectral import SpectralKernel as SpectralKernel
from .spectral import solve_spectral as solve_spectral
from .training import Training as Training
