"""`curvebench sets`: check, publish, renew, reproduce and compare published sets."""

from __future__ import annotations

import secrets
import shlex
from argparse import Namespace
from functools import partial
from pathlib import Path

from curvebench.commands.command import CORES, argument, command, positive
from curvebench.paths import NEW_SETS, PUBLISHED, STUDY_FOLDER
from curvebench.spec.errors import InputError
from curvebench.spec.sets import SUMS, WAIVERS, set_folders

SET = argument(
    "folder", type=Path, metavar="FOLDER", help="folder of the set, such as results/published/NAME"
)


@command(
    "sets check",
    SET,
    argument("--rerun", type=positive, metavar="N"),
    argument("--claim", metavar="ID"),
    argument("--seed", type=int),
)
def check(args: Namespace) -> int:
    """Accept or refuse a published set.

    The status is 0 for an accepted set and 1 for a refused one, whose reasons are all printed. With --rerun
    or --claim, a random sample of the runs and of the instances of property checks is computed again and
    compared with the set. Runs and instances that decide claims are drawn first. The status is then 1 if a
    run or an instance differs, and 3 if one cannot be computed.

    Args:
        --rerun: also recompute N runs, and instances of each subclaim of property checks (default: none)
        --claim: recompute only what decides this claim (default: all claims)
        --seed: seed of the random sample (default: random; printed)
    """
    from curvebench.reports.formatting import counted
    from curvebench.reports.sets import checking

    inside = set_folders(args.folder)
    if inside and not (args.folder / SUMS).exists():
        raise InputError(
            f"{args.folder}: is a folder of sets; name one of the sets in it, such as {inside[-1]}"
        )
    reasons = checking.check(args.folder)
    refused = f"{args.folder}: refused, {counted(len(reasons), 'reasons')}:"
    lines = [refused, *reasons] if reasons else [f"{args.folder}: accepted"]
    print("\n  ".join(lines), flush=True)
    return 1 if reasons else _rerun(args) if args.rerun or args.claim else 0


def _rerun(args: Namespace) -> int:
    """Recompute runs and instances of a set, print how many agree, and return the exit status.

    Args:
        args: arguments of the command `sets check`.

    Raises:
        InputError: when nothing can be recomputed.
    """
    from curvebench.commands.rerun import checks, runs
    from curvebench.commands.rerun.sample import deciding, draw, drawable, places
    from curvebench.property_checks.checks import claims_by_id
    from curvebench.reports.formatting import counted
    from curvebench.reports.sets.derived import read_set

    seed = secrets.randbelow(2**32) if args.seed is None else args.seed
    plan, show = read_set(args.folder), partial(print, flush=True)
    tables, subclaims = drawable(plan), checks.read_subclaims(plan, args.claim)
    comparisons = deciding(plan, tables, args.claim)
    sample = draw(comparisons, [] if args.claim else places(tables), args.rerun, seed)
    instances, enough = checks.draw(plan, subclaims, args.rerun, seed)
    if not sample.places and not instances:
        what = f" that decides {args.claim}; give another claim" if args.claim else "; leave --rerun out"
        raise InputError(f"{args.folder}: has no run to recompute{what}")
    drawn = [counted(len(sample.places), "runs"), counted(len(instances), "subclaims")]
    show(f"recomputing {drawn[0]} and {drawn[1]}, sampled with --seed {seed}")
    results, computed_runs = [], []
    for number, (study, at) in enumerate(sample.places, start=1):
        results.append(runs.compute(plan.studies[study], plan.scale, tables[study].row(at, named=True)))
        show(f"{number} of {len(sample.places)}: {results[-1]}")
        computed_runs += [] if results[-1].missing else [(study, at)]
    claims = claims_by_id() if instances else {}
    for subclaim, numbers in instances.items():
        _, claim = claims.get(subclaim[0], ("", None))
        results.append(checks.compute(claim, subclaim, subclaims[subclaim], numbers))
        show(results[-1])
    differ = sum(bool(result.differences) for result in results)
    missing = sum(bool(result.missing) for result in results)
    computed = len(results) - missing
    show(f"{computed - differ} of {computed} agree, {differ} differ, {missing} cannot be computed")
    for line in sample.power(computed_runs):
        show(line)
    if args.rerun and args.rerun < enough:
        show(f"subclaims were left out, whose instances take long; --rerun {enough} includes all")
    return 1 if differ else 3 if missing else 0


