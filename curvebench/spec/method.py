"""Resolved optimizers, bases and workloads, and methods: an optimizer in a basis, as tables label it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

# Label of the basis of the original coordinates
IDENTITY = "identity"
# Libraries whose optimizers a study may name, and the backend on which they run
LIBRARIES = {"torch": "torch", "optax": "jax"}


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
        """Parse the label of a method."""
        optimizer, at, basis = label.partition(" @ ")
        return cls(optimizer, basis if at else IDENTITY)


@dataclass(frozen=True)
class OptimizerSpec:
    """An optimizer as jobs run it: a rule with fixed hyperparameters, and all of its options.

    Args:
        name: name of the rule.
        hyperparameters: values that the study fixes; the others are tuned.
        options: the study's options, completed by defaults.
        label: name in tables; the name of the rule if it is empty.
        space: search space of this optimizer by hyperparameter; empty for the study's.
        locator: where the rule is defined (curvebench.registry); the name if it is empty.
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
        """The only backend of an optimizer of another library, which also tunes it; None for other rules."""
        library, colon, _ = self.locator.partition(":")
        return LIBRARIES.get(library) if colon else None

    def runs_on(self, backend: str) -> bool:
        """Return whether the optimizer can run on a backend."""
        return self.only_backend in (None, backend)

    @property
    def chosen(self) -> dict[str, Any]:
        """All that a study chooses about the optimizer: locator, options, hyperparameters, search space."""
        return {
            **({} if self.label == self.locator else {"rule": self.locator}),
            **self.options,
            **self.hyperparameters,
            **({"space": dict(self.space)} if self.space else {}),
        }


@dataclass(frozen=True)
class BasisSpec:
    """A basis as jobs use it, with its options completed.

    Args:
        label: name in tables.
        name: name of the basis.
        optimizers: labels of the optimizers that run in the basis; empty for all.
    """

    label: str
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    optimizers: tuple[str, ...] = ()

    @property
    def chosen(self) -> dict[str, Any]:
        """All that a study chooses about the basis: its name, options and optimizers."""
        optimizers = {"optimizers": list(self.optimizers)} if self.optimizers else {}
        return {"name": self.name, **self.options, **optimizers}

    def applies_to(self, optimizer: str) -> bool:
        """Return whether an optimizer, given by its label, runs in the basis."""
        return not self.optimizers or optimizer in self.optimizers


@dataclass(frozen=True)
class WorkloadSpec:
    """A workload as jobs run it, with its settings completed.

    Args:
        name: label of the workload in its study and in tables.
        locator: where the workload is defined (curvebench.registry); the name if it is empty.
    """

    name: str
    settings: Mapping[str, Any]
    locator: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "locator", self.locator or self.name)


def methods(optimizers: Sequence[OptimizerSpec], bases: Iterable[BasisSpec]) -> tuple[str, ...]:
    """Return the labels of all methods, basis by basis: "adam", "adam @ egop"."""
    pairs = ((spec.label, basis) for basis in bases for spec in optimizers if basis.applies_to(spec.label))
    return tuple(Method(optimizer, basis.label).label for optimizer, basis in pairs)
