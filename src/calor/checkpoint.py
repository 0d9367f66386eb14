"""Files: one safetensors file for a value, its structure as JSON in the header.

Nothing in a file is code.  Only the classes listed here are ever built, from the numbers and names
in the file.  A file is written under another name and moved into place, so it is whole or absent.
"""

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from . import networks, shorttime, solutions
from .certificate import Certificate
from .exact.combined import QuotientKernel
from .heat import AbstractHeatKernel
from .learned import LearnedKernel, learned_kernel
from .manifolds import AbstractManifold
from .names import manifold_named, name_of

FORMAT = 1
_HEADER = "calor"
# The classes that a file may contain, besides manifolds.
_CLASSES = {
    cls.__name__: cls
    for cls in (
        Certificate,
        LearnedKernel,
        QuotientKernel,
        networks.Dense,
        networks.FourierEmbedding,
        networks.ModifiedMLP,
        networks.PowerEmbedding,
        networks.SetNetwork,
        solutions.DirectSolution,
        solutions.RadialSolution,
        solutions.Settling,
        solutions.Spreading,
    )
}


class FileError(ValueError):
    """A file cannot be read; the message says why."""


def save(path: str | Path, value: AbstractHeatKernel) -> None:
    """Save a learned kernel in one file.

    Args:
        path: the file to write; it is replaced if it exists.
        value: a kernel from `calor.solve`.
    """
    if not isinstance(value, LearnedKernel | QuotientKernel):
        raise TypeError(
            f"save: expected a kernel from calor.solve, got {value!s:.80}; exact and short-time "
            "kernels are made by calor.heat_kernel in no time."
        )
    tensors: dict[str, np.ndarray] = {}
    header = {"kind": "kernel", "format": FORMAT, "value": _encode(value, tensors)}
    _write(Path(path), tensors, header)


def load(path: str | Path) -> AbstractHeatKernel:
    """Load what `save` wrote.

    Args:
        path: the file to read.
    """
    header, tensors = _read(Path(path), "kernel")
    try:
        return _decode(header["value"], tensors)
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
        tensors[name] = np.ascontiguousarray(value)
        return {"tensor": name}
    if isinstance(value, AbstractManifold):
        return {"manifold": name_of(value)}
    if type(value).__name__ not in _CLASSES:
        raise TypeError(f"save: cannot save a {type(value).__name__}.")
    fields = {
        name: _encode(getattr(value, name), tensors)
        for name in type(value).__dataclass_fields__
        if name not in ("law", "sampler")  # made again from the rest
    }
    if isinstance(value, LearnedKernel):
        fields["law"] = _encode_law(value.law)
    return {"class": type(value).__name__, "fields": fields}


def _decode(code: Any, tensors: dict[str, np.ndarray]) -> Any:
    if not isinstance(code, dict):
        return code
    if "tuple" in code:
        return tuple(_decode(item, tensors) for item in code["tuple"])
    if "tensor" in code:
        return jnp.asarray(tensors[code["tensor"]])
    if "manifold" in code:
        return manifold_named(code["manifold"])
    fields = dict(code["fields"])
    law = fields.pop("law", None)
    values = {name: _decode(item, tensors) for name, item in fields.items()}
    if code["class"] == "LearnedKernel":
        return learned_kernel(
            values["manifold"],
            _decode_law(law, values["manifold"]),
            values["solution"],
            (values["t0"], values["t1"]),
            values["certificate"],
            values["record"],
        )
    return _CLASSES[code["class"]](**values)


def _encode_law(law):
    if isinstance(law, QuotientKernel):
        return {"images": _encode_law(law.cover)}
    if isinstance(law, shorttime.Parametrix):
        return {"parametrix": law.order}
    return {"law": type(law).__name__}


def _decode_law(code, manifold):
    if "images" in code:
        return QuotientKernel(manifold, _decode_law(code["images"], manifold.cover))
    if "parametrix" in code:
        return shorttime.Parametrix(manifold, code["parametrix"])
    laws = (shorttime.FirstOrder, shorttime.ZerothOrder, shorttime.Varadhan)
    return {law.__name__: law for law in laws}[code["law"]](manifold)


# Unfinished runs.


def save_state(path: str | Path, state: Any, identity: dict) -> None:
    """Save the arrays of a state, and of what run it is the state."""
    leaves = jax.tree.leaves(eqx.filter(state, eqx.is_array))
    tensors = {f"{i:04d}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
    _write(Path(path), tensors, {"kind": "state", "format": FORMAT, "run": identity})


def load_state(path: str | Path, like: Any, identity: dict) -> Any:
    """Load a state of the same structure as `like`, of the same run."""
    header, tensors = _read(Path(path), "state")
    before, now = header.get("run", {}), json.loads(json.dumps(identity))
    for name, value in now.items():
        if before.get(name) != value:
            raise FileError(
                f"{path} belongs to another run: its {name} is {before.get(name)!s:.60}, not "
                f"{value!s:.60}; remove it, or ask for the run it belongs to."
            )
    arrays, rest = eqx.partition(like, eqx.is_array)
    leaves, structure = jax.tree.flatten(arrays)
    found = [tensors.get(f"{i:04d}") for i in range(len(leaves))]
    if len(tensors) != len(leaves) or any(
        new is None or new.shape != leaf.shape for new, leaf in zip(found, leaves, strict=True)
    ):
        raise FileError(f"{path} is damaged: arrays are missing; remove it to start again.")
    restored = [jnp.asarray(new, leaf.dtype) for new, leaf in zip(found, leaves, strict=True)]
    return eqx.combine(jax.tree.unflatten(structure, restored), rest)


# Reading and writing.


def _write(path: Path, tensors: dict[str, np.ndarray], header: dict) -> None:
    from . import __version__

    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {path.parent} does not exist; make it first")
    try:
        text = json.dumps({"calor": __version__, **header}, allow_nan=False)
    except ValueError as error:
        raise ValueError(
            "save: the certificate contains numbers that are not finite: the training diverged. "
            "Solve again with another key or more points."
        ) from error
    with replacing(path) as file:
        file.write(to_bytes(tensors, {_HEADER: text}))


def _read(path: Path, kind: str) -> tuple[dict, dict[str, np.ndarray]]:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        with safe_open(path, framework="numpy") as file:
            text = (file.metadata() or {}).get(_HEADER)
            tensors = {} if text is None else {name: file.get_tensor(name) for name in file.keys()}
    except (SafetensorError, OSError, ValueError) as error:
        raise FileError(
            f"{path} is damaged, truncated, or no file of calor ({error}); make it again."
        ) from error
    if text is None:
        raise FileError(f"{path} was not written by calor: it has no header of ours.")
    try:
        header = json.loads(text)
        version, found = int(header["format"]), header["kind"]
    except (ValueError, KeyError, TypeError) as error:
        raise FileError(f"{path} is damaged: its header cannot be read; make it again.") from error
    if version > FORMAT:
        raise FileError(
            f"{path} was written by a newer version of calor ({header.get('calor')}, format "
            f"{version}; this one reads up to {FORMAT}). Upgrade: pip install --upgrade calor."
        )
    if found != kind:
        raise FileError(f"{path} holds a {found}, not a {kind}.")
    if any(not np.all(np.isfinite(tensor)) for tensor in tensors.values() if kind == "kernel"):
        raise FileError(f"{path} is damaged: it contains numbers that are not finite.")
    return header, tensors


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Any]:
    """A file that takes the place of `path` when all went well, and leaves no trace otherwise."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
