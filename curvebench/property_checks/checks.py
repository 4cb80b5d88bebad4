"""Property checks: claims that hold or fail on random instances, with no run of a study behind them."""

from __future__ import annotations

import importlib
import math
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, get_args

import numpy as np

from curvebench.property_checks.searching import nearest
from curvebench.results import verdicts as recorded
from curvebench.spec.definitions import path_of
from curvebench.spec.errors import InputError

PACKAGE = "curvebench.benchmarks.claims"
FOLDER = Path(__file__).resolve().parents[2].joinpath(*PACKAGE.split("."))
DEFAULT_SCALE = "paper"
PRINTED: Final = "as printed"
CORRECTED: Final = "as corrected"
TRIES = 60  # least number of instances that a search draws


@dataclass(frozen=True)
class Measure:
    """A number of one instance and what a claim says of it.

    Args:
        quantity: what it is, with its unit where it has one; the same in all instances.
        value: what was measured.
        relation: how it must stand to the limit.
        limit: what the claim says.
        tolerance: by how much it may miss the limit, for rounding or sampling.
        sampled: whether the value is an estimate, and the tolerance half of the length of its interval.

    Raises:
        ValueError: for an unknown relation, or what is no limit: the measure could not miss.
        TypeError: for what is no single number.
    """

    quantity: str
    value: float
    relation: recorded.Relation
    limit: float
    tolerance: float = 0.0
    sampled: bool = False

    def __post_init__(self) -> None:
        for name in ("value", "limit", "tolerance"):  # whatever NumPy calculates them in
            object.__setattr__(self, name, float(getattr(self, name)))
        if self.relation not in get_args(recorded.Relation):
            known = ", ".join(get_args(recorded.Relation))
            raise ValueError(f"{self.quantity}: the relation {self.relation!r} is none; give one of {known}")
        if not (math.isfinite(self.limit) and 0 <= self.tolerance < math.inf):
            limit = f"{self.limit} with the tolerance {self.tolerance}"
            raise ValueError(
                f"{self.quantity}: the limit {limit} is none; give finite ones, the tolerance not below 0"
            )

    @property
    def holds(self) -> bool | None:
        """Whether it does; None where that cannot be told (curvebench.results.verdicts)."""
        return recorded.satisfies(self.value, self.relation, self.limit, self.tolerance, self.sampled)


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

    Raises:
        ValueError: for an unknown kind, or other numbers of x than of y, or none.
    """

    figure: str
    label: str
    x: np.ndarray
    y: np.ndarray
    axes: tuple[str, str]
    kind: recorded.SeriesKind = "line"
    panel: str = ""
    log: recorded.LogAxes = ""

    def __post_init__(self) -> None:
        if self.kind not in get_args(recorded.SeriesKind):
            known = ", ".join(get_args(recorded.SeriesKind))
            raise ValueError(f"{self.label} of {self.figure}: the kind {self.kind!r} is none of {known}")
        x, y = np.shape(self.x), np.shape(self.y)
        if len(x) != 1 or x != y or not x[0]:
            raise ValueError(f"{self.label} of {self.figure}: x is {x} and y is {y}; give as many, (n,)")


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
        sampled: whether its measures are estimates, whose tolerances are half of the length of an interval.
        bound: whether it is a bound that a search tries to break, from the instance that comes nearest to its
            limit (curvebench.property_checks.searching), each of its quantities in turn; what is found is
            an instance more each.

    Raises:
        ValueError: for an unknown variant, or scales without instances.
    """

    part: str
    source: str
    measures: Measures
    instances: Mapping[str, int]
    variant: recorded.Variant = ""
    by_scale: Mapping[str, Measures] = field(default_factory=dict)
    sampled: bool = False
    bound: bool = False

    def __post_init__(self) -> None:
        if self.variant not in get_args(recorded.Variant):
            raise ValueError(
                f"{self.part}: variant is {self.variant!r}; give {PRINTED!r}, {CORRECTED!r} or ''"
            )
        if not {DEFAULT_SCALE, *self.by_scale} <= set(self.instances) or min(self.instances.values()) < 1:
            raise ValueError(
                f"{self.part}: instances are {dict(self.instances)}; give a number above 0 for "
                f"{DEFAULT_SCALE!r}, and for each scale with measures of its own"
            )

    def count(self, scale: str) -> int:
        """How many instances are drawn at a scale."""
        return self.instances.get(scale, self.instances[DEFAULT_SCALE])

    def at(self, scale: str) -> Measures:
        """What measures an instance at a scale."""
        return self.by_scale.get(scale, self.measures)


@dataclass(frozen=True, eq=False)  # a claim is itself alone, so that what is computed of it can be kept
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

    Raises:
        ValueError: where it has no checks, or a part is given twice.
    """

    id: str
    sentence: str
    source: str
    setting: str
    checks: tuple[Check, ...]
    workloads: tuple[str, ...] = ()
    at_most_partly: str = ""

    def __post_init__(self) -> None:
        parts = {(check.part, check.variant) for check in self.checks}
        if not parts or len(parts) < len(self.checks):
            raise ValueError(f"{self.id}: give a check for each part; parts of a variant must differ")


@dataclass(frozen=True)
class OfInstance:
    """Something of one instance of a claim's part."""

    claim: str
    part: str
    variant: recorded.Variant
    instance: int


