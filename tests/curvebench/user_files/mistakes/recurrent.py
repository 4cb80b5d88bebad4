"""A recurrent network of PyTorch, which has no rule to compute several runs at once."""

import torch

from curvebench import Metric, Problem, Role, Setting, Workload

GRU = torch.nn.GRU(2, 3, dtype=torch.float64)
MAPPED = True


def _error(ops, params, state, batch, noise):
    if ops.backend == "numpy":
        return batch["y"].mean(), state, {}
    outputs, _ = torch.func.functional_call(GRU, dict(params), (batch["x"],))
    return ops.mean(ops.square(ops.sum(outputs, axis=(1, 2)) - batch["y"])), state, {}


def _parameters(settings, generator):
    return {name: param.detach().numpy() for name, param in GRU.named_parameters()}


def _problem(settings, random):
    x, y = random("x").normal(size=(20, 5, 2)), random("y").normal(size=20)
    return Problem(_parameters(settings, None), {"train": {"x": x, "y": y}})


def _roles(settings):
    return {name: Role("weight" if param.ndim == 2 else "bias") for name, param in GRU.named_parameters()}


RECURRENT = Workload(
    name="gated",
    description="a recurrent network",
    source="a test",
    metrics={"train_loss": Metric("mean squared error", "minimize")},
    settings={"batch_size": Setting(None, "full batch")},
    dtype="float64",
    shared_data=False,
    roles=_roles,
    problem=_problem,
    sample_parameters=_parameters,
    loss=_error,
    evaluate=lambda ops, params, state, split: {"loss": _error(ops, params, state, split, {})[0]},
    mapped=MAPPED,
)
WORKLOADS = (RECURRENT,)
