"""`curvebench list`: everything that studies can name, as text, as JSON, or as the page of all optimizers."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curvebench.commands.command import JSON, STUDIES, argument, command, print_json, print_left_out
from curvebench.spec.errors import InputError, no_beginning, put_aside

if TYPE_CHECKING:
    from curvebench.optimizers.rule import Rule
    from curvebench.optimizers.wrappers import Wrapper


@command(
    "list",
    argument("names", nargs="*", metavar="NAME"),
    JSON,
    argument("--markdown", action="store_true"),
    STUDIES,
)
def list_names(args: Namespace) -> None:
    """List workloads, optimizers, bases, backends, studies, scales and claims.

    Args:
        names: show entries whose name starts with NAME, or that cite source NAME (e.g. 004), with their
            options (default: all names, without options)
        --markdown: print the documentation page of all optimizers
    """
    if args.names and args.markdown:
        raise InputError("--markdown prints a whole page: leave the names out")
    broken: dict[str, str] = {}
    content = _selected(catalogue(args.studies, broken), args.names)
    print_left_out(broken)
    if args.json:
        print_json(content)
        return
    from curvebench.reports.rendering import templates

    template = "optimizers.md.jinja" if args.markdown else "catalogue.txt.jinja"
    page = templates(markdown=True).get_template(template)
    print(page.render(content=content, details=bool(args.names)), end="")


def _selected(content: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return the sections and entries of the catalogue that the user selects.

    Args:
        content: the catalogue, a mapping from the names of sections to sections.
        names: beginnings of names of entries, or numbers of source documents such as 004. If `names` is
            empty, the whole catalogue is returned.

    Raises:
        InputError: when a name selects no entry of any section.
    """
    if not names:
        return content
    for name in names:
        if not name or not any(_matching(entries, [name]) for entries in content.values()):
            raise InputError(no_beginning(name, dict.fromkeys(chain(*content.values()))))
    selected = {section: _matching(entries, names) for section, entries in content.items()}
    return {section: entries for section, entries in selected.items() if entries}


def _matching(entries: Any, names: Sequence[str]) -> Any:
    """Return the entries of a section that the user selects.

    An entry is selected if its name starts with one of `names`, or if its source contains one of the numbers
    in `names`.

    Args:
        entries: a section of the catalogue, which is a list of names, or a mapping from names to
            descriptions.
        names: beginnings of names of entries, or numbers of source documents such as 004.
    """
    from curvebench.spec.sources import papers

    if not isinstance(entries, Mapping):
        return [entry for entry in entries if entry.startswith(tuple(names))]
    numbers = papers().keys() & {*names}
    return {
        name: details
        for name, details in entries.items()
        if name.startswith(tuple(names)) or not numbers.isdisjoint(re.findall(r"\w+", details["source"]))
    }


def catalogue(study_folder: Path, broken: dict[str, str]) -> dict[str, Any]:
    """Return everything that study files can name, and the studies themselves, in plain JSON types.

    Args:
        study_folder: folder of the study files.
        broken: a dictionary to which an entry is added for each study, entry point or file of property claims
            that cannot be used: its name, and the reason. Such items are left out of the result.

    Returns:
        A mapping from names of sections, such as `workloads`, `optimizers` and `bases`, to sections. A
        section is a list of names, or a mapping from the name of an entry to a description with settings and
        options.
    """
    from curvebench.backends import BACKENDS
    from curvebench.optimizers.bases import bases
    from curvebench.optimizers.wrappers import WRAPPERS
    from curvebench.planning.studies.reading import comparisons, read_studies
    from curvebench.planning.studies.validation import read_study
    from curvebench.property_checks.checks import claims_by_id, file_of
    from curvebench.registry import RULES, WORKLOADS, known

    # Load all update rules and workloads before any study.
    # A broken module is then reported once, and not once for each study that uses it.
    rules, problems = known(RULES, broken), known(WORKLOADS, broken)
    studies = [*read_studies(study_folder, broken=broken)]
    for name, path in comparisons(study_folder).items():
        with put_aside(broken, name):
            studies.append(read_study(path))
    claims = {
        claim.id: {**_attributes(claim, "sentence", "source"), "study": study.name}
        for study in studies
        for claim in study.claims
    }
    property_claims = {
        name: {**_attributes(claim, "sentence", "source"), "checked in": file_of(module)}
        for name, (module, claim) in claims_by_id(broken=broken).items()
    }
    return {
        "workloads": {
            name: {
                **_attributes(workload, "description", "source"),
                "settings": _options(workload.settings),
                "metrics": {key: metric.direction for key, metric in workload.metrics.items()},
                "missing": workload.missing(workload.complete({})),
            }
            for name, workload in problems.items()
        },
        "optimizers": {
            name: {
                "source": rule.source,
                "hyperparameters": _hyperparameters(rule),
                "options": _options(rule.options),
            }
            for name, rule in rules.items()
        },
        "wrappers": {
            name: {
                **_attributes(wrapper, "description", "source"),
                "hyperparameters": _hyperparameters(wrapper),
            }
            for name, wrapper in WRAPPERS.items()
        },
        "bases": {
            name: {**_attributes(basis, "description", "source"), "options": _options(basis.options)}
            for name, basis in bases().items()
        },
        "backends": list(BACKENDS),
        "studies": {
            study.name: {**_attributes(study.file, "question", "source"), "scales": list(study.scales)}
            for study in studies
        },
        "scales": sorted({scale for study in studies for scale in study.scales}),
        "claims": claims | property_claims,
    }


def _attributes(item: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(item, name) for name in names}


def _hyperparameters(owner: Rule | Wrapper) -> dict[str, Any]:
    return {
        name: _attributes(hyperparameter, "default", "interval", "description")
        for name, hyperparameter in owner.hyperparameters.items()
    }


def _options(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _attributes(option, "default", "description") for name, option in options.items()}
