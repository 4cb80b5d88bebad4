"""Guard of the public names: what `curvebench list --json` gives, with defaults, and commands and options."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from curvebench.__main__ import COMMANDS
from curvebench.commands.catalogue import catalogue
from curvebench.paths import STUDY_FOLDER

HERE = Path(__file__).parent
# the keys that say what something is in English, where its code is, or what this machine lacks
NOT_FROZEN = {"description", "source", "question", "sentence", "checked in", "missing"}


def without(value: Any, keys: set[str]) -> Any:
    """Return a JSON value without these keys, at any depth."""
    if isinstance(value, dict):
        return {name: without(item, keys) for name, item in sorted(value.items()) if name not in keys}
    return value


def test_the_catalogue_is_unchanged(frozen: Callable[[Path, str], None]):
    names = without(json.loads(json.dumps(catalogue(STUDY_FOLDER, {}))), NOT_FROZEN)
    frozen(HERE / "catalogue.json", json.dumps(names, indent=1) + "\n")


def test_commands_and_their_options_are_unchanged(frozen: Callable[[Path, str], None]):
    commands = [command for part in COMMANDS.values() for command in part]
    lines = [
        f"{command.name}: {' '.join('/'.join(names) for names, _ in command.arguments)}".rstrip()
        for command in commands
    ]
    frozen(HERE / "commands.txt", "\n".join(sorted(lines)) + "\n")
