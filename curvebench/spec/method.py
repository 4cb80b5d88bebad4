"""Optimizers, bases and workloads with all their options, as jobs use them; and methods.

A basis is a change of coordinates of the parameters. A method is an optimizer that makes its steps in a
basis; tables label it `adam @ egop`. These classes contain names and values only: `curvebench.registry` finds
the objects themselves.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

from pydantic import Field

# Label of the identity basis: parameters keep their original coordinates
IDENTITY = "identity"
# Libraries whose optimizers a study may name, each with the backend on which optimizers of the library run
LIBRARIES = {"torch": "torch", "optax": "jax"}
# Libraries whose models a study may name as workloads, each with the backend on which the models run
MODELS = {"torch": "torch", "jax": "jax"}


class Method(NamedTuple):
    """Labels of an optimizer and of the basis in which the optimizer makes its steps."""

    optimizer: str
    basis: str

    @property
    def label(self) -> str:
        """Label of the method: `adam` in the identity basis, `adam @ egop` in the basis `egop`."""
        return self.optimizer if self.basis == IDENTITY else f"{self.optimizer} @ {self.basis}"

    @classmethod
    def of(cls, label: str) -> Method:
        """Parse the label of a method, such as `adam @ egop`."""
        optimizer, at, basis = label.partition(" @ ")
        return cls(optimizer, basis if at else IDENTITY)


@dataclass(frozen=True)
class OptimizerSpec:
    """An optimizer as jobs run it: an update rule with its fixed hyperparameters and all of its options.

    Args:
        name: name of the rule.
        hyperparameters: values of the hyperparameters that the study fixes. All other hyperparameters are
            tuned or have their defaults.
        options: values of all options; options that the study leaves out have their defaults.
        label: name in tables; if it is empty, the name of the rule is used.
        space: interval of each hyperparameter in which tuning searches for this optimizer; if it is empty,
            the search space of the study is used.
        locator: text by which `curvebench.registry.find_rule` finds the rule; if it is empty, the name is
            used.
        also_try: known good settings, which tuning tries in addition to the settings of the search.
    """

    name: str
    hyperparameters: Mapping[str, float] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    space: Mapping[str, Any] = field(default_factory=dict)
    locator: str = ""
    also_try: Annotated[tuple[Mapping[str, float], ...], Field(exclude_if=operator.not_)] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", self.label or self.name)
        object.__setattr__(self, "locator", self.locator or self.name)

    @property
    def only_backend(self) -> str | None:
        """The only backend on which an optimizer of another library (PyTorch or optax) runs and is tuned.

        None for a rule of this project, which runs on every backend.
        """
        library, colon, _ = self.locator.partition(":")
        return LIBRARIES.get(library) if colon else None

    def runs_on(self, backend: str) -> bool:
        """Return whether the optimizer can run on a backend."""
        return self.only_backend in (None, backend)

    @property
    def chosen(self) -> dict[str, Any]:
        """Everything that a study decides about the optimizer; hashes are computed from this mapping.

        It contains locator, options, fixed hyperparameters, search space and additional settings.
        """
        return {
            **({} if self.label == self.locator else {"rule": self.locator}),
            **self.options,
            **self.hyperparameters,
            **({"space": dict(self.space)} if self.space else {}),
            **({"also_try": list(self.also_try)} if self.also_try else {}),
        }


@dataclass(frozen=True)
class BasisSpec:
    """A basis as jobs use it, with the values of all of its options.

    Args:
        label: name in tables.
        name: name of the basis, by which its definition is found.
        options: values of all options; options that the study leaves out have their defaults.
        optimizers: labels of the optimizers that run in the basis; empty for all optimizers of the study.
    """

    label: str
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    optimizers: tuple[str, ...] = ()

    @property
    def chosen(self) -> dict[str, Any]:
        """Everything that a study decides about the basis; hashes are computed from this mapping.

        It contains name, options, and the labels of the optimizers that run in the basis.
        """
        optimizers = {"optimizers": list(self.optimizers)} if self.optimizers else {}
        return {"name": self.name, **self.options, **optimizers}

    def applies_to(self, optimizer: str) -> bool:
        """Return whether an optimizer, given by its label, runs in the basis."""
        return not self.optimizers or optimizer in self.optimizers


@dataclass(frozen=True)
class WorkloadSpec:
    """A workload as jobs run it, with the values of all of its settings.

    Args:
        name: label of the workload in its study and in tables.
        settings: values of all settings, such as the batch size; settings that the study leaves out have
            their defaults.
        locator: text by which `curvebench.registry.find_workload` finds the workload; if it is empty, the
            name is used.
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
