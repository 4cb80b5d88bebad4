"""Base class of all typed documents, error messages that name the key, and metrics as studies write them.

A document is a study file, a plan or a job specification, or a mapping inside such a document.
"""

from __future__ import annotations

import itertools
import reprlib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo
from pydantic.config import JsonDict
from pydantic.fields import FieldInfo

from curvebench.spec.errors import unknown

Direction = Literal["minimize", "maximize"]
Which = Literal["final", "best"]
# Thresholds by metric: a number for all workloads, or a number for each workload by its label
Targets = dict[str, float | dict[str, float]]
Positive = Annotated[int, Field(ge=1)]
Names = Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
# Tuning protocols and conditions of claims are mappings in study files.
# The value of one of these keys decides which Python class such a mapping becomes.
TAGS = ("protocol", "quantity", "at_equal")

# Mark of fields that only plans have, so that messages do not offer them as keys of study files
NOT_WRITTEN: JsonDict = {"written": False}
# Name of a key in hashes, by its name in files. Hashes and seeds of published runs contain these names.
# `budget` was the number of all settings of a method. For a method with one tuned hyperparameter, the number
# `budget_per_dimension` is the same.
FIRST_NAMES = {
    "supported_if": "holds_if",
    "compared_to": "than",
    "control_workload": "than_on",
    "until": "down_to",
    "baseline": "gain_from",
    "reference": "gain_to",
    "gain_metric": "gain_in",
    "tie_break": "ties",
    "tuned_bases": "tried_in",
    "budget_per_dimension": "budget",
}


class Document(BaseModel):
    """Base class of documents and of the mappings inside documents.

    Documents are immutable. Unknown keys are errors, and values are not converted: a text is never a number.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, serialize_by_alias=True
    )

    @classmethod
    def taken_from(cls, source: object, **values: Any) -> Self:
        """Create a document from the attributes of another object.

        Args:
            source: object whose attributes have the same names as fields of the document. Fields that
                `source` lacks keep their defaults.
            values: values of fields that are not taken from `source`.
        """
        shared = {name for name in cls.model_fields if name not in values and hasattr(source, name)}
        return cls(**{name: getattr(source, name) for name in shared}, **values)

    def to_json(self) -> str:
        """Return the text of the document's file, in which each value has a line of its own, for `diff`."""
        return self.model_dump_json(indent=1) + "\n"


class Judged(Document):
    """A metric, and the value of a run that counts: the last value or the best value of the metric.

    An example in a study file is `final train_loss`.
    """

    which: Which
    metric: str

    def __str__(self) -> str:
        return f"{self.which} {self.metric}"


class Headline(Judged):
    """The metric of figures and leaderboard, and whether its final or best value counts.

    Args:
        floor: runs whose value of the metric is better than this number tie, because their differences have
            no meaning (below the rounding error of a loss, for example); None if runs never tie.
    """

    floor: float | None = None


def is_written(info: ValidationInfo) -> bool:
    """Return whether a validated value comes from a file that people wrote, in YAML.

    All other values come from JSON that this project wrote. In such JSON, texts such as `final train_loss`
    have already become mappings, and percentages have become numbers.
    """
    return info.mode != "json"


def as_list(value: Any) -> Any:
    """Return a list unchanged, and any other value as a list with this item.

    In a study file, people may leave out the brackets of a list with a single item.
    """
    return value if isinstance(value, list | tuple) else [value]


def words(names: str, example: str) -> BeforeValidator:
    """Return a validator that splits a text such as `median best train_loss` into named fields.

    Args:
        names: names of the fields, one for each word.
        example: a valid text, for messages.
    """

    def split(value: Any, info: ValidationInfo) -> Any:
        if not is_written(info) or isinstance(value, Document):
            return value
        parts = value.split() if isinstance(value, str) else []
        if len(parts) != len(names.split()):
            raise ValueError(f"{value!r} does not have the form '{names}', such as {example!r}")
        return dict(zip(names.split(), parts, strict=True))

    return BeforeValidator(split)


JudgedWords = Annotated[Judged, words("which metric", "final train_loss")]


# --- keys that had another name in earlier versions ----------------------------------------------


def under_first_names(value: Any) -> Any:
    """Return a JSON value in which each renamed key, at every level, has its original name again.

    Hashes of jobs and of decision rules are computed from the original names, and the seeds of final runs are
    computed from such hashes. Therefore no run is repeated and no seed changes when a key is renamed.
    """
    if isinstance(value, dict):
        return {FIRST_NAMES.get(key, key): under_first_names(inner) for key, inner in value.items()}
    return [under_first_names(item) for item in value] if isinstance(value, list) else value


# --- messages for errors -------------------------------------------------------------------------


