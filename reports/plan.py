"""The plan of a report: which studies there are, what they ask and where their tables lie."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, get_args

from reports.formatting import metric_name, plain
from reports.statistics.decisions import ClaimRelation
from reports.statistics.paired import Direction, Effect
from results.publishing import in_short
from results.verdicts import COSTS, OF_TUNING


class ReportError(ValueError):
    """Something a report needs is missing or wrong: the message names the file and the remedy."""


@dataclass(frozen=True)
class MetricPlan:
    """What a metric means and whether less is better."""

    direction: Direction
    description: str
    unit: str


@dataclass(frozen=True)
class WorkloadPlan:
    """A workload of a study, its metrics by name and its settings in full."""

    name: str
    description: str
    metrics: Mapping[str, MetricPlan]
    settings: Mapping[str, Any] = field(default_factory=dict)


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


@dataclass(frozen=True)
class ConditionPlan:
    """A relation between methods that a claim asserts, as the study file has it.

    Args:
        metric, which: what is compared: the `final` or the `best` value of a metric.
        relation: how `methods` stand to `than`, or to the number `than_value`.
        than_on: the workload whose runs of `than` are compared; None for the same one.
        down_to: the value of the metric down to which `log_linearity` is of its curve.
        pairs: "matched" (first with first) or "all" (each with each).
        workload: the only one it is about; None for all that have the metric.
        smallest_effect: the smallest share that matters; None where it is not given.
        effect: how a pair is compared; None to follow the metric's direction.
        test: "wilcoxon" or "sign".
        family: comparisons that share Holm's correction; the claim's id where none is given.
        quantity: of final runs "value", "log_linearity" or one of `COSTS`; of tuning runs one of `OF_TUNING`.
        at_equal: at what equal cost values are read: "steps", "gradients" or "seconds".
    """

    metric: str
    which: str
    relation: ClaimRelation
    methods: tuple[str, ...]
    than: tuple[str, ...]
    pairs: str
    workload: str | None
    smallest_effect: float | None
    effect: Effect | None
    test: str
    family: str
    quantity: str = "value"
    at_equal: str = "steps"
    than_value: float | None = None
    than_on: str | None = None
    down_to: float | None = None

    @property
    def read(self) -> str:
        """What is compared, in the words that stand before the metric: "final", "at equal seconds, final"."""
        if self.quantity != "value":
            return QUANTITIES[self.quantity].format(self.which, down_to=plain(self.down_to or 0))
        return self.which if self.at_equal == "steps" else EQUAL[self.at_equal].format(self.which)

    @property
    def of_tuning(self) -> bool:
        """Whether tuning runs are compared."""
        return self.quantity in OF_TUNING

    @property
    def of_curves(self) -> bool:
        """Whether more is read of final runs than what they are at their end, at their best or at targets."""
        return self.quantity in ("log_linearity", "seconds_to_nearly_best") or self.at_equal != "steps"

    @property
    def direction(self) -> Direction | None:
        """Whether less of the quantity is better; None where that is the metric's to say."""
        if self.quantity in ("value", *OF_TUNING):
            return None
        return "minimize" if self.quantity in COSTS else "maximize"

    def is_about(self, workload: WorkloadPlan) -> bool:
        """Whether methods are compared on a workload: it has the metric, and no other one is named."""
        return self.metric in workload.metrics and self.workload in (None, workload.name)

    def reads(self, workload: WorkloadPlan) -> bool:
        """Whether runs on a workload are compared: it is about the workload, or holds methods against it."""
        return self.is_about(workload) or self.than_on == workload.name

    @property
    def contests(self) -> tuple[tuple[str, str], ...]:
        """What is compared: each method, and the label of what it is held against."""
        if self.than_value is not None:
            return tuple((method, plain(self.than_value)) for method in self.methods)
        labels = tuple(map(self.label, self.than))
        if self.pairs == "all":
            return tuple((method, other) for method in self.methods for other in labels)
        return tuple(zip(self.methods, labels, strict=True))

    def label(self, method: str) -> str:
        """What a method of `than` is called in a comparison."""
        return f"{method} on {self.than_on}" if self.than_on else method


