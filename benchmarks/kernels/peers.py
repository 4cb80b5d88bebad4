"""Other libraries' steps on the same parameters and gradients: torch.optim, Optax, pytorch_optimizer.

Those of Muon, SOAP and Shampoo need settings that make them compute what ours do:

- `torch.optim.Muon` takes matrices alone: convolutions are handed over as matrices, all else goes to fused
  AdamW. Its momentum is 1 - mu times ours, which the normalization takes away. It would round to bfloat16
  before its iteration, which is another computation: it is kept from that.
- `optax.contrib.muon` corrects the biases of Nesterov's two terms apart: the step of a matrix is ours where
  the gradient stays. Its AdamW of all else takes Nesterov's step too.
- `pytorch_optimizer.SOAP` adds epsilon before the bias correction, and rounds to float32 before QR: the step
  is ours where epsilon is small.
- `pytorch_optimizer.ScalableShampoo` without momentum, grafting and blocks, with sums for statistics; it
  leaves vectors to gradient descent, so it is given them as one column with the left side alone, which is
  our vector. Its root is taken by singular values, which makes it ours.
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
from curvebench.optimizers.others import OTHERS_LEARNING_RATE
from curvebench.optimizers.rule import Rule

from .case import ReadyCase
from .steps import LEARNING_RATE, Shapes, end_to_end, numbers, start

Shape = tuple[int, ...]
NOT_CUT = 1 << 20  # longer than any axis


@dataclass(frozen=True)
class TorchPeer:
    """An optimizer of PyTorch for the leaves of a model.

    Args:
        make: `make(leaves, rule)`, the optimizers of leaves by name, as `seen`, with the rule's options.
        seen: the shape in which it takes a parameter.
        before: what its groups count before our step of a number, from 1, in a cadence of so many steps.
        context: what its steps are taken in.
    """

    make: Callable[[Mapping[str, Any], Rule], list[Any]]
    seen: Callable[[Shape], Shape] = lambda shape: shape
    before: Callable[[int, int], int] | None = None
    context: Callable[[], Any] | None = None

    def prepare(self, rule: Rule, shapes: Shapes, dtype: str) -> ReadyCase:
        """Its step on our parameters and gradients, with amortized work in the steps in which ours has it."""
        import torch

        params, grads = start(shapes)
        kind = getattr(torch, dtype)
        leaves = {}
        for name, array in params.items():
            shape = self.seen(array.shape)
            leaves[name] = torch.tensor(array.reshape(shape), dtype=kind)
            leaves[name].grad = torch.tensor(grads[name].reshape(shape), dtype=kind)
        optimizers = self.make(leaves, rule)
        every = rule.refresh_every or 1
        coming = numbers(every)
        before = self.before

        def run() -> None:
            number = next(coming)
            for optimizer in optimizers:
                if before is not None:
                    for group in optimizer.param_groups:
                        group["step"] = before(number, every)
                optimizer.step()

        def result() -> np.ndarray:
            return end_to_end({name: leaf.numpy() for name, leaf in leaves.items()})

        return ReadyCase(run, result) if self.context is None else ReadyCase(run, result, self.context)


def _muon(leaves: Mapping[str, Any], rule: Rule) -> list[Any]:
    import torch

    matrices = [leaf for leaf in leaves.values() if leaf.ndim == 2]
    rest = [leaf for leaf in leaves.values() if leaf.ndim != 2]
    muon = torch.optim.Muon(matrices, lr=LEARNING_RATE, momentum=0.95, weight_decay=0.0) if matrices else None
    adamw = torch.optim.AdamW(rest, lr=OTHERS_LEARNING_RATE, weight_decay=0.01, fused=True) if rest else None
    return [optimizer for optimizer in (muon, adamw) if optimizer]


def _as_matrix(shape: Shape) -> Shape:
    return (shape[0], int(np.prod(shape[1:]))) if len(shape) > 1 else shape


@contextmanager
def without_bfloat16() -> Iterator[None]:
    """Inside, torch.optim.Muon iterates in the precision of its parameters."""
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
            precondition_frequency=rule.refresh_every or NOT_CUT,
        )
    ]


def _scalable_shampoo(leaves: Mapping[str, Any], rule: Rule) -> list[Any]:
    import pytorch_optimizer
    from pytorch_optimizer.optimizer.utils.graft import LayerWiseGrafting
    from pytorch_optimizer.optimizer.utils.partition import PreConditionerType

    columns = [leaf for leaf in leaves.values() if leaf.ndim == 2 and leaf.shape[1] == 1]
    rest = [leaf for leaf in leaves.values() if leaf.ndim != 2 or leaf.shape[1] != 1]
    sides = ((columns, PreConditionerType.INPUT), (rest, PreConditionerType.ALL))
    made = [
        pytorch_optimizer.ScalableShampoo(
            tensors,
            lr=LEARNING_RATE,
            betas=(0.0, 0.5),
            start_preconditioning_step=1,
            preconditioning_compute_steps=rule.refresh_every or NOT_CUT,
            block_size=NOT_CUT,
            no_preconditioning_for_layers_with_dim_gt=NOT_CUT,
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
    for optimizer in made:
        for group in optimizer.param_groups:
            group["betas"] = (0.0, 1.0)  # sums: it knows them, and its constructor refuses them
    return made


def _with_columns(shape: Shape) -> Shape:
    return (*shape, 1) if len(shape) == 1 else shape


TORCH_MATRIX_PEERS: Mapping[str, tuple[str, TorchPeer]] = {
    "muon": ("torch.optim.Muon in float32", TorchPeer(_muon, _as_matrix, context=without_bfloat16)),
    "soap": ("pytorch_optimizer SOAP", TorchPeer(_soap, before=lambda number, every: number - 1)),
    # It computes roots where its count is a multiple of the cadence: at our first step.
    "shampoo": (
        "ScalableShampoo, SVD",
        TorchPeer(_scalable_shampoo, _with_columns, lambda number, every: number - 2 + every),
    ),
}


def optax_muon() -> Any:
    """Muon of matrices and convolutions, whose first axis counts outputs, beside AdamW."""
    import jax
    from optax import contrib

    def dimensions(params: Any) -> Any:
        return jax.tree.map(
            lambda leaf: (
                contrib.MuonDimensionNumbers(tuple(range(1, leaf.ndim)), 0) if leaf.ndim > 1 else None
            ),
            params,
        )

    return contrib.muon(
        LEARNING_RATE,
        beta=0.95,
        weight_decay=0.0,
        adam_weight_decay=0.01,
        adam_learning_rate=OTHERS_LEARNING_RATE,
        muon_weight_dimension_numbers=dimensions,
    )


# Class and arguments that make a peer take the same step as our rule of that name with its defaults.
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
    # Optax adds epsilon inside the root: 0 there is nearer to ours than an equal number.
    "adagrad": ("adagrad", {"initial_accumulator_value": 0.0, "eps": 0.0}),
    "adam": ("adam", {}),
    "adamw": ("adamw", {"weight_decay": 0.01}),
}
Prepare = Callable[[Shapes, str], ReadyCase]  # of shapes and precision


@dataclass(frozen=True)
class Contest:
    """Our step and the step of a peer, which are timed in turn.

    Args:
        step: name of our step.
        backend, precision: of our step.
        peer: name of the peer.
        ours, theirs: prepare the two steps.
        calls: how many calls in a row are one sample.
        steps: how many optimizer steps one sample has.
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
        """Step, backend and precision, as in tables."""
        return f"{self.step} {self.backend} {self.precision}"


