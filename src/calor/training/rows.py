r"""Products of many rows with one matrix, written so that training them is fast.

In a network of a cloud, x has a row for every pair of points and, under `jax.vmap`, of every cloud:

    y = x W,     x (..., i),   W (i, o),         dL/dW = sum over all rows of  x^T dL/dy.

XLA sums over several axes by first copying dL/dy transposed, which on a CPU takes as long as the
product; over one axis it does not.  So this is a primitive of its own, whose leading axes, those of
`jax.vmap` included, are one axis when it is compiled.
"""

import math

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float

_product = Primitive("product_of_rows")


def product(x: Float[Array, "... i"], weight: Float[Array, "i o"]) -> Float[Array, "... o"]:
    """The matrix product, the same as `x @ weight`."""
    if x.shape[-1] != weight.shape[0]:
        raise ValueError(f"product: rows of {x.shape} do not fit a matrix of {weight.shape}.")
    dtype = jnp.result_type(x, weight)
    return _product.bind(x.astype(dtype), weight.astype(dtype))


def _flat(x):
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _computed(x, weight):
    return (_flat(x) @ weight).reshape(*x.shape[:-1], weight.shape[1])


def _batched(arguments, axes):
    (x, weight), (axis, of_weight) = arguments, axes
    if of_weight is not None:  # a matrix for each: nothing to gather
        return jax.vmap(jnp.matmul, (axis, of_weight))(x, weight), 0
    return product(jnp.moveaxis(x, axis, 0), weight), 0


_product.def_impl(jax.jit(_computed))
_product.def_abstract_eval(lambda x, weight: ShapedArray((*x.shape[:-1], weight.shape[1]), x.dtype))
mlir.register_lowering(_product, mlir.lower_fun(_computed, multiple_results=False))
batching.primitive_batchers[_product] = _batched
ad.defbilinear(
    _product,
    lambda change, x, weight: product(change, weight.T),
    lambda change, x, weight: jnp.einsum("ri,ro->io", _flat(x), _flat(change)),
)
