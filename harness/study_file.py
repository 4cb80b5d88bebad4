"""The shape of a study file: which keys it has, of which types, read so that 1e-3 is a number."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    model_validator,
)
from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from harness.errors import InputError
from harness.spec import Precision
from harness.tuning import coarse_rates
from optimizers.names import unknown
from results.methods import method_label, method_parts
from results.verdicts import COSTS, OF_TUNING

MOST_TUNING_SEEDS = 1000  # final seeds start there, so that no run is judged by a seed that tuned it

Metric = str
Method = str  # "adam" in the identity basis, "adam @ egop" in a basis labelled egop


class Part(BaseModel):
    """A part of a study file: unknown keys are errors, text is never taken for a number."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Named(Part):
    """A name with options: `adam`, or `{adam: {beta1: 0.9}}`."""

    name: str
    options: dict[str, Any]


class Judged(Part):
    """A metric at the end of a run or at its best: `final train_loss`."""

    which: Literal["final", "best"]
    metric: Metric

    def __str__(self) -> str:
        return f"{self.which} {self.metric}"


class Chosen(Judged):
    """What tuning compares: `median best validation_accuracy`."""

    statistic: Literal["median"]


def _named(value: Any) -> Any:
    if isinstance(value, str):
        return {"name": value, "options": {}}
    if isinstance(value, Mapping) and len(value) == 1:
        name, options = next(iter(value.items()))
        if options is None or isinstance(options, Mapping):
            return {"name": name, "options": dict(options or {})}
    raise ValueError(f"{value!r} is neither a name nor a name with options, such as {{adam: {{beta1: 0.9}}}}")


def _words(*names: str, example: str) -> BeforeValidator:
    """Split `median best train_loss` into the named fields."""

    def split(value: Any) -> Any:
        words = value.split() if isinstance(value, str) else []
        if len(words) != len(names):
            raise ValueError(f"{value!r} does not have the form '{' '.join(names)}', such as {example!r}")
        return dict(zip(names, words, strict=True))

    return BeforeValidator(split)


def _share(value: Any) -> Any:
    """Read `5 %` as 0.05."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?%", value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{value!r} is not a percentage such as '5 %'")
    return float(match[1]) / 100.0


def _methods_or_number(value: Any) -> Any:
    if isinstance(value, list | tuple) or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    raise ValueError(f"{value!r} is neither a list of methods, such as [adam], nor a number, such as 0.95")


def _or_empty(value: Any) -> Any:
    return {} if value is None else value


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


Item = Annotated[Named, BeforeValidator(_named)]
Items = Annotated[tuple[Item, ...], Field(strict=False, min_length=1)]
Methods = Annotated[tuple[Method, ...], Field(strict=False, min_length=1)]
# what a condition holds methods against
Rivals = Annotated[
    Annotated[Methods, Tag("methods")] | Annotated[float, Tag("number")],
    Discriminator(lambda value: "methods" if isinstance(value, list | tuple) else "number"),
    BeforeValidator(_methods_or_number),
]
Positive = Annotated[int, Field(ge=1)]
Budget = Annotated[int, Field(ge=1, le=10**9)]
JudgedWords = Annotated[Judged, _words("which", "metric", example="final train_loss")]
ChosenWords = Annotated[
    Chosen, _words("statistic", "which", "metric", example="median best validation_accuracy")
]
SharedAcross = Literal["bases", "none"]
# bases by their labels; None is every basis of the study
TriedIn = Annotated[tuple[str, ...], BeforeValidator(_as_list), Field(strict=False, min_length=1)] | None


class TwoStageSweep(Part):
    """Powers of ten, then doublings around the best of them (000 Sec. C.3)."""

    protocol: Literal["two_stage_sweep"]
    of: Literal["learning_rate"]
    coarse: Annotated[tuple[float, float], Field(strict=False)]
    choose: ChosenWords
    shared_across: SharedAcross
    tried_in: TriedIn = None

    @model_validator(mode="after")
    def _grid(self) -> TwoStageSweep:
        coarse_rates(*self.coarse)
        return self

    def resolved(self) -> dict[str, Any]:
        """The protocol as a job's spec holds it."""
        return {"names": ["learning_rate"], "coarse": list(coarse_rates(*self.coarse))}


