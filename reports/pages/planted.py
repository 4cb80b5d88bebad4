"""Rates of wrong verdicts on planted claims, whose truth is known by construction.

`python -m benchmarks.planted` runs the studies of planted claims, and writes their verdicts to the file that
this module reads.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from curvebench.paths import PUBLISHED
from curvebench.reports.statistics.shares import Share, share_interval

FILE = PUBLISHED / "planted.json"


@dataclass(frozen=True)
class PlantedClaim:
    """A claim whose truth is known.

    Args:
        id: id of the claim.
        sentence: the claim.
        source: `true` or `false`, a colon, and the reason why the claim is true or false.
    """

    id: str
    sentence: str
    source: str

    @property
    def holds(self) -> bool:
        """Whether the claim is true."""
        return self.source.startswith("true:")

    @property
    def why(self) -> str:
        """The reason why the claim is true or false."""
        return self.source.partition(": ")[2]


@dataclass(frozen=True)
class PlantedRun:
    """Verdicts on all planted claims at a size and with a block of seeds.

    Args:
        size: name of the size, the scale of the studies.
        block: number of the block of seeds.
        seconds: processor time of the runs and the verdicts.
        verdicts: verdict by the claim's id.
    """

    size: str
    block: int
    seconds: float
    verdicts: Mapping[str, str]


@dataclass(frozen=True)
class Rates:
    """Rates of wrong verdicts, and the counts of all verdicts.

    Args:
        name: the size, or a word for all runs.
        false_reproduced: share of the decisions of false claims that are "reproduced".
        true_refuted: share of the decisions of true claims that are "not reproduced".
        verdicts: number of decisions by verdict, of false claims and of true claims.
    """

    name: str
    false_reproduced: Share
    true_refuted: Share
    verdicts: Mapping[bool, Counter[str]]


@dataclass(frozen=True)
class PlantedRuns:
    """The planted claims, and their verdicts in all runs."""

    claims: tuple[PlantedClaim, ...]
    runs: tuple[PlantedRun, ...]

    @property
    def rates(self) -> Iterator[Rates]:
        """Rates of wrong verdicts for each size, and for all runs together if there are several sizes.

        The intervals of the rates treat decisions as independent trials.
        """
        sizes = dict.fromkeys(run.size for run in self.runs)
        for size in sizes:
            yield self._rates(size, [run for run in self.runs if run.size == size])
        if len(sizes) > 1:
            yield self._rates("all", self.runs)

    def _rates(self, name: str, runs: Sequence[PlantedRun]) -> Rates:
        verdicts = {
            truth: Counter(
                run.verdicts[claim.id] for run in runs for claim in self.claims if claim.holds is truth
            )
            for truth in (False, True)
        }

        def share(truth: bool, verdict: str) -> Share:
            return share_interval(verdicts[truth][verdict], verdicts[truth].total())

        return Rates(name, share(False, "reproduced"), share(True, "not reproduced"), verdicts)


def read_planted() -> PlantedRuns:
    """Read the planted claims and their verdicts; the result is empty if there is no file."""
    written = json.loads(FILE.read_text()) if FILE.is_file() else {"claims": (), "runs": ()}
    claims = tuple(PlantedClaim(**claim) for claim in written["claims"])
    return PlantedRuns(claims, tuple(PlantedRun(**run) for run in written["runs"]))
