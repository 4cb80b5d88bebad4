"""Files as users write them, modules and studies: tests copy them, with parts of the text replaced."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent


def user_file(name: str) -> str:
    """Return the text of a file of this folder."""
    return (HERE / name).read_text()
