"""A recurrent network of plain functions, with a metric, and one with state and random numbers."""

import jax
import jax.numpy as jnp
import numpy as np


def sums(count, length=6, seed=0):
    values = np.random.default_rng(seed).random((count, length, 2))
    return {"x": values, "y": values[..., 0].sum(-1)}


class Rows:
    def __init__(self, count):
        self.examples = sums(count)

    def __len__(self):
        return len(self.examples["y"])

    def __getitem__(self, number):
        return {name: values[number] for name, values in self.examples.items()}


def init(key, hidden=8):
    keys = jax.random.split(key, 3)
    return {
        "recurrent": jax.random.normal(keys[0], (hidden, hidden)) / hidden**0.5,
        "inputs": jax.random.normal(keys[1], (2, hidden)),
        "bias": jnp.zeros(hidden),
        "outputs": [jax.random.normal(keys[2], (hidden, 1)), jnp.zeros(1)],
    }


def predicted(params, x):
    def step(h, x):
        return jnp.tanh(x @ params["inputs"] + h @ params["recurrent"] + params["bias"]), None

    h, _ = jax.lax.scan(step, jnp.zeros((len(x), *params["bias"].shape)), x.swapaxes(0, 1))
    weight, bias = params["outputs"]
    return (h @ weight + bias)[:, 0]


def loss(params, batch):
    return jnp.mean((predicted(params, batch["x"]) - batch["y"]) ** 2)


def errors(params, batch):
    return {"error": jnp.mean(jnp.abs(predicted(params, batch["x"]) - batch["y"]))}


def init_with_state(key):
    return init(key), {"scale": jnp.ones(()), "steps": jnp.zeros((), int)}


def noisy_loss(params, batch, state, key, training):
    x = batch["x"] + 0.1 * training * jax.random.normal(key, batch["x"].shape)
    new = {"scale": 0.9 * state["scale"] + 0.1 * x.std(), "steps": state["steps"] + 1}
    return loss(params, {**batch, "x": x / state["scale"]}), new
