"""The configuration, `snakemake --config scale=paper studies=digits_mlp,egop.convex`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from curvebench.backends import BACKENDS
from curvebench.paths import RESULTS, SITE, STUDY_FOLDER
from curvebench.spec.document import Document, explained
from curvebench.spec.errors import InputError, unknown
from curvebench.spec.sets import check_letters, check_waivers
from curvebench.spec.study import Census, Tour, read_whole

TOUR, CENSUS = "tour.yaml", "census.yaml"  # beside the folder of studies
ALL = "all"


def _given(value: Any) -> Any:
    if not value or not isinstance(value, str | Path):
        raise ValueError(f"{value!r} is not a path")
    return value


def _names(value: Any) -> Any:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(one, str) and one.strip() for one in parts):
        raise ValueError(f"{value!r} is not a list of names; write studies=all for all")
    return tuple(one.strip() for one in parts)


def _backends(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if name not in BACKENDS:
            raise ValueError(unknown("the harness", "backend", name, BACKENDS))
        if names.count(name) > 1:
            raise ValueError(f"{name!r} is given twice; give each backend once")
    return names


Place = Annotated[Path, Field(strict=False), BeforeValidator(_given)]
Names = Annotated[tuple[str, ...], BeforeValidator(_names)]
Flag = Annotated[bool, Field(strict=False)]  # snakemake hands on text


class Config(Document):
    """What the user asks for.

    Args:
        scale: the size of the studies.
        studies: file stems or claim ids, of studies and of property checks, or `all`; where neither they nor
            a scale are given, those of the tour.
        repeats: whether studies that only repeat claims of those asked for are run too.
        backends: names; empty for all that a study uses.
        results: the folder that specs, runs, tables and figures are written to.
        site: the folder of the report.
        study_folder: the folder of the study files.
        data: the folder of data sets that pip does not install; `CURVEBENCH_DATA` for the workloads.
        seeds_of: a published set whose seeds the studies that it has draw again; None for those of today.
        name: what `publish` calls the set of tables; no other target needs one.
        waive: what `publish` lets pass (`curvebench.spec.sets.WAIVERS`).
        parity: whether the backends are compared where what is run is on both.
        readme: the page whose leaderboard `publish` replaces; None to leave all pages alone.
        keep_failed: whether what failed is left as it is, and not tried again.
        minutes: the most that the runs of a workload in a basis may take in a round; None for no limit.
        checkpoint_minutes: between two checkpoints of a run; None for the usual 15.
    """

    scale: Annotated[str, Field(min_length=1)] = "quick"
    studies: Names = ()
    backends: Annotated[Names, AfterValidator(_backends)] = ()
    results: Place = RESULTS
    site: Place = SITE
    study_folder: Place = STUDY_FOLDER
    data: Place | None = None
    seeds_of: Place | None = None
    name: Annotated[str, BeforeValidator(check_letters)] | None = None
    waive: Annotated[Names, AfterValidator(check_waivers)] = ()
    repeats: Flag = False
    parity: Flag = True
    readme: Place | None = None
    keep_failed: Flag = False
    minutes: Annotated[float, Field(gt=0, strict=False)] | None = None
    checkpoint_minutes: Annotated[float, Field(gt=0, strict=False)] | None = None

    def with_tour(self) -> Config:
        """The configuration with the studies that it means: the tour's, or none for all.

        Raises:
            InputError: when the file of the tour is damaged.
        """
        tour = self.study_folder.parent / TOUR
        if self.studies == (ALL,):
            return self.model_copy(update={"studies": ()})
        if self.studies or "scale" in self.model_fields_set or not tour.exists():
            return self
        return self.model_copy(update={"studies": read_whole(tour, "a tour", Tour).studies})

    def census(self) -> tuple[str, ...]:
        """The ids of every claim of the sources; none without a file of them.

        Raises:
            InputError: when the file is damaged.
        """
        path = self.study_folder.parent / CENSUS
        return read_whole(path, "a census", Census).claims if path.exists() else ()

    @property
    def other_folders(self) -> dict[str, str]:
        """The folders that are not where they are by default, by key; of data and seeds, where named."""
        keys = ("study_folder", "results", "site", "data", "seeds_of")
        usual = {key: type(self).model_fields[key].default for key in keys}
        return {key: str(getattr(self, key)) for key, place in usual.items() if getattr(self, key) != place}


def read_config(raw: Mapping[str, Any]) -> Config:
    """Snakemake's configuration, checked as far as it can be without the studies.

    Raises:
        InputError: with a line for each key that is unknown or has a wrong value.
    """
    try:
        return Config.model_validate(dict(raw))
    except ValidationError as errors:
        lines = explained(errors, Config, "curvebench", raw, "configuration key")
        raise InputError("\n".join(f"--config {line}" for line in lines)) from errors