@dataclass(frozen=True)
class StudyClaim:
    """A sentence of a source, the conditions that decide it (all must hold), and the hash of that rule.

    Where it repeats another claim, `repeats` is that one's id, and `changed` says how its runs differ, such
    as "in float64"; its comparisons are that one's, one by one.
    """

    id: str
    sentence: str
    source: str
    conditions: tuple[ConditionPlan, ...]
    rule: str
    repeats: str = ""
    changed: str = ""


@dataclass(frozen=True)
class SkippedStudy:
    """A study that is left out of a report, why, and the claims that it would decide."""

    name: str
    reason: str
    claims: tuple[StudyClaim, ...] = ()


@dataclass(frozen=True)
class StudyPlan:
    """A study as the report shows it.

    Args:
        methods: labels in the study's order ("adam", "adam @ egop").
        backends: names in the study's order; the first one leads the overview.
        tuned_on: the backend whose runs chose the learning rates, by backend.
        compare: the headline metric, and whether its `final` or `best` value counts.
        targets, stop: threshold by metric; a run goes on past a target and stops at a stop.
        tuning: the protocol, among others `metric`, `which`, `statistic`, `direction`, `shared_across`.
        claims: what it decides.
        repeated: claims of other studies, repeated; they decide nothing.
        at_most_partly: why no claim can be fully reproduced at this scale; empty where one can.
        settings: everything else the page prints as it is: bases, seeds, tuning, schedule, ...
        tables, figures: folders.
        source_figures: which figure shows what one of the source does, by that one's name: a figure's name
            without its backend, such as `digits_mlp.train_loss.epochs`, or without its workload as well.
    """

    name: str
    question: str
    source: str
    notes: tuple[str, ...]
    workloads: tuple[WorkloadPlan, ...]
    methods: tuple[str, ...]
    backends: tuple[str, ...]
    tuned_on: Mapping[str, str]
    metric: str
    which: str
    targets: Mapping[str, float]
    stop: Mapping[str, float]
    tuning: Mapping[str, Any]
    claims: tuple[StudyClaim, ...]
    at_most_partly: str
    settings: Mapping[str, Any]
    tables: Path
    figures: Path
    source_figures: Mapping[str, str] = field(default_factory=dict)
    repeated: tuple[StudyClaim, ...] = ()

    @property
    def only_repeats(self) -> bool:
        """Whether all that it is for is to repeat claims of other studies."""
        return bool(self.repeated) and not self.claims

    @property
    def direction(self) -> Direction:
        """Whether less of the headline metric is better."""
        return self.workloads[0].metrics[self.metric].direction

    @property
    def estimates_anew(self) -> bool:
        """Whether a run estimates a basis anew, by gradients that are its own."""
        chosen = self.settings.get("bases", {}).values()
        return any((options or {}).get("every") is not None for options in chosen)

    @property
    def shares_rates(self) -> bool:
        """Whether the learning rate that was chosen in the identity basis serves all bases."""
        return self.tuning.get("shared_across") == "bases"

    @property
    def criterion(self) -> str:
        """By what learning rates were chosen, as words; empty where the plan does not say."""
        if not {"statistic", "which", "metric"} <= set(self.tuning):
            return ""
        words = (
            f"{self.tuning['statistic']} of the {self.tuning['which']} {metric_name(self.tuning['metric'])}"
        )
        return f"{words} in the identity basis" if self.shares_rates else words

    def direction_of(self, metric: str) -> Direction:
        """Whether less of a metric is better; workloads of one study agree on that."""
        found = [workload.metrics[metric] for workload in self.workloads if metric in workload.metrics]
        return found[0].direction if found else "minimize"


@dataclass(frozen=True)
class ProblemPlan:
    """A small problem on which backends are compared, and what is known of its gradients."""

    label: str
    description: str
    full_rank: bool
    free_of_noise: bool
    reason: str


@dataclass(frozen=True)
class ParityPlan:
    """The comparison of backends: how many steps, the tolerance, the problems, and folders of job tables."""

    steps: int
    tolerance: float
    problems: tuple[ProblemPlan, ...]
    tables: tuple[Path, ...]


@dataclass(frozen=True)
class ClaimPlan:
    """A claim that property checks decide, and the file that does it; `id` is its name.

    `at_most_partly` says why it cannot be fully reproduced, `missing` what data it lacks, so that it is not
    run; both are empty where nothing is to be said.
    """

    id: str
    sentence: str
    source: str
    setting: str
    file: str
    at_most_partly: str = ""
    missing: str = ""


