"""What the experiments with clouds share: their methods, which differ in the target alone."""

from typing import Any

from ..manifolds import PointCloud
from ..models.diffusion import fit
from ..models.flow import fit_flow
from ..solvers.choose import heat_kernel
from .experiment import timed

EXACT, LEARNED = "quotient, exact kernel", "quotient, learned kernel"
FLOW, MATCHED = "flow matching, labelled", "flow matching, matched"
_KERNELS = {EXACT: "exact", LEARNED: "pinn", MATCHED: "bethe"}


def fit_clouds(method: str, manifold: PointCloud, **choices: Any) -> tuple[Any, dict]:
    """A model, and how fast it was fitted.

    Args:
        method: one of the above, or any other name for points with labels.
        manifold: of the clouds.
        **choices: arguments of `calor.fit`.
    """
    kernel = heat_kernel(manifold, _KERNELS.get(method, "labelled"))
    run: Any = fit_flow if method in (FLOW, MATCHED) else fit
    model, seconds = timed(lambda: run(kernel, progress=False, **choices))
    steps = int(model.history.steps[-1])
    speed = {
        "fit_seconds": round(seconds, 1),
        "steps": steps,
        "steps_per_second": round(steps / max(float(model.history.seconds[-1]), 1e-9), 2),
    }
    return model, speed
