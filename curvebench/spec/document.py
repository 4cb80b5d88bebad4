"""What all documents share: strict types, errors that name the key, and metrics as they are judged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo

from curvebench.spec.errors import unknown

Direction = Literal["minimize", "maximize"]
Which = Literal["final", "best"]
Targets = dict[str, float | dict[str, float]]  # threshold by metric, or by metric and workload
Positive = Annotated[int, Field(ge=1)]


class Document(BaseModel):
    """A part of a document: unknown keys are errors, text is never taken for a number."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, serialize_by_alias=True
    )

    @classmethod
    def taken_from(cls, source: object, **own: Any) -> Self:
        """A document with the attributes of a source that its fields name, but for its own values."""
        shared = {name for name in cls.model_fields if name not in own and hasattr(source, name)}
        return cls(**{name: getattr(source, name) for name in shared}, **own)


class Judged(Document):
    """A metric at the end of a run or at its best: `final train_loss`."""

    which: Which
    metric: str

    def __str__(self) -> str:
        return f"{self.which} {self.metric}"


class Headline(Judged):
    """The judged metric of figures and leaderboard.

    Args:
        floor: the value of it beyond which all runs tie, such as what rounding leaves of a loss.
    """

    floor: float | None = None


class Criterion(Judged):
    """What tuning compares: `median best validation_accuracy`."""

    statistic: Literal["median"]


def is_written(info: ValidationInfo) -> bool:
    """Whether people wrote what is validated, in YAML; else it is JSON that a document was dumped to."""
    return info.mode != "json"


def as_list(value: Any) -> Any:
    """A single item of a list that people wrote without brackets."""
    return value if isinstance(value, list | tuple) else [value]


def words(names: Sequence[str], example: str) -> BeforeValidator:
    """Split `median best train_loss` into the named fields."""

    def split(value: Any, info: ValidationInfo) -> Any:
        if not is_written(info) or isinstance(value, Document):
            return value
        given = value.split() if isinstance(value, str) else []
        if len(given) != len(names):
            raise ValueError(f"{value!r} does not have the form '{' '.join(names)}', such as {example!r}")
        return dict(zip(names, given, strict=True))

    return BeforeValidator(split)


JudgedWords = Annotated[Judged, words(("which", "metric"), example="final train_loss")]
CriterionWords = Annotated[
    Criterion, words(("statistic", "which", "metric"), example="median best validation_accuracy")
]


# --- what is wrong with one ----------------------------------------------------------------------

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
    "bool_parsing": "true or false",
}


def explained(
    errors: ValidationError, whole: type[BaseModel], owner: str, key: str = "key", raw: Any = None
) -> list[str]:
    """A line for each error of a document: the key, what is wrong, what would be right.

    Args:
        whole: the document's model.
        owner, key: what messages call the document and one of its keys, such as `a study`.
        raw: what was validated, by which entries of lists that have names are called.
    """
    found = errors.errors()
    # pydantic counts only items that are right: a list that is too short for a wrong one is not
    inner = {error["loc"][:length] for error in found for length in range(len(error["loc"]))}
    return [
        _explained(error, whole, owner, key, raw)
        for error in found
        if error["type"] != "too_short" or error["loc"] not in inner
    ]


def _explained(error: Mapping[str, Any], whole: type[BaseModel], owner: str, noun: str, raw: Any) -> str:
    kind, given, context = error["type"], error["input"], error.get("ctx", {})
    named = _with_name(error["loc"], raw)
    last = len(named) - 1 if kind == "extra_forbidden" else None  # a key may be called as a tag is
    location = tuple(part for place, part in enumerate(named) if part not in _TAGS or place == last)
    key = dotted(location)
    if kind == "extra_forbidden":
        fields = _fields(whole, error["loc"][:-1])
        places = ", ".join(_places(whole, owner, location))
        hint = f"; it is a key of {places}" if places else ""
        return f"{key}: {unknown(dotted(location[:-1]) or owner, noun, location[-1], fields)}{hint}"
    if kind in NOT_A:
        remedy = _quoted_number(given) if "number" in NOT_A[kind] else ""
        return f"{key}: {given!r} is not {NOT_A[kind]}{remedy}"
    if kind == "missing":
        return f"{_BOTH_SPELLINGS.get(key, key)}: is missing"
    if kind == "too_short":
        return f"{key}: is empty or too short; give at least {context['min_length']}"
    if kind == "literal_error":
        return f"{key}: {given!r} is not one of {context['expected']}"
    if kind == "union_tag_invalid":
        return f"{key}.protocol: {context['tag']!r} is not one of {context['expected_tags']}"
    if kind == "union_tag_not_found":
        return f"{key}.protocol: is missing (valid: {', '.join(sorted(_PROTOCOLS))})"
    if kind == "value_error":
        return f"{key}: {str(context['error']).removeprefix(f'{key}: ')}" if key else str(context["error"])
    return f"{key}: {given!r}: {error['msg'][0].lower()}{error['msg'][1:]}"


_BOTH_SPELLINGS = {"workloads": "workload (or workloads)"}
_PROTOCOLS = frozenset({"two_stage_sweep", "random_search", "halton_search"})
_TAGS = _PROTOCOLS | {"methods", "number", "[key]"}


def _with_name(location: tuple[str | int, ...], raw: Any) -> tuple[str | int, ...]:
    """The place with an entry of workloads, optimizers or bases by its label, or its name, not its number."""
    if len(location) < 2 or location[0] not in ("workload", "workloads", "optimizers", "bases"):
        return location
    key, number, *inner = location
    entry, given = as_list(raw[key])[number], None
    if isinstance(entry, Mapping) and len(entry) == 1:
        ((entry, given),) = entry.items()
    if isinstance(given, Mapping) and isinstance(given.get("label"), str) and inner != ["label"]:
        entry = given["label"]
    return (key, entry, *inner) if isinstance(entry, str) else location


def _quoted_number(given: Any) -> str:
    try:
        float(given)
    except (TypeError, ValueError):
        return ""
    return f"; write {given} without quotes" if isinstance(given, str) else ""


def dotted(location: tuple[str | int, ...]) -> str:
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
        held = [
            field
            for model in candidates
            for name, field in model.model_fields.items()
            if step in (name, field.alias)
        ]
        if held:  # an index or the key of a mapping leads no further down
            candidates = [model for field in held for model in _models(field.annotation)]
    return [field.alias or name for model in candidates for name, field in model.model_fields.items()]


def _places(whole: type[BaseModel], owner: str, location: tuple[str | int, ...]) -> list[str]:
    """Where else in a document a key is valid: at its top, or in the entries of its keys."""
    fields = whole.model_fields.items()
    inner = [field.alias or key for key, field in fields if any(_models(field.annotation))]
    own = location[0] if len(location) > 1 else ""
    places = [place for place in ("", *inner) if place != own]
    return [place or owner for place in places if location[-1] in _fields(whole, (place,) if place else ())]


def _protocols(model: type[BaseModel]) -> tuple[str, ...]:
    return get_args(model.model_fields["protocol"].annotation)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def targets_on(targets: Targets, workload: str) -> dict[str, float]:
    """The threshold of each metric that has a target on a workload.

    Args:
        targets: what has a threshold by workload has a target on these workloads alone.
    """
    found = {name: at.get(workload) if isinstance(at, dict) else at for name, at in targets.items()}
    return {name: at for name, at in found.items() if at is not None}
