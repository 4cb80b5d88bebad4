"""Study files as people write them: their keys and types, reading and checking them; tours and censuses.

YAML is read strictly: `1e-3` is a number, and a duplicate key is an error. Plain YAML 1.1 does neither.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, AliasChoices, BeforeValidator, Field, ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from curvebench.spec import document as documents
from curvebench.spec.claim import Claim
from curvebench.spec.errors import InputError, unknown
from curvebench.spec.method import Method
from curvebench.spec.training import ScaleTraining, StudyTraining, TrainingProtocol
from curvebench.spec.tuning import Axis, Tuning

# Tuning seeds lie below the final seeds, so that no method is judged on a seed that tuned it.
FIRST_FINAL_SEED = 1000
NULL = "null"
# An error offers at most this many valid numbers of evaluations.
MAX_OFFERED = 4

LETTERS = re.compile(r"[a-z0-9_-]+")


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

    Options lie flat in the mapping below the name. Keys that are fields of this class, such as `label`, are
    taken out of it; all others become `options`.

    Args:
        label: name in tables and figures; empty for `name`. It distinguishes two items of the same name.
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
        space: search space by hyperparameter that replaces the study's for this optimizer; empty to keep it.
    """

    space: dict[str, Axis] = Field(default={})


class NamedBasis(NamedItem):
    """A basis of a study with its options.

    Args:
        optimizers: labels of the optimizers that run in this basis; None for all optimizers of the study.
    """

    optimizers: documents.Names | None = None


NamedItems = Annotated[tuple[NamedItem, ...], Field(strict=False, min_length=1)]


class Compare(documents.Document):
    """The headline metric of figures and leaderboard with its floor, as written (`document.Headline`)."""

    metric: documents.JudgedWords
    floor: float | None = None


class Seeds(documents.Document):
    """Number of seeds that tune a method, and number of other seeds on which it is judged."""

    tuning: Annotated[int, Field(ge=1, le=FIRST_FINAL_SEED)]
    final: documents.Positive


class FinalSeeds(documents.Document):
    """Number of final seeds of one backend, where it has fewer than the scale."""

    final: documents.Positive


class BackendUse(documents.Document):
    """How a scale uses a backend.

    Args:
        tuned_on: backend whose tuned hyperparameters this one takes over; None to tune on this backend.
        seeds: number of final seeds; None for the scale's.
        device: kind of device that runs take.
    """

    tuned_on: str | None = None
    seeds: FinalSeeds | None = None
    device: Literal["cpu", "gpu"] = "cpu"


def _or_empty(value: Any) -> Any:
    return {} if value is None else value


class Scale(ScaleTraining):
    """A size of a study: training budget, seeds, backends, and remarks for its page.

    Args:
        epochs, steps: length of a run; exactly one of them is given.
        tuning: keys of the study's tuning protocol that have other values at this scale.
        optimizers: labels of the optimizers that run at this scale; None for all.
        backends: how each backend is used, by its name; the first one leads the overview.
        settings: settings of workloads that differ at this scale, by label of the workload.
        bundle_memory_bytes: memory that the lanes of one program may take; it bounds their number. The
            default lets two jobs run next to each other within 6 GiB.
        alternatives: whether final runs are also made at settings that other tuning seeds would choose, so
            that a claim shows whether it depends on tuning.
        jobs: what gets a runs job of its own: each optimizer, or further each workload, basis or seed of it.
        timing: whether step times are measured, which takes a machine without other work.
        at_most_partly: reason why no claim can be fully reproduced at this scale; empty where one can.
        cost: what the study costs at this scale, and how that is known.
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
    """Author, paper and code of a submission, as they are cited."""

    author: str
    paper: str = ""
    code: str = ""


class StudyQuestion(documents.Document):
    """The question of a study, its source, and how its methods are tuned.

    Args:
        source_figures: figure of the source by the name of the figure here that shows the same. The name here
            has no backend, such as `digits_mlp.train_loss.epochs`, and may lack the workload too.
        joins: name of the study whose methods a submission is compared with, under the same protocol; empty
            for a study that is no submission.
        contributed: author of a submission; None where it is not to be published.
    """

    question: str
    source: str
    source_figures: dict[str, str] = Field(default={})
    tuning: Tuning
    joins: str = ""
    contributed: Contribution | None = None


class StudyFile(StudyQuestion, StudyTraining):
    """A study file whose shape is valid. `curvebench.planning.studies.validation` looks up the names in it.

    Keys that a file leaves out are taken from the file that it is `like`, or from the study that it `joins`;
    both lie in the same folder. Without `precision`, runs have the precision of their workload. A single
    workload may be written under `workload`.
    """

    like: str | None = None
    setting_notes: Annotated[tuple[str, ...], Field(strict=False)] = ()
    workloads: Annotated[
        NamedItems,
        BeforeValidator(documents.as_list),
        Field(validation_alias=AliasChoices("workloads", "workload")),
    ]
    optimizers: Annotated[tuple[NamedOptimizer, ...], Field(strict=False, min_length=1)]
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

# The only keys that the file of a submission may have; all others are those of the study that it joins.
SUBMISSION_KEYS = {"joins", "contributed", "optimizers", "workloads", "question"}


# --- reading -------------------------------------------------------------------------------------


def read_study_file(path: Path) -> StudyFile:
    """Read a study file with all that it takes from other files, and check its shape.

    Raises:
        InputError: with a line for each problem.
    """
    return _validated(path, _completed(path), "a study", StudyFile)


def _validated(path: Path, raw: dict[str, Any], kind: str, document: type[DocumentT]) -> DocumentT:
    """Validate the keys and values of a file; the arguments are those of `read_document`."""
    try:
        return document.model_validate(raw)
    except ValidationError as errors:
        messages = documents.explained(errors, document, kind, raw)
        lines = dict.fromkeys(f"{path}: {message}" for message in messages)
        raise InputError("\n".join(lines)) from errors


def _completed(path: Path, chain: tuple[str, ...] = ()) -> dict[str, Any]:
    """Read a study file, completed from the file that it is `like` and from claims that it repeats.

    Args:
        chain: names of the studies that are like this one, to detect a circle.
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
    """Return the keys that a submission takes from the study that it joins: the protocol of all methods."""
    for key in raw.keys() - SUBMISSION_KEYS:
        raise InputError(f"{path}: {key}: is taken from {raw['joins']}, which this study joins; leave it out")
    joined = _inherited(path, raw["joins"], (path.stem,))
    protocol = {key: value for key, value in joined.items() if key not in ("claims", "contributed", "joins")}
    # Scales may select among the methods of the joined study; the submitted method is not one of them.
    for scale in protocol["scales"].values():
        scale.pop("optimizers", None)
    return protocol


