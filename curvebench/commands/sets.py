"""`curvebench sets check`, `publish`, `reproduce` and `compare`: published sets."""

from __future__ import annotations

import secrets
import shlex
from argparse import Namespace
from functools import partial
from pathlib import Path

from curvebench.commands.command import argument, command, positive
from curvebench.paths import NEW_SETS, PUBLISHED
from curvebench.spec.errors import InputError
from curvebench.spec.sets import WAIVERS

SET = argument("folder", type=Path, metavar="FOLDER", help="the set's folder")


@command(
    "sets check",
    SET,
    argument("--rerun", type=positive, metavar="N", help="compute N random runs anew (default: none)"),
    argument("--seed", type=int, help="of the draw (default: drawn, and printed)"),
)
def check(given: Namespace) -> int:
    """Accept or refuse a published set.

    Says why a published set is refused, all reasons at once; the status is then 1. With --rerun some of its
    runs are computed anew and compared: the status is 1 where one differs, 3 where one cannot be computed.
    """
    from curvebench.reports.formatting import counted
    from curvebench.reports.sets import checking
    from curvebench.spec.sets import SUMS, set_folders

    inside = set_folders(given.folder)
    if inside and not (given.folder / SUMS).exists():
        raise InputError(
            f"{given.folder}: is a folder of sets; name one of the sets in it, such as {inside[-1]}"
        )
    found = checking.check(given.folder)
    refused = f"{given.folder}: refused, {counted(len(found), 'reasons')}:"
    said = [refused, *found] if found else [f"{given.folder}: accepted"]
    print("\n  ".join(said), flush=True)
    return 1 if found else _rerun(given) if given.rerun else 0


def _rerun(given: Namespace) -> int:
    from curvebench.commands.rerun import CONFIDENCE, rerun, share_found

    seed = secrets.randbelow(2**32) if given.seed is None else given.seed
    print(f"computing {given.rerun} runs anew, drawn with --seed {seed}", flush=True)
    cells = rerun(given.folder, given.rerun, seed, partial(print, flush=True))
    differ, missing = sum(bool(cell.found) for cell in cells), sum(bool(cell.missing) for cell in cells)
    done = len(cells) - missing
    print(f"{done - differ} of {done} agree, {differ} differ, {missing} cannot be computed")
    if done:
        found = f"{done} runs find them with a probability of {CONFIDENCE:.0%}"
        print(f"were {share_found(done):.0%} of all runs invented, {found}")
    return 1 if differ else 3 if missing else 0


@command(
    "sets publish",
    argument(
        "--plan",
        type=Path,
        required=True,
        help="the plan JSON that Snakemake wrote, or that of a set",
    ),
    argument("--name", required=True, help="the set's name, a new one"),
    argument("--folder", type=Path, default=NEW_SETS, help="where sets lie (default: %(default)s)"),
    argument("--readme", type=Path, help="page whose leaderboard becomes the set's (default: none)"),
    argument(
        "--waive",
        nargs="*",
        default=[],
        metavar="KIND",
        help="publish in spite of: " + "; ".join(f"{kind} ({what})" for kind, what in WAIVERS.items()),
    ),
)
def publish(given: Namespace) -> None:
    """Write the tables of a report as a published set."""
    from curvebench.reports.sets import publish
    from curvebench.spec.plan import read_plan

    folder = publish.publish(read_plan(given.plan), given.name, given.folder, given.waive, given.readme)
    print(f"published: {folder}; check it with curvebench sets check {shlex.quote(str(folder))}")


@command(
    "sets renew",
    argument(
        "folders",
        nargs="*",
        type=Path,
        metavar="FOLDER",
        help=f"folders of sets (default: all in {PUBLISHED})",
    ),
)
def renew(given: Namespace) -> None:
    """Derive published sets anew from their own tables, in their place.

    Verdicts, leaderboard, README and checksums are written again; the tables of runs stay, and nothing runs.
    """
    from curvebench.reports.sets import publish
    from curvebench.results.provenance import PROJECT, commit
    from curvebench.spec.sets import set_folders

    code = commit(PROJECT)  # before the first set is written, which differs from its commit then
    for folder in given.folders or set_folders(PUBLISHED):
        publish.renew(folder, code)
        print(f"renewed: {folder}", flush=True)


@command(
    "sets reproduce",
    argument("claim", metavar="CLAIM", help="the claim's id"),
    argument(
        "--published", type=Path, metavar="SET", help=f"the set's folder (default: the newest in {PUBLISHED})"
    ),
    argument("--cores", default="all", help="how many for Snakemake, or all (default: %(default)s)"),
)
def reproduce(given: Namespace) -> int:
    """Run one claim again beside a published set."""
    from curvebench.reports.sets import reproduce
    from curvebench.reports.sets.comparing import compare, summed_up
    from curvebench.reports.sets.derived import read_set

    claim = given.claim
    plan = read_set(given.published or reproduce.choose_set(claim, PUBLISHED))
    published = reproduce.side_of_claim(claim, plan, plan.published)
    called = reproduce.command(claim, plan, given.cores)
    print(f"{claim}: set {plan.path.parent}, scale {plan.scale}\n{shlex.join(called)}", flush=True)
    rows = compare(published, reproduce.side_of_claim(claim, reproduce.run(called), "run again"), claim)
    print(reproduce.as_text(claim, published, rows))
    return reproduce.STATUS[summed_up([row.answer for row in rows])]


@command(
    "sets compare",
    argument("before", type=Path, metavar="A", help="a published set, or a checkout with a site"),
    argument("after", type=Path, metavar="B", help="another one"),
    argument("--out", type=Path, required=True, metavar="FILE", help="the page, FILE.html"),
)
def compare(given: Namespace) -> None:
    """Set two published sets, or two checkouts, side by side."""
    from curvebench.reports.sets.comparing import render
    from curvebench.reports.sets.sides import read_side

    page = render(read_side(given.before), read_side(given.after))
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(page)
    print(given.out)
