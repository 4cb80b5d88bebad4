"""The study as people write it: which keys a file has, of which types, what is wrong; tour and census.

YAML is read strictly: 1e-3 is a number, and a key that is given twice an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    Field,
    ValidationError,
    model_validator,
)
from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from curvebench.spec import document as documents
from curvebench.spec.claim import Claim
from curvebench.spec.errors import InputError, unknown
from curvebench.spec.method import Method
from curvebench.spec.training import ScaleTraining, StudyTraining, TrainingProtocol
from curvebench.spec.tuning import Axis, Tuning

FIRST_FINAL_SEED = 1000  # tuning seeds lie below the final ones: no run is judged by a seed that tuned it
NULL = "null"
MAX_OFFERED = 4  # numbers of evaluations that an error offers

LETTERS = re.compile(r"[a-z0-9_-]+")


def in_letters(value: str) -> str:
    """A name that becomes a part of file names.

    Raises:
        ValueError: when it has other letters than it may.
    """
    if not LETTERS.fullmatch(value):
        raise ValueError(f"{value!r} is not made of small letters, digits, _ and -; files are named by it")
    return value


def _label(value: str) -> str:
    if not value:
        raise ValueError("is empty; leave it out, and tables have the name")
    if value == NULL:
        raise ValueError(f"{value!r} is what tables call a step without an optimizer; take another")
    return in_letters(value)


Budget = Annotated[int, Field(ge=1, le=10**9)]
Label = Annotated[str, AfterValidator(_label)]


class NamedItem(documents.Document):
    """A workload or a basis with its options: `egop`, or `{egop: {blocks: all, label: whole}}`.

    Args:
        label: what tables call it; its name where none is given.
    """

    name: str
    label: Label = ""
    options: dict[str, Any] = Field(default={})

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        name, given = value, None
        if isinstance(value, Mapping) and len(value) == 1:
            ((name, given),) = value.items()
        if not isinstance(name, str) or not (given is None or isinstance(given, Mapping)):
            example = "{adam: {beta1: 0.9}}"
            raise ValueError(f"{value!r} is neither a name nor a name with options, such as {example}")
        own = set(cls.model_fields) - {"name", "options"}
        options = dict(given or {})
        about = {key: options.pop(key) for key in own & options.keys()}
        return {"name": name, **about, "options": options}


class NamedOptimizer(NamedItem):
    """An optimizer of a study with its hyperparameters and options.

    Args:
        space: its own search space; empty where it has the study's.
    """

    space: dict[str, Axis] = Field(default={})


class NamedBasis(NamedItem):
    """A basis of a study with its options.

    Args:
        optimizers: the labels of those that take it; None for all.
    """

    optimizers: Annotated[tuple[str, ...], Field(strict=False, min_length=1)] | None = None


NamedItems = Annotated[tuple[NamedItem, ...], Field(strict=False, min_length=1)]


class Compare(documents.Document):
    """The headline metric of figures and leaderboard, and its floor (`curvebench.spec.document.Headline`)."""

    metric: documents.JudgedWords
    floor: float | None = None


class Seeds(documents.Document):
    """How many seeds tune, and how many others judge."""

    tuning: Annotated[int, Field(ge=1, le=FIRST_FINAL_SEED)]
    final: documents.Positive


class FinalSeeds(documents.Document):
    """How many final seeds a backend takes when fewer than the scale's."""

    final: documents.Positive


class BackendUse(documents.Document):
    """How a scale uses a backend: with its own tuning, or with the rates tuned on another one."""

    tuned_on: str | None = None
    seeds: FinalSeeds | None = None
    device: Literal["cpu", "gpu"] = "cpu"


def _or_empty(value: Any) -> Any:
    return {} if value is None else value


class Scale(ScaleTraining):
    """A size of the study: budget, seeds, backends, and what is said about them on the page."""

    seeds: Seeds
    epochs: Budget | None = None
    steps: Budget | None = None
    tuning: dict[str, Any] = Field(default={})  # what of the study's protocol is another at this scale
    optimizers: Annotated[tuple[str, ...], Field(strict=False, min_length=1)] | None = (
        None  # labels; None: all
    )
    backends: Annotated[dict[str, Annotated[BackendUse, BeforeValidator(_or_empty)]], Field(min_length=1)]
    settings: dict[str, dict[str, Any]] = Field(default={})
    bundle_memory_bytes: documents.Positive = 1 << 30  # two jobs side by side stay well inside 6 GiB
    alternatives: bool = True  # whether claims are checked at all settings that tuning may have chosen
    jobs: Literal["optimizer", "workload", "basis", "seed"] = "optimizer"  # what has a (final) job of its own
    timing: bool = True  # whether steps are timed, on a machine that does nothing else
    at_most_partly: str = ""  # why a claim cannot be fully reproduced at this scale
    note: str = ""
    cost: str = ""  # what it takes to run the study at this scale, and what says so

    @model_validator(mode="after")
    def _budget(self) -> Scale:
        if (self.epochs is None) == (self.steps is None):
            raise ValueError("give either epochs or steps")
        ((unit, budget),) = self.budget.items()
        if budget % self.evaluations:
            divisors = [n for n in range(1, budget + 1) if budget % n == 0]
            near = sorted(sorted(divisors, key=lambda n: abs(n - self.evaluations))[:MAX_OFFERED])
            raise ValueError(
                f"evaluations: {self.evaluations} does not divide the {budget} {unit} into equal stretches "
                f"(valid near it: {', '.join(map(str, near))})"
            )
        return self

    @property
    def budget(self) -> dict[str, int]:
        """The length of a run, `{"epochs": n}` or `{"steps": n}`."""
        return {"epochs": self.epochs} if self.epochs is not None else {"steps": self.steps or 0}

    def final_seeds(self, backend: str) -> int:
        """How many seeds methods are judged on with a backend."""
        return (self.backends[backend].seeds or self.seeds).final