def explained(
    errors: ValidationError, model: type[BaseModel], owner: str, raw: Any, noun: str = "key"
) -> list[str]:
    """Return a message for each error of a document: the key, the value, and the reason.

    Args:
        errors: errors that pydantic found.
        model: class of the document.
        owner, noun: names of the document and of its keys in messages, such as `a study` and `key`.
        raw: the document as read from the file, before validation.
    """
    details = errors.errors()
    # Pydantic also calls a list too short if some items of the list are invalid.
    above = {error["loc"][:length] for error in details for length in range(len(error["loc"]))}
    return [
        _explained(error, model, owner, noun, raw)
        for error in details
        if error["type"] != "too_short" or error["loc"] not in above
    ]


def _explained(error: Mapping[str, Any], model: type[BaseModel], owner: str, noun: str, raw: Any) -> str:
    """Return the message for one error of a document.

    Args:
        error: the error, as pydantic describes it.
        model, owner, noun, raw: the arguments of `explained` with these names.
    """
    kind, location = error["type"], _written(error["loc"], raw)
    location += error["loc"][-1:] if kind == "missing" else ()
    key = dotted(location)
    tag = error.get("ctx", {}).get("discriminator", "").strip("'")
    if kind == "extra_forbidden":
        valid = valid_keys(model, error["loc"][:-1])
        return f"{key}: {unknown(dotted(location[:-1]) or owner, noun, location[-1], valid)}"
    if kind == "union_tag_invalid":
        valid = error["ctx"]["expected_tags"].replace("'", "").split(", ")
        return f"{key}.{tag}: {unknown(owner, tag, error['ctx']['tag'], valid)}"
    if kind == "union_tag_not_found":
        values = [get_args(field.annotation) for key, field in _fields(model, error["loc"]) if key == tag]
        return f"{dotted((*location, tag))}: is missing; give one of {', '.join(itertools.chain(*values))}"
    if kind == "missing":
        return f"{key}: is missing; add it"
    if kind in ("model_type", "model_attributes_type"):
        keys = ", ".join(valid_keys(model, error["loc"]))
        return f"{key}: {reprlib.repr(error['input'])} is no mapping; give keys and values (valid: {keys})"
    reason = error["msg"].removeprefix("Value error, ").removeprefix(f"{key}: ")
    reason = reason.replace("a valid dictionary", "keys and values").replace("a valid tuple", "a list")
    value = "" if kind == "value_error" else f"{reprlib.repr(error['input'])}: "
    return f"{key}: {value}{reason}".removeprefix(": ")


def _written(location: tuple[str | int, ...], raw: Any) -> tuple[str | int, ...]:
    """Return the keys and indices that lead to a value in the file, given pydantic's location of the value.

    Pydantic's locations also contain keys that are not in the file: the name of a class if a value may be of
    several classes, and the keys `name` and `options` of an entry that people write as `name: {key: value}`.

    Args:
        location: pydantic's location: keys and indices.
        raw: the document as read from the file, before validation.
    """
    written: list[str | int] = []
    for part in location:
        if isinstance(raw, Mapping) and part not in raw and len(raw) == 1:
            (raw,) = raw.values()
        if (isinstance(raw, Mapping) and part in raw) or (isinstance(raw, list) and isinstance(part, int)):
            written.append(part)
            raw = raw[part]  # type: ignore[index]
    return tuple(written)


def dotted(location: tuple[str | int, ...]) -> str:
    """Format a location: `("scales", "quick", "claims", 0)` becomes `scales.quick.claims[0]`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return text.removeprefix(".")


def valid_keys(model: type[BaseModel], location: tuple[str | int, ...] = ()) -> list[str]:
    """Return the keys that a file may have in the mapping at a location of a document.

    Args:
        model: class of the document.
        location: keys and indices, and the names that pydantic gives to members of unions.
    """
    fields = [item for item in _fields(model, location) if item[1].json_schema_extra != NOT_WRITTEN]
    keys = (getattr(field.validation_alias, "choices", [field.alias or name]) for name, field in fields)
    return list(dict.fromkeys(itertools.chain(*keys)))


def _fields(model: type[BaseModel], location: tuple[str | int, ...]) -> list[tuple[str, FieldInfo]]:
    """Return the fields that are valid in the mapping at a location of a document.

    Args:
        location: keys and indices, and the names that pydantic gives to members of unions.
    """
    models = [model]
    for step in location:
        items = [item for model in models for item in model.model_fields.items()]
        fields = [field for name, field in items if step in (name, field.alias)]
        # A list index, or a key of a mapping such as the name of a scale, is no field.
        # The variable `models` then stays as it is.
        if fields:
            models = [inner for field in fields for inner in models_of(field.annotation)]
        models = [model for model in models if _has_tag(model, step)] or models
    return [item for model in models for item in model.model_fields.items()]


def _has_tag(model: type[BaseModel], tag: str | int) -> bool:
    """Return whether `tag` is the value of a key in `TAGS` that selects the class from a union of classes.

    Args:
        model: the class.
        tag: a value in a study file, such as `two_stage_sweep`.
    """
    fields = model.model_fields.items()
    return any(name in TAGS and tag in get_args(field.annotation) for name, field in fields)


def models_of(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the subclasses of `BaseModel` in a type annotation, such as the members of a union."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from models_of(argument)
