"""Guard of the site: ids, tables and internal links of each page of the site of all published sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from curvebench.reports.figures.all_figures import draw_all
from curvebench.reports.pages.site import render_site
from curvebench.results.archive import archive_of, with_figures
from curvebench.spec.plan import ReportPlan
from tests.reports.pages.reading import Page

HERE = Path(__file__).parent


def lines_of(page: Page) -> Iterator[str]:
    """Yield a line for each id, internal link and table: of a table the headers and the number of rows."""
    yield from (f"id {name}" for name in sorted(page.values("id")))
    links = {link for link in page.values("href", "src") if not link.startswith("http")}
    yield from (f"link {link}" for link in sorted(links))
    for headers, *rows in page.tables:
        yield f"table of {len(rows) + 1} rows: {' | '.join(' '.join(header.split()) for header in headers)}"


def published_site(folder: Path) -> Path:
    """Render the site of the published sets, where nothing was run on this machine."""
    archive = tuple(with_figures(plan, folder / "figures" / plan.published) for plan in archive_of((), ()))
    plan = ReportPlan(scale="quick", studies=(), archive=archive, path=folder / "plan.json")
    plan.path.write_text(plan.to_json())
    draw_all(plan, lambda said: None)
    render_site(plan, folder / "site", folder / "drawings", lambda said: None)
    return folder / "site"


def outline_of(site: Path) -> str:
    """Return a line for each id, link and table of each page; first those that all pages have."""
    outlines = {path.name: [*lines_of(Page(path))] for path in sorted(site.glob("*.html"))}
    shared = set.intersection(*map(set, outlines.values()))
    lines = [f"every page: {line}" for line in sorted(shared)]
    lines += [
        f"{page}: {line}" for page, outline in outlines.items() for line in outline if line not in shared
    ]
    return "\n".join(lines) + "\n"


@pytest.mark.long
def test_ids_tables_and_links_are_unchanged(
    frozen: Callable[[Path, str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def leave_out(figure: Figure, file: Any, **options: Any) -> None:
        file.write("<svg></svg>")  # the names and captions of figures matter here, and drawing takes a minute

    monkeypatch.setattr(Figure, "savefig", leave_out)
    frozen(HERE / "site.txt", outline_of(published_site(tmp_path)))
