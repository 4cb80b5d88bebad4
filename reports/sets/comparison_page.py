"""The page that `curvebench sets compare` writes: two sides beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from reports.pages.site import STATIC
from reports.rendering import templates
from reports.sets.comparing import ANSWERS, Kind, compare
from reports.sets.sides import Side, read_side
from reports.statistics.ranks import NEGLIGIBLE
from results.merging import machines


def write_comparison(before: Path, after: Path, out: Path) -> Path:
    """Write the page that sets two sides beside each other.

    Args:
        before, after: folders of published sets, or of checkouts whose site is rendered.
        out: the page.

    Raises:
        InputError: when a side cannot be read, or their scales differ.
    """
    page = render(read_side(before), read_side(after))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(page)
    return out


def render(before: Side, after: Side) -> str:
    """The page, complete in itself: its style is inside."""
    rows = sorted(compare(before, after), key=lambda row: ANSWERS.index(row.answer))
    return (
        templates()
        .get_template("comparison.html.jinja")
        .render(
            style=(STATIC / "style.css").read_text(),
            sides=[
                {
                    "name": side.name,
                    "plan": side.plan,
                    "machines": machines(side.jobs).to_dicts(),
                    "commits": side.jobs.select("commit", "dirty")
                    .unique()
                    .sort("commit", "dirty")
                    .to_dicts(),
                    "started": side.jobs["started"].max(),
                }
                for side in (before, after)
            ],
            other_machines=set(before.jobs["machine"]) != set(after.jobs["machine"]),
            rows={kind: [row for row in rows if row.kind == kind] for kind in get_args(Kind)},
            answers=ANSWERS,
            negligible=NEGLIGIBLE,
        )
    )