def _inherited(path: Path, name: Any, chain: tuple[str, ...]) -> dict[str, Any]:
    """Return the keys that a study takes from the file that it is `like`, or joins.

    Args:
        name: the other study, as written.
        chain: names of the studies that are like this one, and of this one.
    """
    names = sorted(file.stem for file in path.parent.glob("*.yaml") if file != path)
    if name not in names:
        raise InputError(f"{path}: like: {unknown(str(path.parent), 'other study', str(name), names)}")
    if name in chain:
        raise InputError(f"{path}: like: {name} is like this study in turn; remove one of the two keys")
    raw = _completed(path.parent / f"{name}.yaml", chain)
    # Names of figures contain the name of their study, here the other one.
    raw.pop("source_figures", None)
    return raw


def _with_rule(path: Path, raw: Any, rules: Mapping[str, Mapping[str, Any]]) -> Any:
    """Complete a claim that repeats another one by its sentence, source and conditions.

    In the conditions, bases are replaced by those that the claim's key `bases` names. Other claims are
    returned unchanged.

    Args:
        rules: claims that may be repeated, by id.
    """
    if not isinstance(raw, Mapping) or "repeats" not in raw:
        return raw
    key_of_claim, repeats = f"{path}: claims.{raw.get('id')}", str(raw["repeats"])
    if repeats not in rules:
        where = "the study that this one is like"
        raise InputError(f"{key_of_claim}.repeats: {unknown(where, 'claim', repeats, rules)}")
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
    for basis in bases:
        if basis not in met:
            raise InputError(f"{key_of_claim}.bases: {unknown(repeats, 'basis', str(basis), sorted(met))}")
    return {"sentence": rule.get("sentence"), "source": rule.get("source"), **raw, "supported_if": conditions}


def read_yaml(path: Path, kind: str, document: type[documents.Document]) -> dict[str, Any]:
    """Read the keys and values of a YAML file strictly.

    Args:
        kind: kind of file in messages, such as "a study".
        document: model whose keys a message offers.

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
        keys = ", ".join(document.model_fields)
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


# A file is read many times: once for each study that is like it, and again for each plan.
@lru_cache(maxsize=256)
def _parsed(text: str) -> Any:
    return YAML(typ="safe", pure=True).load(text)


class Tour(documents.Document):
    """The selection that `snakemake reports` runs by default: names of studies, claims or check modules."""

    studies: documents.Names


class Census(documents.Document):
    """All claims of some sources, by the ids under which studies or property checks decide them."""

    claims: documents.Names


def read_document(path: Path, kind: str, document: type[DocumentT]) -> DocumentT:
    """Read the file of a tour or a census.

    Args:
        kind: kind of file in messages, such as "a tour".
        document: model of its content.

    Raises:
        InputError: with a line for each problem.
    """
    return _validated(path, read_yaml(path, kind, document), kind, document)
