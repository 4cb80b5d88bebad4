"""Studies: study files with every name looked up and every default filled in."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from curvebench.backends import BACKENDS
from curvebench.basis_estimation.transformed_inputs import check_inputs
from curvebench.engine.execution import rule_held
from curvebench.engine.layout import Layout, layout
from curvebench.engine.program import Update
from curvebench.engine.schedules import EXPONENTIAL, SHAPES, scheduled
from curvebench.interop.foreign import is_foreign
from curvebench.optimizers import HyperparameterError, Rule
from curvebench.optimizers.bases import OptionError, bases
from curvebench.paths import STUDY_FOLDER
from curvebench.precision import POLICIES, Policy
from curvebench.registry import canonical, canonical_in, find_rule, find_workload
from curvebench.results.verdicts import rule_hash
from curvebench.spec.claim import TO_STOP, Claim, Condition, effect_of
from curvebench.spec.document import Headline
from curvebench.spec.errors import InputError, unknown
from curvebench.spec.method import IDENTITY, BasisSpec, Method, OptimizerSpec, WorkloadSpec, methods
from curvebench.spec.study import (
    FIRST_FINAL_SEED,
    Contestant,
    Named,
    Resolved,
    Scale,
    Schedule,
    StudyFile,
    in_letters,
    read_study_file,
    read_yaml,
)
from curvebench.spec.tuning import Search
from curvebench.spec.values import Given, Precision, completed
from curvebench.workloads import Metric, Workload
from curvebench.workloads.workload import split_of

BLOCKS = 1_000_000  # of final seeds
# Keys that came after the first published sets: left out of the hash of final seeds where they are not given.
LATER_KEYS = {"clip_gradient_norm", "gradient_accumulation", "evaluated_splits", "tuning_epochs"}


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


def rule_of(spec: OptimizerSpec, schedule: str = "constant") -> Rule:
    """The rule that a spec names, with its options, as a study with a schedule of that name runs it."""
    return scheduled(find_rule(spec.locator).choose(spec.options), schedule)


def running_on(backend: str, study: Resolved) -> tuple[OptimizerSpec, ...]:
    """The optimizers that run on a backend: those of other libraries run on one alone."""
    return tuple(one for one in study.optimizers if rule_of(one).backend in (None, backend))


def first_seeds(study: Study, scale: str) -> FirstSeeds:
    """The seeds from which settings are tried and methods are judged: tuning from 0, or just below the final.

    The latter where claims compare tuning runs, so that these too move when a rule or a setting does. A
    published set that is run again has its own.
    """
    count = study.scales[scale].seeds.tuning
    if study.first_seeds is not None:
        tuning, final = study.first_seeds
        return FirstSeeds(min(tuning, final - count), final)  # of more tuning seeds now, none is a final one
    final = _first_final_seed(study, scale)
    judging = any(claim.of_tuning for claim in study.own_claims)
    return FirstSeeds(final - count if judging else 0, final)


def _first_final_seed(study: Study, scale: str) -> int:
    """The first seed that methods are judged on; of a study with claims that of a block of its own.

    Which block follows from all that decides the claims (their rules, what they compare, where it is
    evaluated and on how many seeds), so that whatever is changed after runs are known is judged on seeds that
    nobody has seen. What is as it would be if nothing were said counts as not said, so that a new option
    moves no block.
    """
    claims = study.own_claims
    if not claims:
        return FIRST_FINAL_SEED
    size = study.scales[scale]
    compared = {Method.of(name).optimizer for claim in claims for name in claim.methods}
    met = {
        one.metric
        for claim in claims
        for one in claim.conditions
        if one.counted == "steps_to_target" and one.target is None
    }
    if study.tuning.ties is not None and study.tuning.ties.which == "steps_to_target":
        met.add(study.tuning.ties.metric)
    decisive = {
        "rules": [rule_hash(claim.written_rule, size.at_most_partly) for claim in claims],
        "budget": size.budget,
        "evaluations": size.evaluations,
        "seeds": size.seeds,
        "backends": {name: one.seeds for name, one in size.backends.items() if one.seeds},
        "workloads": [
            {
                "name": one.name,
                "locator": one.locator,
                "settings": _said(one.settings, find_workload(one.locator).settings),
            }
            for one in study.workloads[scale]
        ],
        "bases": [
            {
                "label": one.label,
                "name": one.name,
                "options": _said(one.options, bases()[one.name].options),
            }
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
        "targets": {metric: study.targets.get(metric) for metric in sorted(met)},
        "schedule": study.schedule,
        "stop": study.stop,
        "precision": study.precision,
    }
    for given in (study, size):
        decisive |= given.model_dump(include=LATER_KEYS, exclude_defaults=True)
    plain = TypeAdapter(Any).dump_python(decisive, mode="json", exclude_defaults=True)
    digest = hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).digest()
    return FIRST_FINAL_SEED * (1 + int.from_bytes(digest[:8]) % BLOCKS)


def _said(given: Mapping[str, Any], known: Mapping[str, Given]) -> dict[str, Any]:
    """What is not as it would be if nothing were given."""
    return {name: value for name, value in given.items() if name not in known or value != known[name].default}


def read_studies(folder: Path = STUDY_FOLDER, names: Sequence[str] = ()) -> tuple[Study, ...]:
    """All studies of a folder, by name.

    Args:
        folder: where the study files lie.
        names: what is asked for; where each names a file, the other files are not read, so that a broken
            one is in nobody's way. Claims are found by reading all.

    Raises:
        InputError: with a line for each problem of each file.
    """
    paths = sorted(folder.glob("*.yaml"))
    others: list[Path] = []
    if names and set(names) <= {path.stem for path in paths}:
        others = [path for path in paths if path.stem not in names]
        paths = [path for path in paths if path.stem in names]
    if not paths:
        raise InputError(
            f"{folder}: holds no study file (*.yaml); name the folder that does, such as {STUDY_FOLDER}"
        )
    studies: list[Study] = []
    problems: list[str] = []
    for path in paths:
        try:
            studies.append(read_study(path))
        except InputError as error:
            problems.append(str(error))
    homes: dict[str, Path] = {}
    problems.extend(
        f"{study.path}: claims: the id {claim.id!r} is also in {homes[claim.id]}; ids must differ"
        for study in studies
        for claim in study.claims
        if homes.setdefault(claim.id, study.path) != study.path
    )
    problems.extend(
        f"{homes[study.name]}: claims: the id {study.name!r} is also the name of {study.path}; rename one"
        for study in studies
        if homes.get(study.name, study.path) != study.path
    )
    problems.extend(
        f"{homes[name]}: claims: the id {name!r} is also in {path}; ids must differ"
        for path in others
        for name in _ids_in(path, homes)
    )
    if problems:
        raise InputError("\n".join(problems))
    return tuple(studies)


def _ids_in(path: Path, ids: Iterable[str]) -> list[str]:
    """Which ids of claims a file gives that is not read otherwise; none where it is broken."""
    text = path.read_text(encoding="utf-8", errors="replace")
    suspected = [name for name in ids if name in text]  # reading YAML takes much longer
    if not suspected:
        return []
    try:
        claims = read_yaml(path, "a study", StudyFile).get("claims")
    except InputError:
        return []
    given = (
        [claim.get("id") for claim in claims if isinstance(claim, dict)] if isinstance(claims, list) else []
    )
    return [name for name in suspected if name in given]


def read_study(path: Path) -> Study:
    """One study, validated against the registries of workloads, optimizers, bases and backends.

    Raises:
        InputError: with a line for each problem.
    """
    file = read_study_file(path)
    problems: list[str] = []

    def report(key: str, what: object) -> None:
        problems.append(f"{path}: {key}: {what}")

    try:
        in_letters(path.stem)
    except ValueError as error:
        report("file name", error)
    for claim in _repeated(claim.id for claim in file.claims):
        report("claims", f"the id {claim!r} is given twice; ids must differ")
    known = _known_workloads(file, path.parent, report)
    optimizers_ = _optimizers(file, path.parent, report)
    bases_ = _bases(file, optimizers_, report)
    if not problems:  # else a name that lacks is no claim's fault
        labels = methods(optimizers_, bases_)
        metrics = _shared_metrics(workload for _, _, workload in known.values())
        _check_metrics(file, metrics, report)
        _check_ties(file, report)
        for key, condition in _conditions(file.claims):
            _check_condition(key, condition, file, metrics, report)
            for name in condition.named:
                if name not in labels:
                    report(key, unknown("the study", "method", name, labels))
        _check_workloads(file, known.keys(), report)
    _check_costs(file, bases_, report)
    for name, scale in file.scales.items():
        _check_scale(f"scales.{name}", scale, report)
        _check_splits(f"scales.{name}", scale, file, known, report)
        _check_warmup(f"scales.{name}", scale, file.schedule, report)
        _check_methods(f"scales.{name}", scale, optimizers_, report)
    workloads = {name: _workloads(file, known, name, report) for name in file.scales}
    for name, specs in workloads.items():
        _check_layouts(specs, optimizers_, bases_, file.precision, report)
        _check_accumulation(f"scales.{name}", file.scales[name], specs, optimizers_, report)
    if file.schedule.name not in SHAPES:
        report("schedule.name", unknown("the harness", "schedule", file.schedule.name, SHAPES))
    if problems:
        raise InputError("\n".join(dict.fromkeys(problems)))  # several scales may share a problem
    return Study.taken_from(
        file,
        name=path.stem,
        path=path,
        optimizers=optimizers_,
        bases=bases_,
        compare=Headline(**dict(file.compare.metric), floor=file.compare.floor),
        workloads=workloads,
    )


Report = Callable[[str, object], None]
Known = tuple[Named, str, Workload]  # a workload as the study has it, where it is found, and what is there


def _repeated(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def _check_costs(file: StudyFile, bases_: Iterable[BasisSpec], report: Report) -> None:
    """Costs on the way to a target know the gradients of a basis that is estimated before the run alone."""
    conditions = [condition for claim in file.claims for condition in claim.conditions]
    charged = any(one.at_a_cost or one.quantity == "seconds_to_nearly_best" for one in conditions)
    if not file.targets and not charged:
        return
    for basis in bases_:
        if basis.options.get("every") is not None:
            report(
                f"bases.{basis.label}",
                "its gradients during a run are not charged to times to targets, at_equal and "
                "seconds_to_nearly_best; leave out every, or these",
            )


def _known_workloads(file: StudyFile, folder: Path, report: Report) -> dict[str, Known]:
    """The workloads of a study, by what tables call them: their labels, or their own names."""
    found: list[tuple[str, Known]] = []
    for entry in file.workloads:
        locator = canonical(entry.name, folder)
        try:
            workload = find_workload(locator)
        except InputError as error:
            report("workloads", error)
            continue
        found.append((entry.label or workload.name, (entry, locator, workload)))
    for name in _repeated(name for name, _ in found):
        report("workloads", f"two workloads are called {name!r}; give each its own `label:`")
    return dict(found)


def _shared_metrics(known: Iterable[Workload]) -> dict[str, Metric]:
    """The metrics that all workloads of the study give."""
    tables = [workload.metrics for workload in known]
    first = tables[0] if tables else {}
    return {name: metric for name, metric in first.items() if all(name in table for table in tables)}


def _workloads(
    file: StudyFile, known: Mapping[str, Known], scale: str, report: Report
) -> tuple[WorkloadSpec, ...]:
    """The workloads with their settings at a scale, whose own settings stand above the study's."""
    own = file.scales[scale].settings
    for name in own:
        if name not in known:
            report(f"scales.{scale}.settings", unknown("the study", "workload", name, known))
    specs = []
    for name, (entry, locator, workload) in known.items():
        try:
            settings = workload.complete({**entry.options, **own.get(name, {})})
        except ValueError as error:
            report(f"workloads.{name}", error)
        else:
            specs.append(WorkloadSpec(name, settings, locator))
    return tuple(specs)


