"""What all documents share: strict types, unknown keys as errors, and metrics as they are judged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo

Direction = Literal["minimize", "maximize"]
Which = Literal["final", "best"]
Precision = Literal["float32", "float64"]
Positive = Annotated[int, Field(ge=1)]


class Document(BaseModel):
    """A part of a document: unknown keys are errors, text is never taken for a number."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, serialize_by_alias=True
    )


class Judged(Document):
    """A metric at the end of a run or at its best: `final train_loss`."""

    which: Which
    metric: str

    def __str__(self) -> str:
        return f"{self.which} {self.metric}"


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
        if not is_written(info) or isinstance(value, Judged):
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
