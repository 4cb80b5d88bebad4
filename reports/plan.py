"""The plan of a report as it is read: located folders, and its settings in the words of pages."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from pydantic import ValidationError

from documents.claim import Condition
from documents.document import dotted
from documents.errors import InputError
from documents.plan import ReportPlan, StudyPlan
from reports.formatting import metric_name, plain

NEARLY_BEST = 0.995  # of a run's best value, at which it counts as converged (000 App. B, Fig. 16)
QUANTITIES = {
    "best_learning_rate": "learning rate of the best {}",
    "trend": "trend over learning rates of the {}",
    "rates_won": "learning rates won less lost by the {}",
    "log_linearity": "log-linearity down to {down_to} of the",
    "steps_to_stop": "steps until the run was stopped by the",
    "steps_to_target": "steps to the target of the {}",
    "seconds_to_nearly_best": f"seconds to {100 * NEARLY_BEST:g} % of the {{}}",
}
EQUAL = {"gradients": "at equal gradient evaluations, {}", "seconds": "at equal seconds, {}"}


def read_plan(path: Path, root: Path | None = None) -> ReportPlan:
    """Read a plan; relative folders count from the working directory, as Snakemake's do.

    Those of a published set count from its plan's folder, and lie in it.

    Args:
        root: another folder than the working directory, for the plan of another checkout.

    Raises:
        InputError: when the file is missing or damaged, or lacks a key.
    """
    try:
        plan = ReportPlan.model_validate_json(path.read_bytes()).model_copy(update={"path": path})
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); run snakemake, which writes it"
        ) from error
    except ValidationError as error:
        first = error.errors()[0]
        kind = "not JSON" if first["type"] == "json_invalid" else f"not a plan: {dotted(first['loc'])}"
        raise InputError(f"{path}: {kind} ({first['msg']}); delete it and run snakemake again") from error
    if plan.published:
        return plan.at(partial(_inside, path))
    return plan if root is None else plan.at(lambda place: root / place)


def _inside(path: Path, name: Path) -> Path:
    """The folder of a published set, beside its plan.

    Raises:
        InputError: for one that would lie elsewhere.
    """
    if name.is_absolute() or ".." in name.parts:
        raise InputError(f"{path}: the folder {name} does not lie in the set")
    return path.parent / name


def reading(condition: Condition) -> str:
    """What a condition reads, in the words before its metric: "final", "at equal seconds, final"."""
    if condition.quantity != "value":
        return QUANTITIES[condition.quantity].format(condition.which, down_to=plain(condition.down_to or 0))
    return (
        condition.which
        if condition.at_equal == "steps"
        else EQUAL[condition.at_equal].format(condition.which)
    )


def criterion(study: StudyPlan) -> str:
    """By what learning rates were chosen, as words."""
    chosen = study.tuning.choose
    words = f"{chosen.statistic} of the {chosen.which} {metric_name(chosen.metric)}"
    return f"{words} in the identity basis" if study.shares_rates else words