def _optimizers(file: StudyFile, folder: Path, report: Report) -> tuple[OptimizerSpec, ...]:
    specs = []
    for entry in file.optimizers:
        try:
            options = canonical_in(entry.options, folder)
            found = entry.model_copy(update={"options": options})
            specs.append(_optimizer(file, found, canonical(entry.name, folder)))
        except ValueError as error:
            report(f"optimizers.{entry.name}", error)
    for label in _repeated(spec.label for spec in specs):
        report("optimizers", f"two optimizers are called {label!r}; give each its own `label:`")
    return tuple(specs)


def _optimizer(file: StudyFile, entry: Contestant, locator: str) -> OptimizerSpec:
    """One entry of a study's optimizers.

    Raises:
        ValueError: for what the rule does not know, what is tuned as well, and values that are wrong.
    """
    rule = find_rule(locator)
    if entry.space and not isinstance(file.tuning, Search):
        raise InputError(f"space: {file.tuning.protocol} tunes the learning rate alone; leave the space out")
    if entry.space and "learning_rate" not in entry.space:
        raise InputError("space: is no mapping of hyperparameters to axes with learning_rate among them")
    tuned = {name: (axis.low, axis.high) for name, axis in entry.space.items()} or file.tuning.bounds
    for name in entry.options:
        if name in tuned:
            raise InputError(f"{name}: is tuned by this study; remove it here or there")
    given: dict[str, Any] = {}
    if is_foreign(locator) and file.schedule.name == EXPONENTIAL:
        raise InputError("an exponential schedule is of this project's own rules; take another schedule")
    if is_foreign(locator):
        rule = rule.choose({"arguments": entry.options, "tuned": list(tuned)})
    else:
        given = {name: value for name, value in entry.options.items() if name not in rule.options}
        rule = rule.choose({name: value for name, value in entry.options.items() if name in rule.options})
        rule = scheduled(rule, file.schedule.name)
    valid = [*rule.hyperparameters, *rule.options, *Contestant.model_fields]
    for name in given:
        if name not in valid:
            raise InputError(unknown(rule.name, "hyperparameter or option", name, valid))
    for ends in zip(*tuned.values(), strict=True):
        at = dict(zip(tuned, ends, strict=True))
        completed(rule.name, "hyperparameter", rule.hyperparameters, at, HyperparameterError)
    rates_first = sorted(entry.space, key=lambda name: name != "learning_rate")
    return OptimizerSpec(
        rule.name,
        rule.complete(given, tuple(tuned)),
        rule.chosen,
        entry.label or rule.name,
        {name: entry.space[name].model_dump() for name in rates_first},
        locator,
    )


