"""Execution of optimizers of PyTorch on the parameters of one run.

A lane is one of the runs that are computed together. The parameters of all lanes are in one buffer. Leaves
are the tensors of single parameters, which are views of the lane's part of the buffer. A closure is a
function that an optimizer calls to evaluate the loss again in the middle of a step.
"""

from __future__ import annotations

import io
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from curvebench.spec.errors import InputError
from curvebench.steps.torch_rule import requires_closure

Tensors = Sequence[torch.Tensor]
# Function that returns the loss and its gradients at the current values of the leaves.
Evaluate = Callable[[], tuple[torch.Tensor, Tensors]]
# Function that multiplies the Hessian by a vector, given as one tensor for each leaf.
Product = Callable[[Tensors], Tensors]
# Cost of a product with the Hessian, counted in gradients.
PRODUCT_EVALUATIONS = 2


class _DifferentiableGradient(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
    """Gradients as functions of the leaves, so that an optimizer can differentiate them once more."""

    @staticmethod
    def forward(context: Any, product: Product, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return copies of the gradients, given the leaves and then their gradients."""
        context.product = product
        return tuple(gradient.clone() for gradient in tensors[len(tensors) // 2 :])

    @staticmethod
    def backward(context: Any, *vectors: torch.Tensor) -> tuple[Any, ...]:
        """Return the product of the Hessian and a vector as derivatives with respect to the leaves."""
        return None, *context.product(vectors), *(None for _ in vectors)


@dataclass(frozen=True)
class SavedOptimizers:
    """State of the optimizers of a lane, without the leaves.

    Optimizers that are constructed for new leaves resume from this state.

    Args:
        states: the `state_dict` of each optimizer.
        evaluations: number of gradients that closures have computed.
        steps: number of steps taken.
    """

    states: Sequence[Mapping[str, Any]]
    evaluations: int
    steps: int

    def to_bytes(self) -> np.ndarray:
        """Return the state in the file format of `torch.save`, as an array of bytes."""
        file = io.BytesIO()
        torch.save(vars(self), file)
        return np.frombuffer(file.getbuffer(), np.uint8)

    @staticmethod
    def from_bytes(content: np.ndarray) -> SavedOptimizers:
        """Return the state, given the result of `to_bytes`. Only tensors and plain values are loaded."""
        return SavedOptimizers(**torch.load(io.BytesIO(content.tobytes()), weights_only=True))

    def saved(self) -> SavedOptimizers:
        """Return this object.

        The class `LaneOptimizers` has a method of the same name, which returns the state of the optimizers.
        Callers therefore need not know whether they have optimizers or a saved state.
        """
        return self


class LaneOptimizers:
    """Optimizers that together update the leaves of one lane.

    This object is the lane's optimizer state in the carry, the state that steps change.

    Args:
        name: name of the optimizer in messages.
        optimizers: the optimizers, each with some of the leaves.
        leaves: views of the lane's part of the buffer, in the order of the gradients.
        closure: whether every step gets a closure, even if an optimizer does not require it.

    Raises:
        InputError: when a parameter group has no `lr`, so that the study's learning rate would be ignored.
    """

    def __init__(
        self, name: str, optimizers: Sequence[torch.optim.Optimizer], leaves: Tensors, closure: bool
    ) -> None:
        self.name, self.optimizers, self.leaves = name, optimizers, leaves
        self.with_closure = [closure or requires_closure(type(optimizer).step) for optimizer in optimizers]
        self.evaluations = 0  # number of gradients that closures have computed
        self.steps = 0
        self._views = [leaf.detach() for leaf in leaves]
        if not all("lr" in group for optimizer in optimizers for group in optimizer.param_groups):
            raise InputError(f"{name}: has no lr in its parameter groups; the study's learning rate is lost")
        self._rates = [[group["lr"] for group in optimizer.param_groups] for optimizer in optimizers]
        self._set_mode("train")

    def is_on(self, leaves: Tensors) -> bool:
        """Return whether `leaves` are views of the same memory as the leaves that these optimizers update."""
        return [leaf.data_ptr() for leaf in leaves] == [view.data_ptr() for view in self._views]

    def saved(self) -> SavedOptimizers:
        """Return the state of the optimizers. The tensors in the state are not copied."""
        states = [optimizer.state_dict() for optimizer in self.optimizers]
        return SavedOptimizers(states, self.evaluations, self.steps)

    def restore(self, saved: SavedOptimizers) -> None:
        """Resume from a saved state. The leaves of the saved optimizers may have been in other memory."""
        for optimizer, state in zip(self.optimizers, saved.states, strict=True):
            optimizer.load_state_dict(dict(state))
            _restore_dtypes(optimizer, state)
        self.evaluations, self.steps = saved.evaluations, saved.steps

    def step(
        self,
        grads: Iterable[torch.Tensor],
        schedule: float,
        evaluate: Evaluate,
        product: Product | None = None,
    ) -> None:
        """Take one step.

        Args:
            grads: gradients with respect to the leaves.
            schedule: factor by which all learning rates are multiplied.
            evaluate: function that returns loss and gradients at the current leaves. It is called for
                optimizers that change the leaves and evaluate the loss again during the step.
            product: function that multiplies the Hessian at the current leaves by a vector, for optimizers
                that differentiate the gradient; None if the gradient is a constant.

        Raises:
            InputError: when the library raises an error, or a leaf has another shape after the step.
        """

        def closure() -> torch.Tensor:
            self._restore_views()
            loss, gradients = evaluate()
            self._set_gradients(gradients)
            self.evaluations += 1
            return loss

        self._set_gradients(grads)
        if product is not None:
            self._make_differentiable(product)
        taking_part = zip(self.optimizers, self._rates, self.with_closure, strict=True)
        for optimizer, rates, with_closure in taking_part:
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * schedule
            try:
                with nullcontext() if product is None else _seeded(self.steps):
                    if with_closure:
                        optimizer.step(closure)
                    else:
                        optimizer.step()
            except InputError:
                raise
            except Exception as error:  # another library may raise any exception
                event = f"step {self.steps + 1} fails" if self.steps else "takes no step"
                may_need_closure = not self.steps and (
                    isinstance(error, TypeError | AssertionError)
                    or "closure" in f"{type(error)}{error}".lower()
                )
                hint = "; if it evaluates the loss itself, give closure: true"
                hint = hint if may_need_closure and not with_closure else ""
                if "does not require grad" in str(error):
                    hint = "; if it differentiates the gradient, give create_graph: true"
                params = {id(param) for group in optimizer.param_groups for param in group["params"]}
                if params.isdisjoint(map(id, self.leaves)):
                    hint = "; param_groups must keep the parameters, which a step changes in place"
                raise InputError(
                    f"{self.name}: {event} ({type(error).__name__}: {error}, {_last_line(error)}){hint}"
                ) from error
        self.steps += 1
        self._restore_views()

    @property
    def has_modes(self) -> bool:
        """Whether one of the optimizers has an evaluation mode, in which parameters have other values."""
        return any(map(_has_modes, self.optimizers))

    def evaluated(self) -> Tensors:
        """Return copies of the values that the leaves have in the evaluation mode of the optimizers.

        The leaves and the training mode are restored, so that training can continue.
        """
        trained = [view.clone() for view in self._views]
        self._set_mode("eval")
        values = [view.clone() for view in self._views]
        self._set_mode("train")
        # Restore the exact values of training: the two changes of mode have added rounding errors to them.
        for view, value in zip(self._views, trained, strict=True):
            view.copy_(value)
        return values

    def states(self) -> Iterator[Any]:
        """Yield the state of each optimizer, and the state of each optimizer that it wraps."""
        for optimizer in self.optimizers:
            attributes = vars(optimizer).values()
            wrapped = (value for value in attributes if isinstance(value, torch.optim.Optimizer))
            yield from (list(stateful.state.values()) for stateful in (optimizer, *wrapped))

    def _set_mode(self, mode: str) -> None:
        for optimizer in filter(_has_modes, self.optimizers):
            getattr(optimizer, mode)()
        self._restore_views()

    def _set_gradients(self, grads: Iterable[torch.Tensor]) -> None:
        for leaf, grad in zip(self.leaves, grads, strict=True):
            leaf.grad = grad.detach()

    def _make_differentiable(self, product: Product) -> None:
        def counted(vectors: Tensors) -> Tensors:
            self.evaluations += PRODUCT_EVALUATIONS
            return product(vectors)

        with torch.enable_grad():
            gradients = [leaf.grad for leaf in self.leaves]
            differentiable = _DifferentiableGradient.apply(counted, *self.leaves, *gradients)
        for leaf, gradient in zip(self.leaves, differentiable, strict=True):
            leaf.grad = gradient

    def _restore_views(self) -> None:
        """Make the leaves views of the lane's buffer again, if an optimizer has replaced their memory.

        Raises:
            InputError: when a leaf has another shape than before.
        """
        for leaf, view in zip(self.leaves, self._views, strict=True):
            if leaf.shape != view.shape:
                raise InputError(
                    f"{self.name}: changes the shape of a parameter from {tuple(view.shape)} to "
                    f"{tuple(leaf.shape)}"
                )
            if leaf.data_ptr() != view.data_ptr():
                view.copy_(leaf.detach())
                leaf.data = view


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Return a context in which PyTorch's random numbers, such as those of probes, follow from `seed`."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def _restore_dtypes(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Restore the data types of a state, which `load_state_dict` has cast to the parameter's type."""
    params = [param for group in optimizer.param_groups for param in group["params"]]
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    for number, param in zip(numbers, params, strict=True):
        for name, value in state["state"].get(number, {}).items():
            loaded = optimizer.state[param].get(name)
            if isinstance(loaded, torch.Tensor) and loaded.dtype != value.dtype:
                optimizer.state[param][name] = value.clone()


def _has_modes(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether an optimizer has modes for training and evaluation, like schedule-free optimizers."""
    return all(callable(getattr(optimizer, mode, None)) for mode in ("eval", "train"))


def _last_line(error: Exception) -> str:
    """Return file and line at which an error was raised, preferably outside of installed packages.

    Args:
        error: an error from code that this module has called. The traceback's frame in this module is left
            out.
    """
    frames = traceback.extract_tb(error.__traceback__)[1:] or traceback.extract_tb(error.__traceback__)
    user_frames = [frame for frame in frames if "site-packages" not in Path(frame.filename).parts]
    last = (user_frames or frames)[-1]
    return f"{Path(last.filename).name} line {last.lineno}"
