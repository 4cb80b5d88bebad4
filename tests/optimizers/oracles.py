"""What PyTorch and Optax have of our rules, with the settings that make it the same algorithm."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np

from tests.optimizers.loops import Hyper

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Oracle:
    """Another library's optimizer.

    Args:
        make: of PyTorch `make(tensors, hyper)`, a list of optimizers; of Optax `make(hyper)`, one
            transformation.
        hyper: values without which the algorithms differ; they replace the entry's.
        orders: the numbers of axes of the parameters that it takes.
        context: what makes it calculate in float64.
    """

    make: Callable[..., Any]
    hyper: Hyper = field(default_factory=dict)
    orders: tuple[int, ...] = (0, 1, 2, 4)
    context: Callable[[], AbstractContextManager[Any]] = nullcontext

    def takes(self, params: Arrays) -> Arrays:
        """Those of the parameters that it has an update for."""
        return {name: value for name, value in params.items() if value.ndim in self.orders}


def pytorch_path(oracle: Oracle, params: Arrays, grads: list[Arrays], hyper: Hyper) -> list[Arrays]:
    """The path of torch.optim in float64, in the form of `harness.replay`."""
    import torch

    tensors = {name: torch.tensor(value, dtype=torch.float64) for name, value in params.items()}
    steppers = oracle.make(list(tensors.values()), hyper)
    path = []
    with oracle.context():
        for grad in grads:
            for name, tensor in tensors.items():
                tensor.grad = torch.tensor(grad[name], dtype=torch.float64)
            for stepper in steppers:
                stepper.step()
            path.append({name: tensor.numpy().copy() for name, tensor in tensors.items()})
    return path


@contextmanager
def jax_float64() -> Iterator[None]:
    """JAX in float64, inside only."""
    import jax

    with jax.enable_x64(True):
        yield


def optax_path(oracle: Oracle, params: Arrays, grads: list[Arrays], hyper: Hyper) -> list[Arrays]:
    """The path of Optax in float64, compiled."""
    import jax
    import jax.numpy as jnp
    import optax

    with jax_float64():
        transformation = oracle.make(hyper)
        update = jax.jit(transformation.update)
        values = {name: jnp.asarray(value) for name, value in params.items()}
        state = transformation.init(values)
        path = []
        for grad in grads:
            arrays = {name: jnp.asarray(grad[name]) for name in params}
            updates, state = update(arrays, state, values)
            values = optax.apply_updates(values, updates)
            path.append({name: np.asarray(value) for name, value in values.items()})
    return path


# --- PyTorch -----------------------------------------------------------------------------------------


def torch_adam(tensors: list[Any], hyper: Hyper) -> list[Any]:
    """Adam, or AdamW where there is a decay."""
    import torch

    given = {
        "lr": hyper["learning_rate"],
        "betas": (hyper["beta1"], hyper["beta2"]),
        "eps": hyper["epsilon"],
    }
    if "weight_decay" in hyper:
        return [torch.optim.AdamW(tensors, weight_decay=hyper["weight_decay"], **given)]
    return [torch.optim.Adam(tensors, **given)]


def torch_sgd(tensors: list[Any], hyper: Hyper) -> list[Any]:
    """SGD; dampening 0, so that the velocity takes the whole gradient."""
    import torch

    kept = hyper.get("momentum", 0.0)
    return [torch.optim.SGD(tensors, lr=hyper["learning_rate"], momentum=kept, dampening=0.0)]


def torch_adagrad(tensors: list[Any], hyper: Hyper) -> list[Any]:
    import torch

    return [
        torch.optim.Adagrad(
            tensors,
            lr=hyper["learning_rate"],
            initial_accumulator_value=hyper["initial_accumulator"],
            eps=hyper["epsilon"],
        )
    ]


def others(hyper: Hyper) -> dict[str, float]:
    """The hyperparameters of the rule beside Muon, by its own names."""
    return {name.removeprefix("others_"): hyper[name] for name in hyper if name.startswith("others_")}


def torch_muon(adjust_lr_fn: str) -> Callable[[list[Any], Hyper], list[Any]]:
    """Muon for matrices, AdamW for vectors.

    Its momentum is a running mean, (1 - momentum) times ours, which the normalization takes away.
    """

    def make(tensors: list[Any], hyper: Hyper) -> list[Any]:
        import torch

        stepper = torch.optim.Muon(
            [tensor for tensor in tensors if tensor.ndim == 2],
            lr=hyper["learning_rate"],
            momentum=hyper["momentum"],
            weight_decay=hyper["weight_decay"],
            adjust_lr_fn=adjust_lr_fn,
        )
        rest = [tensor for tensor in tensors if tensor.ndim < 2]
        return [stepper, *(torch_adam(rest, others(hyper)) if rest else [])]

    return make


@contextmanager
def torch_without_bfloat16() -> Iterator[None]:
    """torch.optim.Muon rounds to bfloat16 before its iteration: the only difference, taken away here."""
    import torch

    with mock.patch.object(torch.Tensor, "bfloat16", torch.Tensor.clone):
        yield


# --- Optax -------------------------------------------------------------------------------------------


def _moments(hyper: Hyper) -> dict[str, float]:
    return {"b1": hyper["beta1"], "b2": hyper["beta2"]}


def optax_sgd(hyper: Hyper) -> Any:
    import optax

    return optax.sgd(hyper["learning_rate"], momentum=hyper.get("momentum"))


def optax_adagrad(hyper: Hyper) -> Any:
    """Epsilon is inside the root there: the same algorithm only at 0."""
    import optax

    return optax.adagrad(
        hyper["learning_rate"],
        initial_accumulator_value=hyper["initial_accumulator"],
        eps=hyper["epsilon"],
    )


def optax_adam(hyper: Hyper) -> Any:
    """eps_root 0: nothing is added inside the root."""
    import optax

    given: Mapping[str, Any] = {**_moments(hyper), "eps": hyper["epsilon"], "eps_root": 0.0}
    if "weight_decay" in hyper:
        return optax.adamw(hyper["learning_rate"], weight_decay=hyper["weight_decay"], **given)
    return optax.adam(hyper["learning_rate"], **given)


def optax_muon(consistent_rms: float | None) -> Callable[[Hyper], Any]:
    """Muon of matrices and convolutions beside AdamW, without Nesterov and with epsilon 0.

    With Nesterov its two corrections of the mean have different steps, and both parts share one epsilon.
    The first axis counts outputs, as with us.
    """

    def make(hyper: Hyper) -> Any:
        import jax
        from optax import contrib

        def dimensions(params: Any) -> Any:
            return jax.tree.map(
                lambda leaf: (
                    contrib.MuonDimensionNumbers(tuple(range(1, leaf.ndim)), 0) if leaf.ndim > 1 else None
                ),
                params,
            )

        theirs = others(hyper)
        return contrib.muon(
            hyper["learning_rate"],
            beta=hyper["momentum"],
            eps=theirs["epsilon"],
            weight_decay=hyper["weight_decay"],
            nesterov=False,
            adam_b1=theirs["beta1"],
            adam_b2=theirs["beta2"],
            adam_weight_decay=theirs["weight_decay"],
            adam_learning_rate=theirs["learning_rate"],
            muon_weight_dimension_numbers=dimensions,
            consistent_rms=consistent_rms,
        )

    return make
