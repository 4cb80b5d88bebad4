"""Networks of Equinox: a perceptron, and one with batch normalization and dropout."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np


def points(count, seed=0):
    x = np.random.default_rng(seed).normal(size=(count, 5))
    return x, np.sin(x.sum(1, keepdims=True))


def perceptron(width=16, *, key):
    return eqx.nn.MLP(5, 1, width, 2, key=key)


def loss(model, batch):
    x, y = batch
    return jnp.mean((jax.vmap(model)(x) - y) ** 2)


class Normalized(eqx.Module):
    inner: eqx.nn.Linear
    norm: eqx.nn.BatchNorm
    dropout: eqx.nn.Dropout
    outer: eqx.nn.Linear

    def __init__(self, width=16, *, key):
        first, second = jax.random.split(key)
        self.inner = eqx.nn.Linear(5, width, use_bias=False, key=first)
        self.norm = eqx.nn.BatchNorm(width, "batch", mode="batch")
        self.dropout = eqx.nn.Dropout(0.3)
        self.outer = eqx.nn.Linear(width, 1, key=second)

    def __call__(self, x, state, key):
        x, state = self.norm(self.inner(x), state)
        return self.outer(self.dropout(jax.nn.relu(x), key=key)), state


def loss_with_state(model, batch, state, key):
    x, y = batch
    keys = jax.random.split(key, len(x))
    outputs, state = jax.vmap(model, axis_name="batch", in_axes=(0, None, 0), out_axes=(0, None))(
        x, state, keys
    )
    return jnp.mean((outputs - y) ** 2), state