class Axis(Part):
    """The interval of one hyperparameter in a search space; with equal ends its one value."""

    low: float
    high: float
    scale: Literal["log", "linear"]

    @model_validator(mode="after")
    def _interval(self) -> Axis:
        if self.low > self.high:
            raise ValueError(f"the space is empty: low = {self.low:g} is above high = {self.high:g}")
        if self.scale == "log" and self.low <= 0:
            raise ValueError(f"low = {self.low:g} has no logarithm; use a positive bound or scale: linear")
        return self


class Search(Part):
    """A search with a fixed number of points, the same for every method."""

    protocol: Literal["random_search", "halton_search"]
    budget: Positive
    space: Annotated[dict[str, Axis], Field(min_length=1)]
    choose: ChosenWords
    shared_across: SharedAcross
    tried_in: TriedIn = None

    @model_validator(mode="after")
    def _rate(self) -> Search:
        if "learning_rate" not in self.space:
            raise ValueError("space: learning_rate is missing; it has no default, so a search must cover it")
        return self

    def resolved(self) -> dict[str, Any]:
        """The protocol as a job's spec holds it."""
        names = ["learning_rate", *(name for name in self.space if name != "learning_rate")]
        space = {name: self.space[name].model_dump() for name in names}
        return {"names": names, "budget": self.budget, "space": space}


class Schedule(Part):
    """What multiplies the learning rate, for every method alike."""

    name: str = "constant"
    warmup: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    cooldown: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    final: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0

    @model_validator(mode="after")
    def _has_an_end(self) -> Schedule:
        if self.cooldown and self.name != "constant":
            raise ValueError(f"cooldown: it is of a constant schedule, and {self.name} falls by itself")
        if self.warmup + self.cooldown > 1.0:
            raise ValueError("cooldown: warmup and cooldown are shares of the steps; together they exceed 1")
        if self.name == "constant" and not self.cooldown and "final" in self.model_fields_set:
            raise ValueError(
                "final: a constant schedule has none; remove it, give a cooldown, or name another schedule"
            )
        if self.name == "inverse_sqrt" and "final" in self.model_fields_set:
            raise ValueError("final: 1 / sqrt(t) has none; remove it, or name another schedule")
        return self


class Stop(Part):
    """What ends a run before its budget."""

    gradient_norm: Annotated[float, Field(gt=0.0)] | None = None


class Compare(Part):
    """The headline metric of figures and leaderboard."""

    metric: JudgedWords


