"""Configuration of Snakemake, such as `snakemake --config scale=paper studies=digits_mlp,egop.convex`.

A study compares optimizers on workloads. The scales of a study are sizes in which the study can be run. The
tour is the list of studies that run by default.
"""

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
from curvebench.spec.study import Tour, read_document

TOUR = "tour.yaml"  # Name of the file with the tour, next to the folder of studies
ALL = "all"


def _path(value: Any) -> Any:
    if not value or not isinstance(value, str | Path):
        raise ValueError(f"{value!r} is not a path")
    return value


def _names(value: Any) -> Any:
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(key, str) and key.strip() for key in names):
        raise ValueError(f"{value!r} is not a list of names; write studies=all for all")
    return tuple(key.strip() for key in names)


def _backends(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if name not in BACKENDS:
            raise ValueError(unknown("curvebench", "backend", name, BACKENDS))
        if names.count(name) > 1:
            raise ValueError(f"{name!r} is given twice; give each backend once")
    return names


FolderPath = Annotated[Path, Field(strict=False), BeforeValidator(_path)]
Names = Annotated[tuple[str, ...], BeforeValidator(_names)]
# A flag: true or false, or the text "true" or "false", because Snakemake's command line passes text.
Flag = Annotated[bool, Field(strict=False)]


class Config(Document):
    """Values of `snakemake --config KEY=VALUE`.

    Args:
        scale: name of the scale, which is the size at which studies are run.
        studies: names of studies and ids of claims, including property claims, or `all`. If neither studies
            nor a scale are given, the studies of the tour are run.
        repeats: whether to run also the studies that repeat claims of the requested studies under changed
            circumstances, and decide no claim of their own.
        backends: names of backends; empty for all backends that a study uses.
        results: folder for job files, runs, tables and figures.
        site: folder for the rendered report.
        study_folder: folder of the study files, instead of the project's and the user's own
            (`curvebench.planning.studies.reading.study_files`).
        data: folder of data sets that pip does not install; passed to workloads as `CURVEBENCH_DATA`.
        seeds_of: folder of a published set. Studies of the set run with the seeds that they have in the set.
            None for the seeds that the studies have now.
        name: name of the set that the target `publish` writes; other targets do not use the name.
        waive: requirements that `publish` may violate (`curvebench.spec.sets.WAIVERS`).
        parity: whether to compare backends with each other if the studies run on all backends.
        readme: page in which `publish` replaces the leaderboard; None to change no page.
        keep_failed: whether to keep the records of failed jobs; otherwise failed jobs run again.
        minutes: time limit in minutes for all runs of a method on a workload in one round; None for no limit.
        checkpoint_minutes: minutes between two checkpoints of a run; None for the default of 15.
    """

    scale: Annotated[str, Field(min_length=1)] = "quick"
    studies: Names = ()
    backends: Annotated[Names, AfterValidator(_backends)] = ()
    results: FolderPath = RESULTS
    site: FolderPath = SITE
    study_folder: FolderPath = STUDY_FOLDER
    data: FolderPath | None = None
    seeds_of: FolderPath | None = None
    name: Annotated[str, BeforeValidator(check_letters)] | None = None
    waive: Annotated[Names, AfterValidator(check_waivers)] = ()
    repeats: Flag = False
    parity: Flag = True
    readme: FolderPath | None = None
    keep_failed: Flag = False
    minutes: Annotated[float, Field(gt=0, strict=False)] | None = None
    checkpoint_minutes: Annotated[float, Field(gt=0, strict=False)] | None = None

    def with_tour(self) -> Config:
        """Return the configuration with `studies` as planning uses it.

        If the user gave neither studies nor a scale, `studies` becomes the studies of the tour. The word
        `all` becomes an empty tuple, which stands for all studies.

        Raises:
            InputError: if the file of the tour is damaged.
        """
        tour = self.study_folder.parent / TOUR
        if self.studies == (ALL,):
            return self.model_copy(update={"studies": ()})
        if self.studies or "scale" in self.model_fields_set or not tour.exists():
            return self
        return self.model_copy(update={"studies": read_document(tour, "a tour", Tour).studies})

    @property
    def other_folders(self) -> dict[str, str]:
        """Mapping from keys of the configuration to folders that differ from their defaults.

        A command that repeats the run has to name all folders listed here.
        """
        keys = ("study_folder", "results", "site", "data", "seeds_of")
        usual = {key: type(self).model_fields[key].default for key in keys}
        return {key: str(getattr(self, key)) for key, value in usual.items() if getattr(self, key) != value}


def config_of_study(path: Path, scale: str, results: Path, **keys: Any) -> Config:
    """Return the configuration that runs a study file which a command has written to a folder of its own.

    Args:
        path: the study file. The site is rendered into the same folder.
        scale: name of the scale.
        results: results folder.
        keys: further keys of the configuration.
    """
    folder = path.parent
    return Config(
        scale=scale,
        studies=(path.stem,),
        study_folder=folder,
        results=results,
        site=folder / "site",
        parity=False,
        **keys,
    )


def read_config(raw: Mapping[str, Any]) -> Config:
    """Validate the configuration from Snakemake. Names of studies are not checked.

    Raises:
        InputError: with a line for each key that is unknown or has a wrong value.
    """
    try:
        return Config.model_validate(dict(raw))
    except ValidationError as errors:
        lines = explained(errors, Config, "curvebench", raw, "configuration key")
        raise InputError("\n".join(f"--config {line}" for line in lines)) from errors
