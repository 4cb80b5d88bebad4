"""Verdicts in words: the only module that turns the codes and numbers of claims into sentences.

The record (the tables `claims` and `findings`) has no sentence; pages, the terminal and the README of a
published set get theirs here, so that wording can be improved without touching a published set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from typing import Any

from curvebench.reports.claims.censoring import EffectBounds, both_stopped
from curvebench.reports.failures import failed_check, reasons_of
from curvebench.reports.formatting import counted, listed, metric_name, percent, plain, ratio, signed
from curvebench.reports.plan import reading
from curvebench.reports.statistics.decisions import POWER, SEEDS
from curvebench.results.intervals import MedianInterval
from curvebench.results.verdicts import KEPT, choices_flip
from curvebench.spec.claim import TO_STOP, TO_THRESHOLD, Claim, Condition
from curvebench.spec.plan import ClaimPlan, ReportPlan, StudyPlan

Row = Mapping[str, Any]
NAMED_PARTS = 2  # missed parts that a sentence names
NEITHER = dict.fromkeys(TO_STOP, "neither stopped") | {"steps_to_target": "neither reached it"}
LIMITS = ("limited_scale", "settings_not_run", "few_tuning_seeds")  # reasons that cap a verdict


# --- comparisons ---------------------------------------------------------------------------------


def unknown_words(quantity: str, stop: float | None) -> tuple[str, str]:
    """Return the words for an effect of which nothing is known, as `EffectBounds` takes them."""
    words, where = both_stopped(stop)
    return NEITHER.get(quantity, words), where


def control_in_words(workload: str, control: str | None, other: str | None, number: float | None) -> str:
    """Name what a method is compared with: a method, a method on another workload, or a number."""
    if control is None:
        return plain(number or 0.0)
    return control if other == workload else f"{control} on {other}"


def requirement(effect: str, low: float, high: float) -> str:
    """Say which median effects a claim accepts: "at most 0.950"."""
    write = ratio if effect == "ratio" else signed
    if high == inf:
        return f"at least {write(low)}"
    open_below = low <= 0 if effect == "ratio" else low == -inf
    return f"at most {write(high)}" if open_below else f"{write(low)} to {write(high)}"


def effect_of(row: Row) -> EffectBounds:
    """Return the median effect of a row of `findings` with pairs, with its interval and bounds."""
    floor, ceiling = (
        MedianInterval(row[end], row["low"], row["high"], row["level"], row["seeds"])
        for end in ("at_least", "at_most")
    )
    is_unknown = row["unknown"] == row["seeds"]
    return EffectBounds(
        row["effect"], floor, ceiling, is_unknown, unknown_words(row["quantity"], row["stop"])
    )


def comparison(row: Row, condition: Condition) -> dict[str, Any]:
    """Return a row of `findings` as pages show it: with its key, and with words for codes and numbers.

    Args:
        row: the row.
        condition: the condition of the claim that asks for it.
    """
    names = ("claim", "condition", "workload", "treated", "control", "control_workload")
    shown, interval = effect_of(row).words if row["seeds"] else (None, None)
    counts_to_target = condition.counted == "steps_to_target" and condition.target is None
    found = {
        **row,
        "key": {name: row[name] for name in names},
        "control": control_in_words(
            row["workload"], row["control"], row["control_workload"], condition.number
        ),
        "which": reading(condition),
        "positive_control": condition.positive_control if row["positive_control"] else None,
        "target": row["stop"] if counts_to_target else None,
        "shown": shown,
        "range": interval,
        "asks": requirement(row["effect"], row["allowed_low"], row["allowed_high"]),
        "choices": choices(row),
        "censoring": censoring(row, condition),
    }
    return found | {"further_seeds": seeds_for_comparison(found)}


def contest(comparison: Row) -> str:
    """Name a comparison: `adam @ egop / adam on digits_mlp`; with − where its effect is a difference."""
    sign = "/" if comparison["effect"] == "ratio" else "−"
    treated, control, where = comparison["treated"], comparison["control"], f"on {comparison['workload']}"
    elsewhere = comparison["key"]["control_workload"] not in (None, comparison["workload"])
    return f"{treated} {where} {sign} {control}" if elsewhere else f"{treated} {sign} {control} {where}"


def choices(row: Row) -> str:
    """Say where other settings than the chosen ones lead to another finding; empty where few do."""
    if not choices_flip(row):
        return ""
    words = []
    if row["ties_agree"] < row["ties"]:
        against = row["ties"] - row["ties_agree"]
        words.append(f"at {against} of {row['ties']} settings that tie with the chosen one")
    if row["choices_agree"] < KEPT:
        share, allowed = 1 - row["choices_agree"], 1 - KEPT
        words.append(f"in {percent(share, 1)} of the draws of tuning seeds ({percent(allowed)} may)")
    not_run = row["settings_not_run"]
    without = f" (settings without runs count as such: {not_run})" if not_run else ""
    return f"{' and '.join(words)} the same is not found{without}"


def censoring(row: Row, condition: Condition) -> str:
    """Say which pairs are censored, so that they cannot decide a comparison; empty where none are."""
    unknown, pairs, where = row["unknown"], row["seeds"], plain(row["stop"] or 0)
    if unknown and condition.counted in TO_THRESHOLD:
        cost = "gradients" if condition.counted == "gradients_to_stop" else "steps"
        words = f"{unknown} of {pairs} pairs met {where} in neither run, "
        words += f"which the {cost} to it cannot tell apart"
    elif unknown:
        value = f"the {condition.which} value"
        words = f"{unknown} of {pairs} pairs stopped at {where} in both, which {value} cannot tell apart"
    elif row["beyond_seeds"]:
        words = f"{row['bounded']} of {pairs} pairs, of which one run stopped at {where}, are bounds only"
    else:
        return ""
    why_not = "these runs cannot decide it, and more seeds would not either: "
    return (why_not if row["beyond_seeds"] else "") + words


def seeds_for_comparison(comparison: Row) -> str:
    """Say how many further seeds would decide a comparison; empty where no number is known."""
    if comparison["finding"] != "inconclusive" or not comparison["seeds"]:
        return ""
    if comparison["tuning_seeds_needed"]:
        return f"about {comparison['tuning_seeds_needed']:,} tuning seeds would decide it"
    if comparison["seeds_needed"]:
        return f"about {comparison['seeds_needed']:,} final seeds would decide it"
    if comparison["beyond_seeds"]:
        return "more seeds would not decide it"
    if comparison["choices"] or comparison["seeds"] >= SEEDS[-1]:
        return ""
    return f"not even {SEEDS[-1]:,} final seeds like these would decide it with a power of {percent(POWER)}"


def seeds_for_claim(verdict: str, comparisons: Sequence[Row]) -> str:
    """Say how many further seeds would decide an open claim; empty for others, or where it is not known."""
    if verdict != "underpowered":
        return ""
    open_ones = [one for one in comparisons if one["finding"] == "inconclusive"]
    if any(one["beyond_seeds"] for one in open_ones):
        return "these runs cannot decide it, and more seeds would not either"
    tuning = [one["tuning_seeds_needed"] for one in open_ones if one["tuning_seeds_needed"]]
    final = [one["seeds_needed"] for one in open_ones if not one["tuning_seeds_needed"]]
    if None in final:
        return ""
    words = [f"about {max(final):,} final seeds would be needed to confirm or refute it"] if final else []
    if tuning:
        words.append(f"about {max(tuning):,} tuning seeds would be needed to choose by")
    return "; ".join(words)


# --- why a claim has its verdict -----------------------------------------------------------------


def reason(plan: ReportPlan, claim: Row, comparisons: Sequence[Row]) -> str:
    """Say why a claim has its verdict.

    Args:
        plan: the plan that has the claim.
        claim: its row of the table `claims`.
        comparisons: its comparisons on the row's backend, as `comparison` gives them.

    Raises:
        InputError: when the jobs of a property check that failed cannot be read.
    """
    why = {each["code"]: each for each in claim["reasons"]}
    if len(why) == 1 and (not_run := NOT_RUN.get(next(iter(why)))):
        return not_run(plan, claim)
    sentences = list(_of_instances(why) if "held" in why else _of_comparisons(why, comparisons))
    limits = " and ".join(_limit(plan, claim, why[code]) for code in LIMITS if code in why)
    if limits:
        cap = "at this scale" if claim["verdict"] == "not reproduced" else "partly at most"
        sentences.append(f"{cap}, since {limits}")
    return "; ".join(sentences)


def _checked(plan: ReportPlan, claim: Row) -> ClaimPlan | None:
    """Return the claim of the plan's property checks; None for a claim that a study decides."""
    checked = plan.checks.claims if plan.checks else ()
    return next((one for one in checked if one.id == claim["claim"]), None)


