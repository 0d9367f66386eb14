"""Where files of a user's own are kept."""

import os
from pathlib import Path


def folder(given: str | Path | None) -> Path:
    """Where kernels are kept: what is given, else CALOR_CACHE, else a folder of the user's own."""
    if given is not None:
        return Path(given)
    if "CALOR_CACHE" in os.environ:
        return Path(os.environ["CALOR_CACHE"])
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "calor"
