"""Steps of other libraries on the same parameters and gradients: torch.optim, Optax, pytorch_optimizer.

The peers of Muon, SOAP and Shampoo need settings with which they compute the same step as this project:

- `torch.optim.Muon` supports only matrices: convolutions are passed as matrices, and all other parameters go
  to fused AdamW. Its momentum is 1 - mu times ours, a factor that the normalization cancels. Its rounding to
  bfloat16 before the Newton-Schulz iteration is turned off (`without_bfloat16`), because ours has none.
- `optax.contrib.muon` corrects the biases of the two terms of Nesterov momentum separately: its step for a
  matrix is equal to ours if the gradient is constant. Its AdamW for the other parameters also uses Nesterov
  momentum.
- `pytorch_optimizer.SOAP` adds epsilon before the bias correction, and rounds to float32 before QR: its step
  is equal to ours if epsilon is small.
- `pytorch_optimizer.ScalableShampoo` is used without momentum, grafting and blocks, and with sums as
  statistics. It would use gradient descent for vectors. A vector is therefore passed as a column with only
  the left preconditioner, which gives our update. Roots are computed by a decomposition, as in our rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from curvebench.backends import BACKENDS
from curvebench.optimizers import rules
from curvebench.optimizers.options import Options
from curvebench.optimizers.rule import Rule

from .case import ReadyCase
from .steps import LEARNING_RATE, Shapes, end_to_end, initial, step_numbers

Shape = tuple[int, ...]
# Larger than any axis and any step number, to turn off blocks and amortized computations.
UNBOUNDED = 1 << 20


@dataclass(frozen=True)
class TorchPeer:
    """Optimizer for PyTorch parameters that takes the same step as a rule of this project.

    Args:
        make: `make(leaves, rule) -> optimizers`, with the options of the rule; `leaves` are the parameters by
            name.
        shape_for: function from the shape of a parameter to the shape in which the optimizer receives the
            parameter.
        set_count: `set_count(number, every)` is the step count that is written into the parameter groups
            before our step `number` (from 1), so that the peer does infrequent computations in the same
            steps as we do, once in `every` steps. None leaves the count unchanged.
        context: settings inside which steps are taken.
    """

    make: Callable[[Mapping[str, Any], Rule], list[Any]]
    shape_for: Callable[[Shape], Shape] = lambda shape: shape
    set_count: Callable[[int, int], int] | None = None
    context: Callable[[], Any] | None = None

    def prepare(self, rule: Rule, shapes: Shapes, dtype: str) -> ReadyCase:
        """Prepare a step of the peer on the same parameters and gradients as a step of `rule`.

        Computations that the peer does only every few steps are done in the same steps as those of `rule`.
        """
        import torch

        params, grads = initial(shapes)
        kind = getattr(torch, dtype)
        leaves = {}
        for name, array in params.items():
            shape = self.shape_for(array.shape)
            leaves[name] = torch.tensor(array.reshape(shape), dtype=kind)
            leaves[name].grad = torch.tensor(grads[name].reshape(shape), dtype=kind)
        optimizers = self.make(leaves, rule)
        every = rule.refresh_every or 1
        upcoming = step_numbers(every)
        set_count = self.set_count

        def run() -> None:
            number = next(upcoming)
            for optimizer in optimizers:
                if set_count is not None:
                    for group in optimizer.param_groups:
                        group["step"] = set_count(number, every)
                optimizer.step()

        def result() -> np.ndarray:
            return end_to_end({name: leaf.numpy() for name, leaf in leaves.items()})

        return ReadyCase(run, result) if self.context is None else ReadyCase(run, result, self.context)


def _muon(leaves: Mapping[str, Any], rule: Rule) -> list[Any]:
    import torch

    matrices = [leaf for leaf in leaves.values() if leaf.ndim == 2]
    rest = [leaf for leaf in leaves.values() if leaf.ndim != 2]
    muon = torch.optim.Muon(matrices, lr=LEARNING_RATE, momentum=0.95, weight_decay=0.0) if matrices else None
    adamw = torch.optim.AdamW(rest, lr=LEARNING_RATE, weight_decay=0.01, fused=True) if rest else None
    return [optimizer for optimizer in (muon, adamw) if optimizer]


def _as_matrix(shape: Shape) -> Shape:
    return (shape[0], int(np.prod(shape[1:]))) if len(shape) > 1 else shape


@contextmanager
def without_bfloat16() -> Iterator[None]:
    """Make torch.optim.Muon iterate in the precision of its parameters, inside the block."""
    import torch

    rounding = torch.Tensor.bfloat16
    torch.Tensor.bfloat16 = torch.Tensor.clone
    try:
        yield
    finally:
        torch.Tensor.bfloat16 = rounding


def _soap(leaves: Mapping[str, Any], rule: Rule) -> list[Any]:
    import pytorch_optimizer

    return [
        pytorch_optimizer.SOAP(
            list(leaves.values()),
            lr=LEARNING_RATE,
            betas=(0.95, 0.95),
            shampoo_beta=0.95,
            weight_decay=0.01,
            eps=1e-8,
            precondition_frequency=rule.refresh_every or UNBOUNDED,
        )
    ]


def _scalable_shampoo(leaves: Mapping[str, Any], rule: Rule) -> list[Any]:
    import pytorch_optimizer
    from pytorch_optimizer.optimizer.utils.graft import LayerWiseGrafting
    from pytorch_optimizer.optimizer.utils.partition import PreConditionerType

    columns = [leaf for leaf in leaves.values() if leaf.ndim == 2 and leaf.shape[1] == 1]
    others = [leaf for leaf in leaves.values() if leaf.ndim != 2 or leaf.shape[1] != 1]
    sides = ((columns, PreConditionerType.INPUT), (others, PreConditionerType.ALL))
    optimizers = [
        pytorch_optimizer.ScalableShampoo(
            tensors,
            lr=LEARNING_RATE,
            betas=(0.0, 0.5),
            start_preconditioning_step=1,
            preconditioning_compute_steps=rule.refresh_every or UNBOUNDED,
            block_size=UNBOUNDED,
            no_preconditioning_for_layers_with_dim_gt=UNBOUNDED,
            shape_interpretation=False,
            graft_type=LayerWiseGrafting.NONE,
            pre_conditioner_type=side,
            nesterov=False,
            matrix_eps=1e-6,
            use_svd=True,
        )
        for tensors, side in sides
        if tensors
    ]
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            # With a decay of 1, ScalableShampoo sums its statistics. Only its constructor rejects this value.
            group["betas"] = (0.0, 1.0)
    return optimizers


def _with_columns(shape: Shape) -> Shape:
    return (*shape, 1) if len(shape) == 1 else shape


# By the name of a rule, the label of its peer and the peer.
TORCH_MATRIX_PEERS: Mapping[str, tuple[str, TorchPeer]] = {
    "muon": ("torch.optim.Muon in float32", TorchPeer(_muon, _as_matrix, context=without_bfloat16)),
    "soap": ("pytorch_optimizer SOAP", TorchPeer(_soap, set_count=lambda number, every: number - 1)),
    # ScalableShampoo computes roots when its step count is a multiple of its refresh period.
    # The step count is shifted so that ScalableShampoo computes roots in our first step.
    "shampoo": (
        "ScalableShampoo, SVD",
        TorchPeer(_scalable_shampoo, _with_columns, lambda number, every: number - 2 + every),
    ),
}


def optax_muon() -> Any:
    """Return Optax's Muon for matrices and convolutions, with AdamW for all other parameters.

    The first axis of a convolution counts its outputs.
    """
    import jax
    from optax import contrib

    def dimensions(leaf: Any) -> Any:
        return contrib.MuonDimensionNumbers(tuple(range(1, leaf.ndim)), 0) if leaf.ndim > 1 else None

    return contrib.muon(
        LEARNING_RATE,
        beta=0.95,
        weight_decay=0.0,
        adam_weight_decay=0.01,
        muon_weight_dimension_numbers=partial(jax.tree.map, dimensions),
    )


# Class and arguments with which a peer takes the same step as the rule of this name with its default options.
TORCH: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "sgd": ("SGD", {}),
    "momentum": ("SGD", {"momentum": 0.9}),
    "adagrad": ("Adagrad", {"eps": 1e-10}),
    "adam": ("Adam", {}),
    "adamw": ("AdamW", {"weight_decay": 0.01}),
}
OPTAX: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "sgd": ("sgd", {}),
    "momentum": ("sgd", {"momentum": 0.9}),
    # Optax adds epsilon inside the root, where 0 is closer to our step than an equal epsilon.
    "adagrad": ("adagrad", {"initial_accumulator_value": 0.0, "eps": 0.0}),
    "adam": ("adam", {}),
    "adamw": ("adamw", {"weight_decay": 0.01}),
}
# Function that prepares a step for parameters of the given shapes in a precision.
Prepare = Callable[[Shapes, str], ReadyCase]


@dataclass(frozen=True)
class Contest:
    """Our step and the step of a peer, which are timed in turn.

    Args:
        step: name of our step.
        backend, precision: backend and precision of our step.
        peer: name of the other library's optimizer, as shown in tables.
        ours, theirs: functions that prepare the two steps.
        calls: number of consecutive calls in one sample.
        steps: number of optimizer steps in one sample.
    """

    step: str
    backend: str
    precision: str
    peer: str
    ours: Callable[[], ReadyCase]
    theirs: Callable[[], ReadyCase]
    calls: int = 1
    steps: int = 1

    @property
    def label(self) -> str:
        """Step, backend and precision, as shown in tables."""
        return f"{self.step} {self.backend} {self.precision}"


def _torch_peer(name: str, path: str) -> TorchPeer:
    def make(leaves: Mapping[str, Any], rule: Rule) -> list[Any]:
        import torch

        kind, extra = TORCH[name]
        return [getattr(torch.optim, kind)(list(leaves.values()), lr=LEARNING_RATE, **extra, **{path: True})]

    return TorchPeer(make)


def _optax_step(name: str, shapes: Shapes, dtype: str) -> ReadyCase:
    """Prepare a jitted step of Optax whose parameters and state are donated."""
    import jax
    import jax.numpy as jnp
    import optax

    if name == "muon":
        transformation = optax_muon()
    else:
        function, arguments = OPTAX[name]
        transformation = getattr(optax, function)(LEARNING_RATE, **arguments)

    def take(params: Any, state: Any, grads: Any) -> tuple[Any, Any]:
        updates, state = transformation.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    with jax.enable_x64(dtype == "float64"):
        parameters, gradients = initial(shapes)
        params = {key: jnp.asarray(array, dtype) for key, array in parameters.items()}
        grads = {key: jnp.asarray(array, dtype) for key, array in gradients.items()}
        state = transformation.init(params)
        step = jax.jit(take, donate_argnums=(0, 1)).lower(params, state, grads).compile()

    def run() -> None:
        nonlocal params, state
        params, state = step(params, state, grads)
        jax.block_until_ready((params, state))

    def result() -> np.ndarray:
        return end_to_end({key: np.asarray(params[key]) for key in shapes})

    return ReadyCase(run, result, lambda: jax.enable_x64(dtype == "float64"))


def peers(optimizer: str, backend: str, options: Options | None = None) -> dict[str, Prepare]:
    """Return the peers of an optimizer's step on a backend, by label; empty if no library has the rule.

    Args:
        optimizer: name of a rule.
        backend: jax or torch. On jax, a step that no JAX library has is compared with a PyTorch library.
        options: options of the rule, from which the peers get the number of steps between two refreshes.

    Returns:
        `prepare(shapes, dtype) -> ReadyCase` by label. The peers have the hyperparameters of
        `optimizer_step`, except for the large epsilon of SOAP and Shampoo: the peers of SOAP and Shampoo have
        the default epsilon of our rules.
    """
    if backend == "jax" and (optimizer in OPTAX or optimizer == "muon"):
        return {"optax": partial(_optax_step, optimizer)}
    torch_peers: dict[str, TorchPeer] = {}
    if backend == "torch" and optimizer in TORCH:
        torch_peers = {f"torch.optim {path}": _torch_peer(optimizer, path) for path in ("fused", "foreach")}
    elif backend in BACKENDS and optimizer in TORCH_MATRIX_PEERS:
        torch_peers = dict([TORCH_MATRIX_PEERS[optimizer]])
    return {
        label: partial(peer.prepare, rules()[optimizer].choose(options or {}))
        for label, peer in torch_peers.items()
    }