def _bases(file: StudyFile, optimizers_: Sequence[OptimizerSpec], report: Report) -> tuple[BasisSpec, ...]:
    specs, contestants = [], [one.label for one in optimizers_]
    for entry in file.bases:
        if entry.name not in bases():
            report("bases", unknown("the suite", "basis", entry.name, bases()))
            continue
        label = entry.label or entry.name
        if (entry.name == IDENTITY) != (label == IDENTITY):
            report(
                f"bases.{entry.name}.label",
                "'identity' is the label of the identity basis, and of no other",
            )
            continue
        try:
            options = bases()[entry.name].complete(entry.options)
            specs.append(BasisSpec(label, entry.name, options, entry.optimizers or ()))
        except OptionError as error:
            report(f"bases.{label}", error)
        for one in entry.optimizers or ():
            if one not in contestants:
                report(f"bases.{label}.optimizers", unknown("the study", "optimizer", one, contestants))
        for one in _repeated(entry.optimizers or ()):
            report(f"bases.{label}.optimizers", f"{one!r} stands here twice; name it once")
        if entry.optimizers and label == IDENTITY:
            report("bases.identity.optimizers", "all run in original coordinates; leave it out")
    for label in _repeated(spec.label for spec in specs):
        report("bases", f"two bases are labelled {label!r}; give each its own `label:`")
    tried, known = file.tuning.tried_in, [spec.label for spec in specs]
    for label in tried or ():
        if label not in known:
            report("tuning.tried_in", unknown("the study", "basis", label, known))
    if tried and file.tuning.shared_across == "none":
        report("tuning.tried_in", "each basis chooses for itself; leave it out, or say shared_across: bases")
    elif tried and IDENTITY not in tried:
        report("tuning.tried_in", "the identity basis chooses for all; add identity")
    if file.tuning.shared_across == "bases" and IDENTITY not in {entry.name for entry in file.bases}:
        report("tuning.shared_across", "needs the identity basis, whose choice is shared; add it to bases")
    return tuple(specs)


