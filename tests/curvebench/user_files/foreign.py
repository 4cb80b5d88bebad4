"""Optimizers of a user, in one file."""

import jax
import optax
import torch


class Rebinding(torch.optim.SGD):
    """Descent that gives each parameter other memory."""

    def step(self, closure=None):
        for group in self.param_groups:
            for param in group["params"]:
                param.data = param.data - group["lr"] * param.grad


class Wanting(torch.optim.SGD):
    def __init__(self, params, lr, radius):
        super().__init__(params, lr)


class Undefined(torch.optim.SGD):
    def step(self, closure=None):
        for group in self.param_groups:
            for param in group["params"]:
                param.data.fill_(float("nan"))


class Reshaping(torch.optim.SGD):
    def step(self, closure=None):
        for group in self.param_groups:
            for param in group["params"]:
                param.data = torch.zeros(3, 3)


class Raising(torch.optim.SGD):
    def step(self, closure=None):
        raise RuntimeError("two\nlines")


class Unclosed(Raising):
    def step(self, closure=None):
        raise RuntimeError("a closure is needed")


class Rateless(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"speed": lr})


def descent(learning_rate):
    return optax.sgd(learning_rate)


def reshaping(learning_rate):
    def update(grads, state, params):
        return jax.tree.map(lambda grad: jax.numpy.ones((3, *grad.shape)), grads), state

    return optax.GradientTransformation(lambda params: (), update)
