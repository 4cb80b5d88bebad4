"""The six novels of Jane Austen, as the R package janeaustenr stores them."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from curvebench.workloads.r_files import r_files, read_rdb

# Titles of the novels, and the names of the objects with their lines.
NOVELS = {
    "Emma": "emma",
    "Mansfield Park": "mansfieldpark",
    "Northanger Abbey": "northangerabbey",
    "Persuasion": "persuasion",
    "Pride and Prejudice": "prideprejudice",
    "Sense and Sensibility": "sensesensibility",
}
AUSTEN = r_files("janeaustenr", "Rdata.rdx", "Rdata.rdb")


def read_austen() -> dict[str, list[str]]:
    """Return the lines of each novel, by its title.

    Raises:
        DataMissing: if a file does not exist.
        DataDamaged: if a file cannot be read, or a novel is missing.
    """
    return _read(*AUSTEN.required().values())


@lru_cache(maxsize=1)  # the novels are read once, and shared by the seeds of a job
def _read(places: Path, objects: Path) -> dict[str, list[str]]:
    return {title: read_rdb(places, objects, name).values for title, name in NOVELS.items()}
