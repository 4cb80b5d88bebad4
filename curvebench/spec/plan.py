"""The plan as resolved: which studies there are, what they ask, and where their tables lie.

`plan.json` is exactly the `model_dump_json` of a `ReportPlan`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, model_validator

from curvebench.spec.claim import Claim
from curvebench.spec.document import NEW_NAMES, RENAMED_KEY, Direction, Document, Headline, Which, dotted
from curvebench.spec.errors import InputError, unknown
from curvebench.spec.method import BasisSpec, OptimizerSpec, WorkloadSpec, methods
from curvebench.spec.sets import PLAN
from curvebench.spec.study import FIRST_FINAL_SEED, Seeds, StudyQuestion
from curvebench.spec.training import TrainingProtocol
from curvebench.spec.values import Precision


class MetricPlan(Document):
    """What a metric means and whether less is better."""

    description: str
    direction: Direction
    unit: str = ""


class WorkloadPlan(Document):
    """A workload of a study, its metrics by name and its settings in full.

    Args:
        name: what tables call it.
        locator: where it is found (curvebench.registry); its name where none is given.
        settings: its settings, completed.
        dtype: the precision of its runs where the study asks for none.
    """

    name: str
    locator: str = ""
    description: str
    metrics: dict[str, MetricPlan]
    source: str = ""
    settings: dict[str, Any] = Field(default={})
    dtype: Precision = "float32"

    @property
    def spec(self) -> WorkloadSpec:
        """The workload as jobs have it."""
        return WorkloadSpec(self.name, self.settings, self.locator)


class BackendPlan(Document):
    """A backend: the one whose runs chose its learning rates, and on how many seeds methods are judged."""

    device: str
    tuned_on: str
    final_seeds: int = Field(ge=1)


class StudyClaims(Document):
    """A study as far as claims are concerned.

    Args:
        claims: those that it decides.
        repeated: claims of other studies, repeated; they decide nothing.
        rules: the hash of the rule of each of them at the scale.
        at_most_partly: why no claim can be fully reproduced at this scale; empty where one can.
    """

    name: str
    claims: tuple[Claim, ...] = ()
    repeated: tuple[Claim, ...] = ()
    rules: dict[str, str] = Field(default={})
    at_most_partly: str = ""


class SkippedStudy(StudyClaims):
    """A study that is left out, why, what it would cost as far as its file says so, and its claims."""

    reason: str
    cost: str = ""


class StudyPlan(StudyQuestion, StudyClaims):
    """A study at one scale: its settings in full, and where its tables and figures lie.

    Args:
        tuning: the protocol at the scale.
        compare: the headline metric, with its floor.
        notes: where the setting departs from the source.
        runs_on: the backends in the study's order; the first one leads the overview.
        first_tuning_seed: of the seeds that settings are tried on.
        first_final_seed: of the seeds that methods are judged on.
        joined: the studies that join this one, by the set that they are of, or `LOCAL`.
        all_workloads: how many it has, where only those of a study that joins it are among `workloads`.
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
    all_workloads: int | None = None

    @model_validator(mode="after")
    def _compares_what_is_measured(self) -> StudyPlan:
        for workload in self.workloads:
            if self.metric not in workload.metrics:
                raise ValueError(
                    f"compare.metric: {unknown(workload.name, 'metric', self.metric, workload.metrics)}"
                )
        return self

    @property
    def methods(self) -> tuple[str, ...]:
        """The labels of all methods, basis by basis: "adam", "adam @ egop"."""
        return methods(self.optimizers, self.bases)

    @property
    def metric(self) -> str:
        """The headline metric."""
        return self.compare.metric

    @property
    def which(self) -> Which:
        """Whether its `final` or `best` value counts."""
        return self.compare.which

    @property
    def backends(self) -> tuple[str, ...]:
        """Names in the study's order."""
        return tuple(self.runs_on)

    @property
    def tuned_on(self) -> dict[str, str]:
        """The backend whose runs chose the learning rates, by backend."""
        return {name: used.tuned_on for name, used in self.runs_on.items()}

    @property
    def only_repeats(self) -> bool:
        """Whether all that it is for is to repeat claims of other studies."""
        return bool(self.repeated) and not self.claims

    @property
    def direction(self) -> Direction:
        """Whether less of the headline metric is better."""
        return self.direction_of(self.metric)

    @property
    def re_estimates_bases(self) -> bool:
        """Whether a run estimates a basis anew, by gradients that are its own."""
        return any(basis.options.get("every") is not None for basis in self.bases)

    @property
    def shares_rates(self) -> bool:
        """Whether the setting that was chosen in the identity basis serves all bases."""
        return self.tuning.shared_across == "bases"

    def tuned_names(self, optimizer: str) -> tuple[str, ...]:
        """The hyperparameters of an optimizer that were tuned, the learning rate first."""
        return self.tuning.for_optimizer(self.optimizer(optimizer)).names

    @property
    def joining(self) -> tuple[StudyPlan, ...]:
        """The studies that join this one."""
        return tuple(study for own in self.joined.values() for study in own)

    def targets_on(self, workload: WorkloadPlan) -> dict[str, float]:
        """Threshold by metric: the targets that runs on a workload have."""
        targets = self.training.targets_on(workload.name)
        return {name: at for name, at in targets.items() if name in workload.metrics}

    def optimizer(self, label: str) -> OptimizerSpec:
        """The contestant of a label."""
        return next(one for one in self.optimizers if one.label == label)

    def direction_of(self, metric: str) -> Direction:
        """Whether less of a metric is better; workloads of one study agree on that."""
        found = [workload.metrics[metric] for workload in self.workloads if metric in workload.metrics]
        return found[0].direction if found else "minimize"