class Condition(Part):
    """A relation between methods that a claim asserts.

    One of `better`, `no_worse` and `same` lists methods, `than` those they are held against: pair by
    pair, or each against each with `pairs: all`; on the same workload, unless `than_on` names another one. It
    may be a number, against which each method is held. The effect is a ratio where the metric is minimized,
    else a difference, unless it is given. Final runs are compared, at equal steps, unless `quantity` asks for
    a cost, the shape of a curve or the tuning runs, or `at_equal` for another cost; None, for what is not
    given, leaves rules' hashes as they were.
    """

    metric: JudgedWords
    better: Methods | None = None
    no_worse: Methods | None = None
    same: Methods | None = None
    than: Rivals
    pairs: Literal["matched", "all"] = "matched"
    workload: str | None = None
    than_on: str | None = None
    smallest_effect: Annotated[float, BeforeValidator(_share)] | None = None
    effect: Literal["ratio", "difference"] | None = None
    test: Literal["sign", "wilcoxon"] = "sign"
    family: str | None = None
    quantity: (
        Literal[
            "value",
            "steps_to_stop",
            "steps_to_target",
            "seconds_to_nearly_best",
            "log_linearity",
            "best_learning_rate",
            "trend",
            "rates_won",
        ]
        | None
    ) = None
    down_to: Annotated[float, Field(gt=0.0)] | None = None
    at_equal: Literal["steps", "gradients", "seconds"] | None = None

    @model_validator(mode="after")
    def _quantity(self) -> Condition:
        if self.quantity in (None, "value"):
            return self
        if self.at_equal is not None and self.quantity == "log_linearity":
            raise ValueError("at_equal: log_linearity is of whole curves; leave one out")
        if self.at_equal is not None and self.quantity in COSTS:
            raise ValueError(f"at_equal: {self.quantity} compares costs, not values at a cost; leave one out")
        if self.at_equal is not None:
            raise ValueError(f"at_equal: it is of final runs, {self.quantity} of tuning runs; leave one out")
        if self.effect is not None:
            raise ValueError(f"effect: {self.quantity} has its own; leave it out")
        if self.quantity in ("steps_to_stop", "log_linearity") and self.metric.which != "final":
            raise ValueError(f"metric: {self.quantity} is of runs to their end; say final")
        if self.quantity in ("steps_to_target", "seconds_to_nearly_best") and self.metric.which != "best":
            raise ValueError(f"metric: {self.quantity} is of the best value; say best")
        if self.quantity == "log_linearity" and self.down_to is None:
            raise ValueError("down_to: is missing; log_linearity is of curves down to a value, such as 1e-12")
        if self.quantity in ("trend", "rates_won") and self.better is None:
            raise ValueError(f"quantity: {self.quantity} is of a gain; name the methods in `better`")
        return self

    @model_validator(mode="after")
    def _relation(self) -> Condition:
        if len(self.relations) != 1:
            raise ValueError("give exactly one of better, no_worse and same")
        methods = next(iter(self.relations.values()))
        if isinstance(self.than, tuple) and self.pairs == "matched" and len(methods) != len(self.than):
            raise ValueError(
                f"{len(methods)} methods cannot be paired with the {len(self.than)} of `than`; "
                "give equally many, or pairs: all"
            )
        return self

    @model_validator(mode="after")
    def _against(self) -> Condition:
        """A number, or runs on another workload, can be held against what final runs are at equal steps."""
        of_values = self.quantity in (None, "value", "log_linearity")
        at_a_cost = self.at_equal not in (None, "steps")
        if self.down_to is not None and self.quantity != "log_linearity":
            raise ValueError("down_to: it is of quantity: log_linearity alone; leave it out")
        if not isinstance(self.than, tuple) and (at_a_cost or not of_values):
            asked = "at_equal" if at_a_cost else self.quantity
            raise ValueError(f"than: a number is held against values and log_linearity, not with {asked}")
        if not isinstance(self.than, tuple) and self.pairs == "all":
            raise ValueError("pairs: a number is held against each method as it is; leave it out")
        if self.than_on is None:
            return self
        if not isinstance(self.than, tuple):
            raise ValueError("than_on: a number is of no workload; leave one out")
        if self.workload in (None, self.than_on):
            raise ValueError("than_on: name another one in workload, whose runs are held against its runs")
        if at_a_cost or self.of_tuning:
            asked = "at_equal" if at_a_cost else self.quantity
            raise ValueError(f"than_on: {asked} compares methods on one workload; leave one out")
        return self

    @property
    def held_against(self) -> tuple[Method, ...]:
        """The methods of `than`; none where it is a number."""
        return self.than if isinstance(self.than, tuple) else ()

    @property
    def comparisons(self) -> int:
        """How many there are on one workload."""
        (methods,) = self.relations.values()
        return len(methods) * (len(self.held_against) if self.pairs == "all" else 1)

    @property
    def of_tuning(self) -> bool:
        """Whether tuning runs are compared."""
        return self.quantity in OF_TUNING

    @property
    def relations(self) -> dict[str, tuple[Method, ...]]:
        """The relations that are given, by name."""
        given = {"better": self.better, "no_worse": self.no_worse, "same": self.same}
        return {name: methods for name, methods in given.items() if methods is not None}


class Claim(Part):
    """A sentence of a paper with the conditions that decide it: all of them must hold.

    One that `repeats` another has sentence, source and conditions from there (`read_study_file`). `changed`
    says how its runs differ, in words that follow a verdict, such as "in float64"; `bases` which basis stands
    for which.
    """

    id: str
    sentence: str
    source: str
    holds_if: Annotated[tuple[Condition, ...], BeforeValidator(_as_list), Field(strict=False, min_length=1)]
    repeats: str | None = None
    changed: str | None = None
    bases: dict[str, str] | None = None

    @model_validator(mode="after")
    def _says_what(self) -> Claim:
        if (self.repeats is None) != (self.changed is None) or (self.bases and not self.repeats):
            raise ValueError("repeats, changed and bases: a claim that repeats another says what is changed")
        return self


class Seeds(Part):
    """How many seeds tune, and how many others judge."""

    tuning: Annotated[int, Field(ge=1, le=MOST_TUNING_SEEDS)]
    final: Positive


class FinalSeeds(Part):
    """How many final seeds a backend takes when fewer than the scale's."""

    final: Positive