def _check_layouts(
    specs: Iterable[WorkloadSpec],
    optimizers_: Sequence[OptimizerSpec],
    bases_: Iterable[BasisSpec],
    precision: Precision | None,
    report: Report,
) -> None:
    """Check that workloads have the precision and the parameters that bases and optimizers ask for."""
    for spec in specs:
        workload = find_workload(spec.locator)
        policy = POLICIES[precision or workload.dtype]
        for optimizer in optimizers_:
            try:
                rule_of(optimizer).check_dtype(policy.parameters)
            except OptionError as error:
                report(f"optimizers.{optimizer.label}", f"{spec.name}: {error}")
        roles = workload.roles(spec.settings)
        kinds = {name: role.kind for name, role in roles.items()}
        shapes = workload.shapes_at(spec.settings)
        for basis in bases_:
            try:
                groups = bases()[basis.name].groups(basis.options, shapes, kinds)
                check_inputs(workload, ((group.names, group.change) for group in groups))
                changes = {group.names: (group.change, 1) for group in groups}  # of V with any columns
                made = layout(shapes, roles, [group.names for group in groups], changes)
            except ValueError as error:
                report(f"bases.{basis.label}", f"{spec.name}: {error}")
                continue
            carried_by = policy if bases()[basis.name].reestimation(basis.options) else None
            for optimizer in (one for one in optimizers_ if basis.is_of(one.label)):
                _check_leaves(optimizer, spec.name, workload, made, carried_by, report)


