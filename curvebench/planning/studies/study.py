"""A question with the grid of runs that answers it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from curvebench.registry import rule_of
from curvebench.spec.claim import Claim
from curvebench.spec.method import OptimizerSpec, WorkloadSpec, methods
from curvebench.spec.study import Resolved, Scale


class FirstSeeds(NamedTuple):
    """The first seeds that settings are tried on, and that methods are judged on."""

    tuning: int
    final: int


class Study(Resolved):
    """A question with the grid of runs that answers it; its name is its file's stem.

    Args:
        workloads: each scale's, with their settings completed.
        first_seeds: those of a published set that is run again; None: as the rules say.
    """

    path: Path
    setting_notes: tuple[str, ...]
    claims: tuple[Claim, ...]
    scales: dict[str, Scale]
    workloads: dict[str, tuple[WorkloadSpec, ...]]
    first_seeds: FirstSeeds | None = None

    def at(self, scale: str) -> Study:
        """The study as it is run at a scale: by its tuning, and with its optimizers and claims on these."""
        own = self.scales[scale]
        kept = tuple(one for one in self.optimizers if own.optimizers is None or one.label in own.optimizers)
        labels = set(methods(kept, self.bases))
        return self.model_copy(
            update={
                "tuning": self.tuning.sized(own.tuning),
                "optimizers": kept,
                "bases": tuple(one for one in self.bases if any(one.is_of(method.label) for method in kept)),
                "claims": tuple(claim for claim in self.claims if claim.methods <= labels),
            }
        )

    def scale_deciding(self, claim: Claim, preferred: str) -> str:
        """A scale at which a claim is decided: the preferred one, else that of the paper, else the first."""
        deciding = [name for name in self.scales if claim in self.at(name).claims]
        return next((name for name in (preferred, "paper", *deciding) if name in deciding), preferred)

    @property
    def own_claims(self) -> tuple[Claim, ...]:
        """Its claims but for those of another study that it repeats."""
        return tuple(claim for claim in self.claims if not claim.repeats)

    @property
    def repeated(self) -> frozenset[str]:
        """The claims of another study that are repeated here."""
        return frozenset(claim.repeats for claim in self.claims if claim.repeats)

    @property
    def only_repeats(self) -> bool:
        """Whether it has claims, all of them repeated."""
        return bool(self.claims) and all(claim.repeats for claim in self.claims)


def running_on(backend: str, study: Resolved) -> tuple[OptimizerSpec, ...]:
    """The optimizers that run on a backend: those of other libraries run on one alone."""
    return tuple(one for one in study.optimizers if rule_of(one).backend in (None, backend))


def cost_of(study: Study) -> str:
    """What a study would cost, by scale, as far as its file says so."""
    return "; ".join(f"at scale {name} {own.cost}" for name, own in study.scales.items() if own.cost)