class BackendUse(Part):
    """How a scale uses a backend: with its own tuning, or with the rates tuned on another one."""

    tuned_on: str | None = None
    seeds: FinalSeeds | None = None
    device: Literal["cpu", "gpu"] = "cpu"


VALID = 4  # numbers of evaluations that an error offers


class Scale(Part):
    """A size of the study: budget, seeds, backends, and what is said about them on the page."""

    epochs: Budget | None = None
    steps: Budget | None = None
    evaluations: Positive
    seeds: Seeds
    backends: Annotated[dict[str, Annotated[BackendUse, BeforeValidator(_or_empty)]], Field(min_length=1)]
    settings: dict[str, dict[str, Any]] = {}
    bundle_memory_bytes: Positive = 1 << 30  # two jobs side by side stay well inside 6 GiB
    at_most_partly: str = ""  # why a claim cannot be fully reproduced at this scale
    note: str = ""

    @model_validator(mode="after")
    def _budget(self) -> Scale:
        if (self.epochs is None) == (self.steps is None):
            raise ValueError("give either epochs or steps")
        ((unit, budget),) = self.budget.items()
        if budget % self.evaluations:
            divisors = [n for n in range(1, budget + 1) if budget % n == 0]
            near = sorted(sorted(divisors, key=lambda n: abs(n - self.evaluations))[:VALID])
            raise ValueError(
                f"evaluations: {self.evaluations} does not divide the {budget} {unit} into equal stretches "
                f"(valid near it: {', '.join(map(str, near))})"
            )
        return self

    @property
    def budget(self) -> dict[str, int]:
        """The length of a run, `{"epochs": n}` or `{"steps": n}`."""
        return {"epochs": self.epochs} if self.epochs is not None else {"steps": self.steps or 0}


class StudyFile(Part):
    """A whole study file. Names are not looked up here (harness.studies does).

    Keys that it does not give are those of the study file that it is `like`, which lies beside it. Runs have
    the precision of their workload where none is given.
    """

    like: str | None = None
    question: str
    source: str
    source_figures: dict[str, str] = {}
    setting_notes: Annotated[tuple[str, ...], Field(strict=False)] = ()
    workload: Item | None = None
    workloads: Items | None = None
    optimizers: Items
    bases: Items = (Named(name="identity", options={}),)
    tuning: Annotated[TwoStageSweep | Search, Field(discriminator="protocol")]
    schedule: Schedule = Schedule()
    stop: Stop = Stop()
    precision: Precision | None = None
    targets: dict[Metric, float] = {}
    compare: Compare
    claims: Annotated[tuple[Claim, ...], Field(strict=False)] = ()
    scales: Annotated[dict[str, Scale], Field(min_length=1)]

    @model_validator(mode="after")
    def _one_of(self) -> StudyFile:
        if (self.workload is None) == (self.workloads is None):
            raise ValueError("give either workload (one) or workloads (a list)")
        return self


def read_study_file(path: Path) -> StudyFile:
    """Read a study file and check its shape.

    Raises:
        InputError: with a line for each problem.
    """
    raw = _whole(path)
    try:
        return StudyFile.model_validate(raw)
    except ValidationError as errors:
        lines = dict.fromkeys(f"{path}: {_explain(error)}" for error in errors.errors())
        raise InputError("\n".join(lines)) from errors


def _whole(path: Path, after: tuple[str, ...] = ()) -> dict[str, Any]:
    """A study file with the keys of the one that it is like, and the rules of claims that it repeats.

    Args:
        after: the studies that are like this one.
    """
    raw: dict[str, Any] = _load(path)
    other = _other(path, raw["like"], (*after, path.stem)) if "like" in raw else {}
    if isinstance(raw.get("claims"), list):
        known = [one for one in _as_list(other.get("claims")) if isinstance(one, Mapping)]
        rules = {str(claim.get("id")): claim for claim in known}
        raw["claims"] = [_with_rule(path, claim, rules) for claim in raw["claims"]]
    return {**other, **raw}


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
    given = [name for name in ("sentence", "source", "holds_if") if name in raw]
    if given:
        raise InputError(f"{place}.{given[0]}: it is that of {repeats}; leave it out")
    rule, bases = rules[repeats], raw.get("bases")
    bases = bases if isinstance(bases, Mapping) else {}
    conditions = [dict(one) for one in _as_list(rule.get("holds_if")) if isinstance(one, Mapping)]
    met: set[str] = set()
    for condition in conditions:
        condition.pop("family", None)  # it must not count in another claim's correction
        for key in ("better", "no_worse", "same", "than"):
            if isinstance(condition.get(key), list):
                parts = [method_parts(str(method)) for method in condition[key]]
                condition[key] = [method_label(name, str(bases.get(basis, basis))) for name, basis in parts]
                met.update(basis for _, basis in parts)
    for basis in bases:
        if basis not in met:
            raise InputError(f"{place}.bases: {unknown(repeats, 'basis', str(basis), sorted(met))}")
    return {"sentence": rule.get("sentence"), "source": rule.get("source"), **raw, "holds_if": conditions}


