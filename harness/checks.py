"""Property checks: claims that hold or fail on random instances, with no run of a study behind them."""

from __future__ import annotations

import importlib
import math
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, get_args

import numpy as np

from documents.errors import InputError
from results.verdicts import Relation, Variant, Verdict
from results.verdicts import verdicts as verdicts_of_parts

PACKAGE = "benchmarks.claims"
FOLDER = Path(__file__).resolve().parent.parent.joinpath(*PACKAGE.split("."))
DEFAULT_SCALE = "paper"
PRINTED: Final = "as printed"
CORRECTED: Final = "as corrected"


@dataclass(frozen=True)
class Measure:
    """A number of one instance and what a claim says of it.

    Args:
        quantity: what it is, with its unit where it has one; the same in all instances.
        value: what was measured.
        relation: how it must stand to the limit.
        limit: what the claim says.
        tolerance: by how much it may miss the limit, for rounding or sampling.
    """

    quantity: str
    value: float
    relation: Relation
    limit: float
    tolerance: float = 0.0

    @property
    def holds(self) -> bool:
        """Whether it does; a value that is infinite or not a number never does."""
        if not math.isfinite(self.value):
            return False
        if self.relation == "<=":
            return bool(self.value <= self.limit + self.tolerance)
        if self.relation == ">=":
            return bool(self.value >= self.limit - self.tolerance)
        return bool(abs(self.value - self.limit) <= self.tolerance)


SeriesKind = Literal["line", "fit", "reference", "contour", "path"]
LogAxes = Literal["", "x", "y", "x y"]


@dataclass(frozen=True)
class Series:
    """What one instance adds to a figure; it has no part in the verdict.

    Args:
        figure: the figure of the source that is drawn again, such as "000 Fig. 3".
        label: which of the figure's lines it is; the same label in another instance is another draw of it.
        x, y: the points, (n,) each.
        axes: what x and y are, with units where they have some.
        kind: a measured line, a law fitted to one, a value for reference, a level set, or the path of an
            optimizer, whose label is its method.
        panel: the part of the figure that it lies in; empty where there is one.
        log: the axes that are logarithmic.
    """

    figure: str
    label: str
    x: np.ndarray
    y: np.ndarray
    axes: tuple[str, str]
    kind: SeriesKind = "line"
    panel: str = ""
    log: LogAxes = ""


Measures = Callable[[np.random.Generator], Iterable[Measure | Series]]


@dataclass(frozen=True)
class Check:
    """One part of a claim.

    Args:
        part: what it says, in one line.
        source: file and place.
        measures: the measures of one instance, drawn from a generator of its own, and series for figures.
        instances: how many are drawn, by scale; a scale that is not named has those of `paper`.
        variant: whether a misprinted statement is taken as it stands or as it must be meant; empty where
            it is printed well.
        by_scale: what measures instances in place of `measures` at the scales that it names, such as from
            fewer samples.
    """

    part: str
    source: str
    measures: Measures
    instances: Mapping[str, int]
    variant: Variant = ""
    by_scale: Mapping[str, Measures] = field(default_factory=dict)

    def count(self, scale: str) -> int:
        """How many instances are drawn at a scale."""
        return self.instances.get(scale, self.instances[DEFAULT_SCALE])

    def at(self, scale: str) -> Measures:
        """What measures an instance at a scale."""
        return self.by_scale.get(scale, self.measures)


@dataclass(frozen=True)
class PropertyClaim:
    """A claim that its checks decide.

    Args:
        id: stable key, such as `notes.regret`.
        sentence: what is claimed.
        source: file and place.
        setting: what is drawn and run, and what was chosen where the source is silent or wrong.
        checks: its parts.
        workloads: the workloads whose data it reads, as they are by default; without the data it is not run.
        at_most_partly: why it cannot be fully reproduced, such as reduced data; empty where it can.
    """

    id: str
    sentence: str
    source: str
    setting: str
    checks: tuple[Check, ...]
    workloads: tuple[str, ...] = ()
    at_most_partly: str = ""


@dataclass(frozen=True)
class Row:
    """A measure with its claim, part and instance, and the seconds that the instance took."""

    claim: str
    part: str
    variant: Variant
    instance: int
    measure: Measure
    seconds: float = field(default=0.0, compare=False)  # two runs of one instance give equal rows


@dataclass(frozen=True)
class Trace:
    """A series with its claim, part and instance."""

    claim: str
    part: str
    variant: Variant
    instance: int
    series: Series


# --- finding claims ------------------------------------------------------------------------------


def modules(folder: Path | None = None) -> tuple[str, ...]:
    """The modules of benchmarks/claims, or of another folder, that define claims, by their last name."""
    files = (FOLDER if folder is None else folder).glob("*.py")
    return tuple(sorted(path.stem for path in files if not path.stem.startswith("_")))


def file_of(module: str) -> str:
    """The file of a module of claims, from the root of the project."""
    return f"{PACKAGE.replace('.', '/')}/{module}.py"


def claims_of(module: str) -> tuple[PropertyClaim, ...]:
    """The claims that a module defines.

    Raises:
        InputError: naming the file, where it cannot be imported or what it defines cannot be checked.
    """
    path = file_of(module)
    try:
        found = getattr(importlib.import_module(f"{PACKAGE}.{module}"), "CLAIMS", None)
    except Exception as error:  # whatever a module raises when it is imported
        raise InputError(f"{path}: cannot be imported ({type(error).__name__}: {error}); mend it") from error
    if (
        not found
        or not isinstance(found, tuple)
        or not all(isinstance(claim, PropertyClaim) for claim in found)
    ):
        raise InputError(
            f"{path}: CLAIMS is not there, is empty, or is no tuple of PropertyClaim; define CLAIMS = (...,)"
        )
    problems = [f"{path}: {claim.id}: {problem}" for claim in found for problem in _problems(claim)]
    if problems:
        raise InputError("\n".join(problems))
    return found