class Contribution(documents.Document):
    """Who hands a method in: author, paper and code, as they are cited."""

    author: str
    paper: str = ""
    code: str = ""


class StudyQuestion(documents.Document):
    """What a study asks, and how its methods are tuned.

    Args:
        source_figures: which figure shows what one of the source does, by that one's name: a figure's name
            without its backend, such as `digits_mlp.train_loss.epochs`, or without its workload as well.
        joins: the study whose methods its own are compared with, under the same protocol; empty for none.
        contributed: who hands its method in; None where nobody does.
    """

    question: str
    source: str
    source_figures: dict[str, str] = Field(default={})
    tuning: Tuning
    joins: str = ""
    contributed: Contribution | None = None


class StudyFile(StudyQuestion, StudyTraining):
    """A whole study file. Names are not looked up here (curvebench.planning.studies.validation does).

    Keys that it does not give are those of the study file that it is `like`, or that it `joins`, which lies
    beside it. Runs have the precision of their workload where none is given. A single workload may stand
    under `workload`.
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
            raise ValueError("workload: is a single one; give a list under workloads")
        return raw

    @model_validator(mode="after")
    def _tunes(self) -> StudyFile:
        for name, scale in self.scales.items():
            try:
                own = self.tuning.sized(scale.tuning)
                own.check_lengths(scale.budget, scale.evaluations)
            except ValidationError as errors:
                raw = {"tuning": {**dict(self.tuning), **scale.tuning}}
                lines = documents.explained(errors, StudyFile, "a study", raw)
                raise ValueError("; ".join(f"scales.{name}.{line}" for line in lines)) from errors
            except ValueError as error:
                raise ValueError(f"scales.{name}.tuning: {error}") from error
            if set(own.names) != set(self.tuning.names):
                here, there = (", ".join(one.names) for one in (own, self.tuning))
                raise ValueError(f"scales.{name}.tuning: tunes {here}, and the study {there}; tune the same")
        return self

    def training(self, scale: str) -> TrainingProtocol:
        """Return the training protocol at a scale, its targets by name, as pages list them."""
        shared = {name: getattr(self, name) for name in StudyTraining.model_fields}
        shared["targets"] = dict(sorted(self.targets.items()))
        return TrainingProtocol.taken_from(self.scales[scale], **shared)


DocumentT = TypeVar("DocumentT", bound=documents.Document)

JOINING = {"joins", "contributed", "optimizers", "workloads", "question"}  # a joining study's own


# --- reading -------------------------------------------------------------------------------------


def read_study_file(path: Path) -> StudyFile:
    """Read a study file and check its shape.

    Raises:
        InputError: with a line for each problem.
    """
    return _validated(path, _whole(path), "a study", StudyFile)


def _validated(path: Path, raw: dict[str, Any], what: str, document: type[DocumentT]) -> DocumentT:
    """The document of keys and values; arguments as those of `read_document`."""
    try:
        return document.model_validate(raw)
    except ValidationError as errors:
        lines = dict.fromkeys(f"{path}: {said}" for said in documents.explained(errors, document, what, raw))
        raise InputError("\n".join(lines)) from errors


def _whole(path: Path, after: tuple[str, ...] = ()) -> dict[str, Any]:
    """A study file with the keys of the one that it is like, and the rules of claims that it repeats.

    Args:
        after: the studies that are like this one.
    """
    raw = read_yaml(path, "a study", StudyFile)
    if "joins" in raw:
        return {**_protocol_of_joined(path, raw), **raw}
    other = _other(path, raw["like"], (*after, path.stem)) if "like" in raw else {}
    if isinstance(raw.get("claims"), list):
        known = [one for one in documents.as_list(other.get("claims")) if isinstance(one, Mapping)]
        rules = {str(claim.get("id")): claim for claim in known}
        raw["claims"] = [_with_rule(path, claim, rules) for claim in raw["claims"]]
    return {**other, **raw}


def _protocol_of_joined(path: Path, raw: Mapping[str, Any]) -> dict[str, Any]:
    """What a study has of the one that it joins: the protocol, with which its methods must be run."""
    for key in raw.keys() - JOINING:
        raise InputError(f"{path}: {key}: is that of {raw['joins']}, which it joins; leave it out")
    whole = _other(path, raw["joins"], (path.stem,))
    protocol = {
        name: value for name, value in whole.items() if name not in ("claims", "contributed", "joins")
    }
    for scale in protocol["scales"].values():  # of the methods that the study has, this one is none
        scale.pop("optimizers", None)
    return protocol


def _other(path: Path, name: Any, after: tuple[str, ...]) -> dict[str, Any]:
    """What a study takes from the file that it is like."""
    names = sorted(other.stem for other in path.parent.glob("*.yaml") if other != path)
    if name not in names:
        raise InputError(f"{path}: like: {unknown(str(path.parent), 'other study', str(name), names)}")
    if name in after:
        raise InputError(f"{path}: like: {name} is like this one; one of them must be like none")
    whole = _whole(path.parent / f"{name}.yaml", after)
    whole.pop("source_figures", None)  # another study has other figures
    return whole


def _with_rule(path: Path, raw: Any, rules: Mapping[str, Mapping[str, Any]]) -> Any:
    """A claim of a file; one that repeats another has from there whatever is not its own."""
    if not isinstance(raw, Mapping) or "repeats" not in raw:
        return raw
    place, repeats = f"{path}: claims.{raw.get('id')}", str(raw["repeats"])
    if repeats not in rules:
        where = "the study that this one is like"
        raise InputError(f"{place}.repeats: {unknown(where, 'claim', repeats, rules)}")
    given = [name for name in ("sentence", "source", "supported_if") if name in raw]
    if given:
        raise InputError(f"{place}.{given[0]}: it is that of {repeats}; leave it out")
    rule, bases = rules[repeats], raw.get("bases")
    bases = bases if isinstance(bases, Mapping) else {}
    conditions = [
        dict(one) for one in documents.as_list(rule.get("supported_if")) if isinstance(one, Mapping)
    ]
    met: set[str] = set()
    for condition in conditions:
        for key in ("better", "no_worse", "same", "compared_to"):
            if isinstance(condition.get(key), list):
                parts = [Method.of(str(method)) for method in condition[key]]
                condition[key] = [Method(name, str(bases.get(basis, basis))).label for name, basis in parts]
                met.update(basis for _, basis in parts)
    for basis in bases:
        if basis not in met:
            raise InputError(f"{place}.bases: {unknown(repeats, 'basis', str(basis), sorted(met))}")
    return {"sentence": rule.get("sentence"), "source": rule.get("source"), **raw, "supported_if": conditions}


def read_yaml(path: Path, what: str, document: type[documents.Document]) -> dict[str, Any]:
    """The keys and values of a YAML file, read strictly.

    Args:
        what: it should be, such as "a study", and which `document` has its keys.

    Raises:
        InputError: when it cannot be read, or is none.
    """
    try:
        raw = parsed_yaml(str(path), path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file in UTF-8 ({error.reason}); save it as UTF-8") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    if not isinstance(raw, dict):
        keys = ", ".join(document.model_fields)
        raise InputError(f"{path}: not {what}: the file must hold keys and values (keys: {keys})")
    return raw


def parsed_yaml(where: str, text: str) -> Any:
    """Parse a text in YAML.

    Args:
        where: the file or option that holds the text, for messages.

    Raises:
        InputError: when it is no valid YAML.
    """
    try:
        return deepcopy(_parsed(text))
    except DuplicateKeyError as error:
        found = re.search(r'duplicate key "(.*?)"', str(error.problem))
        key, line = found[1] if found else "?", error.problem_mark.line + 1
        raise InputError(f"{where}: {key}: duplicate key at line {line}; keep one of the two") from error
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise InputError(f"{where}: line {line}: not valid YAML ({error.problem})") from error
    except YAMLError as error:
        raise InputError(f"{where}: not valid YAML ({error})") from error


@lru_cache(maxsize=256)  # studies are like others, and are read once for each plan
def _parsed(text: str) -> Any:
    return YAML(typ="safe", pure=True).load(text)


class Tour(documents.Document):
    """What a tour runs: file stems or claim ids, of studies and of property checks."""

    studies: Annotated[tuple[str, ...], Field(min_length=1, strict=False)]


class Census(documents.Document):
    """Every claim of some sources, by the id under which a study or a check decides it."""

    claims: Annotated[tuple[str, ...], Field(min_length=1, strict=False)]


def read_document(path: Path, what: str, document: type[DocumentT]) -> DocumentT:
    """Read the file of a tour or a census.

    Args:
        what: it is, such as "a tour".

    Raises:
        InputError: with a line for each problem.
    """
    return _validated(path, read_yaml(path, what, document), what, document)