def _load(path: Path) -> Any:
    try:
        raw = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except DuplicateKeyError as error:
        found = re.search(r'duplicate key "(.*?)"', str(error.problem))
        key, line = found[1] if found else "?", error.problem_mark.line + 1
        raise InputError(f"{path}: {key}: duplicate key at line {line}; keep one of the two") from error
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise InputError(f"{path}: line {line}: not valid YAML ({error.problem})") from error
    except YAMLError as error:
        raise InputError(f"{path}: not valid YAML ({error})") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file in UTF-8 ({error.reason}); save it as UTF-8") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    if not isinstance(raw, dict):
        keys = ", ".join(StudyFile.model_fields)
        raise InputError(f"{path}: not a study: the file must hold keys and values (keys: {keys})")
    return raw


NOT_A = {
    "float_type": "a number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "string_type": "text",
    "dict_type": "a mapping of keys and values",
    "model_type": "a mapping of keys and values",
    "model_attributes_type": "a mapping of keys and values",
    "tuple_type": "a list",
    "bool_type": "true or false",
}


def _explain(error: Mapping[str, Any]) -> str:
    """One line for an error of pydantic: the key, what is wrong, what would be right."""
    location = tuple(part for part in error["loc"] if part not in _TAGS)
    kind, given, context = error["type"], error["input"], error.get("ctx", {})
    key = _dotted(location)
    if kind == "extra_forbidden":
        fields = _fields(StudyFile, error["loc"][:-1])
        return f"{key}: {unknown(_dotted(location[:-1]) or 'a study', 'key', location[-1], fields)}"
    if kind in NOT_A:
        return f"{key}: {given!r} is not {NOT_A[kind]}{_quoted_number(given)}"
    if kind == "missing":
        return f"{key}: is missing"
    if kind == "too_short":
        return f"{key}: is empty or too short; give at least {context['min_length']}"
    if kind == "literal_error":
        return f"{key}: {given!r} is not one of {context['expected']}"
    if kind == "union_tag_invalid":
        return f"{key}.protocol: {context['tag']!r} is not one of {context['expected_tags']}"
    if kind == "union_tag_not_found":
        return f"{key}.protocol: is missing (valid: {', '.join(sorted(_PROTOCOLS))})"
    if kind == "value_error":
        return f"{key}: {context['error']}" if key else str(context["error"])
    return f"{key}: {given!r}: {error['msg'][0].lower()}{error['msg'][1:]}"


_PROTOCOLS = frozenset({"two_stage_sweep", "random_search", "halton_search"})
_TAGS = _PROTOCOLS | {"methods", "number"}


def _quoted_number(given: Any) -> str:
    try:
        float(given)
    except (TypeError, ValueError):
        return ""
    return f"; write {given} without quotes" if isinstance(given, str) else ""


def _dotted(location: tuple[str | int, ...]) -> str:
    """`("scales", "quick", "claims", 0)` as `scales.quick.claims[0]`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return text.removeprefix(".")


def _fields(part: type[BaseModel], location: tuple[str | int, ...]) -> list[str]:
    """The keys that are valid at a place of the file."""
    candidates: list[type[BaseModel]] = [part]
    for step in location:
        if step in _TAGS:
            candidates = [model for model in candidates if step in _protocols(model)]
            continue
        held = [model.model_fields[step] for model in candidates if step in model.model_fields]
        if held:  # an index or the key of a mapping leads no further down
            candidates = [model for field in held for model in _models(field.annotation)]
    return [name for model in candidates for name in model.model_fields]


def _protocols(model: type[BaseModel]) -> tuple[str, ...]:
    return get_args(model.model_fields["protocol"].annotation)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)
