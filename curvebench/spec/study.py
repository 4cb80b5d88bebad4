"""Study files as people write them: keys, types, and functions that read and check the files.

A study compares methods (optimizers in a basis, that is a change of coordinates of the parameters) on
workloads. A study has one or several scales, which are sizes in which the study can be run. Tuning seeds are
the seeds of runs that tune a method. Final seeds are the seeds of runs that judge a method. A submission is a
study that joins another study: it adds a method to the other study.

This module also reads the file with the tour, the list of studies that run by default.

YAML is read as YAML 1.2, in which `1e-3` is a number and a duplicate key is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, AliasChoices, BeforeValidator, Field, ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from curvebench.paths import STUDY_FOLDER
from curvebench.spec import document as documents
from curvebench.spec.claim import Claim
from curvebench.spec.errors import InputError, check_known
from curvebench.spec.method import Method
from curvebench.spec.training import ScaleTraining, StudyTraining, TrainingProtocol
from curvebench.spec.tuning import Axis, Setting, Tuning

# Tuning seeds lie below the final seeds, so that no method is judged on a seed on which the method was tuned.
FIRST_FINAL_SEED = 1000
NULL = "null"
BARE = "none"  # In the key `wrap`, the optimizer without a wrapper
# If the number of evaluations in a study file is invalid, the message suggests valid numbers.
# The message has at most this many suggestions.
MAX_OFFERED = 4

LETTERS = re.compile(r"[a-z0-9_-]+")
LONGEST_VALUE = 12  # Maximum number of letters of a swept value in a label, since files are named after it


def in_letters(value: str) -> str:
    """Check a name that becomes part of file names, and return it.

    Raises:
        ValueError: when it contains other characters than small letters, digits, `_` and `-`.
    """
    if not LETTERS.fullmatch(value):
        raise ValueError(f"{value!r} may have only small letters, digits, _ and -; files are named after it")
    return value


def _label(value: str) -> str:
    if not value:
        raise ValueError("is empty; leave it out to use the name")
    if value == NULL:
        raise ValueError(f"{value!r} is the name of a step without an optimizer in tables; choose another")
    return in_letters(value)


Budget = Annotated[int, Field(ge=1, le=10**9)]
Label = Annotated[str, AfterValidator(_label)]


class NamedItem(documents.Document):
    """A workload, a basis or an optimizer with its options: `egop`, or `{egop: {blocks: all, label: full}}`.

    In the file, options and fields of this class such as `label` stand in the same mapping below the name.
    Keys that are not fields become `options`.

    Args:
        name: name under which the workload, basis or optimizer is found.
        label: name in tables and figures, which distinguishes two items of the same name; if it is empty,
            `name` is used.
        options: a mapping from names of options to the values in the file. The values are not checked yet.
    """

    name: str
    label: Label = ""
    options: dict[str, Any] = Field(default={})

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        name, written = value, None
        if isinstance(value, Mapping) and len(value) == 1:
            ((name, written),) = value.items()
        if not isinstance(name, str) or not (written is None or isinstance(written, Mapping)):
            example = "{adam: {beta1: 0.9}}"
            raise ValueError(f"{value!r} is neither a name nor a name with options, such as {example}")
        options = dict(written or {})
        reserved = set(cls.model_fields) - {"name", "options"}
        fields = {key: options.pop(key) for key in reserved & options.keys()}
        return {"name": name, **fields, "options": options}


class NamedOptimizer(NamedItem):
    """An optimizer of a study with its hyperparameters and options.

    Args:
        space: interval of each hyperparameter in which tuning searches for this optimizer. If it is empty,
            the optimizer has the search space of the study.
        also_try: known good settings, which tuning tries in addition to the settings of the search. Each
            setting has a value for each tuned hyperparameter.
        wrap: name of the wrapper of the optimizer, such as `cautious`, or `none`; if it is empty, the key
            `wrap` of the study decides.
    """

    wrap: str = ""
    space: dict[str, Axis] = Field(default={})
    also_try: Annotated[tuple[Setting, ...], Field(strict=False)] = ()

    def entries(self, axis: Sequence[NamedItem]) -> Iterator[NamedOptimizer]:
        """Yield an entry for each wrapper of this optimizer, with a name such as `adamw+cautious`.

        For a wrapper of the axis, the label of this entry is followed by the label or name of the wrapper, as
        in `mine-cautious`. Without any label, the label stays empty, so that the name of the rule is used.

        Args:
            axis: the key `wrap` of the study: wrappers with values of their hyperparameters. They apply to
                entries without the key `wrap`.
        """
        for wrapper in axis if not self.wrap and axis else [NamedItem.model_validate(self.wrap or BARE)]:
            if wrapper.name == BARE:
                yield self
                continue
            label = self.label
            if not self.wrap and (label or wrapper.label):
                label = f"{label or self.name.rpartition(':')[2]}-{wrapper.label or wrapper.name}"
            options = {**self.options, **wrapper.options}
            changes = {"name": f"{self.name}+{wrapper.name}", "label": label, "options": options}
            yield self.model_copy(update=changes)


class NamedBasis(NamedItem):
    """A basis of a study (a change of coordinates of the parameters) with its options.

    Args:
        optimizers: labels of the optimizers that run in this basis; None for all optimizers of the study.
    """

    optimizers: documents.Names | None = None


class Sweep(documents.Document):
    """A sweep: a group of workloads that differ in the value of one setting only.

    Args:
        name: name of the sweep, which is the label of the entry in the study file that defines the sweep.
        setting: name of the setting in which the workloads differ.
    """

    name: str
    setting: str


def _swept(value: Any) -> Any:
    values = list(value.values()) if isinstance(value, Mapping) else []
    if len(values) != 1 or not isinstance(values[0], list) or len(values[0]) < 2:
        raise ValueError("is not one setting with several values, such as {batch_size: [32, 64]}")
    for index, item in enumerate(values[0]):
        if item in values[0][:index]:
            raise ValueError(f"{item!r} is listed twice; list it once")
    return value


class NamedWorkload(NamedItem):
    """A workload of a study with its settings: `{digits_mlp: {hidden: 20, sweep: {batch_size: [32, 64]}}}`.

    Args:
        sweep: values of one setting. The entry then stands for several workloads, one for each value.
    """

    sweep: Annotated[dict[str, list[Any]], BeforeValidator(_swept)] = Field(default={})

    @model_validator(mode="after")
    def _set_once(self) -> NamedWorkload:
        for setting in self.sweep.keys() & self.options.keys():
            raise ValueError(f"{setting}: is swept by this entry; remove it here or there")
        return self

    def entries(self, name: str) -> list[tuple[NamedWorkload, Sweep | None]]:
        """Return an entry with a label and without a sweep for each workload for which this entry stands.

        The label of a workload of a sweep is the label of this entry followed by the swept value, such as
        `digits_mlp-32`. Letters of the value that are not allowed in labels are replaced by hyphens. If two
        values then look the same, or a value has more than `LONGEST_VALUE` letters, the labels end with the
        positions of the values in the sweep (1, 2, ...) instead.

        Args:
            name: name of the workload, which is used as the label if this entry has no label.

        Returns:
            Pairs of a new entry and the sweep to which the new entry belongs. The sweep is None if this entry
            has no sweep.
        """
        label = self.label or name
        if not self.sweep:
            return [(self.model_copy(update={"label": label}), None)]
        ((setting, values),) = self.sweep.items()
        ends = [re.sub(r"[^a-z0-9_-]+", "-", str(value).lower()).rstrip("-") for value in values]
        if len({*ends}) < len(ends) or max(map(len, ends)) > LONGEST_VALUE:
            ends = [str(number + 1) for number in range(len(ends))]
        changes = [
            {"label": f"{label}-{end}", "options": {**self.options, setting: value}, "sweep": {}}
            for end, value in zip(ends, values, strict=True)
        ]
        sweep = Sweep(name=label, setting=setting)
        return [(self.model_copy(update=change), sweep) for change in changes]


class Compare(documents.Document):
    """The key `compare` of a study file: the metric of figures and leaderboard.

    Args:
        metric: the metric, and whether its final or best value counts, such as `final train_loss`.
        floor: runs whose value of the metric is better than this number tie, because their differences have
            no meaning (below the rounding error of a loss, for example); None if runs never tie.
    """

    metric: documents.JudgedWords
    floor: float | None = None


class Seeds(documents.Document):
    """Numbers of seeds of a scale.

    Args:
        tuning: number of seeds of the runs that tune a method.
        final: number of other seeds, on which the tuned method is judged.
        batches: sizes of the batches in which final seeds were added to the study, in the order of time. The
            runs of each batch are a job of their own, so that adding seeds repeats no run. Empty if one job
            runs all final seeds.
    """

    tuning: Annotated[int, Field(ge=1, le=FIRST_FINAL_SEED)]
    final: documents.Positive
    batches: Annotated[tuple[documents.Positive, ...], Field(strict=False)] = ()

    @model_validator(mode="after")
    def _complete(self) -> Seeds:
        if self.batches and sum(self.batches) != self.final:
            raise ValueError(f"batches: {list(self.batches)} add up to {sum(self.batches)}, not {self.final}")
        return self


class FinalSeeds(documents.Document):
    """Number of final seeds on a backend that judges methods on fewer seeds than the scale gives."""

    final: documents.Positive


class BackendUse(documents.Document):
    """How a scale uses a backend.

    Args:
        tuned_on: name of the backend whose tuned hyperparameters are used on this backend; None to tune on
            this backend itself.
        seeds: number of final seeds on this backend; None to use the number that the scale gives.
        device: kind of device on which the runs are computed.
    """

    tuned_on: str | None = None
    seeds: FinalSeeds | None = None
    device: Literal["cpu", "gpu"] = "cpu"


def _or_empty(value: Any) -> Any:
    return {} if value is None else value


class Scale(ScaleTraining):
    """A size of a study: training budget, seeds, backends, and remarks for its page.

    Args:
        epochs, steps: length of a run in epochs or in steps. Exactly one of the two keys is given.
        tuning: keys of the study's tuning protocol that have other values at this scale.
        optimizers: labels of the optimizers that run at this scale; None for all optimizers of the study.
        backends: how each backend is used, by name of the backend. The overview page shows the first backend
            first.
        settings: settings of workloads that differ at this scale, by label of the workload.
        bundle_memory_bytes: memory in bytes that the lanes of one program may take. Lanes are runs that a
            program computes together; this memory limits the number of lanes. The default lets two jobs run
            at the same time within 6 GiB.
        alternatives: whether final runs are also made at settings that other tuning seeds would choose, so
            that pages show whether the verdict on a claim depends on tuning.
        jobs: division of an optimizer's runs into jobs: `optimizer` for one job with all runs, `workload` for
            a job for each workload, `basis` for a job for the final runs in each basis, `seed` for a job for
            the final runs in each basis with each seed.
        timing: whether step times are measured, which requires a machine without other work.
        at_most_partly: reason why no claim can be fully reproduced at this scale; empty if there is no such
            reason.
        note: remark for the study's page.
        cost: cost of the study at this scale, in words, with the evidence for it.
    """

    seeds: Seeds
    epochs: Budget | None = None
    steps: Budget | None = None
    tuning: dict[str, Any] = Field(default={})
    optimizers: documents.Names | None = None
    backends: Annotated[dict[str, Annotated[BackendUse, BeforeValidator(_or_empty)]], Field(min_length=1)]
    settings: dict[str, dict[str, Any]] = Field(default={})
    bundle_memory_bytes: documents.Positive = 1 << 30
    alternatives: bool = True
    jobs: Literal["optimizer", "workload", "basis", "seed"] = "optimizer"
    timing: bool = True
    at_most_partly: str = ""
    note: str = ""
    cost: str = ""

    @model_validator(mode="after")
    def _budget(self) -> Scale:
        if (self.epochs is None) == (self.steps is None):
            raise ValueError("give either epochs or steps")
        ((unit, budget),) = self.budget.items()
        if budget % self.evaluations:
            divisors = [n for n in range(1, budget + 1) if budget % n == 0]
            near = sorted(sorted(divisors, key=lambda n: abs(n - self.evaluations))[:MAX_OFFERED])
            raise ValueError(
                f"evaluations: {self.evaluations} does not divide the {budget} {unit} into equal intervals "
                f"(valid near it: {', '.join(map(str, near))})"
            )
        return self

    @property
    def budget(self) -> dict[str, int]:
        """Length of a run, `{"epochs": n}` or `{"steps": n}`."""
        return {"epochs": self.epochs} if self.epochs is not None else {"steps": self.steps or 0}

    def final_seeds(self, backend: str) -> int:
        """Return the number of final seeds on which a backend judges methods."""
        return (self.backends[backend].seeds or self.seeds).final


class Contribution(documents.Document):
    """Author, paper and code of the method in a submission, as texts for pages."""

    author: str
    paper: str = ""
    code: str = ""


class StudyQuestion(documents.Document):
    """The question of a study, its source, and how its methods are tuned.

    Args:
        source: number of the source that asks the question, and place in it, such as `000 Fig. 1`.
        source_figures: figures of the source that this study reproduces: a mapping from the name of a figure
            of this study to the number of the figure in the source. Such a name omits the backend, as in
            `digits_mlp.train_loss.epochs`, and may also omit the workload.
        joins: name of the study that this submission joins. The methods of the joined study are compared with
            the submitted method under the same protocol. Empty for a study that is no submission.
        contributed: author of a submission; None if the submission is not to be published.
        groups: labels of workloads by the name of their group, such as `networks`. Methods are ranked in each
            group by itself. Empty if all workloads are one group.
    """

    question: str
    source: str
    source_figures: dict[str, str] = Field(default={})
    tuning: Tuning
    joins: str = ""
    contributed: Contribution | None = None
    groups: dict[str, documents.Names] = Field(default={})


class StudyFile(StudyQuestion, StudyTraining):
    """A study file with valid keys and types. `curvebench.planning.studies.validation` looks up its names.

    Keys that the file leaves out are taken from another study, whose name is the value of the key `like` or
    `joins`. The other study is in the same folder, or is a study of this project. A single workload may be
    written under the key `workload`.
    """

    like: str | None = None
    setting_notes: Annotated[tuple[str, ...], Field(strict=False)] = ()
    workloads: Annotated[
        tuple[NamedWorkload, ...],
        Field(strict=False, min_length=1),
        BeforeValidator(documents.as_list),
        Field(validation_alias=AliasChoices("workloads", "workload")),
    ]
    optimizers: Annotated[tuple[NamedOptimizer, ...], Field(strict=False, min_length=1)]
    wrap: Annotated[tuple[NamedItem, ...], Field(strict=False)] = ()
    bases: Annotated[tuple[NamedBasis, ...], Field(strict=False, min_length=1)] = (
        NamedBasis.model_validate("identity"),
    )
    compare: Compare
    claims: Annotated[tuple[Claim, ...], Field(strict=False)] = ()
    scales: Annotated[dict[Annotated[str, AfterValidator(in_letters)], Scale], Field(min_length=1)]

    @model_validator(mode="before")
    @classmethod
    def _one_workload(cls, raw: Any) -> Any:
        if isinstance(raw, Mapping) and isinstance(raw.get("workload"), list):
            raise ValueError("workload: must be a single workload; give a list under workloads")
        return raw

    @model_validator(mode="after")
    def _tunes(self) -> StudyFile:
        for name, scale in self.scales.items():
            try:
                tuning = self.tuning.sized(scale.tuning)
                tuning.check_lengths(scale.budget, scale.evaluations)
            except ValidationError as errors:
                raw = {"tuning": {**dict(self.tuning), **scale.tuning}}
                lines = documents.explained(errors, StudyFile, "a study", raw)
                raise ValueError("; ".join(f"scales.{name}.{line}" for line in lines)) from errors
            except ValueError as error:
                raise ValueError(f"scales.{name}.tuning: {error}") from error
            if set(tuning.names) != set(self.tuning.names):
                at_scale, of_study = (", ".join(protocol.names) for protocol in (tuning, self.tuning))
                message = f"tunes {at_scale}, and the study {of_study}; tune the same"
                raise ValueError(f"scales.{name}.tuning: {message}")
        return self

    def training(self, scale: str) -> TrainingProtocol:
        """Return the training protocol at a scale, with targets sorted by name, as pages list them."""
        shared = {name: getattr(self, name) for name in StudyTraining.model_fields}
        shared["targets"] = dict(sorted(self.targets.items()))
        return TrainingProtocol.taken_from(self.scales[scale], **shared)


DocumentT = TypeVar("DocumentT", bound=documents.Document)

# The only keys that the file of a submission may have.
# All other keys are taken from the study that the submission joins.
SUBMISSION_KEYS = {"joins", "contributed", "optimizers", "workloads", "question"}


# --- reading -------------------------------------------------------------------------------------


def read_study_file(path: Path) -> StudyFile:
    """Read a study file, add the keys that are taken from other study files, and check keys and types.

    Raises:
        InputError: with a line for each problem.
    """
    return _validated(path, _completed(path), "a study", StudyFile)


def _validated(path: Path, raw: dict[str, Any], kind: str, document: type[DocumentT]) -> DocumentT:
    """Validate the keys and values of a file.

    Args:
        path: the file.
        raw: the keys and values, as read from the file.
        kind: kind of file in messages, such as "a study".
        document: class of the document.

    Raises:
        InputError: with a line for each problem.
    """
    try:
        return document.model_validate(raw)
    except ValidationError as errors:
        messages = documents.explained(errors, document, kind, raw)
        lines = dict.fromkeys(f"{path}: {message}" for message in messages)
        raise InputError("\n".join(lines)) from errors


def _completed(path: Path, chain: tuple[str, ...] = ()) -> dict[str, Any]:
    """Read a study file, and add the keys that the file leaves out.

    Missing keys are taken from the study that the key `like` or `joins` names. Missing keys of a claim that
    repeats another one are taken from the repeated claim.

    Args:
        path: the file.
        chain: names of the studies that led to this file by their keys `like`, to detect a circle.
    """
    raw = read_yaml(path, "a study", StudyFile)
    if "joins" in raw:
        return {**_protocol_of_joined(path, raw), **raw}
    inherited = _inherited(path, raw["like"], (*chain, path.stem)) if "like" in raw else {}
    if isinstance(raw.get("claims"), list):
        claims = documents.as_list(inherited.get("claims"))
        rules = {str(claim.get("id")): claim for claim in claims if isinstance(claim, Mapping)}
        raw["claims"] = [_with_rule(path, claim, rules) for claim in raw["claims"]]
    return {**inherited, **raw}


def _protocol_of_joined(path: Path, raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys that a submission takes from the study that it joins.

    Args:
        path: file of the submission.
        raw: keys and values of the submission's file.
    """
    for key in raw.keys() - SUBMISSION_KEYS:
        raise InputError(f"{path}: {key}: is taken from {raw['joins']}, which this study joins; leave it out")
    joined = _inherited(path, raw["joins"], (path.stem,))
    of_joined = ("claims", "contributed", "joins", "wrap")
    protocol = {key: value for key, value in joined.items() if key not in of_joined}
    # The key `optimizers` of a scale lists methods of the joined study, without the submitted method.
    for scale in protocol["scales"].values():
        scale.pop("optimizers", None)
    return protocol


