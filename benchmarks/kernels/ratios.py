"""`python -m benchmarks.kernels.ratios`: our steps over those of the peers, timed in turn.

A rule with amortized work is timed over whole turns of its cadence.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl

from curvebench.optimizers import rules
from curvebench.optimizers.options import Options
from curvebench.reports.pages.kernels import ratio_tables
from curvebench.results.provenance import cpu_model
from curvebench.timing.clocks import one_thread
from curvebench.timing.interleaving import Ratios, interleaved

from .cases import timed
from .networks import kfac_contest
from .peers import Contest, peers
from .steps import SHAPE_SETS, STEPS, optimizer_step

REPETITIONS = 41
# Of a rule as it is compared: what is not at its default.
OPTIONS: Mapping[str, Options] = {"shampoo": {"refresh_every": 10}}


def contests(pattern: str) -> Iterator[Contest]:
    """Yield each of our steps whose label contains the pattern, with each of its peers."""
    for each in timed(pattern).values():
        optimizer, backend, dtype = each.case.optimizer, each.backend, each.dtype
        options = OPTIONS.get(optimizer, {})
        for peer, prepare in peers(optimizer, backend, options).items():
            shapes = SHAPE_SETS[each.case.name.rsplit(".", 1)[1]]
            rule = rules()[optimizer].choose(options)
            turn = rule.refresh_every or 1
            ours = partial(optimizer_step, backend, rule, shapes, dtype)
            theirs = partial(prepare, shapes, dtype)
            yield Contest(each.case.name, backend, dtype, peer, ours, theirs, calls=turn, steps=turn)
    kfac = kfac_contest()
    if re.search(pattern, kfac.label):
        yield kfac


def compare(pattern: str, repetitions: int) -> Iterator[dict[str, Any]]:
    """Time each contest whose label contains the pattern. Call inside `one_thread`.

    Yields:
        Rows of the table that the report keeps (`curvebench.reports.pages.kernels.read_ratios`).
    """
    for each in contests(pattern):
        mine, theirs = each.ours(), each.theirs()
        with ExitStack() as stack:
            stack.enter_context(theirs.context())
            stack.enter_context(mine.context())
            for _ in range(STEPS):
                mine.run()
                theirs.run()
            found = interleaved(
                partial(run_repeatedly, mine.run, each.calls),
                partial(run_repeatedly, theirs.run, each.calls),
                repetitions,
            )
        names = {"step": each.step, "backend": each.backend, "precision": each.precision, "peer": each.peer}
        yield {**names, **measured(found, each.steps)}


def run_repeatedly(run: Callable[[], None], calls: int) -> None:
    """Call a function several times in a row, for a whole turn of its amortized work."""
    for _ in range(calls):
        run()


def measured(found: Ratios, steps: int) -> dict[str, Any]:
    """Return milliseconds of one step, ratios, and the date, processor and versions of the measurement.

    Args:
        found: seconds of a sample, and ratios.
        steps: optimizer steps in a sample.
    """
    ours, theirs = (1e3 * seconds / steps for seconds in found.seconds)
    numbers = {
        "ours_milliseconds": ours,
        "peer_milliseconds": theirs,
        "ratio": found.ratio.median,
        "low": found.ratio.low,
        "high": found.ratio.high,
        "same_low": found.same.low,
        "same_high": found.same.high,
    }
    return {
        **{name: round(number, 3) for name, number in numbers.items()},
        "measured": datetime.now(UTC).date().isoformat(),
        "processor": cpu_model() or "unknown",
        "versions": ", ".join(f"{name} {version(name)}" for name in ("torch", "jax", "optax")),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each comparison, and for each backend mean and worst ratio."""
    description = "Time each optimizer's step in turn with the same step of other libraries."
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernels.ratios", description=description)
    parser.add_argument("--case", default="", metavar="REGEX", help="only labels that contain this")
    words = f"samples of each ({REPETITIONS}); 6 give intervals of 95 %%"
    parser.add_argument("--repetitions", type=int, default=REPETITIONS, help=words)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the table here too, as CSV")
    given = parser.parse_args(arguments)
    if given.repetitions < 1:
        parser.error(f"--repetitions {given.repetitions}: at least 1 is needed")
    rows = []
    with one_thread():
        for row in compare(given.case, given.repetitions):
            rows.append(row)
            print(
                "{step} {backend} {precision}, ours / {peer}: {ours_milliseconds} / {peer_milliseconds} ms = "
                "{ratio} [{low}, {high}]; A/A [{same_low}, {same_high}]".format(**row),
                flush=True,
            )
    if not rows:
        print(f"error: --case {given.case!r}: no step with a peer has such a label", file=sys.stderr)
        return 2
    table = pl.DataFrame(rows)
    for found in ratio_tables(table):
        print("{backend}: geometric mean of ours / fastest {mean:.3f}, worst {worst[ratio]}".format(**found))
    if given.out:
        table.write_csv(given.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
