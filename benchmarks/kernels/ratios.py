"""`python -m benchmarks.kernels.ratios`: our steps over those of the peers, timed in turn.

A rule with amortized work is timed over whole turns of its cadence.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import geometric_mean

import polars as pl

from optimizers import rules
from optimizers.options import Options
from results.provenance import cpu_model

from .case import ReadyCase
from .cases import Timed, timed
from .clock import one_thread
from .interleaving import Ratios, interleaved, repeated
from .matrix_peers import TORCH_MATRIX_PEERS
from .peers import peers
from .shapes import SHAPE_SETS
from .steps import STEPS, optimizer_step

WIDTH = 68  # of labels
REPETITIONS = 41


# Of a rule as it is compared: what is not at its default.
OPTIONS: Mapping[str, Options] = {"shampoo": {"refresh_every": 10}}


@dataclass(frozen=True)
class Contest:
    """A case of ours beside what computes the same.

    Args:
        label: case, backend and precision.
        backend: ours.
        group: what a mean is taken over: entrywise rules, or a rule of matrices.
        ours: prepares our side.
        peers: prepares each other side, by label.
        calls: how many steps make a sample whole: those of a cadence.
    """

    label: str
    backend: str
    group: str
    ours: Callable[[], ReadyCase]
    peers: Mapping[str, Callable[[], ReadyCase]]
    calls: int = 1


@dataclass(frozen=True)
class Compared:
    """Our side over another's."""

    contest: Contest
    peer: str
    ratios: Ratios


def contests(pattern: str) -> list[Contest]:
    """What is compared, of the labels that have the pattern."""
    found = [_contest(label, each) for label, each in timed(pattern).items() if each.case.optimizer]
    return [contest for contest in found if contest.peers]


def _contest(label: str, each: Timed) -> Contest:
    optimizer, shapes = each.case.optimizer, SHAPE_SETS[each.case.name.rsplit(".", 1)[1]]
    options = OPTIONS.get(optimizer, {})
    rule = rules()[optimizer].choose(options)
    return Contest(
        label=label,
        backend=each.backend,
        group=optimizer if optimizer in TORCH_MATRIX_PEERS else "entrywise",
        ours=partial(optimizer_step, each.backend, rule, shapes, each.dtype),
        peers={
            name: partial(prepare, shapes, each.dtype)
            for name, prepare in peers(optimizer, each.backend, options).items()
        },
        calls=rule.refresh_every or 1,
    )


def compare(pattern: str, repetitions: int) -> Iterator[Compared]:
    """Every contest whose label has the pattern, with each peer; call inside `one_thread`."""
    for contest in contests(pattern):
        for label, prepare in contest.peers.items():
            mine, theirs = contest.ours(), prepare()
            with ExitStack() as stack:
                stack.enter_context(theirs.context())
                stack.enter_context(mine.context())
                for _ in range(STEPS):
                    mine.run()
                    theirs.run()
                ours, other = (repeated(one.run, contest.calls) for one in (mine, theirs))
                yield Compared(contest, label, interleaved(ours, other, repetitions))


def fastest(compared: Sequence[Compared]) -> list[Compared]:
    """For each of our steps the comparison with its fastest peer."""
    chosen: dict[str, Compared] = {}
    for each in compared:
        label = each.contest.label
        if label not in chosen or each.ratios.ratio.median > chosen[label].ratios.ratio.median:
            chosen[label] = each
    return list(chosen.values())


def line(compared: Compared) -> str:
    """A comparison as a row of the printed table."""
    ratio, same = compared.ratios.ratio, compared.ratios.same
    calls = compared.contest.calls
    ours, peer = (1e3 * seconds / calls for seconds in compared.ratios.seconds)
    return (
        f"{compared.contest.label:{WIDTH}} {compared.peer:28} {ours:9.3f} {peer:9.3f}   "
        f"{ratio.median:6.3f} [{ratio.low:.3f}, {ratio.high:.3f}]   [{same.low:.3f}, {same.high:.3f}]"
    )


def write_table(compared: Sequence[Compared], path: Path) -> None:
    """Write comparisons as CSV: a row each, with the day, the processor and the libraries' versions."""
    libraries = ", ".join(f"{name} {version(name)}" for name in ("torch", "jax", "optax"))
    rows = []
    for each in compared:
        step, backend, precision = each.contest.label.rsplit(" ", 2)
        ratio, same = each.ratios.ratio, each.ratios.same
        ours, peer = (f"{1e3 * seconds / each.contest.calls:.3f}" for seconds in each.ratios.seconds)
        rows.append(
            {
                "step": step,
                "backend": backend,
                "precision": precision,
                "peer": each.peer,
                "ours_milliseconds": ours,
                "peer_milliseconds": peer,
                "ratio": f"{ratio.median:.3f}",
                "low": f"{ratio.low:.3f}",
                "high": f"{ratio.high:.3f}",
                "same_low": f"{same.low:.3f}",
                "same_high": f"{same.high:.3f}",
                "measured": datetime.now(UTC).date().isoformat(),
                "processor": cpu_model() or "unknown",
                "versions": libraries,
            }
        )
    pl.DataFrame(rows).write_csv(path)


def summary(compared: Sequence[Compared]) -> Iterator[str]:
    """For each backend and group the mean and worst ratio over the fastest peers."""
    best = fastest(compared)
    for backend, group in sorted({(each.contest.backend, each.contest.group) for each in best}):
        ratios = [
            each.ratios.ratio.median
            for each in best
            if (each.contest.backend, each.contest.group) == (backend, group)
        ]
        yield (
            f"{backend}: {group}: {len(ratios)} steps over their fastest peers: "
            f"geometric mean {geometric_mean(ratios):.3f}, worst {max(ratios):.3f}"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, and for each backend and kind of rule mean and worst ratio over the fastest peers."""
    description = "Time each optimizer's step in turn with the same step of other libraries."
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernels.ratios", description=description)
    parser.add_argument("--case", default="", metavar="REGEX", help="only labels that contain this")
    words = f"samples of each ({REPETITIONS}); 6 give intervals of 95 %%"
    parser.add_argument("--repetitions", type=_positive, default=REPETITIONS, help=words)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the table here too, as CSV")
    given = parser.parse_args(arguments)
    header = "ours / peer [95 %]"
    print(f"{'step':{WIDTH}} {'peer':28} {'ours ms':>9} {'peer ms':>9}   {header:24}   A/A [95 %]")
    compared = []
    with one_thread():
        for each in compare(given.case, given.repetitions):
            compared.append(each)
            print(line(each), flush=True)
    for sentence in summary(compared):
        print(sentence)
    if compared and given.out:
        write_table(compared, given.out)
    if not compared:
        print(f"error: --case {given.case!r}: no step with a peer has such a label", file=sys.stderr)
    return 0 if compared else 2


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