def _torch_peer(name: str, path: str) -> TorchPeer:
    def make(leaves: Mapping[str, Any], rule: Rule) -> list[Any]:
        import torch

        kind, given = TORCH[name]
        return [getattr(torch.optim, kind)(list(leaves.values()), lr=LEARNING_RATE, **given, **{path: True})]

    return TorchPeer(make)


def _optax_step(name: str, shapes: Shapes, dtype: str) -> ReadyCase:
    """A jitted step of Optax that is given its parameters and state to overwrite."""
    import jax
    import jax.numpy as jnp
    import optax

    if name == "muon":
        transformation = optax_muon()
    else:
        function, given = OPTAX[name]
        transformation = getattr(optax, function)(LEARNING_RATE, **given)

    def take(params: Any, state: Any, grads: Any) -> tuple[Any, Any]:
        updates, state = transformation.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    with jax.enable_x64(dtype == "float64"):
        first, slope = start(shapes)
        params = {key: jnp.asarray(array, dtype) for key, array in first.items()}
        grads = {key: jnp.asarray(array, dtype) for key, array in slope.items()}
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
    """The peers of an optimizer's step on a backend, by label; none for a rule that no library has.

    Args:
        optimizer: a rule's name.
        backend: jax or torch; what no library of JAX has is taken from PyTorch's.
        options: the rule's, of which peers have the cadence.

    Returns:
        `prepare(shapes, dtype) -> ReadyCase` by label; hyperparameters are those of `optimizer_step`,
        but for epsilon, which is the peer's own default where work is amortized.
    """
    if backend == "jax" and (optimizer in OPTAX or optimizer == "muon"):
        return {"optax": partial(_optax_step, optimizer)}
    found: dict[str, TorchPeer] = {}
    if backend == "torch" and optimizer in TORCH:
        found = {f"torch.optim {path}": _torch_peer(optimizer, path) for path in ("fused", "foreach")}
    elif backend in BACKENDS and optimizer in TORCH_MATRIX_PEERS:
        found = dict([TORCH_MATRIX_PEERS[optimizer]])
    return {
        label: partial(peer.prepare, rules()[optimizer].choose(options or {}))
        for label, peer in found.items()
    }
