"""Read a rendered page: its tags, its text, and an outline of what readers see of it."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

# Tags that are not closed.
VOID = {"meta", "link", "img", "input", "br", "wbr"}
INLINE = {"a", "abbr", "b", "br", "code", "em", "i", "small", "span", "strong", "sub", "sup", "time", "wbr"}
CELLS = {"th", "td"}
SHOWN = ("id", "href", "src", "alt", "title", "data-label", "data-verdict", "rowspan", "value")
SET = ("open", "checked", "disabled", "data-sortable")


class Page(HTMLParser):
    """Tags of a page, the tags that are open, and its text by block and by table cell. Tags must be nested
    correctly.
    """

    def __init__(self, path: Path):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.blocks = [""]
        # Cells by table and row.
        self.tables: list[list[list[str]]] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open += [] if tag in VOID else [tag]
        shown = [f"{name}={value}" for name, value in attrs if name in SHOWN and value]
        shown += [name for name, _ in attrs if name in SET]
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in CELLS:
            self.tables[-1][-1].append("")
        if tag not in INLINE:
            self.blocks.append(f"{tag}: ")
        self.blocks[-1] += f"[{'; '.join(shown)}] " if shown else ""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag not in INLINE:
            self.blocks.append("")

    def handle_data(self, data: str) -> None:
        self.words.append(data)
        self.blocks[-1] += data
        if not CELLS.isdisjoint(self.open):
            self.tables[-1][-1][-1] += f" {data}"

    def values(self, *names: str) -> list[str]:
        """Return the values of the attributes of these names, without empty ones."""
        return [value for _, tag in self.tags for name, value in tag.items() if name in names and value]

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """Return the attributes of each tag with the name `tag`, such as `a`."""
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def text(self) -> str:
        """Text of the page in one line."""
        return " ".join(" ".join(self.words).split())

    @property
    def outline(self) -> str:
        """One line per block of text, with attributes that link, explain or open something."""
        lines = (" ".join(block.split()) for block in self.blocks)
        return "".join(f"{line}\n" for line in lines if line and not line.endswith(":"))
