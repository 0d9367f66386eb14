r"""The rows of the least squares that `recipes.pairs` solves: the equation and the initial values.

Residuals are weighted so that those of one kind have a mean square of about one if log p is wrong
by one; in the tails, where log p is a large number and few draws go, by a power of the depth
dist^2/4t less.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr

from ...core.types import Key, Point, Scalar
from ...heat.early.geodesics import GeodesicLaw
from ...manifolds import calculus
from ...training.sets import SetNetwork
from .pairs import PairForm, Window
from .rows import EXCESS, Rows, initial_error, scaled, times_between

# How fast rows lose weight with the depth dist^2/4t in the tail.
_FALL = 1.5
# Rows of the equation to choose from, for each that is kept; to look at one costs far less than to
# have its slopes in the least squares.
_CANDIDATES = 3


def _pairs(manifold, t, key):
    """A pair for each time: x0 anywhere, x near it, further out, or anywhere."""
    key_source, key_walk, key_far = jr.split(key, 3)
    count = len(t)
    x0 = jax.vmap(manifold.draw_point)(jr.split(key_source, count)).astype(t.dtype)
    kind = jnp.arange(count) % 4
    walk = lambda t, x0, key: manifold.walk(t, x0, key, 8)
    stretch = jnp.array([1.0, 1.7, 3.0, 1.7])[kind]
    near = jax.vmap(walk)(stretch * t, x0, jr.split(key_walk, count))
    if not manifold.is_compact():
        return near, x0
    far = jax.vmap(manifold.draw_point)(jr.split(key_far, count)).astype(t.dtype)
    return jnp.where((kind == 3)[:, None], far, near), x0


def _depth(form, t, x, x0):
    return form.squared_distance(x, x0) / (4 * t)


def _tail(form, t, x, x0):
    """How much a row counts in the tail, late relative to what remains of log p."""
    return (1 + _depth(form, t, x, x0)) ** -_FALL / form.late(t)


def equation(form: PairForm, network: SetNetwork, row: Rows) -> Scalar:
    """The weighted residual of the equation."""

    def phi(t, x):
        return form(network, row["window"], t, x, row["x0"])

    at_t = lambda x: phi(row["t"], x)
    slopes = jax.vmap(lambda e: jax.jvp(at_t, (row["x"],), (e,))[1])(row["frame"])
    laplacian = calculus.laplacian(at_t, row["x"], row["frame"], row["drift"])
    change = jax.grad(phi)(row["t"], row["x"])
    return row["weight"] * (change - laplacian - slopes @ slopes)


def initial(form: PairForm, network: SetNetwork, row: Rows) -> Scalar:
    """The weighted residual of an initial value."""
    return initial_error(_initial_value(form, network, row), row)


def slope(form: PairForm, network: SetNetwork, row: Rows) -> Scalar:
    """The weighted residual of an initial slope."""
    value = lambda x: _initial_value(form, network, {**row, "x": x})
    found = jax.jvp(value, (row["x"],), (row["direction"],))[1]
    return row["weight"] * (found - row["slope"])


def _initial_value(form, network, row):
    """c + log p where a window starts."""
    window = row["window"]
    return form(network, window, window.start, row["x"], row["x0"])


def invariance(form: PairForm, network: SetNetwork, row: Rows) -> Scalar:
    """The weighted difference of the values at a pair and at its image."""
    value = lambda x, x0: form(network, row["window"], row["t"], x, x0)
    return row["weight"] * (value(row["x"], row["x0"]) - value(*row["moved"]))


def interior(
    form: PairForm, count: int, network: SetNetwork | None, window: Window, key: Key
) -> Rows:
    """The rows of the equation itself.

    If there is a network that was trained on other points, they are chosen among more: the larger
    its residual, the more likely.  Where geodesics from both sides meet it is largest, and few
    walks lead there.  Beside the initial values all of them have as much weight as before.
    """
    if network is None:
        rows = _interior(form, count, window, key)
        return scaled({**rows, "share": jnp.ones_like(rows["t"])}, count)
    key_rows, key_choice = jr.split(key)
    rows = _interior(form, _CANDIDATES * count, window, key_rows)
    return _chosen(form, count, network, rows, key_choice)


@eqx.filter_jit
def _chosen(form, count, network, rows, key):
    sizes = jnp.abs(jax.vmap(lambda row: equation(form, network, row))(rows))
    odds = jnp.log(sizes + jnp.mean(sizes))
    chosen = jax.lax.top_k(odds + jr.gumbel(key, odds.shape), count)[1]
    share = jnp.mean(sizes[chosen] ** 2) / jnp.mean(sizes**2)
    rows = jax.tree.map(lambda a: a[chosen], rows)
    return scaled({**rows, "share": jnp.full_like(rows["t"], share)}, count * share)


@eqx.filter_jit
def _interior(form, count, window, key):
    key_time, key_pairs = jr.split(key)
    manifold = form.manifold
    t = times_between(window.start, window.end, count, key_time)
    x, x0 = _pairs(manifold, t, key_pairs)

    def row(t, x, x0):
        return {
            "t": t,
            "x": x,
            "x0": x0,
            "frame": manifold.basis(x),
            "drift": manifold.coordinate_laplacian(x),
            "weight": t * _tail(form, t, x, x0),
            "window": window,
        }

    return jax.vmap(row)(t, x, x0)


@eqx.filter_jit
def initial_law(
    form: PairForm, count: int, radius: Scalar, window: Window, key: Key
) -> tuple[Rows, Rows]:
    """The rows of the initial condition at t0: half by shooting, half from above, far away."""
    manifold, law = form.manifold, GeodesicLaw(form.manifold)
    c, t0, _ = window
    key_source, key_shot, key_far = jr.split(key, 3)
    x0 = jax.vmap(manifold.draw_point)(jr.split(key_source, count)).astype(t0.dtype)
    gaussian = -manifold.dim / 2 * jnp.log(4 * jnp.pi * t0)

    def shot(x0, key, stretch):
        basis = manifold.basis(x0)
        v = stretch * jnp.sqrt(2 * t0) * jr.normal(key, (manifold.dim,), x0.dtype)
        x, value, score = law.along(t0, x0, basis, v)
        length = jnp.sqrt(v @ v)
        known = jnp.isfinite(value) & jnp.all(jnp.isfinite(score)) & (length < radius)
        weight = jnp.where(known, 3 / (1 + length**2 / (4 * t0)) ** _FALL, 0.0)
        value, score = jnp.where(known, value, 0.0) + c, jnp.where(known, score, 0.0)
        row = _row(window, x, x0, value, weight)
        return row, _slopes(form, row, lambda e: manifold.inner_at(x, e, score))

    def far(x, x0):
        depth = _depth(form, t0, x, x0)
        weight = jnp.where(jnp.sqrt(4 * t0 * depth) > radius, 0.03, 0.0)
        value = gaussian - depth + EXCESS + c
        return {**_row(window, x, x0, value, weight), "beyond": True}

    stretches = jnp.array([1.0, 1.5, 2.0])[jnp.arange(count) % 3]
    near, slopes = jax.vmap(shot)(x0, jr.split(key_shot, count), stretches)
    x = jax.vmap(manifold.draw_point)(jr.split(key_far, count)).astype(t0.dtype)
    rows = jax.tree.map(lambda *both: jnp.concatenate(both), near, jax.vmap(far)(x, x0))
    return scaled(rows, count), scaled(_flat(slopes), count)


@eqx.filter_jit
def initial_window(
    form: PairForm,
    count: int,
    before: SetNetwork,
    earlier: Window,
    window: Window,
    key: Key,
) -> tuple[Rows, Rows]:
    """The rows of the initial condition of a window: the values where the one before it ends.

    Args:
        form: how the solution is written.
        count: the number of pairs.
        before: the network of the window before.
        earlier: the window before.
        window: this one.
        key: a random key.
    """
    start = window.start
    x, x0 = _pairs(form.manifold, jnp.full(count, start), key)

    def row(x, x0):
        value = lambda x: form(before, earlier, start, x, x0)
        weight = 3 * _tail(form, start, x, x0)
        row = _row(window, x, x0, value(x) - earlier.c + window.c, weight)
        return row, _slopes(form, row, lambda e: jax.jvp(value, (x,), (e,))[1])

    rows, slopes = jax.vmap(row)(x, x0)
    return scaled(rows, count), scaled(_flat(slopes), count)


def _row(window, x, x0, value, weight):
    """A row of an initial value that is known."""
    return {"x": x, "x0": x0, "value": value, "weight": weight, "beyond": False, "window": window}


def _slopes(form, row, slope):
    """Rows of the slopes along an orthonormal frame, where a row of values is."""
    x, window = row["x"], row["window"]
    # An error of a slope counts as much as the one of a value that it makes within the kernel.
    weight = row["weight"] * jnp.minimum(jnp.sqrt(2 * window.start), form.width)
    shared = {"x": x, "x0": row["x0"], "weight": weight, "window": window}

    def along(direction):
        return {"direction": direction, "slope": slope(direction), **shared}

    return jax.vmap(along)(form.manifold.basis(x))


def _flat(rows):
    """The first two axes as one."""
    return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), rows)


@eqx.filter_jit
def moved(symmetries: Callable[[Key], Callable[[Point], Point]], inside: Rows, key: Key) -> Rows:
    """Rows that ask for the same value at a pair and at its image under a random isometry.

    The share of the equation's residual that was chosen is not one of their own.
    """
    kept = ("t", "x", "x0", "window")

    def move(key, t, x, x0, weight, share):
        isometry = symmetries(key)
        return {"moved": (isometry(x), isometry(x0)), "weight": weight * jnp.sqrt(share) / t}

    keys = jr.split(key, len(inside["t"]))
    found = jax.vmap(move)(keys, *(inside[name] for name in ("t", "x", "x0", "weight", "share")))
    return {**{name: inside[name] for name in kept}, **found}
