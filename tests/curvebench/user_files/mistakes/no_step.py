"""Optimizers whose steps change too little, or depend on global random generators."""

import random

import numpy as np
import torch


class Descent(torch.optim.SGD):
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for param in group["params"]:
                param = param - group["lr"] * param.grad


class Partial(torch.optim.SGD):
    @torch.no_grad()
    def step(self, closure=None):
        first = self.param_groups[0]["params"][0]
        first.sub_(self.param_groups[0]["lr"] * first.grad)


class Noisy(torch.optim.SGD):
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for param in group["params"]:
                factor = random.random() + np.random.rand()  # noqa: NPY002
                param.sub_(group["lr"] * factor * torch.randn_like(param))
