"""The setting of a study in words: what stands fixed, for every method alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reports.formatting import metric_name, plain
from reports.plan import StudyPlan, WorkloadPlan
from results.methods import IDENTITY

PROTOCOLS = {
    "two_stage_sweep": "sweep in two stages, powers of ten first, then by doubling around the best",
    "random_search": "random search",
    "halton_search": "Halton search",
}
BLOCKS = {"all": "of all parameters together", "weights": "of each weight matrix", "layers": "of each layer"}
COMPLEMENTS = {
    "random": "completed at random",
    "auxiliary": "as auxiliary variables beside the original coordinates",
    "none": "the rest left out",
}


def setting_rows(study: StudyPlan) -> list[tuple[str, list[str]]]:
    """What a study fixed, by name, each as one or several phrases."""
    given = study.settings
    rows = [
        (
            "Optimizers",
            [f"{name}: {options(chosen)}" for name, chosen in given.get("optimizers", {}).items()],
        ),
        ("Length of a run", [_budget(given["budget"])] if "budget" in given else []),
        ("Seeds", [f"{given['seeds']['tuning']} to tune, {given['seeds']['final']} to judge"])
        if {"tuning", "final"} <= set(given.get("seeds", {}))
        else ("Seeds", []),
        ("Tuning", list(_tuning(study))),
        ("Learning rate over a run", [_schedule(given["schedule"])] if "schedule" in given else []),
        (
            "Runs stop",
            [f"at a {metric_name(name)} of {plain(at)} or less" for name, at in study.stop.items()],
        ),
        ("Targets", [_target(study, name, at) for name, at in study.targets.items()]),
        ("Bases", [f"{label}: {_basis(chosen)}" for label, chosen in given.get("bases", {}).items()]),
        ("Backends", [_backend(name, chosen) for name, chosen in given.get("backends", {}).items()]),
    ]
    return [(name, phrases) for name, phrases in rows if phrases]


Ran = tuple[StudyPlan, WorkloadPlan]


def apart(own: Ran, others: Sequence[Ran]) -> str:
    """How a study's runs of a workload differ from those of other studies, in a phrase; empty if nowhere."""
    settings = own[1].settings
    told = {
        name: value
        for name, value in settings.items()
        if any(other.settings.get(name) != value for _, other in others)
    }
    facets, theirs = _facets(own[0]), [_facets(other) for other, _ in others]
    phrases = [facets[name] for name in facets if any(other[name] != facets[name] for other in theirs)]
    return "; ".join(filter(None, [options(told) if told else "", *phrases]))


def repeated(study: StudyPlan) -> str:
    """What claims a study repeats, and in what setting: repeats egop.convex with alpha = 1."""
    ids = list(dict.fromkeys(claim.repeats for claim in study.repeated))
    settings = list(dict.fromkeys(claim.changed for claim in study.repeated))
    return f"repeats {ids[0] if len(ids) == 1 else f'{len(ids)} claims'} {_listed(settings, 'and')}"


def _facets(study: StudyPlan) -> dict[str, str]:
    """What studies of one workload may do in other ways, each as a short phrase."""
    given = study.settings
    length = {name: value for name, value in given.get("budget", {}).items() if name != "evaluations"}
    bases = [label for label in given.get("bases", {}) if label != IDENTITY]
    return {
        "length": _budget(length),
        "rates": "bases share a rate" if study.shares_rates else "a rate for each method",
        "bases": f"in {_listed(bases, 'and')}" if bases else "",
        "methods": f"{len(study.methods)} methods",
        "precision": str(given.get("precision", "")),
    }


def options(given: Mapping[str, Any]) -> str:
    """Options and hyperparameters of any shape as one phrase: momentum 0.9; with decoupled weight decay."""
    flat = (
        {**given, **given.get("arguments", {})} if isinstance(given.get("arguments"), dict) else dict(given)
    )
    flat.pop("arguments", None)
    parts = [
        f"{_words(name)} {_value(value)}"
        for name, value in flat.items()
        if not isinstance(value, bool | None)
    ]
    for word, wanted in (("with", True), ("without", False)):
        named = [_words(name) for name, value in flat.items() if value is wanted]
        if named:
            parts.append(f"{word} {_listed(named, 'and' if wanted else 'or')}")
    unset = [_words(name) for name, value in flat.items() if value is None]
    if unset:
        parts.append(f"no {_listed(unset, 'or')}")
    return ", ".join(parts) or "nothing else"


def _value(value: Any) -> str:
    """A value inside a phrase; what has parts of its own stands in brackets."""
    if isinstance(value, Mapping):
        return f"({options(value)})"
    if isinstance(value, list | tuple):
        return _listed([_value(each) for each in value], "and") if value else "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return plain(value)
    return _words(value) if str(value).isidentifier() else str(value)