def _inherited(path: Path, name: Any, chain: tuple[str, ...]) -> dict[str, Any]:
    """Return the keys that a study takes from another study, which its key `like` or `joins` names.

    Args:
        path: file of the study.
        name: name of the other study, as written in the file.
        chain: names of the studies that led to this study by their keys `like`, then the name of this study.
    """
    folders = (STUDY_FOLDER, path.parent)
    files = {file.stem: file for folder in folders for file in sorted(folder.glob("*.yaml")) if file != path}
    check_known(str(path.parent), "other study", [str(name)], files, where=f"{path}: like: ")
    if name in chain:
        raise InputError(f"{path}: like: {name} is like this study in turn; remove one of the two keys")
    raw = _completed(files[str(name)], chain)
    # The keys of `source_figures` contain the name of the other study, so they match no figure of this study.
    raw.pop("source_figures", None)
    return raw


def _with_rule(path: Path, raw: Any, rules: Mapping[str, Mapping[str, Any]]) -> Any:
    """Add sentence, source and conditions of the repeated claim to a claim that repeats another one.

    In the added conditions, labels of bases are replaced as the key `bases` of the repeating claim says. A
    claim without the key `repeats` is returned unchanged.

    Args:
        path: the study file.
        raw: the claim, as written in the file.
        rules: a mapping from ids to the claims that may be repeated.
    """
    if not isinstance(raw, Mapping) or "repeats" not in raw:
        return raw
    key_of_claim, repeats = f"{path}: claims.{raw.get('id')}", str(raw["repeats"])
    check_known("the study that this one is like", "claim", [repeats], rules, f"{key_of_claim}.repeats: ")
    superfluous = [name for name in ("sentence", "source", "supported_if") if name in raw]
    if superfluous:
        raise InputError(f"{key_of_claim}.{superfluous[0]}: is taken from {repeats}; leave it out")
    rule, bases = rules[repeats], raw.get("bases")
    bases = bases if isinstance(bases, Mapping) else {}
    written = documents.as_list(rule.get("supported_if"))
    conditions = [dict(condition) for condition in written if isinstance(condition, Mapping)]
    met: set[str] = set()
    for condition in conditions:
        for key in ("better", "no_worse", "same", "compared_to"):
            if isinstance(condition.get(key), list):
                methods = [Method.of(str(label)) for label in condition[key]]
                condition[key] = [Method(name, str(bases.get(basis, basis))).label for name, basis in methods]
                met.update(basis for _, basis in methods)
    check_known(repeats, "basis", map(str, bases), sorted(met), where=f"{key_of_claim}.bases: ")
    return {"sentence": rule.get("sentence"), "source": rule.get("source"), **raw, "supported_if": conditions}


