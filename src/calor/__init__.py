"""calor: heat kernels and diffusion models on Riemannian manifolds.

The public names are listed in `_public` and imported, all at once, when the first one is used: the
command line can print its help, and a shell complete a word, without waiting for JAX.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ._public import *


def __getattr__(name: str) -> Any:
    """Find a module, or a public name, at its first use."""
    if not name.startswith("__"):
        if importlib.util.find_spec(f"{__name__}.{name}") is not None:
            return importlib.import_module(f"{__name__}.{name}")
        public = vars(importlib.import_module(f"{__name__}._public"))
        if name in public:
            globals()[name] = public[name]
            return public[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """All public names, for completion in an interactive session."""
    public = vars(importlib.import_module(f"{__name__}._public"))
    return sorted({*globals(), "plots", *(name for name in public if not name.startswith("_"))})