def _words(name: str) -> str:
    return name.replace("_", " ")


def _listed(words: Sequence[str], last: str) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun if count != 1 else noun.removesuffix('s')}"


def _budget(given: Mapping[str, Any]) -> str:
    length = [_counted(given[unit], unit) for unit in ("epochs", "steps") if unit in given]
    seen = [f"evaluated {_counted(given['evaluations'], 'times')}"] if "evaluations" in given else []
    return ", ".join([*length, *seen])


def _tuning(study: StudyPlan) -> Iterator[str]:
    given = study.tuning
    if "protocol" not in given:
        return
    tuned = _listed([_words(name) for name in given.get("names", [])] or ["learning rate"], "and")
    trials = f", {_counted(given['trials'], 'settings')} a method" if "trials" in given else ""
    yield f"{_words(tuned)}: {PROTOCOLS.get(given['protocol'], _words(given['protocol']))}{trials}"
    if given.get("coarse"):
        yield f"first {_value(given['coarse'])}"
    for name, axis in given.get("space", {}).items():
        yield f"{_words(name)} from {plain(axis['low'])} to {plain(axis['high'])}, {axis['scale']} scale"
    if study.criterion:
        yield f"chosen by the {study.criterion}"
    tried = f"; settings were tried in {_listed(given['tried_in'], 'and')}" if given.get("tried_in") else ""
    shared = f"all bases take what the identity basis chose{tried}"
    yield shared if study.shares_rates else "each method for itself"


def _schedule(given: Mapping[str, Any]) -> str:
    parts = [_words(given.get("name", "constant"))]
    if given.get("warmup"):
        parts.append(f"after a linear rise over {plain(100 * given['warmup'])} % of the steps")
    if given.get("cooldown"):
        parts.append(f"falling over the last {plain(100 * given['cooldown'])} % of the steps")
    if given.get("name") in ("cosine", "linear") or given.get("cooldown"):
        parts.append(f"to {plain(given.get('final', 0))} times its height" if given.get("final") else "to 0")
    return ", ".join(parts)


def _target(study: StudyPlan, metric: str, at: float) -> str:
    side = "less" if study.direction_of(metric) == "minimize" else "more"
    return f"{metric_name(metric)} of {plain(at)} or {side}"


def _basis(given: Mapping[str, Any]) -> str:
    rest = {name: value for name, value in given.items() if name != "name"}
    if not rest:
        return (
            "the original coordinates" if given.get("name") == "identity" else _words(str(given.get("name")))
        )
    parts = []
    blocks = rest.pop("blocks", None)
    if blocks is not None:
        parts.append(
            BLOCKS.get(blocks, f"of {blocks}") if isinstance(blocks, str) else f"of {_value(blocks)}"
        )
    if "samples" in rest:
        parts.append(
            f"from {_multiple(rest.pop('samples'))} gradients{_sampling(rest.pop('sampling', None))}"
        )
    rank, complement = rest.pop("rank", None), rest.pop("complement", None)
    if rank is not None:
        parts.append(f"its {_multiple(rank)} leading eigenvectors")
        parts.append(COMPLEMENTS.get(str(complement), ""))
    every, state = rest.pop("every", None), rest.pop("state", None)
    if every is not None:
        kept = ", the optimizer starting anew" if state != "carried" else ""
        parts.append(f"estimated anew every {every}{kept}")
    return ", ".join([*filter(None, parts), *([options(rest)] if rest else [])])


def _multiple(value: Any) -> str:
    """A number, or one in units of the dimension: `1.0 d` is d."""
    factor, _, unit = str(value).partition(" ")
    if unit != "d":
        return plain(value) if isinstance(value, int | float) else str(value)
    return "d" if float(factor) == 1 else f"{plain(factor)} d"


def _sampling(given: Any) -> str:
    if given == "initialization":
        return " at initial parameters drawn anew"
    if isinstance(given, Mapping) and len(given) == 1:
        ((kind, scale),) = given.items()
        around = {"normal": "0", "normal_around_start": "the run's first parameters"}.get(kind)
        if around:
            return f" at normal parameters around {around}, standard deviation {plain(scale)}"
    return "" if given is None else f", sampled by {_value(given)}"


def _backend(name: str, given: Mapping[str, Any]) -> str:
    parts = [_counted(given["final_seeds"], "final seeds")] if "final_seeds" in given else []
    if given.get("tuned_on", name) != name:
        parts.append(f"with the settings chosen on {given['tuned_on']}")
    return f"{name} on {given.get('device', 'cpu')}: {', '.join(parts)}" if parts else name
