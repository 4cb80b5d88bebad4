"""The page of all optimizers: source, hyperparameters and options of each, in Markdown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

HEAD = """# Optimizers

Every optimizer of this project, as a study names it, with what may stand below its name
(`python -m harness list --markdown` writes this page). Hyperparameters are those of the default options;
an option may bring others, which the error for an unknown one lists. `learning_rate` is tuned by the study.
Sources are the documents of [sources](../sources.md).
"""


def page(optimizers: Mapping[str, Mapping[str, Any]]) -> str:
    """The page for the optimizers of a catalogue (harness.cli.catalogue)."""
    return "\n".join([HEAD, *(_section(name, one) for name, one in sorted(optimizers.items()))])


def _section(name: str, one: Mapping[str, Any]) -> str:
    rows = [
        (key, _default(spec["default"]), spec["interval"], spec["description"])
        for key, spec in one["hyperparameters"].items()
    ]
    rows += [
        (key, json.dumps(option["default"]), "option", option["description"])
        for key, option in one["options"].items()
    ]
    table = [f"| `{key}` | {default} | {kind} | {said} |" for key, default, kind, said in rows]
    head = ["| | default | values | |", "| --- | --- | --- | --- |"]
    return "\n".join([f"## {name}", "", f"{one['source']}", "", *head, *table, ""])


def _default(value: float | None) -> str:
    return "given" if value is None else f"{value:g}"