@command(
    "sets publish",
    argument("--plan", type=Path, required=True),
    argument("--name", required=True),
    argument("--folder", type=Path, default=NEW_SETS),
    argument("--readme", type=Path, metavar="PAGE"),
    argument(
        "--waive",
        nargs="*",
        default=[],
        metavar="KIND",
        help="publish in spite of: " + "; ".join((f"{kind} ({about})" for kind, about in WAIVERS.items())),
    ),
)
def publish(args: Namespace) -> None:
    """Write the tables of a report as a published set.

    `snakemake --cores all publish --config name=NAME` runs the studies first, and then calls this command.

    Args:
        --plan: plan of the report, in results/specs, or plan.json of a published set
        --name: name of the new set
        --folder: folder of published sets (default: %(default)s)
        --readme: page whose leaderboard is replaced, such as README.md (default: none)
    """
    from curvebench.reports.sets import publish
    from curvebench.results.provenance import PROJECT, commit
    from curvebench.spec.plan import read_plan

    plan, code = read_plan(args.plan), commit(PROJECT)
    folder = publish.publish(plan, args.name, args.folder, code, args.waive, args.readme)
    print(f"published: {folder}; check it with curvebench sets check {shlex.quote(str(folder))}")


@command("sets renew", argument("folders", nargs="*", type=Path, metavar="FOLDER"))
def renew(args: Namespace) -> None:
    """Derive verdicts and leaderboards of published sets again from their tables.

    This is needed after a change of the statistics or of the format. Verdicts, leaderboard, README and
    checksums are replaced; the tables of runs are kept, and nothing is run. The set keeps its decision rules.
    The hardware that claims require, and the causes of verdicts, are taken from the present definitions of
    the claims.

    Args:
        folders: folders of the sets (default: all in results/published)
    """
    from curvebench.planning.studies.reading import read_studies
    from curvebench.property_checks.checks import claims_by_id
    from curvebench.reports.sets import publish
    from curvebench.results.provenance import PROJECT, commit

    # Read the commit before any set is written.
    # Afterwards the files of the checkout differ from the commit.
    code = commit(PROJECT)
    studies = read_studies(STUDY_FOLDER, broken={})
    hardware = {claim.id: claim.hardware for study in studies for claim in study.claims}
    causes = {name: claim.cause for name, (_, claim) in claims_by_id().items()}
    for folder in args.folders or set_folders(PUBLISHED):
        publish.renew(folder, code, hardware, causes)
        print(f"renewed: {folder}", flush=True)


@command(
    "sets reproduce",
    argument("claim", metavar="CLAIM"),
    argument("--published", type=Path, metavar="FOLDER"),
    CORES,
)
def reproduce(args: Namespace) -> int:
    """Run one claim again, and compare the result with a published set.

    It uses the scale, backends and seeds of the set. The status is 0 if the results agree, 1 if they differ,
    2 if the claim cannot be run, and 3 if the result is inconclusive. Findings that depend on the clock are
    listed separately, and do not count.

    Args:
        claim: id of the claim, such as egop.convex
        --published: folder of the set (default: the newest published set that has the claim)
    """
    from curvebench.reports.sets import reproduce
    from curvebench.reports.sets.comparing import answer_of, compare
    from curvebench.reports.sets.derived import read_set

    claim = args.claim
    plan = read_set(args.published or reproduce.choose_set(claim, PUBLISHED))
    published = reproduce.side_of_claim(claim, plan, plan.published)
    words = reproduce.command(claim, plan, args.cores)
    print(f"{claim}: set {plan.path.parent}, scale {plan.scale}\n{shlex.join(words)}", flush=True)
    rows = compare(published, reproduce.side_of_claim(claim, reproduce.run(words), "run again"), claim)
    print(reproduce.as_text(claim, published, rows))
    return reproduce.STATUS[answer_of(rows)]


@command(
    "sets compare",
    argument("before", type=Path, metavar="A"),
    argument("after", type=Path, metavar="B"),
    argument("--out", type=Path, required=True, metavar="FILE"),
)
def compare(args: Namespace) -> None:
    """Compare two published sets, or the sites of two checkouts, on one page.

    Args:
        before: a published set, or a checkout with a site
        after: the set or checkout to compare with A
        --out: HTML file to write
    """
    from curvebench.reports.sets.comparing import render
    from curvebench.reports.sets.sides import read_side

    page = render(read_side(args.before), read_side(args.after))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(page)
    print(args.out)