def _missing(plan: ReportPlan, claim: Row) -> str:
    about = _checked(plan, claim)
    return about.missing if about else ""


def _failed(plan: ReportPlan, claim: Row) -> str:
    about = _checked(plan, claim)
    return (failed_check(about, reasons_of(plan.checks)) if about and plan.checks else "") or ""


NOT_RUN: dict[str, Callable[[ReportPlan, Row], str]] = {
    "not_paired": lambda _, claim: f"no pairs of runs on {claim['backend']}",
    "left_out": lambda plan, claim: next(
        study.reason for study in plan.skipped if study.name == claim["study"]
    ),
    "no_data": _missing,
    "failed": _failed,
    "unmeasured": lambda *_: "the tables hold no measure of it",
}


def _of_comparisons(why: Mapping[str, Row], comparisons: Sequence[Row]) -> Iterator[str]:
    """Say what the comparisons of a claim found, and what keeps the open ones from deciding."""
    for one in comparisons:
        if one["positive_control"] and one["finding"] != "supported":
            yield (
                f"the positive control is {one['finding']} on {one['workload']} ({one['positive_control']}), "
                "so that these runs are not the source's setting and decide nothing"
            )
    found = {kind: why[kind] for kind in ("supported", "refuted", "inconclusive") if kind in why}
    of = next(each["of"] for each in found.values())
    if of == 1:
        yield f"its one comparison is {next(iter(found))}"
    else:
        counts = ", ".join(f"{each['count']} {kind}" for kind, each in found.items())
        yield f"of {of} comparisons {counts}"
    yield from _at_start(comparisons)
    yield from _censored(comparisons)
    yield from _tuning(comparisons)


