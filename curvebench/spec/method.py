"""Methods: optimizers in bases, with what they and workloads are resolved to, and what tables call them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

IDENTITY = "identity"  # the basis of the original coordinates
LIBRARIES = {"torch": "torch", "optax": "jax"}  # whose optimizers may be named: the backend of each


class Method(NamedTuple):
    """An optimizer in a basis, by their labels."""

    optimizer: str
    basis: str

    @property
    def label(self) -> str:
        """`adam` in the identity basis, `adam @ egop` in another."""
        return self.optimizer if self.basis == IDENTITY else f"{self.optimizer} @ {self.basis}"

    @classmethod
    def of(cls, label: str) -> Method:
        """The method of a label."""
        optimizer, at, basis = label.partition(" @ ")
        return cls(optimizer, basis if at else IDENTITY)


@dataclass(frozen=True)
class OptimizerSpec:
    """A contestant: a rule, the hyperparameters that its study fixes, and its options completed.

    Args:
        name: the rule's.
        label: what tables call it; the rule's name where none is given.
        space: the axes of its own search space by hyperparameter; empty where it has the study's.
        locator: where the rule is found (curvebench.registry); its name where none is given.
    """

    name: str
    hyperparameters: Mapping[str, float] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    space: Mapping[str, Any] = field(default_factory=dict)
    locator: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", self.label or self.name)
        object.__setattr__(self, "locator", self.locator or self.name)

    @property
    def only_backend(self) -> str | None:
        """The one backend that an optimizer of another library runs on, and is tuned on; None for our own."""
        library, colon, _ = self.locator.partition(":")
        return LIBRARIES.get(library) if colon else None

    def runs_on(self, backend: str) -> bool:
        """Whether it runs on a backend."""
        return self.only_backend in (None, backend)

    @property
    def chosen(self) -> dict[str, Any]:
        """All that a study says of it: where it is found, options, hyperparameters, space."""
        return {
            **({} if self.label == self.locator else {"rule": self.locator}),
            **self.options,
            **self.hyperparameters,
            **({"space": dict(self.space)} if self.space else {}),
        }


@dataclass(frozen=True)
class BasisSpec:
    """A basis under the label that tables use, with its options completed.

    Args:
        optimizers: the labels of those that take it; empty for all.
    """

    label: str
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    optimizers: tuple[str, ...] = ()

    @property
    def chosen(self) -> dict[str, Any]:
        """All that a study says of it: its name, options and optimizers."""
        return {
            "name": self.name,
            **self.options,
            **({"optimizers": list(self.optimizers)} if self.optimizers else {}),
        }

    def applies_to(self, optimizer: str) -> bool:
        """Whether an optimizer takes it, by its label."""
        return not self.optimizers or optimizer in self.optimizers


@dataclass(frozen=True)
class WorkloadSpec:
    """A workload with its settings completed.

    Args:
        name: its label in the study, which tables use.
        locator: where it is found (curvebench.registry); its name where none is given.
    """

    name: str
    settings: Mapping[str, Any]
    locator: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "locator", self.locator or self.name)


def methods(optimizers: Iterable[OptimizerSpec], bases: Iterable[BasisSpec]) -> tuple[str, ...]:
    """The labels of all methods, basis by basis: "adam", "adam @ egop"."""
    contestants = [one.label for one in optimizers]
    return tuple(
        Method(one, basis.label).label for basis in bases for one in contestants if basis.applies_to(one)
    )
