"""Sources of claims: the papers and notes that are cited by number, such as "000 Fig. 5".

Studies, property checks and docstrings cite the numbers. `sources.toml` gives the title of each number: 000
and 001 are two versions of the EGOP paper, 002 are notes on adaptive learning methods, 003 is the paper on
spectral-factorized curvature, 004 the paper on SymO.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("sources.toml")


@dataclass(frozen=True)
class Source:
    """A paper or note that makes claims.

    Args:
        key: BibTeX key; empty for `OTHER`.
        numbers: numbers by which the source is cited: one for each version of the source, the newest first.
        names: names of the versions on pages, in the order of `numbers`.
        title: title of the document.
        authors: names of the authors; empty if the document names no author.
        year: year of publication; None if the document has no date.
        note: remark for pages.
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
        """Anchor of the source on the page of claims, and its value in the page's filter."""
        return "-".join(self.numbers) or "others"

    @property
    def about(self) -> str:
        """Text with the authors, the year and the note of the source."""
        first, *coauthors = (*self.authors, "")
        by = f"{first} and others" if len(coauthors) > 1 else first
        written = ", ".join(filter(None, (by, str(self.year or ""))))
        return " ".join(filter(None, (written and f"{written}.", self.note)))


OTHER = Source("", (), (), "Other sources", note="Named with each claim.")


@cache
def sources() -> tuple[Source, ...]:
    """Return all sources in `sources.toml`, in the order of that file."""
    tables = tomllib.loads(FILE.read_text())["source"]
    lists = ("numbers", "names", "authors")
    return tuple(Source(**{**table, **{key: tuple(table.get(key, ())) for key in lists}}) for table in tables)


def source_of(citation: str) -> Source:
    """Return the source that a citation such as "002 eq. 22" names by the number at its beginning.

    Return `OTHER` if the citation does not begin with the number of a source.
    """
    first = citation.partition(" ")[0].rstrip(",;")
    return next((source for source in sources() if first in source.numbers), OTHER)


def by_name(text: str) -> str:
    """Replace the numbers of sources in a text by their names: "000 Fig. 5" becomes "EGOP paper Fig. 5"."""
    names = dict(pair for source in sources() for pair in zip(source.numbers, source.names, strict=True))
    return re.sub(rf"(?<![\w.,-])({'|'.join(names)})(?=[ ;]|$)", lambda match: names[match[0]], text)
