"""`calor.save` and `calor.load`: kernels and models in one file, their structure as JSON.

Nothing in a file is code.  Only the classes listed here are ever built, from the numbers and names
in the file.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..data import conditions
from ..heat.certificate import Certificate
from ..heat.clouds import matchings
from ..heat.clouds.kernel import CloudKernel
from ..heat.combined import ProductKernel, QuotientKernel
from ..heat.early import laws as shorttime
from ..heat.early.geodesics import GeodesicLaw
from ..heat.exact.flat import EuclideanKernel, TorusKernel
from ..heat.exact.hyperbolic import HyperbolicKernel
from ..heat.exact.spd import SPD2Kernel
from ..heat.exact.sphere import SphereKernel
from ..heat.kernel import AbstractHeatKernel
from ..manifolds import AbstractManifold, Submanifold
from ..manifolds.names import manifold_named, name_of
from ..models import clouds as equivariant
from ..models import denoisers, density, diffusion, fields, flow, network, prior, stacked
from ..models.guesses import gaussian, mixture, regression
from ..models.model import AbstractModel
from ..solvers.forms import clouds as cloud_solutions
from ..solvers.forms import direct, pairs, symmetric
from ..solvers.solved import LearnedKernel, learned_kernel
from ..solvers.spectral import polynomials
from ..solvers.spectral.series import SpectralKernel
from ..training import dense, fixed, perceptrons, sets
from ..training import loop as training
from .files import FileError, read, write

# The classes that a file may contain, besides manifolds.
_CLASSES = {
    cls.__name__: cls
    for cls in (
        Certificate,
        LearnedKernel,
        ProductKernel,
        QuotientKernel,
        denoisers.SPDNet,
        denoisers.SPDNetScore,
        denoisers.TriangularScore,
        density.KernelDensity,
        diffusion.Diffusion,
        cloud_solutions.CloudSolution,
        cloud_solutions.PairGraph,
        equivariant.CloudPrior,
        equivariant.CloudScore,
        equivariant.CloudVelocity,
        equivariant.EquivariantNetwork,
        equivariant.Layer,
        flow.Flow,
        fields.TangentVelocity,
        SpectralKernel,
        stacked.Stacked,
        matchings.Learned,
        matchings.MatchingNetwork,
        gaussian.Gaussian,
        gaussian.GaussianPrior,
        mixture.Mixture,
        dense.Dense,
        network.FieldNetwork,
        fixed.Fixed,
        perceptrons.FourierEmbedding,
        perceptrons.ModifiedMLP,
        perceptrons.PowerEmbedding,
        sets.SetNetwork,
        prior.KernelPrior,
        prior.Uniform,
        regression.LabelMeans,
        regression.Regression,
        pairs.PairForm,
        pairs.PairSolution,
        polynomials.Block,
        polynomials.Polynomials,
        conditions.Condition,
        fields.DenoisedScore,
        fields.TangentScore,
        direct.DirectSolution,
        symmetric.RadialSolution,
        symmetric.Settling,
        symmetric.Spreading,
        training.History,
    )
}
# Kernels that are made again from their manifold.
_EXACT: dict[str, Any] = {
    cls.__name__: cls
    for cls in (EuclideanKernel, HyperbolicKernel, SPD2Kernel, SphereKernel, TorusKernel)
}
_LAWS = (
    CloudKernel,
    GeodesicLaw,
    shorttime.FirstOrder,
    shorttime.Parametrix,
    shorttime.SchwingerDeWitt,
    shorttime.Varadhan,
    shorttime.ZerothOrder,
)


def save(path: str | Path, value: AbstractHeatKernel | AbstractModel) -> None:
    """Save a learned kernel or a model in one file.

    The functions that a `Submanifold` was given are not in it: a file never holds code.

    Args:
        path: the file to write; it is replaced if it exists.
        value: a kernel from `calor.solve`, or a model from `calor.fit` or `calor.fit_flow`.
    """
    if isinstance(value, AbstractModel):
        kind = "model"
    elif isinstance(value, LearnedKernel | QuotientKernel | SpectralKernel):
        kind = "kernel"
    else:
        raise TypeError(
            f"save: expected a kernel from calor.solve or a model from calor.fit, got "
            f"{value!s:.80}; exact and short-time kernels are made by calor.heat_kernel in no time."
        )
    tensors: dict[str, np.ndarray] = {}
    code = _encode(value, tensors)
    write(Path(path), tensors, {"kind": kind, "value": code})


def load(path: str | Path, manifold: Submanifold | None = None) -> Any:
    """Load what `save` wrote.

    Args:
        path: the file to read.
        manifold: the `Submanifold` that the kernel or model lives on, if it lives on one.
    """
    header, tensors = read(Path(path), ["kernel", "model"])
    try:
        return _decode(header["value"], tensors, manifold)
    except _OtherManifold as error:
        raise FileError(f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise FileError(f"{path} is damaged: {error}; make it again.") from error


def _encode(value: Any, tensors: dict[str, np.ndarray]) -> Any:
    """A value as JSON, its arrays put aside into `tensors`."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return {"tuple": [_encode(item, tensors) for item in value]}
    if isinstance(value, jax.Array | np.ndarray):
        name = f"{len(tensors):04d}"
        tensors[name] = np.asarray(value, order="C")  # `ascontiguousarray` makes scalars vectors
        return {"tensor": name}
    if isinstance(value, Submanifold):
        return {"submanifold": value.probe()}
    if isinstance(value, AbstractManifold):
        return {"manifold": name_of(value)}
    if isinstance(value, tuple(_EXACT.values())):
        return {"exact": type(value).__name__, "manifold": name_of(value.manifold)}
    if isinstance(value, _LAWS):
        return {"law": _encode_law(value, tensors), "of": _encode(value.manifold, tensors)}
    if type(value).__name__ not in _CLASSES:
        raise TypeError(f"save: cannot save a {type(value).__name__}.")
    fields = {
        name: _encode(getattr(value, name), tensors)
        for name in type(value).__dataclass_fields__
        if name not in ("law", "sampler")  # made again from the rest
    }
    if isinstance(value, LearnedKernel | SpectralKernel):
        fields["law"] = _encode_law(value.law, tensors)
    return {"class": type(value).__name__, "fields": fields}


