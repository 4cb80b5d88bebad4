"""The registry: modules of a package are found by a constant, and a name may stand once."""

from __future__ import annotations

from pathlib import Path

import pytest

from optimizers.registry import found

ITEM = "from optimizers.bases.basis import Basis\nBASES = (Basis({name!r}, 'none', 'x'),)\n"


def package(folder: Path, name: str, modules: dict[str, str]) -> None:
    """A package with one basis a module."""
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text("")
    (folder / name / "plain.py").write_text("")
    for module, item in modules.items():
        (folder / name / f"{module}.py").write_text(ITEM.format(name=item))


def test_items_are_found_with_their_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    package(tmp_path, "some_bases", {"b": "first", "a": "second"})
    items = found("some_bases", "BASES")
    assert {name: module for name, (_, module) in items.items()} == {
        "first": "some_bases.b",
        "second": "some_bases.a",
    }
    assert [item.name for item, _ in items.values()] == ["second", "first"]


def test_a_name_given_twice_is_an_error_with_both_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    package(tmp_path, "same_bases", {"a": "same", "b": "same"})
    with pytest.raises(ValueError, match=r"'same' is in both same_bases\.a and same_bases\.b"):
        found("same_bases", "BASES")
