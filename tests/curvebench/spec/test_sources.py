"""Sources of claims: found by the first word of a citation, and listed in the docs."""

from __future__ import annotations

from pathlib import Path

from curvebench.spec.sources import OTHER, by_name, source_of, sources

PAGE = Path(__file__).resolve().parents[3] / "docs" / "sources.md"


def test_a_source_is_found_by_its_first_word():
    assert source_of("001 Fig. 5").numbers == ("000", "001")
    assert source_of("003, Sec. 2").key == "lin2025spectral"
    assert source_of("my own paper") == source_of("") == OTHER


def test_pages_name_sources_in_place_of_their_numbers():
    assert by_name("000 Fig. 17, C.6; 001 Fig. 5") == "EGOP paper Fig. 17, C.6; EGOP paper v1 Fig. 5"
    assert by_name("printed (002 eq. 22) as 003") == "printed (Stratos 2026 eq. 22) as Lin et al. 2025"
    for text in ("masks 000, 030 and 100", "1,000 steps", "0.001 d", "mask_000 is"):
        assert by_name(text) == text


def test_the_docs_name_every_source():
    page = PAGE.read_text()
    for source in sources():
        assert f'"{source.title}"' in page
        assert f"`{source.key}`" in page
        named = zip(source.numbers, source.names, strict=True)
        assert all(f"| {number} | {name} |" in page for number, name in named)