def _check_leaves(
    optimizer: OptimizerSpec,
    name: str,
    workload: Workload,
    made: Layout,
    carried_by: Policy | None,
    report: Report,
) -> None:
    """`carried_by` is the precision of runs whose state goes on in other coordinates; None: it does not."""
    try:
        update = Update(rule_of(optimizer), made)
        assert update.pieces  # an option may be wrong for a shape
        for need in update.bound.needs:
            need.check_likelihood(update.rule.name, workload.likelihood)
        if carried_by is not None:
            Update(rule_held(update.rule, carried_by), made).check_change_of_basis()
    except OptionError as error:
        report(f"optimizers.{optimizer.label}", f"{name}: {error}")


def _named_metrics(file: StudyFile) -> dict[str, str]:
    """The metrics that a study names, by the key that does."""
    used = {"tuning.choose": file.tuning.choose.metric, "compare.metric": file.compare.metric.metric}
    if file.tuning.ties is not None:
        used["tuning.ties"] = file.tuning.ties.metric
    used |= {f"targets.{metric}": metric for metric in file.targets}
    return used | {key: condition.metric for key, condition in _conditions(file.claims)}


def _check_metrics(file: StudyFile, metrics: Mapping[str, Metric], report: Report) -> None:
    for key, metric in _named_metrics(file).items():
        if metric not in metrics:
            owner = "the study" if len(file.workloads) == 1 else "the list of what all workloads measure"
            report(key, unknown(owner, "metric", metric, metrics))


def _check_ties(file: StudyFile, report: Report) -> None:
    """Check that settings that tie can be told apart, as all do that stop where the criterion does."""
    choose, ties = file.tuning.choose, file.tuning.ties
    if ties is None and choose.metric in file.stop:
        given = f"median steps_to_stop {choose.metric}"
        report(
            "tuning.ties",
            f"all settings that stop tie by {choose.metric}; give what decides, such as {given}",
        )
    if ties is not None and ties.which == "steps_to_stop" and ties.metric not in file.stop:
        report("tuning.ties", f"runs do not stop at a {ties.metric}; give it in stop")
    if ties is not None and ties.which == "steps_to_target" and ties.metric not in file.targets:
        report("tuning.ties", f"there is no target of {ties.metric}; give it in targets")


