"""Optimizers that the checks must reject."""

import torch


class Needy(torch.optim.SGD):
    def __init__(self, params, lr, needed):
        super().__init__(params, lr=lr)


class Shapeless(torch.optim.SGD):
    def step(self, closure=None):
        for group in self.param_groups:
            for param in group["params"]:
                param.data = torch.zeros(1)


class Infinite(torch.optim.SGD):
    def step(self, closure=None):
        for group in self.param_groups:
            for param in group["params"]:
                param.data = param.data * float("nan")


class Later(torch.optim.SGD):
    def step(self, closure=None):
        for group in self.param_groups:
            for param in group["params"]:
                steps = self.state[param].setdefault("steps", torch.zeros(()))
                steps += 1
                if steps > 2 and group["lr"] > 0.05:
                    raise ValueError("too fast")
                param.data.mul_(float("nan") if steps > 2 else 0.9)