@dataclass(frozen=True)
class ChecksPlan:
    """The checks of claims: folders of job tables, and the folder of their figures."""

    claims: tuple[ClaimPlan, ...]
    tables: tuple[Path, ...]
    figures: Path


@dataclass(frozen=True)
class ReportPlan:
    """All studies of a report at one scale, and those left out; `path` is its file.

    `kernels` is the folder of what is shown of kernel speed; None where nothing is stored. `parity` is None
    where what is shown ran on one backend, `checks` where no property of a claim is checked. `published` is
    the name of the published set that it shows, else empty; `waived` says what was waived for it, in short.
    `folders` are those of the configuration that are not where they are by default, by their key.
    """

    path: Path
    scale: str
    studies: tuple[StudyPlan, ...]
    skipped: tuple[SkippedStudy, ...]
    kernels: Path | None = None
    parity: ParityPlan | None = None
    checks: ChecksPlan | None = None
    published: str = ""
    waived: tuple[str, ...] = ()
    folders: Mapping[str, str] = field(default_factory=dict)

    def study(self, name: str) -> StudyPlan:
        """The study of that name.

        Raises:
            ReportError: when there is none; lists those there are.
        """
        for study in self.studies:
            if study.name == name:
                return study
        names = ", ".join(study.name for study in self.studies) or "none"
        raise ReportError(f"the plan has no study {name!r} (it has: {names})")


PRINTED = (
    "optimizers",
    "budget",
    "seeds",
    "tuning",
    "schedule",
    "stop",
    "targets",
    "bases",
    "precision",
    "backends",
)


def read_plan(path: Path, root: Path | None = None) -> ReportPlan:
    """Read a plan; relative folders count from the working directory, as Snakemake's do.

    Those of a published set count from its plan's folder, and lie in it.

    Args:
        root: another folder than the working directory, for the plan of another checkout.

    Raises:
        ReportError: when the file is missing or damaged, or lacks a key.
    """
    try:
        raw = json.loads(path.read_text())
    except OSError as error:
        raise ReportError(
            f"{path}: cannot be read ({error.strerror}); run snakemake, which writes it"
        ) from error
    except ValueError as error:
        raise ReportError(f"{path}: not JSON ({error}); delete it and run snakemake again") from error
    try:
        if raw.get("published"):
            raw = _located(raw, partial(_inside, path=path))
        elif root is not None:
            raw = _located(raw, lambda name: str(root / name))
        return ReportPlan(
            path=path,
            scale=raw["scale"],
            studies=tuple(_study(item) for item in raw["studies"]),
            skipped=tuple(
                SkippedStudy(item["name"], item["reason"], _claims(item, repeated=False))
                for item in raw.get("skipped", [])
            ),
            kernels=Path(raw["kernels"]) if raw.get("kernels") else None,
            parity=_parity(raw["parity"]) if raw.get("parity") else None,
            checks=_checks(raw["checks"]) if raw.get("checks") else None,
            published=raw.get("published", ""),
            waived=tuple(in_short(raw.get("waived", []))),
            folders={} if raw.get("published") else raw.get("folders", {}),
        )
    except KeyError as error:
        raise ReportError(f"{path}: lacks the key {error}; delete it and run snakemake again") from error
    except (TypeError, AttributeError, ValueError) as error:
        raise ReportError(
            f"{path}: not a report plan ({error}); delete it and run snakemake again"
        ) from error


def _located(raw: Mapping[str, Any], place: Callable[[str], str]) -> dict[str, Any]:
    """The plan with another place for each of its folders."""

    def moved(part: Mapping[str, Any]) -> dict[str, Any]:
        tables = part["tables"]
        placed = [place(each) for each in tables] if isinstance(tables, list) else place(tables)
        return {
            **part,
            "tables": placed,
            **({"figures": place(part["figures"])} if "figures" in part else {}),
        }

    return {
        **raw,
        "studies": [moved(study) for study in raw["studies"]],
        **{key: moved(raw[key]) for key in ("parity", "checks") if raw.get(key)},
        "kernels": place(raw["kernels"]) if raw.get("kernels") else None,
    }