def _check_condition(
    key: str, condition: Condition, file: StudyFile, metrics: Mapping[str, Metric], report: Report
) -> None:
    """Check that what a condition asks of a metric is in the runs of the study, and can be so."""
    stop = file.stop.get(condition.metric)
    untried = [name for name in sorted(condition.named) if not file.tuning.tries(Method.of(name).basis)]
    if condition.of_tuning and untried:
        report(f"{key}.quantity", f"tuning does not try {untried[0]}; add its basis to tuning.tried_in")
    if condition.quantity in TO_STOP and stop is None:
        report(f"{key}.quantity", f"runs do not stop at a {condition.metric}; give it in stop")
    to_target = condition.counted == "steps_to_target" and condition.target is None
    if to_target and condition.metric not in file.targets:
        report(f"{key}.quantity", f"there is no target of {condition.metric}; give it here or in targets")
    if condition.metric not in metrics:
        return
    straight, direction = condition.quantity == "log_linearity", metrics[condition.metric].direction
    if condition.of_gain and condition.gain_in == "value" and direction == "maximize":
        report(f"{key}.quantity", f"{condition.metric} has no logarithm to gain; take one that is minimized")
    if straight and stop is not None and stop >= (condition.down_to or 0):
        report(f"{key}.down_to", f"runs stop at {stop:g} before they get there; give more than that")
    if straight and direction == "maximize":
        report(f"{key}.quantity", f"{condition.metric} does not fall to 0; take one that is minimized")
    if condition.number is None:
        return
    ratio = effect_of(condition.effect, direction) == "ratio"
    if straight and not 0 < condition.number < 1 - (condition.smallest_effect or 0.0):
        problem = f"{condition.number:g}, and better by the smallest effect, is no log-linearity to ask for"
        report(f"{key}.than", f"{problem}; both are between 0 and 1, and so is their sum")
    elif ratio and not straight and not condition.of_gain and condition.number <= 0:
        remedy = "give a positive number, or effect: difference"
        report(f"{key}.than", f"a ratio to {condition.number:g} says nothing; {remedy}")


def _conditions(claims: Iterable[Claim]) -> list[tuple[str, Condition]]:
    return [
        (f"claims.{claim.id}.holds_if[{index}]", condition)
        for claim in claims
        for index, condition in enumerate(claim.conditions)
    ]


def _check_workloads(file: StudyFile, known: Set[str], report: Report) -> None:
    """Check that targets and conditions are about workloads of the study."""
    for metric, at in file.targets.items() if not file.joins else ():  # of one that joins they may be more
        for misspelt in sorted(at.keys() - known) if isinstance(at, dict) else ():
            report(f"targets.{metric}", unknown("the study", "workload", misspelt, known))
    for key, condition in _conditions(claim for claim in file.claims if not claim.repeats):
        for where, name in (("workload", condition.workload), ("than_on", condition.than_on)):
            if name is not None and name not in known:
                report(f"{key}.{where}", unknown("the study", "workload", name, known))


def _check_scale(key: str, scale: Scale, report: Report) -> None:
    tuners = [name for name, use in scale.backends.items() if use.tuned_on is None]
    misspelt = [name for name in scale.backends if name not in BACKENDS]
    for name in misspelt:
        report(f"{key}.backends", unknown("the harness", "backend", name, BACKENDS))
    for name, use in scale.backends.items():
        if use.tuned_on is not None and use.tuned_on not in tuners and not misspelt:  # one error, not two
            report(
                f"{key}.backends.{name}.tuned_on",
                unknown("this scale", "backend with its own tuning", use.tuned_on, tuners),
            )
        if use.seeds is not None and use.seeds.final > scale.seeds.final:
            report(
                f"{key}.backends.{name}.seeds.final",
                f"{use.seeds.final} is more than the scale's final seeds; use at most {scale.seeds.final}",
            )


