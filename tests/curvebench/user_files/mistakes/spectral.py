"""Spectral descent, which can only update matrices."""

import torch


class Spectral(torch.optim.SGD):
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for param in group["params"]:
                left, _, right = torch.linalg.svd(param.grad, full_matrices=False)
                param.sub_(group["lr"] * left @ right)


class Timid(Spectral):
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for param in group["params"]:
                if param.ndim == 2:
                    param.sub_(group["lr"] * param.grad)