def _at_start(comparisons: Sequence[Row]) -> Iterator[str]:
    """Say which methods took no step at equal cost, and compared with which others."""
    cheaper: dict[tuple[str, str, str, str], dict[str, None]] = {}
    for one in comparisons:
        treated, control = one["treated"], one["control"]
        both = (
            (treated, control, one["treated_at_start"]),
            (control, treated, one["control_at_start"]),
        )
        for method, other, still in both:
            if still:
                about = (method, f"{still} of {one['seeds']} pairs", one["workload"], one["at_equal"])
                cheaper.setdefault(about, {})[other] = None
    for (method, pairs, workload, cost), others in cheaper.items():
        yield (
            f"{method} on {workload} is read at its start in {pairs}, since its basis and a first step take "
            f"more {cost} than a run of {listed(list(others), last='or')}"
        )


def _censored(comparisons: Sequence[Row]) -> Iterator[str]:
    """Say which inconclusive comparisons runs that stopped leave open."""
    controls: dict[tuple[str, str, str], list[str]] = {}
    for one, of in zip(comparisons, _quantities(comparisons, "censoring"), strict=True):
        if one["finding"] == "inconclusive" and one["censoring"]:
            about = (one["treated"], f"{one['workload']}{of}", one["censoring"])
            controls.setdefault(about, []).append(one["control"])
    for (treated, where, words), against in controls.items():
        named = f"{treated} and {', '.join(against)} on {where}: " if len(comparisons) > 1 else ""
        yield named + words


def _tuning(comparisons: Sequence[Row]) -> Iterator[str]:
    """Say which comparisons other settings, which tuning may have chosen as well, leave open."""
    for one, of in zip(comparisons, _quantities(comparisons), strict=True):
        turned = ""
        if one["turned"]:
            tied = f"{one['turned']} of {one['ties']} settings that tie with the chosen one"
            turned = f"at {tied} the median effect does not have the same direction"
        if words := ", and ".join(filter(None, (one["choices"], turned))):
            yield f"{one['treated']} and {one['control']} on {one['workload']}{of}: {words}"


def _quantities(comparisons: Sequence[Row], *columns: str) -> list[str]:
    """Name what each comparison is of, where another has its methods, workload and `columns`."""
    same = [tuple(one[name] for name in ("treated", "control", "workload", *columns)) for one in comparisons]
    times = Counter(same)
    return [
        f" ({one['which']} {metric_name(one['metric'])})" if times[about] > 1 else ""
        for about, one in zip(same, comparisons, strict=True)
    ]