def read_yaml(path: Path, kind: str, document: type[documents.Document]) -> dict[str, Any]:
    """Read the keys and values of a YAML file strictly.

    Args:
        path: the file.
        kind: kind of file in messages, such as "a study".
        document: class of the document. If the file is no mapping, the error message lists the keys of the
            class.

    Raises:
        InputError: when the file cannot be read, or is no mapping.
    """
    try:
        raw = parsed_yaml(str(path), path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file in UTF-8 ({error.reason}); save it as UTF-8") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    if not isinstance(raw, dict):
        keys = ", ".join(documents.valid_keys(document))
        raise InputError(f"{path}: not {kind}: the file must hold keys and values (keys: {keys})")
    return raw


def parsed_yaml(where: str, text: str) -> Any:
    """Parse a text in YAML.

    Args:
        where: the file or option that holds the text, for messages.

    Raises:
        InputError: when the text is not valid YAML.
    """
    try:
        return deepcopy(_parsed(text))
    except DuplicateKeyError as error:
        match = re.search(r'duplicate key "(.*?)"', str(error.problem))
        key, line = match[1] if match else "?", error.problem_mark.line + 1
        raise InputError(f"{where}: {key}: duplicate key at line {line}; keep one of the two") from error
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise InputError(f"{where}: line {line}: not valid YAML ({error.problem})") from error
    except YAMLError as error:
        raise InputError(f"{where}: not valid YAML ({error})") from error


# Parsing is cached because a study file is read again for each plan.
# A file is also read again for each study that names it under `like`.
@lru_cache(maxsize=256)
def _parsed(text: str) -> Any:
    return YAML(typ="safe", pure=True).load(text)


class Tour(documents.Document):
    """The selection that `snakemake reports` runs by default: names of studies, claims or check modules."""

    studies: documents.Names


def read_document(path: Path, kind: str, document: type[DocumentT]) -> DocumentT:
    """Read a YAML file with a document of the given class, such as a tour or a paper.

    Args:
        path: the file.
        kind: kind of file in messages, such as "a tour".
        document: class of the document.

    Raises:
        InputError: with a line for each problem.
    """
    return _validated(path, read_yaml(path, kind, document), kind, document)
