"""Guard of the site: ids, tables and internal links of each page of the site of all published sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from curvebench.planning.archive import archive_of
from curvebench.reports.figures.all_figures import draw_all
from curvebench.reports.pages.site import render_site
from curvebench.spec.archive import with_figures
from curvebench.spec.plan import ReportPlan

HERE = Path(__file__).parent


class Outline(HTMLParser):
    """The ids, internal links and tables of a page: of each table the headers and the number of rows."""

    def __init__(self, text: str):
        super().__init__()
        self.ids: list[str] = []
        self.links: set[str] = set()
        self.tables: list[tuple[list[str], list[str]]] = []
        self.in_header = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value}
        self.ids += [given["id"]] if "id" in given else []
        self.links |= {
            link for name in ("href", "src") if not (link := given.get(name, "")).startswith("http")
        }
        if tag == "table":
            self.tables.append(([], []))
        elif tag == "tr":
            self.tables[-1][1].append(tag)
        elif tag in ("th", "td"):
            self.in_header = tag == "th" and len(self.tables[-1][1]) == 1
            self.tables[-1][0].extend([""] if self.in_header else [])

    def handle_endtag(self, tag: str) -> None:
        self.in_header = self.in_header and tag != "th"

    def handle_data(self, data: str) -> None:
        if self.in_header:
            self.tables[-1][0][-1] += f" {data}"

    @property
    def lines(self) -> Iterator[str]:
        """A line for each id, link and table."""
        yield from (f"id {name}" for name in sorted(self.ids))
        yield from (f"link {link}" for link in sorted(self.links - {""}))
        for headers, rows in self.tables:
            yield f"table of {len(rows)} rows: {' | '.join(' '.join(header.split()) for header in headers)}"


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
    outlines = {path.name: [*Outline(path.read_text()).lines] for path in sorted(site.glob("*.html"))}
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
