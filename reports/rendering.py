"""Rendering of templates: pages, the READMEs of published sets, and output of commands."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curvebench.reports import formatting
from curvebench.reports.measures import NEARLY
from curvebench.reports.plan import criterion
from curvebench.reports.statistics.anytime import SCORED, SHARES_LEFT
from curvebench.reports.statistics.decisions import POWER, SEEDS
from curvebench.reports.statistics.profiles import LIMIT
from curvebench.reports.statistics.ranks import MIN_SEEDS, NEGLIGIBLE
from curvebench.results.intervals import LEVEL
from curvebench.results.verdicts import ALPHA, COARSE, MIN_AGREEMENT, NEARLY_HELD
from curvebench.spec.conditions.costs import NEARLY_BEST
from curvebench.spec.sources import by_name

if TYPE_CHECKING:
    import jinja2

TEMPLATES = Path(__file__).parent / "templates"
CONSTANTS = {
    "alpha": ALPHA,
    "least_seeds": MIN_SEEDS,
    "coarse": COARSE,
    "kept": MIN_AGREEMENT,
    "level": LEVEL,
    "limit": LIMIT,
    "most_seeds": SEEDS[-1],
    "nearly": NEARLY,
    "nearly_held": NEARLY_HELD,
    "nearly_best": NEARLY_BEST,
    "negligible": NEGLIGIBLE,
    "power": POWER,
    "range_below": formatting.RANGE_BELOW,
    "scored": [float(SHARES_LEFT[index]) for index in SCORED],
}


def text_of(name: str, **context: Any) -> str:
    """Render a template of plain text, and return the text without its last newline.

    Args:
        name: file name of the template without the ending `.txt.jinja`.
        context: variables of the template.
    """
    return templates(markdown=True).get_template(f"{name}.txt.jinja").render(context).removesuffix("\n")


def templates(markdown: bool = False) -> jinja2.Environment:
    """Return a new environment for the project's templates, with filters that format numbers and names.

    Args:
        markdown: whether the templates are Markdown or plain text. If so, values are not escaped, and the
            last newline of a template is kept. By default the templates are HTML, and values are escaped.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=not markdown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=markdown,
    )
    environment.filters |= {
        name: function
        for name, function in vars(formatting).items()
        if callable(function) and function.__module__ == formatting.__name__ and not name.startswith("_")
    }
    environment.filters |= {
        "by_name": by_name,
        "criterion": criterion,
        "objections": lambda waived: lines("objections.jinja", "in_short", waived),
        "quoted": '"{}"'.format,
        "without": lambda mapping, names: {key: value for key, value in mapping.items() if key not in names},
    }
    environment.tests |= {"finite": math.isfinite}
    environment.globals |= CONSTANTS
    return environment


@cache
def macros(template: str) -> Any:
    """Return an object whose attributes are the macros of a template. The macros do not escape values."""
    return templates(markdown=True).get_template(template).module


def lines(template: str, macro: str, *context: Any) -> list[str]:
    """Call a macro of a template and return the lines of its text, without empty lines.

    Args:
        template: file name of the template.
        macro: name of the macro.
        context: arguments of the macro.
    """
    text = str(getattr(macros(template), macro)(*context))
    return list(filter(None, map(str.strip, text.splitlines())))


def say(template: str, macro: str, *context: Any) -> str:
    """Call a macro of a template, and join the lines of its text with semicolons to one line.

    Args:
        template: file name of the template.
        macro: name of the macro.
        context: arguments of the macro.
    """
    return "; ".join(lines(template, macro, *context))
