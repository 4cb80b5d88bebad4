"""Networks of Flax with batch normalization and dropout, by Linen and NNX."""

import numpy as np
import optax
from flax import linen, nnx


def points(count, seed=0):
    x = np.random.default_rng(seed).normal(size=(count, 5))
    return x, (x**2).sum(1).astype(int) % 3


class Linen(linen.Module):
    width: int = 16

    @linen.compact
    def __call__(self, x, training):
        x = linen.Dense(self.width, use_bias=False)(x)
        x = linen.relu(linen.BatchNorm(use_running_average=not training, momentum=0.9)(x))
        x = linen.Dropout(0.3, deterministic=not training)(x)
        return linen.Dense(3)(linen.relu(linen.Dense(self.width)(x)))


class Transformer(linen.Module):
    @linen.compact
    def __call__(self, x, training):
        embedding = linen.Embed(7, 8, name="tokens")
        position = self.param("position", linen.initializers.normal(), (x.shape[1], 8))
        x = embedding(x) + position
        x = x + linen.MultiHeadDotProductAttention(2, name="attention")(linen.LayerNorm(name="norm")(x))
        x = x + linen.Dense(8, name="hidden")(linen.relu(x))
        return embedding.attend(x)


def tokens(count):
    x = np.random.default_rng(0).integers(7, size=(count, 6))
    return x[:, :-1], x[:, 1:]


class Recurrent(linen.Module):
    @linen.compact
    def __call__(self, x, training):
        return linen.Dense(3, name="classes")(linen.RNN(linen.OptimizedLSTMCell(4, name="cell"))(x)[:, -1])


class Convolutional(linen.Module):
    @linen.compact
    def __call__(self, x, training):
        x = linen.relu(linen.Conv(4, (3, 2), name="image")(x))
        x = linen.relu(linen.Dense(6, name="hidden")(x.reshape(len(x), -1)))
        return linen.Dense(3, name="classes")(x)


def images(count):
    random = np.random.default_rng(0)
    return random.normal(size=(count, 5, 5, 2)), random.integers(3, size=count)


def sequences(count):
    x, y = images(count)
    return x[:, :, 0], y


class Nnx(nnx.Module):
    def __init__(self, width=16, *, rngs):
        self.inner = nnx.Linear(5, width, use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(width, momentum=0.9, rngs=rngs)
        self.dropout = nnx.Dropout(0.3, rngs=rngs)
        self.after = nnx.Linear(width, width, rngs=rngs)
        self.classes = nnx.Linear(width, 3, rngs=rngs)

    def __call__(self, x):
        x = self.dropout(nnx.relu(self.norm(self.inner(x))))
        return self.classes(nnx.relu(self.after(x)))


def loss(model, batch, training):
    x, y = batch
    return optax.softmax_cross_entropy_with_integer_labels(model(x, training), y).mean()


def loss_of_nnx(model, batch):
    x, y = batch
    return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()
