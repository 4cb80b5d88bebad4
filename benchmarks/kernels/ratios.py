"""`python -m benchmarks.kernels.ratios`: our steps over those of the peers, timed in turn."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from .cases import Timed, timed
from .clock import one_thread
from .interleaving import Ratios, interleaved
from .peers import peers
from .shapes import SHAPE_SETS


@dataclass(frozen=True)
class Compared:
    """A step of ours over a peer's."""

    ours: Timed
    peer: str
    ratios: Ratios


def compare(pattern: str, repetitions: int) -> Iterator[Compared]:
    """Every timed step whose label has the pattern, over each of its peers; call inside `one_thread`."""
    for ours in timed(pattern).values():
        if not ours.case.optimizer:
            continue
        shapes = SHAPE_SETS[ours.case.name.rsplit(".", 1)[1]]
        for label, prepare in peers(ours.case.optimizer, ours.backend).items():
            mine, theirs = ours.case.prepare(ours.backend, ours.dtype), prepare(shapes, ours.dtype)
            with ExitStack() as stack:
                stack.enter_context(theirs.context())
                stack.enter_context(mine.context())
                yield Compared(ours, label, interleaved(mine.run, theirs.run, repetitions))


def fastest(compared: Sequence[Compared]) -> list[Compared]:
    """For each of our steps the comparison with its fastest peer."""
    chosen: dict[str, Compared] = {}
    for each in compared:
        label = each.ours.label
        if label not in chosen or each.ratios.ratio.median > chosen[label].ratios.ratio.median:
            chosen[label] = each
    return list(chosen.values())


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean of positive numbers."""
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def line(compared: Compared) -> str:
    """A comparison as a row of the printed table."""
    ratio, same = compared.ratios.ratio, compared.ratios.same
    ours, peer = (1e3 * seconds for seconds in compared.ratios.seconds)
    return (
        f"{compared.ours.label:44} {compared.peer:20} {ours:9.3f} {peer:9.3f}   "
        f"{ratio.median:6.3f} [{ratio.low:.3f}, {ratio.high:.3f}]   [{same.low:.3f}, {same.high:.3f}]"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, and for each backend mean and worst ratio over the fastest peers."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.kernels.ratios",
        description="Time each optimizer's step in turn with the same step of torch.optim or Optax.",
    )
    parser.add_argument("--case", default="", metavar="REGEX", help="only labels that contain this")
    parser.add_argument("--repetitions", type=int, default=41, help="samples of each (41)")
    given = parser.parse_args(arguments)
    print(f"{'step':44} {'peer':20} {'ours ms':>9} {'peer ms':>9}   {'ours / peer [95 %]':24}   A/A [95 %]")
    compared = []
    with one_thread():
        for each in compare(given.case, given.repetitions):
            compared.append(each)
            print(line(each), flush=True)
    for backend in sorted({each.ours.backend for each in compared}):
        ratios = [each.ratios.ratio.median for each in fastest(compared) if each.ours.backend == backend]
        print(
            f"{backend}: {len(ratios)} steps over their fastest peers: "
            f"geometric mean {geometric_mean(ratios):.3f}, worst {max(ratios):.3f}"
        )
    if not compared:
        print(f"error: --case {given.case!r}: no step with a peer has such a label", file=sys.stderr)
    return 0 if compared else 2


if __name__ == "__main__":
    sys.exit(main())
