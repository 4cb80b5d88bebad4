"""The templates of pages and of published READMEs, ready to render."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from reports import formatting, setting

if TYPE_CHECKING:
    import jinja2

TEMPLATES = Path(__file__).parent / "templates"


def templates(markdown: bool = False) -> jinja2.Environment:
    """A new environment of the project's templates, with the filters that write numbers and names.

    Args:
        markdown: escape nothing and keep the last newline; HTML is escaped.
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
        "number": formatting.number,
        "signed": formatting.signed,
        "count": formatting.count,
        "counts": formatting.counts,
        "ratio": formatting.ratio,
        "ratios": formatting.ratios,
        "rate": formatting.rate,
        "moment": formatting.moment,
        "plain": formatting.plain,
        "interval": formatting.interval,
        "percent": formatting.percent,
        "p_value": formatting.p_value,
        "seconds": formatting.seconds,
        "size": formatting.size,
        "metric": formatting.metric_name,
        "levels": formatting.levels,
        "least": formatting.least,
        "slug": formatting.slug,
        "setting_rows": setting.setting_rows,
        "options": setting.options,
    }
    return environment
