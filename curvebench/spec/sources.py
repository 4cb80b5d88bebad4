"""Sources of claims: the papers and notes that are cited by number, such as "000 Fig. 5".

Studies, property checks and docstrings cite the numbers. Each source has a file in `benchmarks/papers`, named
after its number, with its title and the sentences that were taken from it: 000 and 001 are two versions of
the EGOP paper, 002 are notes on adaptive learning methods, 003 is the paper on spectral-factorized curvature,
004 the paper on SymO.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from curvebench.paths import PAPERS
from curvebench.spec.document import Document, Names
from curvebench.spec.study import read_document


class Sentence(Document):
    """A sentence of a source, and the claim that decides it, or the reason why no claim does.

    Args:
        place: section, figure or equation of the source.
        quote: the source's own words.
        reported: the source's number or figure; empty if the source gives none.
        tested: what the claim measures, in one line; empty for a sentence without a claim.
        claim: id of the claim that decides the sentence; empty if there is none.
        parts: texts that name the comparisons or subclaims of the claim that the sentence is about. A
            comparison or subclaim is named if its name on the page of claims contains one of the texts. If
            `parts` is empty, the sentence is about the whole claim.
        stand_in: id of a claim on a smaller problem, which is tested in place of the source's problem; empty
            if there is none.
        open: reason why no claim decides the sentence yet.
        not_here: reason why the sentence cannot be decided on this kind of machine or with data that can be
            installed. A claim with such a sentence may exist, but is not run.
    """

    place: str
    quote: str
    reported: str = ""
    tested: str = ""
    claim: str = ""
    parts: Names = ()
    stand_in: str = ""
    open: str = ""
    not_here: str = ""

    @model_validator(mode="after")
    def _says_what_decides(self) -> Sentence:
        if bool(self.open) == bool(self.claim or self.not_here):
            raise ValueError("claim, open, not_here: give a claim, or why the sentence is open or not here")
        if self.claim and not self.tested:
            raise ValueError("tested: say in one line what the claim measures")
        return self


class Paper(Document):
    """A source: a paper, a version of a paper, or notes.

    Args:
        key: BibTeX key; versions of one paper have the same key.
        name: short name of the source on pages.
        title: title of the source.
        authors: names of the authors; empty if the source names no author.
        year: year of publication; None if the source has no date.
        note: remark for pages.
        sentences: the sentences that were taken from the source.
    """

    key: str
    name: str
    title: str
    authors: Names = ()
    year: int | None = None
    note: str = ""
    sentences: Annotated[tuple[Sentence, ...], Field(strict=False)]

    @property
    def about(self) -> str:
        """Text with the authors, the year and the note of the source."""
        first, *coauthors = (*self.authors, "")
        by = f"{first} and others" if len(coauthors) > 1 else first
        written = ", ".join(filter(None, (by, str(self.year or ""))))
        return " ".join(filter(None, (written and f"{written}.", self.note)))


@dataclass(frozen=True)
class Source:
    """A paper, or notes, whose claims are tested. All versions of a paper count as one source.

    Args:
        numbers: numbers by which the source is cited: one for each version of the source, the newest first;
            empty for `OTHER`.
        title: title of the document.
    """

    numbers: tuple[str, ...]
    title: str

    @property
    def anchor(self) -> str:
        """Anchor of the source on the page of claims, and its value in the page's filter."""
        return "-".join(self.numbers) or "others"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the versions on pages, in the order of `numbers`."""
        return tuple(papers()[number].name for number in self.numbers)

    @property
    def about(self) -> str:
        """Text with the authors, the year and the note of the source."""
        return papers()[self.numbers[0]].about if self.numbers else "Named with each claim."


OTHER = Source((), "Other sources")


@cache
def papers(folder: Path = PAPERS) -> dict[str, Paper]:
    """Read the sources of a folder; return a mapping from numbers to sources.

    The number of a source is the name of its file.

    Raises:
        InputError: when a file is damaged.
    """
    return {path.stem: read_document(path, "a paper", Paper) for path in sorted(folder.glob("*.yaml"))}


@cache
def sources() -> tuple[Source, ...]:
    """Return all sources, in the order of their numbers."""
    by_key: dict[str, list[str]] = {}
    for number, paper in papers().items():
        by_key.setdefault(paper.key, []).append(number)
    return tuple(Source(tuple(numbers), papers()[numbers[0]].title) for numbers in by_key.values())


def source_of(citation: str) -> Source:
    """Return the source that a citation such as "002 eq. 22" names by the number at its beginning.

    Return `OTHER` if the citation does not begin with the number of a source.
    """
    first = citation.partition(" ")[0].rstrip(",;")
    return next((source for source in sources() if first in source.numbers), OTHER)


def sentences_on(claim: str) -> list[tuple[str, Sentence]]:
    """Return the sentences that a claim decides or stands in for, each with the number of its source."""
    pairs = ((number, sentence) for number, paper in papers().items() for sentence in paper.sentences)
    return [(number, sentence) for number, sentence in pairs if claim in (sentence.claim, sentence.stand_in)]


def stand_ins() -> set[str]:
    """Return the ids of the claims that are tested in place of a claim on the source's problem."""
    return {sentence.stand_in for paper in papers().values() for sentence in paper.sentences} - {""}


def by_name(text: str) -> str:
    """Replace the numbers of sources in a text by their names: "000 Fig. 5" becomes "EGOP paper Fig. 5"."""
    names = {number: paper.name for number, paper in papers().items()}
    number = "|".join(names) or "(?!)"
    return re.sub(rf"(?<![\w.,-])({number})(?=[ ;]|$)", lambda match: names[match[0]], text)
