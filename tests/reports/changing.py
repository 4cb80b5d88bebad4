"""Change documents of a plan, by the names of their properties and of nested documents' properties."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar, get_args

from pydantic import BaseModel

from curvebench.reports.claims.quantities import QUANTITIES
from curvebench.spec.conditions.condition import Condition
from curvebench.spec.method import BasisSpec, Method, OptimizerSpec
from curvebench.spec.plan import StudyPlan
from curvebench.spec.training import TrainingProtocol

Item = TypeVar("Item")


def replace(item: Item, **changes: Any) -> Item:
    """Return a document or a dataclass with some values replaced."""
    if not isinstance(item, BaseModel):
        return dataclasses.replace(item, **changes)  # type: ignore[type-var]
    if isinstance(item, StudyPlan):
        changes = _of_study(item, changes)
    if isinstance(item, Condition):
        return _of_condition(item, changes)  # type: ignore[return-value]
    return item.model_copy(update=changes)


def update(raw: dict[str, Any], **changes: Any) -> None:
    """Change a study of a plan in its JSON form; keys of the training protocol are changed in the
    protocol.
    """
    raw["training"] |= {key: changes.pop(key) for key in TrainingProtocol.model_fields if key in changes}
    raw.update(changes)


def _judged(item: StudyPlan | Condition, key: str, changes: dict[str, Any]) -> dict[str, Any]:
    if not changes.keys() & {"metric", "which"}:
        return changes
    which, metric = changes.pop("which", item.which), changes.pop("metric", item.metric)
    return {**changes, key: getattr(item, key).model_copy(update={"which": which, "metric": metric})}


def _of_study(study: StudyPlan, changes: dict[str, Any]) -> dict[str, Any]:
    changes = _judged(study, "compare", dict(changes))
    uses = dict(changes.pop("runs_on", study.runs_on))
    if "backends" in changes:
        uses = {name: uses[name] for name in changes.pop("backends")}
    for name, tuner in changes.pop("tuned_on", {}).items():
        uses[name] = uses[name].model_copy(update={"tuned_on": tuner})
    if "methods" in changes:
        methods = list(map(Method.of, changes.pop("methods")))
        changes["optimizers"] = tuple(map(OptimizerSpec, dict.fromkeys(one.optimizer for one in methods)))
        changes["bases"] = tuple(BasisSpec(one, one) for one in dict.fromkeys(one.basis for one in methods))
    keys = {key: changes.pop(key) for key in TrainingProtocol.model_fields if key in changes}
    if keys:
        changes["training"] = study.training.model_copy(update=keys)
    choice: dict[str, Any] = {key: changes.pop(key) for key in ("choose", "shared_across") if key in changes}
    if choice:
        changes["tuning"] = study.tuning.model_copy(update=choice)
    return {**changes, "runs_on": uses}


def _of_condition(condition: Condition, changes: dict[str, Any]) -> Condition:
    """Return a condition with some values replaced; its class follows from its quantity and cost."""
    changes = _judged(condition, "judged", dict(changes))
    if changes.keys() & {"relation", "methods"}:
        relation = changes.pop("relation", condition.relation)
        methods = changes.pop("methods", condition.methods)
        changes |= {"better": None, "no_worse": None, "same": None, relation: methods}
    values = dict(iter(condition)) | changes
    (kind,) = (
        one
        for one in QUANTITIES
        if all(values[tag] in get_args(one.model_fields[tag].annotation) for tag in ("quantity", "at_equal"))
    )
    return kind.model_construct(**values)