def _problems(claim: PropertyClaim) -> Iterator[str]:
    if not claim.checks:
        yield "has no checks; give it one for each part"
    for (part, variant), count in Counter((check.part, check.variant) for check in claim.checks).items():
        if count > 1:
            yield f"the part {part!r} {variant} is given {count} times; parts of a variant must differ"
    for check in claim.checks:
        if check.variant not in get_args(Variant):
            yield (
                f"the variant {check.variant!r} of the part {check.part!r} is none; give {PRINTED!r}, "
                f"{CORRECTED!r}, or none where it is printed well"
            )
        wrong = {scale: count for scale, count in check.instances.items() if count < 1}
        if DEFAULT_SCALE not in check.instances or wrong:
            yield (
                f"instances of the part {check.part!r} are {dict(check.instances)}; give a number above 0 by "
                f"scale, {DEFAULT_SCALE!r} among them"
            )
        for scale in sorted(set(check.by_scale) - set(check.instances)):
            yield (f"the part {check.part!r} has measures of the scale {scale!r} and no instances; give both")


def claims_by_id(folder: Path | None = None) -> dict[str, tuple[str, PropertyClaim]]:
    """Every claim with its module, by the claim's id.

    Raises:
        InputError: as `claims_of`, with a line for each problem of each module, and for an id that is given
            twice.
    """
    found: dict[str, tuple[str, PropertyClaim]] = {}
    problems: list[str] = []
    for module in modules(folder):
        try:
            claims = claims_of(module)
        except InputError as error:
            problems.append(str(error))
            continue
        for claim in claims:
            home, _ = found.setdefault(claim.id, (module, claim))
            if found[claim.id][1] is not claim:
                problems.append(
                    f"{file_of(module)}: the id {claim.id!r} is also in {file_of(home)}; ids must differ"
                )
    if problems:
        raise InputError("\n".join(problems))
    return found


# --- checking them -------------------------------------------------------------------------------


def rows(claim: PropertyClaim, scale: str) -> Iterator[Row]:
    """Every measure of every instance of a claim; an instance is the same whatever else is run."""
    for check in claim.checks:
        yield from part_rows(claim.id, check, scale)


def part_rows(claim: str, check: Check, scale: str) -> Iterator[Row]:
    """Every measure of every instance of one part of a claim, as `part_results` gives them."""
    return (row for row in part_results(claim, check, scale) if isinstance(row, Row))


def part_results(claim: str, check: Check, scale: str) -> Iterator[Row | Trace]:
    """Every measure of every instance of one part of a claim, and the instance's series after them.

    Raises:
        ValueError: for an instance that measures nothing, by an unknown relation, or against what is no
            limit: it could not miss; and for a series without points.
    """
    key = zlib.crc32(f"{claim} {check.part}".encode())  # printed and corrected see the same instances
    draw = check.at(scale)
    for instance in range(check.count(scale)):
        began = time.perf_counter()
        found = list(draw(np.random.default_rng([key, instance])))
        seconds = time.perf_counter() - began
        measures = [each for each in found if isinstance(each, Measure)]
        traced = [each for each in found if isinstance(each, Series)]
        problem = _problem(measures) or next(filter(None, map(_no_series, traced)), None)
        if not measures:
            problem = "has no measures; every instance must give one"
        if problem:
            home = getattr(draw, "func", draw).__module__.rpartition(".")[2]
            raise ValueError(f"{file_of(home)}: {claim}: {check.part}: instance {instance} {problem}")
        for measure in measures:
            yield Row(claim, check.part, check.variant, instance, measure, seconds)
        for series in traced:
            yield Trace(claim, check.part, check.variant, instance, series)


def _problem(measures: Iterable[Measure]) -> str | None:
    """What is wrong with the first of the measures that is wrong; None where none is."""
    for measure in measures:
        if measure.relation not in get_args(Relation):
            known = ", ".join(get_args(Relation))
            return f"has {measure.quantity}: the relation {measure.relation!r} is none; give one of {known}"
        if not (math.isfinite(measure.limit) and 0 <= measure.tolerance < math.inf):
            return (
                f"has {measure.quantity}: the limit {measure.limit} with the tolerance {measure.tolerance} "
                "is none; give finite ones, the tolerance not below 0"
            )
    return None


def _no_series(series: Series) -> str | None:
    """What is wrong with a series; None where nothing is."""
    named = f"has the series {series.label!r} of {series.figure}:"
    if series.kind not in get_args(SeriesKind):
        return f"{named} the kind {series.kind!r} is none; give one of {', '.join(get_args(SeriesKind))}"
    shapes = np.shape(series.x), np.shape(series.y)
    if len(shapes[0]) != 1 or shapes[0] != shapes[1] or not shapes[0][0]:
        return f"{named} x and y have the shapes {shapes[0]} and {shapes[1]}; give as many of each, (n,)"
    return None


def verdicts(claim: PropertyClaim, found: Sequence[Row]) -> dict[Variant, Verdict]:
    """The verdict by variant; by the empty one alone where nothing is misprinted (results.verdicts).

    A part holds where each of its measures does, and there are some.
    """
    holding: dict[tuple[str, Variant], list[bool]] = {
        (check.part, check.variant): [] for check in claim.checks
    }
    for row in found:
        holding[row.part, row.variant].append(row.measure.holds)
    parts = {part: bool(each) and all(each) for part, each in holding.items()}
    return verdicts_of_parts(parts, claim.at_most_partly)
