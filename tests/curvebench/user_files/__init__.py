"""Modules and studies as users write them, which tests copy and modify."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent


def user_file(name: str) -> str:
    """Return the text of a file of this folder."""
    return (HERE / name).read_text()
