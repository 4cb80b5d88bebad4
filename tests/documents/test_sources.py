"""Sources of claims: found by the first word of a citation, and listed in the docs."""

from __future__ import annotations

from pathlib import Path

from documents.sources import OTHER, source_of, sources

PAGE = Path(__file__).resolve().parents[2] / "docs" / "sources.md"


def test_a_source_is_found_by_its_first_word():
    assert source_of("001 Fig. 5").numbers == ("000", "001")
    assert source_of("003, Sec. 2").key == "lin2025spectral"
    assert source_of("my own paper") == source_of("") == OTHER


def test_the_docs_name_every_source():
    page = PAGE.read_text()
    for source in sources():
        assert f'"{source.title}"' in page
        assert f"`{source.key}`" in page
        assert all(f"| {number} |" in page for number in source.numbers)
