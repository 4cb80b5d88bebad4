"""The report plan: the studies of a report with all settings, and the folders of their tables and figures.

The file `plan.json` contains a `ReportPlan`. A report is the site that is rendered from the plan and from
tables. A study compares methods (optimizers in a basis, that is a change of coordinates) on workloads. A
published set is a folder with the results of a report, and never changes again. A submission is a study that
adds a method to a study of a published set.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, model_validator

from curvebench.spec.claim import Cause, Claim
from curvebench.spec.document import Direction, Document, Headline, Which, dotted
from curvebench.spec.errors import InputError, check_known
from curvebench.spec.method import BasisSpec, OptimizerSpec, WorkloadSpec, methods
from curvebench.spec.sets import PLAN
from curvebench.spec.sources import stand_ins
from curvebench.spec.study import FIRST_FINAL_SEED, Seeds, StudyQuestion, Sweep
from curvebench.spec.training import TrainingProtocol
from curvebench.spec.values import Precision


class MetricPlan(Document):
    """Meaning and unit of a metric, and the direction in which the metric improves: less or more."""

    description: str
    direction: Direction
    unit: str = ""


class WorkloadPlan(Document):
    """A workload of a study with its metrics and all of its settings.

    Args:
        name: label of the workload in tables.
        locator: text by which `curvebench.registry.find_workload` finds the workload; if it is empty, the
            name is used.
        metrics: a mapping from names to the metrics of the workload.
        settings: values of all settings; settings that the study leaves out have their defaults.
        dtype: precision of the runs if the study gives no precision.
        sweep: the sweep (workloads that differ in one setting) to which the workload belongs; None if the
            workload belongs to no sweep.
    """

    name: str
    locator: str = ""
    description: str
    metrics: dict[str, MetricPlan]
    source: str = ""
    settings: dict[str, Any] = Field(default={})
    dtype: Precision = "float32"
    sweep: Sweep | None = None

    @property
    def problem(self) -> str:
        """Name under which the workload counts in ranks and scores.

        All workloads of a sweep count as one problem, which has the name of the sweep. A workload without a
        sweep counts under its own name.
        """
        return self.sweep.name if self.sweep else self.name

    @property
    def spec(self) -> WorkloadSpec:
        """The workload in the form in which job specifications contain it."""
        return WorkloadSpec(self.name, self.settings, self.locator)


class BackendPlan(Document):
    """A backend, `jax` or `torch`, on which a study runs.

    Args:
        device: kind of device on which the runs are computed: `cpu` or `gpu`.
        tuned_on: name of the backend whose tuning runs chose the hyperparameters: this backend or another.
        final_seeds: number of seeds on which methods are judged.
    """

    device: str
    tuned_on: str
    final_seeds: int = Field(ge=1)


class StudyClaims(Document):
    """The claims of a study at a scale.

    Args:
        name: name of the study.
        claims: claims that the study decides.
        repeated: claims of other studies that this study tests once more under changed circumstances; the
            results are shown but do not decide these claims.
        rules: a mapping from the id of each claim in `claims` and `repeated` to the hash of its decision
            rule.
        at_most_partly: reason why no claim can be fully reproduced at this scale; empty if there is no such
            reason.
    """

    name: str
    claims: tuple[Claim, ...] = ()
    repeated: tuple[Claim, ...] = ()
    rules: dict[str, str] = Field(default={})
    at_most_partly: str = ""


class SkippedStudy(StudyClaims):
    """A study that a report leaves out, with the claims of the study.

    Args:
        reason: why the study is left out.
        cost: cost of the study in words; empty if the study file gives no cost.
    """

    reason: str
    cost: str = ""


class StudyPlan(StudyQuestion, StudyClaims):
    """A study at one scale with all settings, and the folders of its tables and figures.

    Args:
        tuning: the tuning protocol at the scale.
        compare: the metric of figures and leaderboard, and the floor, a value of the metric beyond which runs
            tie.
        notes: differences between the study and the experiment in the source.
        runs_on: a mapping from names to backends, in the order of the study file. The overview page shows the
            first backend first.
        first_tuning_seed: first seed of the runs that tune methods.
        first_final_seed: first seed of the final runs, in which methods are judged.
        tables: folder of the study's tables.
        figures: folder of the study's figures.
        joined: submissions to this study, by the name of the published set that contains them, or
            `curvebench.results.archive.LOCAL` for local runs.
        acts_as: for methods that are a known method on some workloads, the name of that method: by label of
            the method, then by workload. For example, Muon is `adamw` on a model without weight matrices.
        all_workloads: for a submission that ran only some workloads of the study that it joins, the number of
            all workloads of the joined study; otherwise None.
    """

    notes: tuple[str, ...] = ()
    workloads: Annotated[tuple[WorkloadPlan, ...], Field(min_length=1)]
    optimizers: tuple[OptimizerSpec, ...]
    bases: tuple[BasisSpec, ...]
    runs_on: dict[str, BackendPlan]
    seeds: Seeds
    first_tuning_seed: int = 0
    first_final_seed: int = FIRST_FINAL_SEED
    training: TrainingProtocol
    compare: Headline
    tables: Path
    figures: Path
    joined: dict[str, tuple[StudyPlan, ...]] = Field(default={})
    acts_as: dict[str, dict[str, str]] = Field(default={})
    all_workloads: int | None = None

    @model_validator(mode="after")
    def _compares_what_is_measured(self) -> StudyPlan:
        for workload in self.workloads:
            check_known(workload.name, "metric", [self.metric], workload.metrics, where="compare.metric: ")
        return self

    @property
    def methods(self) -> tuple[str, ...]:
        """Labels of all methods, basis by basis: "adam", "adam @ egop"."""
        return methods(self.optimizers, self.bases)

    @property
    def stand_in(self) -> bool:
        """Whether the problems of the study stand in for a larger problem of a source."""
        return bool(stand_ins() & {claim.id for claim in self.claims})

    @property
    def metric(self) -> str:
        """Name of the metric by which the figures and the leaderboard compare methods."""
        return self.compare.metric

    @property
    def which(self) -> Which:
        """Whether the final or the best value of the metric counts in figures and leaderboard."""
        return self.compare.which

    @property
    def backends(self) -> tuple[str, ...]:
        """Names of the backends, in the order of the study file."""
        return tuple(self.runs_on)

    @property
    def unable(self) -> dict[str, str]:
        """Mapping from labels of optimizers that run on no backend of the plan to the reasons."""
        backends = ", ".join(self.backends)
        return {
            spec.label: f"it runs on {spec.only_backend} only; the backends of this run: {backends}"
            for spec in self.optimizers
            if not any(map(spec.runs_on, self.backends))
        }

    @property
    def tuned_on(self) -> dict[str, str]:
        """Name of the backend whose tuning runs chose the hyperparameters, for each backend of the plan."""
        return {name: used.tuned_on for name, used in self.runs_on.items()}

    @property
    def only_repeats(self) -> bool:
        """Whether the study has claims and all of them repeat claims of other studies."""
        return bool(self.repeated) and not self.claims

    @property
    def direction(self) -> Direction:
        """Whether less or more of the metric of figures and leaderboard is better."""
        return self.direction_of(self.metric)

    @property
    def re_estimates_bases(self) -> bool:
        """Whether a basis is estimated again during each run, from gradients of that run."""
        return any(basis.options.get("every") is not None for basis in self.bases)

    @property
    def shares_rates(self) -> bool:
        """Whether an optimizer runs in all bases with the setting that was chosen in the identity basis."""
        return self.tuning.shared_across == "bases"

    def tuned_names(self, optimizer: str) -> tuple[str, ...]:
        """Return the tuned hyperparameters of an optimizer, the learning rate first."""
        return self.tuning.for_optimizer(self.optimizer(optimizer)).names

    @property
    def joining(self) -> tuple[StudyPlan, ...]:
        """Plans of all submissions to this study, which are studies that add a method to this study."""
        return tuple(study for submissions in self.joined.values() for study in submissions)

    def targets_on(self, workload: WorkloadPlan) -> dict[str, float]:
        """Return the targets for the metrics of a workload, by metric; metrics without a target are left out.

        A target is a threshold. Runs record the first step at which the metric meets the threshold.
        """
        targets = self.training.targets_on(workload.name)
        return {name: at for name, at in targets.items() if name in workload.metrics}

    def optimizer(self, label: str) -> OptimizerSpec:
        """Return the optimizer of the study that has the given label."""
        return next(spec for spec in self.optimizers if spec.label == label)

    def direction_of(self, metric: str) -> Direction:
        """Return whether less or more of a metric is better. All workloads of a study agree on the answer."""
        metrics = [workload.metrics[metric] for workload in self.workloads if metric in workload.metrics]
        return metrics[0].direction if metrics else "minimize"


class ProblemPlan(Document):
    """A small problem on which backends are compared (`curvebench.planning.parity_problems.ParityProblem`).

    Args:
        label: name of the problem in tables.
        full_rank: whether GGᵀ and GᵀG have full rank and distinct eigenvalues for each gradient matrix G.
        free_of_noise: whether no coordinate of a gradient consists of rounding errors.
        reason: why `full_rank` or `free_of_noise` is false; empty if both are true.
    """

    label: str
    description: str
    full_rank: bool
    free_of_noise: bool
    reason: str


class ParityPlan(Document):
    """The parity jobs of a report, which check that all backends make equal steps.

    Args:
        steps: number of steps that are compared between backends.
        tolerance: largest relative difference between backends at which their steps count as equal.
        problems: problems on which backends are compared.
        tables: folders of the tables of the parity jobs.
    """

    steps: int = Field(ge=1)
    tolerance: float = Field(gt=0)
    problems: tuple[ProblemPlan, ...]
    tables: tuple[Path, ...]


class PartPlan(Document):
    """A subclaim: one sentence of a claim on properties of optimizers, with a verdict of its own.

    Args:
        part: name of the subclaim.
        variant: for a source with a misprint, `as printed` or `as corrected`; otherwise empty.
        instances: number of random instances on which the subclaim is checked. For a bound, a search for the
            worst case adds further instances: at least one, and at most one for each checked quantity.
        sampled: whether the checked quantities are estimates from samples, with a confidence interval.
        bound: whether the subclaim is a bound, for which the worst case is searched.
        where: domain to which the subclaim belongs, in words; empty if it belongs to every domain.
    """

    part: str
    variant: str
    instances: int = Field(ge=1)
    sampled: bool = False
    bound: bool = False
    where: str = ""


class ClaimPlan(Document):
    """A claim that property checks decide.

    Args:
        id: name of the claim.
        sentence: the claim in words.
        source: number of the source, and place of the claim in the source, such as `002 eq. 22`.
        setting: conditions under which the claim is checked, in words.
        file: the file with the claim's checks.
        rule: hash of the source code of the checks (curvebench.property_checks.check_rules); empty if the
            hash is unknown.
        parts: the subclaims of the claim.
        at_most_partly: reason why the claim cannot be fully reproduced; empty if there is no such reason.
        missing: text that says which data is missing, so that the claim is not checked; empty if all data is
            available.
        cause: cause of a verdict other than reproduced, where it is a matter of judgment; None if the cause
            follows from the measures.
    """

    id: str
    sentence: str
    source: str
    setting: str
    file: str
    rule: str = ""
    parts: tuple[PartPlan, ...] = ()
    at_most_partly: str = ""
    missing: str = ""
    cause: Cause | None = None


class ChecksPlan(Document):
    """The property checks of a report: their claims, the folders of their tables, and a folder of figures.

    Args:
        claims: claims that the property checks decide.
        tables: folders of the tables of the checks jobs.
        figures: folder of the figures of the claims.
    """

    claims: tuple[ClaimPlan, ...]
    tables: tuple[Path, ...]
    figures: Path


class UnrunClaim(Document):
    """A claim that no study of the report and no published set decides.

    Args:
        reason: why nothing decides the claim.
        study: the study or the module of property checks that would decide the claim.
        scale: the scale at which the study decides the claim; empty for the scale of the report.
        cost: cost of the study at `scale`, in words; empty if the study file gives no cost.
    """

    id: str
    sentence: str
    source: str
    reason: str
    study: str
    scale: str = ""
    cost: str = ""


class Publication(Document):
    """Origin of a published set.

    Args:
        published: date of publication, such as `2026-11-22T09:44:11+00:00`.
        machines: processors on which the runs of the set were computed.
    """

    published: str
    machines: tuple[str, ...]


class Objection(Document):
    """A reason against publishing a set. The plan of a set contains the objections that were waived.

    Args:
        kind: a key of `curvebench.spec.sets.WAIVERS`.
        where: name of the study. For the kind `rules`, it is the id of the claim. For the kind `dirty`, it is
            empty if the uncommitted code is the code that computes verdicts.
        backend: for the kinds `hardware` and `rules`, the backend; otherwise empty.
        names: details, which depend on the kind of the objection.

            - `dirty`: the commits of the code; empty if the commits are unknown.
            - `failures`: the first failed item and the outcome of that item.
            - `hardware`: the machines.
            - `tuning`: the workload, the method with the fewest runs, and the method with the most runs.
            - `rules`: the hash of the claim's decision rule. It is followed by the hash of the rule at the
              time of planning if that hash is known.
        count, of: number of affected jobs, and number of all jobs of the study. For the kind `tuning`, the
            fewest runs of a method, and the most runs of a method. None for kinds without such numbers.
    """

    kind: str
    where: str = ""
    backend: str = ""
    names: tuple[str, ...] = ()
    count: int | None = None
    of: int | None = None


class ReportPlan(Document):
    """All studies of a report at one scale, and the studies that are left out.

    Args:
        scale: name of the scale.
        studies: studies that are run.
        skipped: studies that are left out.
        parity: the parity jobs, which compare backends; None if all runs are on one backend.
        checks: the property checks; None if the report has none.
        kernels: folder in which asv stores the speed of kernels; None if asv has stored nothing.
        code: hash of the code that renders the report. The report is rendered again when the hash changes.
        jobs: number of jobs; 0 if the number is unknown.
        folders: a mapping from keys of the configuration to folders that differ from their defaults. If the
            user gives a folder of data, this folder is included.
        published: name of the published set that the plan belongs to; empty for local runs.
        waived: objections that were waived when the set was published.
        verdicts: folder with the tables `claims` and `findings` of a published set; None for local runs.
        origin: date of publication and machines; None unless the plan is in the `archive` of another plan.
        archive: plans of published sets that the report shows in addition (`curvebench.results.archive`).
        census: claims that no study and no published set decides; empty if the report is about selected
            studies.
        path: the file from which the plan was read. The path itself is not written to the file.
    """

    scale: str
    studies: tuple[StudyPlan, ...]
    skipped: tuple[SkippedStudy, ...] = ()
    parity: ParityPlan | None = None
    checks: ChecksPlan | None = None
    kernels: Path | None = None
    code: str = ""
    jobs: int = 0
    folders: dict[str, str] = Field(default={})
    published: str = ""
    waived: tuple[Objection, ...] = ()
    verdicts: Path | None = None
    origin: Publication | None = None
    archive: tuple[ReportPlan, ...] = ()
    census: tuple[UnrunClaim, ...] = ()
    path: Annotated[Path, Field(exclude=True)] = Path()

    def study(self, name: str) -> StudyPlan:
        """Return the study that has the given name.

        Raises:
            InputError: when there is no such study; the message lists the studies.
        """
        for study in self.studies:
            if study.name == name:
                return study
        names = ", ".join(study.name for study in self.studies) or "none"
        raise InputError(f"the plan has no study {name!r} (it has: {names})")

    def at(self, move: Callable[[Path], Path]) -> ReportPlan:
        """Return the plan with each path replaced by `move(path)`, except its attribute `path`."""
        moved = {name: _moved(value, move) for name, value in self if name != "path"}
        return self.model_copy(update=moved)


def _moved(value: Any, move: Callable[[Path], Path]) -> Any:
    """Return a value of a document in which each path, at any depth, is replaced by `move(path)`."""
    if isinstance(value, Path):
        return move(value)
    if isinstance(value, tuple):
        return tuple(_moved(item, move) for item in value)
    if isinstance(value, dict):
        return {name: _moved(item, move) for name, item in value.items()}
    if isinstance(value, Document):
        return value.model_copy(update={name: _moved(item, move) for name, item in value})
    return value


def read_plan(path: Path, root: Path | None = None) -> ReportPlan:
    """Read a plan.

    Paths in the plan of local runs are relative to the working directory, as in Snakemake. Paths in the plan
    of a published set are relative to the folder of the set.

    Args:
        path: the plan's file, or the folder of a published set or of a site, which contains the file.
        root: folder to which paths in the plan of local runs are relative; None for the working directory.

    Raises:
        InputError: when the file is missing or damaged, or lacks a key.
    """
    path = path / PLAN if path.is_dir() else path
    try:
        plan = ReportPlan.model_validate_json(path.read_bytes()).model_copy(update={"path": path})
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); run snakemake, which writes it, or "
            "name the plan of a published set, results/published/NAME/plan.json"
        ) from error
    except ValidationError as error:
        first, *_ = error.errors()
        kind = "not JSON" if first["type"] == "json_invalid" else f"not a plan: {dotted(first['loc'])}"
        raise InputError(f"{path}: {kind} ({first['msg']}); delete it and run snakemake again") from error
    if plan.published:
        return plan.at(partial(_inside, path))
    return plan if root is None else plan.at(lambda folder: root / folder)


def _inside(path: Path, name: Path) -> Path:
    """Return the path of a folder of a published set.

    Args:
        path: file of the set's plan.
        name: path of the folder relative to the folder of the plan.

    Raises:
        InputError: when the folder would be outside of the set.
    """
    if name.is_absolute() or ".." in name.parts:
        raise InputError(f"{path}: the folder {name} does not lie in the set")
    return path.parent / name
