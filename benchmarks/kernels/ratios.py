"""Time this project's optimizer steps against the same steps of peers: `python -m benchmarks.kernels.ratios`.

The two steps are timed in turn. A rule that does work only every n steps is timed over whole cycles of n
steps.

A contest is one step of this project and the same step of one other library (the peer).
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
from .users_models import model_contests

REPETITIONS = 41
# By rule, the options that differ from the rule's defaults when the rule is compared with peers.
OPTIONS: Mapping[str, Options] = {"shampoo": {"refresh_every": 10}}


def contests(pattern: str) -> Iterator[Contest]:
    """Yield a pair of steps for each peer of each step of this project whose label contains the pattern.

    A pair consists of our step and the same step of the peer (another library).
    """
    for timed_case in timed(pattern).values():
        optimizer, backend, dtype = timed_case.case.optimizer, timed_case.backend, timed_case.dtype
        options = OPTIONS.get(optimizer, {})
        for peer, prepare in peers(optimizer, backend, options).items():
            shapes = SHAPE_SETS[timed_case.case.name.rsplit(".", 1)[1]]
            rule = rules()[optimizer].choose(options)
            cycle = rule.refresh_every or 1
            ours = partial(optimizer_step, backend, rule, shapes, dtype)
            theirs = partial(prepare, shapes, dtype)
            yield Contest(timed_case.case.name, backend, dtype, peer, ours, theirs, calls=cycle, steps=cycle)
    yield from (
        contest for contest in (kfac_contest(), *model_contests()) if re.search(pattern, contest.label)
    )


def compare(pattern: str, repetitions: int) -> Iterator[dict[str, Any]]:
    """Time our steps whose label contains the pattern, each in turn with the same step of a peer.

    Call this function inside `one_thread`.

    Yields:
        Rows of the table that the report shows (`curvebench.reports.pages.kernels.read_ratios`).
    """
    for pair in contests(pattern):
        mine, theirs = pair.ours(), pair.theirs()
        with ExitStack() as stack:
            stack.enter_context(theirs.context())
            stack.enter_context(mine.context())
            for _ in range(STEPS):
                mine.run()
                theirs.run()
            first, second = (partial(run_repeatedly, ready.run, pair.calls) for ready in (mine, theirs))
            ratios = interleaved(first, second, repetitions)
        names = {"step": pair.step, "backend": pair.backend, "precision": pair.precision, "peer": pair.peer}
        yield {**names, **measured(ratios, pair.steps)}


def run_repeatedly(run: Callable[[], None], calls: int) -> None:
    """Call `run` several times in a row, such as for a whole cycle of steps between two refreshes."""
    for _ in range(calls):
        run()


def measured(ratios: Ratios, steps: int) -> dict[str, Any]:
    """Return milliseconds per step and ratios, with the date, processor and versions of the measurement.

    Args:
        ratios: seconds per sample of our step and the peer's step, and intervals of ratios: ours over the
            peer's, and ours over ours (`same`).
        steps: optimizer steps per sample.
    """
    ours, theirs = (1e3 * seconds / steps for seconds in ratios.seconds)
    numbers = {
        "ours_milliseconds": ours,
        "peer_milliseconds": theirs,
        "ratio": ratios.ratio.median,
        "low": ratios.ratio.low,
        "high": ratios.ratio.high,
        "same_low": ratios.same.low,
        "same_high": ratios.same.high,
    }
    return {
        **{name: round(number, 3) for name, number in numbers.items()},
        "measured": datetime.now(UTC).date().isoformat(),
        "processor": cpu_model() or "unknown",
        "versions": ", ".join(f"{name} {version(name)}" for name in ("torch", "jax", "optax")),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Time optimizer steps in turn with the steps of other libraries, and print the ratios of their times.

    Each pair of steps has a line. Each backend has a line with the mean ratio and the worst ratio.

    Returns:
        The exit status.
    """
    description = "Time each optimizer's step in turn with the same step of other libraries."
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernels.ratios", description=description)
    parser.add_argument("--case", default="", metavar="REGEX", help="only labels that contain this")
    words = f"samples of each ({REPETITIONS}); 6 give intervals of 95 %%"
    parser.add_argument("--repetitions", type=int, default=REPETITIONS, help=words)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the table here too, as CSV")
    options = parser.parse_args(arguments)
    if options.repetitions < 1:
        parser.error(f"--repetitions {options.repetitions}: at least 1 is needed")
    rows = []
    with one_thread():
        for row in compare(options.case, options.repetitions):
            rows.append(row)
            print(
                "{step} {backend} {precision}, ours / {peer}: {ours_milliseconds} / {peer_milliseconds} ms = "
                "{ratio} [{low}, {high}]; A/A [{same_low}, {same_high}]".format(**row),
                flush=True,
            )
    if not rows:
        print(f"error: --case {options.case!r}: no step with a peer has such a label", file=sys.stderr)
        return 2
    table = pl.DataFrame(rows)
    for means in ratio_tables(table):
        print("{backend}: geometric mean of ours / fastest {mean:.3f}, worst {worst[ratio]}".format(**means))
    if options.out:
        table.write_csv(options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
