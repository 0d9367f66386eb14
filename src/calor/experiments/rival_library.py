r"""Flow matching as an opponent, by Meta's library `flow_matching`, on spheres and flat tori.

As in the library's notebooks of the two: data are reached along geodesics at even speed, the
velocity is a network of five layers, projected to tangent vectors, and Adam trains it.  It is told
points as unit vectors and the time; on tori cosines and sines of angles and time, as there.  The
source is the uniform law, not a normal one that is wrapped around, so that

    log p(x) = -log volume - int_0^1 div v(t, x_t) dt    with x_1 = x.

On the sphere v(x) is continued as v(x / |x|).  It does not change along rays, so that the trace of
its Jacobian in the surrounding space is the divergence.  The weights that are kept have the least
loss on the validation part.  Nothing here imports torch before it is asked for.
"""

import copy
import dataclasses
import importlib
import itertools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..models.model import finite
from .charts import Array
from .sets import Problem

WIDTH = 512
BATCH = 4096
_RATE = 1e-3
_LAYERS = 5
_EVERY = 20
"""Steps from one look at the validation part to the next."""
_HELD = 8192
"""Examples that are made of it at least."""
STEPS = 100
"""Of Runge and Kutta, fourth order, from data to the uniform law."""
_ROWS = 1024
"""Points that flow at a time."""


class _Space(NamedTuple):
    """A manifold as the library has it."""

    title: str
    draw: Callable[[Any], Any]
    """As many points as it is given, whose projections are uniform."""
    inputs: Callable[[Any], Any]
    """What the network is told, from coordinates and the time."""


def _waves(numbers: Any) -> Any:
    return _module("torch").cat([numbers.sin(), numbers.cos()], -1)


_SPACES = {
    "sphere": _Space("Sphere", lambda like: like.clone().normal_(), lambda numbers: numbers),
    "torus": _Space("FlatTorus", lambda like: like.clone().uniform_(0, 2 * np.pi), _waves),
}
"""By what a family calls its space."""


@dataclasses.dataclass(frozen=True)
class Flow:
    """A velocity that takes the uniform law to the law of data."""

    space: _Space
    manifold: Any
    network: Any
    log_volume: float
    steps: int = 0
    """Of the training."""
    kept: int = 0
    """The step whose weights these are."""

    def velocity(self, x: Any, t: Any) -> Any:
        """Tangent vectors at points, which are projected before."""
        x = self.manifold.projx(x)
        told = self.space.inputs(_module("torch").cat([x, t], -1))
        return self.manifold.proju(x, self.network(told))

    def log_prob(self, x: Array) -> Float[Array, " m"]:
        """The log-density at points."""
        torch = _module("torch")
        with torch.no_grad():
            points = torch.as_tensor(x, dtype=torch.float64).split(_ROWS)
            gained = np.concatenate([self._divergence(rows).numpy() for rows in points])
        return finite(-self.log_volume - gained[:, None])[:, 0]

    def _divergence(self, x: Any) -> Any:
        """That of the velocity, integrated along the way to points."""
        total, h = x.new_zeros(len(x)), 1 / STEPS
        for number in range(STEPS):
            t = 1 - number * h
            v1, d1 = self._slope(x, t)
            v2, d2 = self._slope(x - h / 2 * v1, t - h / 2)
            v3, d3 = self._slope(x - h / 2 * v2, t - h / 2)
            v4, d4 = self._slope(x - h * v3, t - h)
            x = self.manifold.projx(x - h / 6 * (v1 + 2 * v2 + 2 * v3 + v4))
            total = total + h / 6 * (d1 + 2 * d2 + 2 * d3 + d4)
        return total

    def _slope(self, x: Any, t: float) -> tuple[Any, Any]:
        """The velocity and its divergence."""
        transforms, now = _module("torch.func"), x.new_full((1,), t)

        def at(point: Any) -> tuple[Any, Any]:
            v = self.velocity(point, now)
            return v, v

        jacobian, v = transforms.vmap(transforms.jacfwd(at, has_aux=True))(x)
        return v, jacobian.diagonal(dim1=1, dim2=2).sum(1)


def fit_library(train: Problem, held: Problem, seconds: float, seed: int) -> Flow:
    """Flow matching on a sphere or a torus.

    Args:
        train: points to learn from.
        held: points that say which weights to keep.
        seconds: of one core, for the training.
        seed: of the random numbers.
    """
    torch = _module("torch")
    manifolds = _module("flow_matching.utils.manifolds")
    paths, schedulers = _module("flow_matching.path"), _module("flow_matching.path.scheduler")
    start = time.process_time()
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    flow = _begin(train, {"Sphere": manifolds.Sphere, "FlatTorus": manifolds.FlatTorus})
    path = paths.GeodesicProbPath(schedulers.CondOTScheduler(), flow.manifold)
    optimizer = torch.optim.Adam(flow.network.parameters(), lr=_RATE)

    def examples(points: Any) -> tuple[Any, ...]:
        """Places on the way to points, times and velocities."""
        source = flow.manifold.projx(flow.space.draw(points))
        # In single precision the library's arc cosine leaves the range of numbers at times.
        made = path.sample(source, points, torch.rand(len(points), dtype=points.dtype))
        return made.x_t.float(), made.t.float(), made.dx_t.float()

    def loss(x: Any, t: Any, wanted: Any) -> Any:
        return (flow.velocity(x, t) - wanted).square().mean()

    points, others = (torch.as_tensor(part.points, dtype=torch.float64) for part in (train, held))
    judged = examples(others[torch.arange(max(_HELD, len(others))) % len(others)])
    steps, kept, least = 0, 0, np.inf
    weights = copy.deepcopy(flow.network.state_dict())
    while True:
        is_over = time.process_time() - start >= seconds
        if is_over or steps % _EVERY == 0:
            with torch.no_grad():
                value = float(loss(*judged))
            if value < least:
                kept, least = steps, value
                weights = copy.deepcopy(flow.network.state_dict())
        if is_over:
            break
        optimizer.zero_grad()
        loss(*examples(points[torch.randint(len(points), (BATCH,))])).backward()
        optimizer.step()
        steps += 1
    flow.network.load_state_dict(weights)
    return dataclasses.replace(flow, network=flow.network.double(), steps=steps, kept=kept)


def _begin(train: Problem, manifolds: dict[str, Any]) -> Flow:
    """A flow with random weights."""
    torch, size = _module("torch"), train.points.shape[1]
    volume = train.family.log_volume()
    if train.family.space is None or volume is None:
        raise ValueError("flow_matching has spheres and flat tori alone.")
    space = _SPACES[train.family.space]
    told = len(space.inputs(torch.zeros(size + 1)))
    sizes = [told, *[WIDTH] * (_LAYERS - 1), size]
    *layers, last = [torch.nn.Linear(*pair) for pair in itertools.pairwise(sizes)]
    parts = [part for layer in layers for part in (layer, torch.nn.SiLU())]
    return Flow(space, manifolds[space.title](), torch.nn.Sequential(*parts, last), volume)


def _module(name: str) -> Any:
    """A module of an optional package."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        raise ValueError(
            f"densities: flow_matching needs the package {package}, which is not installed; run: "
            "pip install torch flow_matching"
        ) from error