def _inside(name: str, path: Path) -> str:
    """The folder of a published set, beside its plan.

    Raises:
        ReportError: for one that would lie elsewhere.
    """
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise ReportError(f"{path}: the folder {name} does not lie in the set")
    return str(path.parent / name)


def _parity(raw: Mapping[str, Any]) -> ParityPlan:
    return ParityPlan(
        steps=raw["steps"],
        tolerance=raw["tolerance"],
        problems=tuple(ProblemPlan(**item) for item in raw["problems"]),
        tables=tuple(Path(folder) for folder in raw["tables"]),
    )


def _checks(raw: Mapping[str, Any]) -> ChecksPlan:
    return ChecksPlan(
        claims=tuple(
            # their parts are for whoever checks a set
            ClaimPlan(**{key: value for key, value in item.items() if key != "parts"})
            for item in raw["claims"]
        ),
        tables=tuple(Path(folder) for folder in raw["tables"]),
        figures=Path(raw["figures"]),
    )


def _study(raw: Mapping[str, Any]) -> StudyPlan:
    workloads = tuple(
        WorkloadPlan(
            name=item["name"],
            description=item.get("description", ""),
            metrics={
                name: MetricPlan(metric["direction"], metric.get("description", ""), metric.get("unit", ""))
                for name, metric in item["metrics"].items()
            },
            settings=item.get("settings", {}),
        )
        for item in raw["workloads"]
    )
    metric = raw["compare"]["metric"]
    for workload in workloads:
        if metric not in workload.metrics:
            raise ReportError(
                f"study {raw['name']}: compare.metric {metric!r} is no metric of {workload.name} "
                f"(valid: {', '.join(workload.metrics)})"
            )
    if raw["compare"]["which"] not in ("final", "best"):
        raise ReportError(f"study {raw['name']}: compare.which must be final or best")
    return StudyPlan(
        name=raw["name"],
        question=raw["question"],
        source=raw.get("source", ""),
        notes=tuple(raw.get("setting_notes", [])),
        workloads=workloads,
        methods=tuple(raw["methods"]),
        backends=tuple(raw["backends"]),
        tuned_on={name: options.get("tuned_on", name) for name, options in raw["backends"].items()},
        metric=metric,
        which=raw["compare"]["which"],
        targets=raw.get("targets") or {},
        stop=raw.get("stop") or {},
        tuning=raw.get("tuning") or {},
        claims=_claims(raw, repeated=False),
        repeated=_claims(raw, repeated=True),
        at_most_partly=raw.get("at_most_partly", ""),
        settings={key: raw[key] for key in PRINTED if raw.get(key)},
        tables=Path(raw["tables"]),
        figures=Path(raw["figures"]),
        source_figures=raw.get("source_figures") or {},
    )


def _claims(study: Mapping[str, Any], repeated: bool) -> tuple[StudyClaim, ...]:
    """The claims that a study decides, or those of others that it repeats."""
    claims = map(_claim, study.get("claims") or [])
    return tuple(claim for claim in claims if bool(claim.repeats) == repeated)


def _claim(raw: Mapping[str, Any]) -> StudyClaim:
    return StudyClaim(
        id=raw["id"],
        sentence=raw["sentence"],
        source=raw["source"],
        conditions=tuple(_condition(item, raw["id"]) for item in raw["holds_if"]),
        rule=raw["rule"],
        repeats=raw.get("repeats", ""),
        changed=raw.get("changed", ""),
    )


def _condition(raw: Mapping[str, Any], claim: str) -> ConditionPlan:
    (relation,) = (name for name in get_args(ClaimRelation) if raw.get(name))
    return ConditionPlan(
        metric=raw["metric"]["metric"],
        which=raw["metric"]["which"],
        relation=relation,
        methods=tuple(raw[relation]),
        than=tuple(raw["than"]) if isinstance(raw["than"], list) else (),
        than_value=None if isinstance(raw["than"], list) else float(raw["than"]),
        than_on=raw.get("than_on"),
        down_to=raw.get("down_to"),
        pairs=raw["pairs"],
        workload=raw.get("workload"),
        smallest_effect=raw.get("smallest_effect"),
        effect=raw.get("effect"),
        test=raw["test"],
        family=raw.get("family") or claim,
        quantity=raw.get("quantity") or "value",
        at_equal=raw.get("at_equal") or "steps",
    )
