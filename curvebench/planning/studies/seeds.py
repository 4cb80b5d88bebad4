"""The first tuning seed and the first final seed of a study."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from curvebench.optimizers.bases import bases
from curvebench.registry import find_workload, rule_of
from curvebench.results.verdicts import rule_hash
from curvebench.spec.document import under_first_names
from curvebench.spec.method import Method
from curvebench.spec.plan import StudyPlan
from curvebench.spec.study import FIRST_FINAL_SEED, FinalSeeds
from curvebench.spec.values import Readable

# Number of different first final seeds that a study with claims can get. Consecutive ones are
# FIRST_FINAL_SEED apart.
BLOCKS = 1_000_000


class FirstSeeds(NamedTuple):
    """The first of the consecutive tuning seeds, and the first of the consecutive final seeds."""

    tuning: int
    final: int


def first_seeds(
    study: StudyPlan, of_backends: Mapping[str, FinalSeeds | None], published_seeds: FirstSeeds | None
) -> FirstSeeds:
    """Return the first tuning seed and the first final seed of a study.

    Tuning seeds start at 0. If a claim compares tuning runs, they end just below the first final seed
    instead: then these runs, too, get new seeds when a decision rule or a setting changes.

    Args:
        of_backends: final seeds of each backend of the scale; None for a backend that uses the seeds of
            the scale.
        published_seeds: first seeds of the published set that is reproduced, or None.
    """
    count = study.seeds.tuning
    if published_seeds is not None:
        tuning, final = published_seeds
        # If there are more tuning seeds now than when the set was published, none of them may be a final
        # seed.
        return FirstSeeds(min(tuning, final - count), final)
    final = _first_final_seed(study, of_backends)
    compares_tuning = any(claim.of_tuning for claim in study.claims)
    return FirstSeeds(final - count if compares_tuning else 0, final)


def _first_final_seed(study: StudyPlan, of_backends: Mapping[str, FinalSeeds | None]) -> int:
    """Return the first final seed: a constant, or a hash for a study with claims.

    The hash is over everything that decides the claims: their decision rules, the methods compared, the
    problems and the number of seeds. Whoever changes one of these after having seen results is judged on
    seeds that nobody has seen. Values that equal their defaults are left out of the hash, so that a new
    option of an optimizer changes no seeds.
    """
    claims, training, kinds = study.claims, study.training, bases()
    if not claims:
        return FIRST_FINAL_SEED
    compared = {Method.of(name).optimizer for claim in claims for name in claim.methods}
    conditions = (condition for claim in claims for condition in claim.conditions)
    timed = {condition.metric for condition in conditions if condition.meets_targets}
    if study.tuning.tie_break is not None and study.tuning.tie_break.which == "steps_to_target":
        timed.add(study.tuning.tie_break.metric)
    decisive = {
        "rules": [rule_hash(claim.written_rule, study.at_most_partly) for claim in claims],
        "seeds": study.seeds,
        "backends": {name: seeds for name, seeds in of_backends.items() if seeds},
        "workloads": [
            {**vars(plan.spec), "settings": _set(plan.settings, find_workload(plan.locator).settings)}
            for plan in study.workloads
        ],
        "bases": [
            {"label": spec.label, "name": spec.name, "options": _set(spec.options, kinds[spec.name].options)}
            for spec in study.bases
        ],
        "optimizers": [
            {
                **vars(spec),
                "options": _set(spec.options, rule_of(spec).options),
                "hyperparameters": _set(spec.hyperparameters, rule_of(spec).hyperparameters),
                # Removing this key, which no longer means anything, would change the seeds of all studies.
                "factors": {},
            }
            for spec in study.optimizers
            if spec.label in compared
        ],
        "tuning": study.tuning,
        # The first published sets were made when these keys were hashed even where a study did not give them.
        "schedule": {},
        "stop": {},
        "precision": None,
        **training.model_dump(exclude_defaults=True),
        "targets": {metric: training.targets.get(metric) for metric in sorted(timed)},
    }
    plain = TypeAdapter(Any).dump_python(decisive, mode="json", exclude_defaults=True)
    digest = hashlib.sha256(json.dumps(under_first_names(plain), sort_keys=True).encode()).digest()
    return FIRST_FINAL_SEED * (1 + int.from_bytes(digest[:8]) % BLOCKS)


def _set(values: Mapping[str, Any], keys: Mapping[str, Readable]) -> dict[str, Any]:
    """Return the values that differ from their defaults, or that have no default."""
    return {name: value for name, value in values.items() if name not in keys or value != keys[name].default}
