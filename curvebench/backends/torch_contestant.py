"""Optimizers of PyTorch on the leaves of a single run: their steps, closures and points of evaluation."""

from __future__ import annotations

import io
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from curvebench.spec.errors import InputError
from curvebench.steps.torch_rule import requires_closure

Tensors = Sequence[torch.Tensor]
Evaluate = Callable[[], tuple[torch.Tensor, Tensors]]  # the loss and gradients where the leaves are now


@dataclass(frozen=True)
class KeptContestant:
    """What a contestant remembers, without its leaves: one on other memory goes on from it.

    Args:
        states: what each optimizer's `state_dict` gives.
        evaluations: of the gradient, by closures.
        steps: that it has taken.
    """

    states: Sequence[Mapping[str, Any]]
    evaluations: int
    steps: int

    def to_bytes(self) -> np.ndarray:
        """As PyTorch writes it."""
        file = io.BytesIO()
        torch.save(vars(self), file)
        return np.frombuffer(file.getbuffer(), np.uint8)

    @staticmethod
    def from_bytes(written: np.ndarray) -> KeptContestant:
        """What was written; nothing but tensors and plain values is read."""
        return KeptContestant(**torch.load(io.BytesIO(written.tobytes()), weights_only=True))

    def kept(self) -> KeptContestant:
        """Itself."""
        return self


class TorchContestant:
    """Optimizers that step the leaves of one run together, as the engine's state of it.

    Args:
        name: in messages.
        optimizers: each has some of the leaves.
        leaves: views of the run's buffer, in the order of gradients.
        closure: whether steps are given a closure, even where they could do without.

    Raises:
        InputError: for groups without a learning rate.
    """

    def __init__(
        self, name: str, optimizers: Sequence[torch.optim.Optimizer], leaves: Tensors, closure: bool
    ) -> None:
        self.name, self.optimizers, self.leaves = name, optimizers, leaves
        self.with_closure = [closure or requires_closure(type(one).step) for one in optimizers]
        self.evaluations = 0  # of the gradient, by closures
        self.steps = 0
        self._views = [leaf.detach() for leaf in leaves]
        if not all("lr" in group for one in optimizers for group in one.param_groups):
            raise InputError(f"{name}: has no lr in its parameter groups; the study's learning rate is lost")
        self._rates = [[group["lr"] for group in one.param_groups] for one in optimizers]
        self._turn("train")

    def is_on(self, leaves: Tensors) -> bool:
        """Whether these are views of the same memory as its own."""
        return [one.data_ptr() for one in leaves] == [one.data_ptr() for one in self._views]

    def kept(self) -> KeptContestant:
        """What it remembers, in its own memory."""
        return KeptContestant([one.state_dict() for one in self.optimizers], self.evaluations, self.steps)

    def take_over(self, kept: KeptContestant) -> None:
        """Go on from the state of another, on other memory."""
        for own, state in zip(self.optimizers, kept.states, strict=True):
            own.load_state_dict(dict(state))
            _restore_dtypes(own, state)
        self.evaluations, self.steps = kept.evaluations, kept.steps

    def step(self, grads: Iterable[torch.Tensor], schedule: float, evaluate: Evaluate) -> None:
        """One step by the gradients at the leaves, which `evaluate` gives elsewhere.

        Raises:
            InputError: for whatever the library raises, and for leaves whose shape has changed.
        """

        def closure() -> torch.Tensor:
            self._settle()
            loss, found = evaluate()
            self._give(found)
            self.evaluations += 1
            return loss

        self._give(grads)
        for optimizer, rates, with_closure in zip(
            self.optimizers, self._rates, self.with_closure, strict=True
        ):
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * schedule
            try:
                if with_closure:
                    optimizer.step(closure)
                else:
                    optimizer.step()
            except InputError:
                raise
            except Exception as error:  # whatever another library raises
                what = f"step {self.steps + 1} fails" if self.steps else "takes no step"
                refused = not self.steps and (
                    isinstance(error, TypeError | AssertionError)
                    or "closure" in f"{type(error)}{error}".lower()
                )
                hint = "; one that evaluates the loss itself wants closure: true"
                raise InputError(
                    f"{self.name}: {what} ({type(error).__name__}: {error}, {_last_place(error)})"
                    f"{hint if refused and not with_closure else ''}"
                ) from error
        self.steps += 1
        self._settle()

    @property
    def has_modes(self) -> bool:
        """Whether its authors have it judged elsewhere than at the parameters."""
        return any(map(_has_modes, self.optimizers))

    def evaluated(self) -> Tensors:
        """The leaves where the optimizers' authors have them judged; training goes on where it was."""
        trained = [view.clone() for view in self._views]
        self._turn("eval")
        found = [view.clone() for view in self._views]
        self._turn("train")
        for view, value in zip(self._views, trained, strict=True):
            view.copy_(value)  # going forth and back rounds
        return found

    def states(self) -> Iterator[Any]:
        """All that the optimizers remember, those inside of others too."""
        for optimizer in self.optimizers:
            inside = [one for one in vars(optimizer).values() if isinstance(one, torch.optim.Optimizer)]
            yield from (list(one.state.values()) for one in (optimizer, *inside))

    def _turn(self, mode: str) -> None:
        for optimizer in filter(_has_modes, self.optimizers):
            getattr(optimizer, mode)()
        self._settle()

    def _give(self, grads: Iterable[torch.Tensor]) -> None:
        for leaf, grad in zip(self.leaves, grads, strict=True):
            leaf.grad = grad.detach()

    def _settle(self) -> None:
        """Have the leaves be views of the run's buffer again, where an optimizer gave them other memory."""
        for leaf, view in zip(self.leaves, self._views, strict=True):
            if leaf.shape != view.shape:
                raise InputError(
                    f"{self.name}: changes the shape of a parameter from {tuple(view.shape)} to "
                    f"{tuple(leaf.shape)}"
                )
            if leaf.data_ptr() != view.data_ptr():
                view.copy_(leaf.detach())
                leaf.data = view


def _restore_dtypes(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Have tensors of its state as they were: `load_state_dict` casts them to the type of their parameter."""
    params = [param for group in optimizer.param_groups for param in group["params"]]
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    for number, param in zip(numbers, params, strict=True):
        for name, value in state["state"].get(number, {}).items():
            loaded = optimizer.state[param].get(name)
            if isinstance(loaded, torch.Tensor) and loaded.dtype != value.dtype:
                optimizer.state[param][name] = value.clone()


def _has_modes(optimizer: torch.optim.Optimizer) -> bool:
    return all(callable(getattr(optimizer, mode, None)) for mode in ("eval", "train"))


def _last_place(error: Exception) -> str:
    """File and line of the innermost code that is not of an installed package, else of the innermost.

    Args:
        error: raised in code that was called from here, whose own line says nothing.
    """
    frames = traceback.extract_tb(error.__traceback__)[1:] or traceback.extract_tb(error.__traceback__)
    own = [one for one in frames if "site-packages" not in Path(one.filename).parts]
    at = (own or frames)[-1]
    return f"{Path(at.filename).name} line {at.lineno}"
