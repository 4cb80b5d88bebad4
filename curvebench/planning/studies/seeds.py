"""The seeds that settings are tried on, and those that methods are judged on."""

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
from curvebench.spec.values import Given

BLOCKS = 1_000_000  # of final seeds


class FirstSeeds(NamedTuple):
    """The first seeds that settings are tried on, and that methods are judged on."""

    tuning: int
    final: int


def first_seeds(
    study: StudyPlan, of_backends: Mapping[str, FinalSeeds | None], published: FirstSeeds | None
) -> FirstSeeds:
    """The seeds from which settings are tried and methods are judged: tuning from 0, or just below the final.

    The latter where claims compare tuning runs, so that these too move when a rule or a setting does.

    Args:
        of_backends: the final seeds of each backend of the scale; None where they are the scale's.
        published: those of a published set that is run again; None: there is none.
    """
    count = study.seeds.tuning
    if published is not None:
        tuning, final = published
        return FirstSeeds(min(tuning, final - count), final)  # of more tuning seeds now, none is a final one
    final = _first_final_seed(study, of_backends)
    judging = any(claim.of_tuning for claim in study.claims)
    return FirstSeeds(final - count if judging else 0, final)


def _first_final_seed(study: StudyPlan, of_backends: Mapping[str, FinalSeeds | None]) -> int:
    """The first seed that methods are judged on; of a study with claims that of a block of its own.

    Which block follows from all that decides the claims (their rules, what they compare, where it is
    evaluated and on how many seeds), so that whatever is changed after runs are known is judged on seeds that
    nobody has seen. What is as it would be if nothing were said counts as not said, so that a new option
    moves no block.
    """
    claims, training = study.claims, study.training
    if not claims:
        return FIRST_FINAL_SEED
    compared = {Method.of(name).optimizer for claim in claims for name in claim.methods}
    met = {one.metric for claim in claims for one in claim.conditions if one.meets_targets}
    if study.tuning.tie_break is not None and study.tuning.tie_break.which == "steps_to_target":
        met.add(study.tuning.tie_break.metric)
    decisive = {
        "rules": [rule_hash(claim.written_rule, study.at_most_partly) for claim in claims],
        "seeds": study.seeds,
        "backends": {name: seeds for name, seeds in of_backends.items() if seeds},
        "workloads": [
            {**vars(one.spec), "settings": _said(one.settings, find_workload(one.locator).settings)}
            for one in study.workloads
        ],
        "bases": [
            {"label": one.label, "name": one.name, "options": _said(one.options, bases()[one.name].options)}
            for one in study.bases
        ],
        "optimizers": [
            {
                **vars(one),
                "options": _said(one.options, rule_of(one).options),
                "hyperparameters": _said(one.hyperparameters, rule_of(one).hyperparameters),
                "factors": {},  # without this key the seeds of every study would move
            }
            for one in study.optimizers
            if one.label in compared
        ],
        "tuning": study.tuning,
        # keys of the first published sets, which moved the seeds also where they were not given
        "schedule": {},
        "stop": {},
        "precision": None,
        **training.model_dump(exclude_defaults=True),
        "targets": {metric: training.targets.get(metric) for metric in sorted(met)},
    }
    plain = TypeAdapter(Any).dump_python(decisive, mode="json", exclude_defaults=True)
    digest = hashlib.sha256(json.dumps(under_first_names(plain), sort_keys=True).encode()).digest()
    return FIRST_FINAL_SEED * (1 + int.from_bytes(digest[:8]) % BLOCKS)


def _said(given: Mapping[str, Any], known: Mapping[str, Given]) -> dict[str, Any]:
    """What is not as it would be if nothing were given."""
    return {name: value for name, value in given.items() if name not in known or value != known[name].default}