def _of_instances(why: Mapping[str, Row]) -> Iterator[str]:
    """Say on how many random instances a claim holds, which parts miss, and which are not tested."""
    held = why["held"]
    words = f"all measures hold on {held['count']} of {held['of']} instances"
    if undecided := why.get("undecided"):
        words += f", and {undecided['count']} {'is' if undecided['count'] == 1 else 'are'} inconclusive"
    yield words
    if missed := why.get("missed"):
        parts = [f'"{part}"' for part in missed["names"]]
        yield f"{len(parts)} of {counted(missed['of'], 'parts')} missed: {listed(parts, NAMED_PARTS)}"
    if untested := why.get("untested"):
        (quantity,) = untested["names"]
        be = "is" if untested["count"] == 1 else "are"
        least = f'the least, "{quantity}": at most {untested["value"]:.2g} of its limit'
        yield f"{counted(untested['count'], 'parts')} {be} held, not tested ({least})"


def _limit(plan: ReportPlan, claim: Row, why: Row) -> str:
    """Say what caps a verdict."""
    if why["code"] == "settings_not_run":
        return f"up to {why['count']} settings that tuning may have chosen as well were not run"
    if why["code"] == "few_tuning_seeds":
        seeds, draws = counted(why["count"], "tuning seeds"), counted(why["of"], "different draws")
        return f"rates were chosen by {seeds} ({draws}), too few to show that others would choose alike"
    return (_checked(plan, claim) or plan.study(claim["study"])).at_most_partly


def exploratory(claim: Row) -> str:
    """Say why the runs of a row of `claims` may have suggested its rule; empty where they have not."""
    if not claim["seeds"] or claim["rule_of_runs"] == claim["rule"]:
        return ""
    if claim["rule_of_runs"] is not None:
        return "the rule was changed after the runs were planned"
    return "its runs were planned without this claim, or under several rules" if claim["backend"] else ""


def agreement(claim: Row, comparisons: Sequence[Row], others: Sequence[tuple[Row, Sequence[Row]]]) -> str:
    """Say whether other backends lead to the same finding in each comparison of a claim; empty without one.

    They run at the same rates and on the same instances: that checks the backends, not the claim.

    Args:
        claim: its row of the table `claims`.
        comparisons: its comparisons.
        others: the rows of other backends, with their comparisons.
    """
    said, missing = [], []
    for other, theirs in others:
        finding = {_place(one): one["finding"] for one in theirs}
        alike = sum(one["finding"] == finding.get(_place(one)) for one in comparisons)
        if other["verdict"] == "not run":
            missing.append(other["backend"])
        elif other["verdict"] != claim["verdict"]:
            said.append(f"{other['backend']} says {other['verdict']}")
        else:
            parts = "" if alike == len(comparisons) else f" in {alike} of {len(comparisons)} parts"
            said.append(f"{other['backend']} agrees{parts}")
    words = [", ".join(said) + " at the same rates"] if said else []
    return ", ".join([*words, *(f"no pairs of runs on {backend}" for backend in missing)])


def _place(comparison: Row) -> tuple[Any, ...]:
    return tuple(comparison["key"].values())


# --- repeats -------------------------------------------------------------------------------------


def repeat(study: StudyPlan, claim: Claim, comparisons: Sequence[Row]) -> dict[str, Any]:
    """Return what became of a claim that was repeated in another setting.

    Args:
        study: the study that repeats it.
        claim: the claim that repeats.
        comparisons: its comparisons that have pairs in both studies, at least one.
    """
    flipped = [
        f"{one['treated']} and {one['control']}, {one['which']} {one['metric']} on {one['workload']}"
        for one in comparisons
        if not one["same_direction"]
    ]
    (first, *more) = comparisons
    return {
        "claim": claim.id,
        "changed": claim.changed,
        "study": study.name,
        "comparisons": len(comparisons),
        "reversed": flipped,
        "seeds": min(one["seeds"] for one in comparisons),
        "effect": "" if more else f"{first['shown']} {first['range']}",
    }


def repeat_in_words(repeat: Row) -> str:
    """Say what became of a claim where it was repeated."""
    kept = repeat["comparisons"] - len(repeat["reversed"])
    among, seeds = counted(repeat["comparisons"], "comparisons"), counted(repeat["seeds"], "seeds")
    effect = f": {repeat['effect']}" if repeat["effect"] else ""
    return f"{repeat['changed']}: same direction in {kept} of {among} ({seeds}){effect}"
