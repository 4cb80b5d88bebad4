"""`curvebench list`: all that studies can name, as text, as JSON, or as the page of all optimizers."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from curvebench.commands.command import JSON, STUDIES, argument, command, print_json
from curvebench.spec.errors import InputError, no_beginning
from curvebench.spec.sources import sources


@command(
    "list",
    argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="what begins so, or cites the source with that number (004), with all that it takes",
    ),
    JSON,
    argument("--markdown", action="store_true", help="print the page of all optimizers"),
    STUDIES,
)
def list_names(given: Namespace) -> None:
    """List workloads, optimizers, bases, backends, studies, claims, a line each."""
    if given.names and given.markdown:
        raise InputError("--markdown prints a whole page: leave the names out")
    content = _named(catalogue(given.studies), given.names)
    if given.json:
        print_json(content)
        return
    from curvebench.reports.rendering import templates

    template = "optimizers.md.jinja" if given.markdown else "catalogue.txt.jinja"
    page = templates(markdown=True).get_template(template)
    print(page.render(content=content, details=bool(given.names)), end="")


def _named(content: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """What begins with one of the names, or cites the source that one is the number of; all without names.

    Raises:
        InputError: for a name that means nothing.
    """
    if not names:
        return content
    for name in names:
        if not name or not any(_chosen(items, [name]) for items in content.values()):
            raise InputError(
                no_beginning(name, dict.fromkeys(one for items in content.values() for one in items))
            )
    found = {part: _chosen(items, names) for part, items in content.items()}
    return {part: items for part, items in found.items() if items}


def _chosen(items: Any, names: Sequence[str]) -> Any:
    """Those of a list, or of a mapping by its keys and sources, that one of the names means."""
    if not isinstance(items, Mapping):
        return [name for name in items if name.startswith(tuple(names))]
    numbers = {number for one in sources() for number in one.numbers} & {*names}
    return {
        name: about
        for name, about in items.items()
        if name.startswith(tuple(names)) or not numbers.isdisjoint(re.findall(r"\w+", about["source"]))
    }


def catalogue(study_folder: Path) -> dict[str, Any]:
    """All that studies can name, and the studies, in plain JSON types.

    Raises:
        InputError: for bad studies.
    """
    from curvebench.backends import BACKENDS
    from curvebench.optimizers.bases import bases
    from curvebench.planning.studies.reading import read_studies
    from curvebench.property_checks.checks import claims_by_id, file_of
    from curvebench.registry import RULES, WORKLOADS, known

    rules, problems = known(RULES), known(WORKLOADS)  # first: a broken module is told once, not by study
    studies = read_studies(study_folder)
    claims = {
        claim.id: {**_about(claim, "sentence", "source"), "study": study.name}
        for study in studies
        for claim in study.claims
    }
    checked = {
        name: {**_about(claim, "sentence", "source"), "checked in": file_of(module)}
        for name, (module, claim) in claims_by_id().items()
    }
    return {
        "workloads": {
            name: {
                **_about(workload, "description", "source"),
                "settings": _options(workload.settings),
                "metrics": {key: metric.direction for key, metric in workload.metrics.items()},
                "missing": workload.missing(workload.complete({})),
            }
            for name, workload in problems.items()
        },
        "optimizers": {
            name: {
                "source": rule.source,
                "hyperparameters": {
                    key: _about(one, "default", "interval", "description")
                    for key, one in rule.hyperparameters.items()
                },
                "options": _options(rule.options),
            }
            for name, rule in rules.items()
        },
        "bases": {
            name: {**_about(basis, "description", "source"), "options": _options(basis.options)}
            for name, basis in bases().items()
        },
        "backends": list(BACKENDS),
        "studies": {
            study.name: {**_about(study.file, "question", "source"), "scales": list(study.scales)}
            for study in studies
        },
        "scales": sorted({scale for study in studies for scale in study.scales}),
        "claims": claims | checked,
    }


def _about(item: Any, *attributes: str) -> dict[str, Any]:
    return {name: getattr(item, name) for name in attributes}


def _options(options: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _about(one, "default", "description") for key, one in options.items()}
