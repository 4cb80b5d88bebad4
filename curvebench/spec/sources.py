"""The sources of claims, by the numbers that studies, checks and docstrings cite (`sources.toml`)."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("sources.toml")


@dataclass(frozen=True)
class Source:
    """A document that makes claims.

    Args:
        key: its BibTeX key; empty for what is no document of the file.
        numbers: what stands for it, the newest version first.
        names: what pages call it, a name a number.
        authors: empty where the document does not name them.
        year: None where it does not say.
    """

    key: str
    numbers: tuple[str, ...]
    names: tuple[str, ...]
    title: str
    authors: tuple[str, ...] = ()
    year: int | None = None
    note: str = ""

    @property
    def anchor(self) -> str:
        """Its place on the page of claims, and its value in the filter."""
        return "-".join(self.numbers) or "others"

    @property
    def about(self) -> str:
        """Who wrote it and when, and the note, in words."""
        first, *others = (*self.authors, "")
        by = f"{first} and others" if len(others) > 1 else first
        written = ", ".join(filter(None, (by, str(self.year or ""))))
        return " ".join(filter(None, (written and f"{written}.", self.note)))


OTHER = Source("", (), (), "Other sources", note="Named with each claim.")


@cache
def sources() -> tuple[Source, ...]:
    """The documents of the file, in its order."""
    read = tomllib.loads(FILE.read_text())["source"]
    lists = ("numbers", "names", "authors")
    return tuple(Source(**{**one, **{name: tuple(one.get(name, ())) for name in lists}}) for one in read)


def source_of(citation: str) -> Source:
    """The document that a citation is of ("002 eq. 22"), by its first word; `OTHER` for any else."""
    first = citation.partition(" ")[0].rstrip(",;")
    return next((source for source in sources() if first in source.numbers), OTHER)


def by_name(text: str) -> str:
    """A text with the names of documents in place of their numbers: "EGOP paper Fig. 5" of "000 Fig. 5"."""
    names = {number: name for one in sources() for number, name in zip(one.numbers, one.names, strict=True)}
    return re.sub(rf"(?<![\w.,-])({'|'.join(names)})(?=[ ;]|$)", lambda found: names[found[0]], text)