def _decode(code: Any, tensors: dict[str, np.ndarray], own: Submanifold | None) -> Any:
    if not isinstance(code, dict):
        return code
    if "tuple" in code:
        return tuple(_decode(item, tensors, own) for item in code["tuple"])
    if "tensor" in code:
        return jnp.asarray(tensors[code["tensor"]])
    if "exact" in code:
        return _EXACT[code["exact"]](manifold_named(code["manifold"]))
    if "law" in code:
        return _decode_law(code["law"], _decode(code["of"], tensors, own))
    if "manifold" in code:
        return manifold_named(code["manifold"])
    if "submanifold" in code:
        return _recognized(own, code["submanifold"])
    fields = dict(code["fields"])
    law = fields.pop("law", None)
    values = {name: _decode(item, tensors, own) for name, item in fields.items()}
    if isinstance(values.get("centre"), jax.Array):
        # The isometry at the door of a model is computed in double precision.
        values["centre"] = tensors[fields["centre"]["tensor"]]
    if code["class"] == "LearnedKernel":
        return learned_kernel(
            values["manifold"],
            _decode_law(law, values["manifold"]),
            values["solution"],
            (values["t0"], values["t1"]),
            values["certificate"],
            values["record"],
        )
    if law is not None and "class" in law:
        values["law"] = _decode(law, tensors, own)
    elif law is not None:
        values["law"] = _decode_law(law, values["manifold"])
    return _CLASSES[code["class"]](**values)


# A manifold that is given by functions: what is kept are some of their values.


class _OtherManifold(Exception):
    """The manifold of a file is not the one that was given."""


def _recognized(given, expected):
    """The manifold that was given, if it is the one that is expected."""
    size, dim = expected["shape"][0], expected["dim"]
    if given is None:
        raise _OtherManifold(
            f"it lives on a Submanifold of dimension {dim} in R^{size}, whose functions no file "
            "holds; give it, as in load(path, manifold)."
        )
    found = given.probe()
    for name, values in expected.items():
        ours, theirs = (np.array(v, float) for v in (found.get(name, ()), values))
        if ours.shape != theirs.shape or not np.allclose(ours, theirs, 1e-3, 1e-4, equal_nan=True):
            raise _OtherManifold(
                f"it lives on another Submanifold than {given}: their {name} differs. Give the "
                "one it was made for."
            )
    return given


def _encode_law(law, tensors):
    if isinstance(law, LearnedKernel):  # before a series
        return _encode(law, tensors)
    if isinstance(law, QuotientKernel):
        return {"images": _encode_law(law.cover, tensors)}
    if isinstance(law, shorttime.Parametrix):
        return {"parametrix": law.order}
    return {"law": type(law).__name__}


def _decode_law(code, manifold):
    if "images" in code:
        return QuotientKernel(manifold, _decode_law(code["images"], manifold.cover))
    if "parametrix" in code:
        return shorttime.Parametrix(manifold, code["parametrix"])
    return {law.__name__: law for law in _LAWS}[code["law"]](manifold)
