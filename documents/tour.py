"""The tour: what runs where neither studies nor a scale are asked for, a little of every stage in minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from documents.document import Document, explained
from documents.errors import InputError
from documents.study import read_yaml


class Tour(Document):
    """What a tour runs: file stems or claim ids, of studies and of property checks."""

    studies: Annotated[tuple[str, ...], Field(min_length=1, strict=False)]


def read_tour(path: Path) -> Tour:
    """Read the file of a tour.

    Raises:
        InputError: with a line for each problem.
    """
    raw = read_yaml(path, "a tour", Tour)
    try:
        return Tour.model_validate(raw)
    except ValidationError as errors:
        lines = [f"{path}: {said}" for said in explained(errors, Tour, "a tour", raw=raw)]
        raise InputError("\n".join(lines)) from errors
