"""Optimizers in a file."""

import optax
import torch


class Descent(torch.optim.Adam):
    pass


def ascent(learning_rate, momentum):
    return optax.sgd(learning_rate, momentum)
