"""What all documents share: strict types, errors that name the key, and metrics as they are judged."""

from __future__ import annotations

import itertools
import re
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo
from pydantic.fields import FieldInfo

from curvebench.spec.errors import unknown

Direction = Literal["minimize", "maximize"]
Which = Literal["final", "best"]
Targets = dict[str, float | dict[str, float]]  # threshold by metric, or by metric and workload
Positive = Annotated[int, Field(ge=1)]
TAGS = ("protocol", "quantity", "at_equal")  # keys that say which model of a union a part of a study has

# New names by earlier ones. An earlier name is an error; `curvebench convert` replaces it in files.
NEW_NAMES = {
    "holds_if": "supported_if",
    "than": "compared_to",
    "than_on": "control_workload",
    "down_to": "until",
    "gain_from": "baseline",
    "gain_to": "reference",
    "gain_in": "gain_metric",
    "ties": "tie_break",
    "tried_in": "tuned_bases",
}
FIRST_NAMES = {new: old for old, new in NEW_NAMES.items()}
RENAMED_KEY = re.compile(rf"""(^[ \t]*(?:- )?|[{{,][ \t]*)("?)({"|".join(NEW_NAMES)})\2:""", re.MULTILINE)


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


# --- keys that had another name in earlier versions ----------------------------------------------


def converted(text: str) -> str:
    """Return the text of a study file or a plan with new names for its keys, and nothing else changed."""
    return RENAMED_KEY.sub(lambda key: f"{key[1]}{key[2]}{NEW_NAMES[key[3]]}{key[2]}:", text)


def under_first_names(value: Any) -> Any:
    """Return a value of JSON types with the first names of keys at every level.

    Hashes of jobs and of claims' rules are taken under these names, and final seeds follow from such hashes.
    A new name for a key therefore neither repeats a run nor moves a seed.
    """
    if isinstance(value, dict):
        return {FIRST_NAMES.get(key, key): under_first_names(inner) for key, inner in value.items()}
    return [under_first_names(item) for item in value] if isinstance(value, list) else value


# --- what is wrong with one ----------------------------------------------------------------------


def explained(
    errors: ValidationError, whole: type[BaseModel], owner: str, raw: Any, key: str = "key"
) -> list[str]:
    """Return a line for each error of a document: the key, the value, and what pydantic says of it.

    Args:
        whole: the document's model.
        owner, key: how messages call the document and one of its keys, such as `a study`.
        raw: the document as people wrote it.
    """
    found = errors.errors()
    # Errors that follow from others: a list is also called too short when its items are invalid, since
    # pydantic counts valid items only, and a key is also called missing when it has its earlier name.
    implied: dict[str, set[tuple[Any, ...]]] = {
        "too_short": {error["loc"][:length] for error in found for length in range(len(error["loc"]))},
        "missing": {(*error["loc"][:-1], NEW_NAMES.get(str(*error["loc"][-1:]))) for error in found},
    }
    return [
        _explained(error, whole, owner, key, raw)
        for error in found
        if error["loc"] not in implied.get(error["type"], ())
    ]


def _explained(error: Mapping[str, Any], whole: type[BaseModel], owner: str, noun: str, raw: Any) -> str:
    kind, location = error["type"], _written(error["loc"], raw)
    location += error["loc"][-1:] if kind == "missing" else ()
    key = dotted(location)
    if kind == "extra_forbidden":
        place = location[:-1]
        valid = [field.alias or name for name, field in _fields(whole, error["loc"][:-1])]
        if (name := NEW_NAMES.get(str(location[-1]))) in valid:
            return f"{key}: is now called {name}; rename it, or let curvebench convert rename all such keys"
        return f"{key}: {unknown(dotted(place) or owner, noun, location[-1], valid)}"
    if kind == "union_tag_invalid":  # of documents that a key of their own tells apart
        about = error["ctx"]
        name, valid = about["discriminator"].strip("'"), about["expected_tags"].replace("'", "").split(", ")
        return f"{key}.{name}: {unknown(owner, name, about['tag'], valid)}"
    if kind == "union_tag_not_found":
        name = error["ctx"]["discriminator"].strip("'")
        tags = [get_args(field.annotation) for key, field in _fields(whole, error["loc"]) if key == name]
        valid = list(itertools.chain(*tags))
        return f"{dotted((*location, name))}: is missing; give one of {', '.join(valid)}"
    if kind == "missing":
        return f"{key}: is missing; add it"
    said = error["msg"].removeprefix("Value error, ").removeprefix(f"{key}: ")
    value = "" if kind == "value_error" else f"{reprlib.repr(error['input'])}: "
    return f"{key}: {value}{said}".removeprefix(": ")


def _written(location: tuple[str | int, ...], raw: Any) -> tuple[str | int, ...]:
    """Return the keys and indices of a place that people wrote, without pydantic's names of unions."""
    found: list[str | int] = []
    for part in location:
        if isinstance(raw, Mapping) and part not in raw and len(raw) == 1:
            (raw,) = raw.values()  # of an entry that people write as `name: {key: value}`
        if (isinstance(raw, Mapping) and part in raw) or (isinstance(raw, list) and isinstance(part, int)):
            found.append(part)
            raw = raw[part]  # type: ignore[index]
    return tuple(found)


def dotted(location: tuple[str | int, ...]) -> str:
    """`("scales", "quick", "claims", 0)` as `scales.quick.claims[0]`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return text.removeprefix(".")


def _fields(whole: type[BaseModel], location: tuple[str | int, ...]) -> list[tuple[str, FieldInfo]]:
    """Return the fields that are valid at a place of a document, where unions have pydantic's names."""
    models = [whole]
    for step in location:
        fields = [
            field
            for model in models
            for name, field in model.model_fields.items()
            if step in (name, field.alias)
        ]
        if fields:  # an index or the key of a mapping leads no further down
            models = [inner for field in fields for inner in models_of(field.annotation)]
        models = [model for model in models if _has_tag(model, step)] or models
    return [item for model in models for item in model.model_fields.items()]


def _has_tag(model: type[BaseModel], tag: str | int) -> bool:
    """Whether a document is the one of several that a key tells apart by this value."""
    fields = model.model_fields.items()
    return any(name in TAGS and tag in get_args(field.annotation) for name, field in fields)


def models_of(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models that an annotation names."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from models_of(argument)
