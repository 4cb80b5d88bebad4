"""The first tuning seed and the first final seed of a study.

Runs with tuning seeds choose the hyperparameters of a method. Runs with final seeds judge the method. A study
with claims gets final seeds from a hash of everything that decides the claims.
"""

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

# The first final seed of a study with claims is a multiple of FIRST_FINAL_SEED.
# The hash of the study chooses one of BLOCKS multiples.
BLOCKS = 1_000_000


class FirstSeeds(NamedTuple):
    """The first of the consecutive tuning seeds, and the first of the consecutive final seeds."""

    tuning: int
    final: int


def first_seeds(
    study: StudyPlan, of_backends: Mapping[str, FinalSeeds | None], published_seeds: FirstSeeds | None
) -> FirstSeeds:
    """Return the first tuning seed and the first final seed of a study.

    Tuning seeds start at 0, except if a claim of the study compares tuning runs. In that case the tuning
    seeds are the numbers directly before the first final seed. Then tuning runs also get new seeds when a
    decision rule or a workload's setting changes.

    Args:
        study: plan of the study at a scale.
        of_backends: number of final seeds by backend; None for a backend that uses the number of the scale.
        published_seeds: first seeds of the study in the published set that is reproduced; None if no set is
            reproduced.
    """
    count = study.seeds.tuning
    if published_seeds is not None:
        tuning, final = published_seeds
        # There may be more tuning seeds now than when the set was published.
        # The tuning seeds then start earlier if they would otherwise reach the final seeds.
        return FirstSeeds(min(tuning, final - count), final)
    final = _first_final_seed(study, of_backends)
    compares_tuning = any(claim.of_tuning for claim in study.claims)
    return FirstSeeds(final - count if compares_tuning else 0, final)


def _first_final_seed(study: StudyPlan, of_backends: Mapping[str, FinalSeeds | None]) -> int:
    """Return the first final seed: a constant, or for a study with claims a number computed from a hash.

    The hash is computed from everything that decides the claims: their decision rules, the compared methods,
    the workloads and the number of seeds. If one of these is changed after results were seen, the claims are
    judged on seeds whose results nobody has seen. Values that equal their defaults are left out of the hash,
    so that adding an option to an optimizer changes no seeds.

    Args:
        study: plan of the study at a scale.
        of_backends: number of final seeds by backend; None for a backend that uses the number of the scale.
    """
    claims, training, kinds = study.claims, study.training, bases()
    if not claims:
        return FIRST_FINAL_SEED
    compared = {Method.of(name).optimizer for claim in claims for name in claim.methods}
    conditions = (condition for claim in claims for condition in claim.conditions)
    timed = {condition.metric for condition in conditions if condition.meets_targets}
    criteria = filter(None, (study.tuning.choose, study.tuning.tie_break))
    timed |= {criterion.metric for criterion in criteria if criterion.which == "steps_to_target"}
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
                **{key: value for key, value in vars(spec).items() if value or key != "also_try"},
                "options": _set(spec.options, rule_of(spec).options),
                "hyperparameters": _set(spec.hyperparameters, rule_of(spec).hyperparameters),
                # The key `factors` has no meaning any more, but without it all studies would get other seeds.
                "factors": {},
            }
            for spec in study.optimizers
            if spec.label in compared
        ],
        "tuning": study.tuning,
        # The next three keys are in the hash even if a study does not give them.
        # These keys were in the hash when the first sets were published.
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
    """Return the values that differ from their defaults, or that have no default.

    Args:
        values: a mapping from names of options or hyperparameters to values.
        keys: a mapping from the names of all options or hyperparameters to their definitions.
    """
    return {name: value for name, value in values.items() if name not in keys or value != keys[name].default}