@dataclass(frozen=True)
class Row(OfInstance):
    """A measure with its claim, part and instance, and the seconds that the instance took."""

    measure: Measure
    seconds: float = field(default=0.0, compare=False)  # two runs of one instance give equal rows


@dataclass(frozen=True)
class Trace(OfInstance):
    """A series with its claim, part and instance."""

    series: Series


# --- finding claims ------------------------------------------------------------------------------


def modules(folder: Path | None = None) -> tuple[str, ...]:
    """The modules of benchmarks/claims, or of another folder, that define claims, by their last name."""
    files = (FOLDER if folder is None else folder).glob("*.py")
    return tuple(sorted(path.stem for path in files if not path.stem.startswith("_")))


def file_of(module: str) -> str:
    """The file of a module of claims, from the root of the project."""
    return path_of(f"{PACKAGE}.{module}")


def claims_of(module: str) -> tuple[PropertyClaim, ...]:
    """The claims that a module defines.

    Raises:
        InputError: naming the file, where it cannot be imported or defines no claims.
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
    return found


def claims_by_id(folder: Path | None = None) -> dict[str, tuple[str, PropertyClaim]]:
    """Every claim with its module, by the claim's id.

    Raises:
        InputError: as `claims_of`, and for an id that is given twice.
    """
    found: dict[str, tuple[str, PropertyClaim]] = {}
    for module in modules(folder):
        for claim in claims_of(module):
            home, _ = found.setdefault(claim.id, (module, claim))
            if found[claim.id][1] is not claim:
                raise InputError(
                    f"{file_of(module)}: the id {claim.id!r} is also in {file_of(home)}; ids must differ"
                )
    return found


# --- checking them -------------------------------------------------------------------------------


def part_results(claim: str, check: Check, scale: str, rule: str = "") -> Iterator[Row | Trace]:
    """Every measure of every instance of one part of a claim, and the instance's series after them.

    An instance is the same whatever else is run, and another one under another rule: what was changed in view
    of some instances is checked on fresh ones.

    Raises:
        ValueError: for an instance that measures nothing: it could not miss.
    """
    key = zlib.crc32(
        f"{claim} {check.part} {rule}".rstrip().encode()
    )  # printed and corrected see the same instances
    draw, count = check.at(scale), check.count(scale)
    nearest_by: dict[str, tuple[float, int]] = {}  # by quantity, the greatest share and its instance
    for instance in range(count):
        began = time.perf_counter()
        found = list(draw(np.random.default_rng([key, instance])))
        for quantity, share in _bound_shares(found).items():
            nearest_by[quantity] = max(nearest_by.get(quantity, (0.0, 0)), (share, -instance))
        yield from _of_instance(claim, check, instance, found, time.perf_counter() - began)
    for instance, (quantity, (_, place)) in enumerate(nearest_by.items() if check.bound else (), count):
        began = time.perf_counter()
        found = list(draw(nearest(partial(_share, draw, quantity), [key, -place], max(TRIES, count))))
        yield from _of_instance(claim, check, instance, found, time.perf_counter() - began)


def _of_instance(
    claim: str, check: Check, instance: int, found: Sequence[Measure | Series], seconds: float
) -> Iterator[Row | Trace]:
    """The measures of an instance, and its series after them."""
    if not any(isinstance(each, Measure) for each in found):
        raise ValueError(f"instance {instance} has no measures; every instance must give one")
    about = (claim, check.part, check.variant, instance)
    for each in found:
        if isinstance(each, Measure):
            yield Row(*about, replace(each, sampled=check.sampled), seconds)
    for each in found:
        if isinstance(each, Series):
            yield Trace(*about, each)


def _share(draw: Measures, quantity: str, random: np.random.Generator) -> float:
    return _bound_shares(draw(random)).get(quantity, 0.0)


def _bound_shares(found: Iterable[Measure | Series]) -> dict[str, float]:
    measures = [each for each in found if isinstance(each, Measure)]
    return recorded.bound_shares(
        (each.quantity, each.value, each.relation, each.limit, each.tolerance) for each in measures
    )


def verdicts(claim: PropertyClaim, found: Sequence[Row]) -> dict[recorded.Variant, recorded.Verdict]:
    """The verdict by variant; by the empty one alone where nothing is misprinted
    (curvebench.results.verdicts).

    A part holds where each of its measures does, and there are some.
    """
    holding: dict[tuple[str, recorded.Variant], list[bool | None]] = {
        (check.part, check.variant): [] for check in claim.checks
    }
    for row in found:
        holding[row.part, row.variant].append(row.measure.holds)
    parts = {part: recorded.together(each) for part, each in holding.items()}
    bounds = [(check.part, check.variant) for check in claim.checks if check.bound]
    shares = {
        part: _bound_shares(row.measure for row in found if (row.part, row.variant) == part)
        for part in bounds
    }
    untested = [part for part, own in shares.items() if recorded.least_tested(own)[1] < recorded.TESTED]
    return recorded.verdicts(parts, claim.at_most_partly, untested)