class ProblemPlan(Document):
    """A small problem on which backends are compared, and what is known of its gradients."""

    label: str
    description: str
    full_rank: bool
    free_of_noise: bool
    reason: str


class ParityPlan(Document):
    """The comparison of backends: how many steps, the tolerance, the problems, and folders of job tables."""

    steps: int = Field(ge=1)
    tolerance: float = Field(gt=0)
    problems: tuple[ProblemPlan, ...]
    tables: tuple[Path, ...]


class PartPlan(Document):
    """A part of a claim, how many instances are drawn of it, and whether its measures are estimates.

    Of a bound there are instances more, which searches found: at least one, and at most one a quantity.
    """

    part: str
    variant: str
    instances: int = Field(ge=1)
    sampled: bool = False
    bound: bool = False


class ClaimPlan(Document):
    """A claim that property checks decide, and the file that does it; `id` is its name.

    `rule` is the hash of its checks as they are written (curvebench.property_checks.check_rules), empty
    where none is known;
    `at_most_partly` says why it cannot be fully reproduced, `missing` what data it lacks, so that it is not
    run; both are empty where nothing is to be said.
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


class ChecksPlan(Document):
    """The checks of claims: folders of job tables, and the folder of their figures."""

    claims: tuple[ClaimPlan, ...]
    tables: tuple[Path, ...]
    figures: Path


class UnrunClaim(Document):
    """A claim that neither what is run nor a published set decides, and why.

    Args:
        study: the study or the module of checks that would decide it.
        scale: at which the study does; empty for that of the plan.
        cost: what that would cost, as far as the study's file says so.
    """

    id: str
    sentence: str
    source: str
    reason: str
    study: str
    scale: str = ""
    cost: str = ""


class Publication(Document):
    """When a set was published, `2026-11-22T09:44:11+00:00`, and the processors of its runs."""

    published: str
    machines: tuple[str, ...]


class Objection(Document):
    """Something that stands in the way of publishing a set; its plan has those that were waived.

    Args:
        kind: a key of `curvebench.spec.sets.WAIVERS`.
        where: the study, or of `rules` the claim; empty for the code that computes verdicts.
        backend: of `hardware` and `rules`.
        names: of `dirty` the commits, none where they are unknown; of `failures` what failed first and its
            outcome; of `hardware` the machines; of `tuning` the workload and the methods with the fewest and
            the most runs; of `rules` the hash of the claim's rule, and where it is known the one as planned.
        count, of: how many of the study's jobs it is about; of `tuning` the fewest and the most runs.
    """

    kind: str
    where: str = ""
    backend: str = ""
    names: tuple[str, ...] = ()
    count: int | None = None
    of: int | None = None


class ReportPlan(Document):
    """All studies of a report at one scale, and those left out.

    Args:
        parity: None where what is shown ran on one backend.
        checks: None where no property of a claim is checked.
        kernels: the folder where asv stores the speed of kernels; None where nothing is stored.
        code: the hash of the code that shows it.
        jobs: how many jobs it takes; 0 where that is not known.
        folders: those of the configuration that are not where they are by default, by their key; of data,
            where one is named.
        published: the name of the published set that it shows, else empty.
        waived: what stood in the way of publishing and was waived.
        verdicts: the folder with the tables `claims` and `findings` of a published set.
        origin: of a plan in an archive, where its runs come from.
        archive: what is shown of published sets with it (`curvebench.results.archive`); each names its set.
        census: the claims that are decided nowhere; empty where only some are asked for.
        path: the file that it was read from; no part of the document.
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
        """The study of that name.

        Raises:
            InputError: when there is none; lists those there are.
        """
        for study in self.studies:
            if study.name == name:
                return study
        names = ", ".join(study.name for study in self.studies) or "none"
        raise InputError(f"the plan has no study {name!r} (it has: {names})")

    def at(self, place: Callable[[Path], Path]) -> ReportPlan:
        """The plan with another place for each of its folders."""
        moved = {name: _placed(value, place) for name, value in self if name != "path"}
        return self.model_copy(update=moved)

    def to_json(self) -> str:
        """The text of `plan.json`."""
        return self.model_dump_json(indent=1) + "\n"


def _placed(value: Any, place: Callable[[Path], Path]) -> Any:
    """A value of a document with another place for each path in it."""
    if isinstance(value, Path):
        return place(value)
    if isinstance(value, tuple):
        return tuple(_placed(one, place) for one in value)
    if isinstance(value, dict):
        return {name: _placed(one, place) for name, one in value.items()}
    if isinstance(value, Document):
        return value.model_copy(update={name: _placed(one, place) for name, one in value})
    return value


def read_plan(path: Path, root: Path | None = None) -> ReportPlan:
    """Read a plan; relative folders count from the working directory, as Snakemake's do.

    Those of a published set count from its plan's folder, and lie in it.

    Args:
        path: of the file, or of the folder of a published set or a site, which holds it.
        root: another folder than the working directory, for the plan of another checkout.

    Raises:
        InputError: when the file is missing or damaged, or lacks a key.
    """
    path = path / PLAN if path.is_dir() else path
    try:
        plan = ReportPlan.model_validate_json(path.read_bytes()).model_copy(update={"path": path})
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); run snakemake, which writes it, or "
            "name that of a published set, results/published/NAME/plan.json"
        ) from error
    except ValidationError as error:
        if key := RENAMED_KEY.search(path.read_text(errors="replace")):
            remedy = f"run curvebench convert {path}, which renames all such keys"
            raise InputError(f"{path}: {key[3]}: is now called {NEW_NAMES[key[3]]}; {remedy}") from error
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
