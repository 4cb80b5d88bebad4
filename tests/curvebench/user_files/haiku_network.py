"""A network of Haiku with batch normalization and dropout."""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np


def points(count, seed=0):
    x = np.random.default_rng(seed).normal(size=(count, 5))
    return x, np.sin(x.sum(1, keepdims=True))


class Network(hk.Module):
    def __init__(self, width=16):
        super().__init__()
        self.width = width

    def __call__(self, x, training):
        x = hk.BatchNorm(True, True, 0.9)(hk.Linear(self.width, with_bias=False)(x), training)
        x = hk.dropout(hk.next_rng_key(), 0.3 if training else 0.0, jax.nn.relu(x))
        return hk.Linear(1)(x)


def loss(model, batch, training):
    x, y = batch
    return jnp.mean((model(x, training) - y) ** 2)
