"""Sources of claims: found by the first word of a citation, listed in the docs, and one file each."""

from __future__ import annotations

from pathlib import Path

import pytest

from curvebench.spec.errors import InputError
from curvebench.spec.sources import OTHER, by_name, papers, sentences_on, source_of, sources, stand_ins

PAGE = Path(__file__).resolve().parents[3] / "docs" / "sources.md"
PAPER = """\
key: mine2026
name: Mine 2026
title: Mine
authors: [A. Body, B. Body]
sentences:
  - {place: Sec. 1, quote: It is 0., tested: it is 0 to rounding, claim: mine.zero, parts: [the first]}
  - {place: Fig. 2, quote: It is fast., not_here: the source timed a supercomputer}
"""


def test_a_source_is_found_by_its_first_word():
    assert source_of("001 Fig. 5").numbers == ("000", "001")
    assert source_of("003, Sec. 2").names == ("Lin et al. 2025",)
    assert source_of("my own paper") == source_of("") == OTHER


def test_pages_name_sources_in_place_of_their_numbers():
    assert by_name("000 Fig. 17, C.6; 001 Fig. 5") == "EGOP paper Fig. 17, C.6; EGOP paper v1 Fig. 5"
    assert by_name("printed (002 eq. 22) as 003") == "printed (Stratos 2026 eq. 22) as Lin et al. 2025"
    for text in ("masks 000, 030 and 100", "1,000 steps", "0.001 d", "mask_000 is"):
        assert by_name(text) == text


def test_the_docs_name_every_source():
    page = PAGE.read_text()
    assert [number for source in sources() for number in source.numbers] == [*papers()]
    for number, paper in papers().items():
        assert f'"{paper.title}"' in page or "the same, an earlier version" in page
        assert f"| {number} | {paper.name} | `{paper.key}` |" in page


def test_a_paper_is_one_file_and_its_number_is_the_name(tmp_path: Path):
    (tmp_path / "007.yaml").write_text(PAPER)
    [(number, paper)] = papers(tmp_path).items()
    assert (number, paper.about) == ("007", "A. Body and others.")
    assert [sentence.claim for sentence in paper.sentences] == ["mine.zero", ""]
    assert papers(tmp_path / "none") == {}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("claim: mine.zero", "open: no check", r""),
        (", claim: mine.zero", "", r"sentences\[0\].*claim, open, not_here: give a claim"),
        ("claim: mine.zero", "claim: mine.zero, open: no check", r"sentences\[0\].*claim, open, not_here"),
        ("tested: it is 0 to rounding, ", "", r"sentences\[0\].*tested: say in one line"),
        ("place: Fig. 2, ", "", r"sentences\[1\]\.place"),
        ("quote: It is fast.", "words: It is fast.", r"sentences\[1\]\.words"),
        ("title: Mine", "heading: Mine", r"heading"),
    ],
)
def test_a_sentence_that_says_too_little_or_too_much_is_refused(
    tmp_path: Path, old: str, new: str, told: str
):
    assert old in PAPER
    (tmp_path / "007.yaml").write_text(PAPER.replace(old, new))
    if not told:
        assert papers(tmp_path)["007"].sentences[0].open == "no check"
        return
    with pytest.raises(InputError, match=rf"007\.yaml: .*{told}"):
        papers(tmp_path)


def test_a_claim_knows_its_sentences_and_stand_ins_are_no_claims_of_a_source():
    assert {number for number, _ in sentences_on("egop.convex")} == {"000", "001"}
    assert sentences_on("egop.convex-at-equal-gradients") == []
    assert stand_ins() == {"spectral.vit-small", "spectral.vit-small-root"}
    assert not any(sentence.claim == name for name in stand_ins() for _, sentence in sentences_on(name))


def test_no_sentence_is_listed_twice_for_one_reason():
    for number, paper in papers().items():
        keys = [(entry.quote, entry.claim, entry.parts, entry.stand_in) for entry in paper.sentences]
        assert len(set(keys)) == len(keys), number
