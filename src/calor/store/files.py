"""Files on disk: one safetensors file, a JSON header, written whole or not at all.

Nothing in a file is code.  A file is written under another name and moved into place.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from .. import __version__
from .atomic import replacing

FORMAT = 2
_HEADER = "calor"


class FileError(ValueError):
    """A file cannot be read; the message says why."""


# Unfinished runs.


def save_state(path: str | Path, state: Any, identity: dict[str, Any]) -> None:
    """Save the arrays of a state, and of what run it is the state."""
    leaves = jax.tree.leaves(eqx.filter(state, eqx.is_array))
    tensors = {f"{i:04d}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
    write(Path(path), tensors, {"kind": "state", "run": identity})


def load_state(path: str | Path, like: Any, identity: dict[str, Any]) -> Any:
    """Load a state of the same structure as `like`, of the same run."""
    _, tensors = _of_run(path, "state", identity)
    arrays, rest = eqx.partition(like, eqx.is_array)
    leaves, structure = jax.tree.flatten(arrays)
    found = [tensors.get(f"{i:04d}") for i in range(len(leaves))]
    if len(tensors) != len(leaves) or any(
        new is None or new.shape != leaf.shape for new, leaf in zip(found, leaves, strict=True)
    ):
        raise FileError(f"{path} is damaged: arrays are missing; remove it to start again.")
    restored = [jnp.asarray(new, leaf.dtype) for new, leaf in zip(found, leaves, strict=True)]
    return eqx.combine(jax.tree.unflatten(structure, restored), rest)


def save_note(path: str | Path, note: dict[str, Any], identity: dict[str, Any]) -> None:
    """Save what a run has settled, as JSON, and of what run it is."""
    write(Path(path), {}, {"kind": "note", "run": identity, "note": note})


def load_note(path: str | Path, identity: dict[str, Any]) -> dict[str, Any]:
    """Load what the same run has settled."""
    header, _ = _of_run(path, "note", identity)
    return header.get("note", {})


def _of_run(path, kind, identity):
    """The header and the tensors of a file, if it is one of this run."""
    header, tensors = read(Path(path), [kind])
    before, now = header.get("run", {}), json.loads(json.dumps(identity))
    for name, value in now.items():
        if before.get(name) != value:
            raise FileError(
                f"{path} belongs to another run: its {name} is {before.get(name)!s:.60}, not "
                f"{value!s:.60}; remove it, or ask for the run it belongs to."
            )
    return header, tensors


# Reading and writing.


def write(path: Path, tensors: dict[str, np.ndarray], header: dict[str, Any]) -> None:
    """Write tensors and a header; its format and the version of calor are added."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {path.parent} does not exist; make it first")
    try:
        text = json.dumps({"calor": __version__, "format": FORMAT, **header}, allow_nan=False)
    except ValueError as error:
        raise ValueError(
            "save: there are numbers that are not finite: the training diverged. Train again with "
            "another key or a larger budget."
        ) from error
    with replacing(path) as file:
        file.write(to_bytes(tensors, {_HEADER: text}))


def read(path: Path, kinds: Sequence[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read the header and the tensors of a file of one of the given kinds."""
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
    if found not in kinds:
        raise FileError(f"{path} holds a {found}, not a {' or a '.join(kinds)}.")
    return header, tensors
