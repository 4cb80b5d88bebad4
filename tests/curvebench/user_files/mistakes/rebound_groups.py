"""Descent whose param_groups are copies, so that a schedule changes nothing, or lose the parameters."""

import torch


class Copied(torch.optim.SGD):
    def __init__(self, params, lr):
        super().__init__(params, lr)
        self.groups = self.param_groups
        self.param_groups = [dict(group) for group in self.groups]

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.groups:
            for param in group["params"]:
                param.sub_(group["lr"] * param.grad)


class Replaced(torch.optim.SGD):
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group["params"] = [param - group["lr"] * param.grad for param in group["params"]]