def _check_splits(
    key: str, scale: Scale, file: StudyFile, known: Mapping[str, Known], report: Report
) -> None:
    """Check that evaluated splits are there, and that no metric of another is named."""
    if scale.evaluated_splits is None:
        return
    key = f"{key}.evaluated_splits"
    there = dict.fromkeys(split for _, _, workload in known.values() for split in workload.evaluated_splits)
    for split in scale.evaluated_splits if known else ():
        if split not in there:
            report(key, unknown("the list of what workloads evaluate", "split", split, there))
    for split in _repeated(scale.evaluated_splits):
        report(key, f"{split!r} stands here twice; name it once")
    for where, metric in _named_metrics(file).items():
        if split_of(metric) in there and split_of(metric) not in scale.evaluated_splits:
            report(
                where,
                f"{metric} is not evaluated: {key} leaves {split_of(metric)} out; add it there, or name "
                "another metric",
            )


def _check_methods(key: str, scale: Scale, optimizers_: Sequence[OptimizerSpec], report: Report) -> None:
    """Check the optimizers that a scale names, and that spaces of their own go with its tuning."""
    labels = [one.label for one in optimizers_]
    for label in scale.optimizers or ():
        if label not in labels:
            report(f"{key}.optimizers", unknown("the study", "optimizer", label, labels))
    for label in _repeated(scale.optimizers or ()):
        report(f"{key}.optimizers", f"{label!r} stands here twice; name it once")
    own = [one.label for one in optimizers_ if one.space]
    if own and {"space", "coarse"} & scale.tuning.keys():
        report(f"{key}.tuning", f"{', '.join(own)} have a space of their own; give a budget alone")


def _check_warmup(key: str, scale: Scale, schedule: Schedule, report: Report) -> None:
    """Check that a run of so many epochs is as long as its warm-up; steps an epoch are known in a job."""
    epochs, after = schedule.warmup_epochs or 0.0, " and the cool-down" if schedule.cooldown else ""
    for name in ("epochs", "tuning_epochs"):
        length = getattr(scale, name)
        if length is not None and epochs + schedule.cooldown * length > length:
            said = f"{epochs:g} epochs{after} are more than the {length} of {key}.{name}"
            report("schedule.warmup_epochs", f"{said}; give fewer, or more {key}.{name}")


def _check_accumulation(
    key: str,
    scale: Scale,
    specs: Iterable[WorkloadSpec],
    optimizers_: Iterable[OptimizerSpec],
    report: Report,
) -> None:
    """Check that minibatches can be cut into the parts, and that rules can do with the means over them."""
    key, parts = f"{key}.gradient_accumulation", scale.gradient_accumulation
    if parts == 1:
        return
    for spec in specs:
        batch_size = spec.settings.get("batch_size")
        if batch_size is None:
            report(key, f"{spec.name} has no minibatches to cut; give its batch_size, or leave this out")
        elif batch_size % parts:
            remedy = f"give a divisor of it, or a batch_size that is a multiple of {parts}"
            report(key, f"{parts} does not divide the batch_size of {spec.name}, {batch_size}; {remedy}")
        else:
            try:  # each part is a batch to the workload
                find_workload(spec.locator).check({**spec.settings, "batch_size": batch_size // parts})
            except ValueError as error:
                report(key, f"{parts} cuts the batch_size of {spec.name}, {batch_size}, into parts: {error}")
    for optimizer in optimizers_:
        rule = rule_of(optimizer)
        try:
            for need in rule.needs:
                need.check_accumulation(optimizer.label, parts)
        except OptionError as error:
            report(key, error)


def missing_of(workloads: Iterable[WorkloadSpec]) -> str | None:
    """What data of some workloads is missing and how to get it; None when all is there."""
    reasons = [find_workload(spec.locator).missing(spec.settings) for spec in workloads]
    known = "; ".join(dict.fromkeys(reason for reason in reasons if reason))
    return f"{known}; the folder of data is what `--config data=FOLDER` names" if known else None


def at_defaults(names: Iterable[str]) -> tuple[WorkloadSpec, ...]:
    """Workloads by name with the settings that they have where nobody chooses."""
    return tuple(WorkloadSpec(name, find_workload(name).complete({})) for name in dict.fromkeys(names))
