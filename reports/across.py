"""Figures across workloads that differ in one number, across several bases, and across their ranks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from reports.curves import final_curves
from reports.figures import (
    Axes,
    Drawn,
    Figure,
    band,
    capped,
    draw_key,
    draw_lines,
    fits_log,
    floats,
    judged_metrics,
    label_axes,
    label_panels,
    limit_heights,
    one_panel_each,
    panels_of,
    save,
    thinned,
)
from reports.formatting import metric_name, number, percent, plain
from reports.judged import seconds_to_nearly_best
from reports.measures import complete_curves, curve_bands, sensitivity, study_values
from reports.palette import DASHES, MUTED, TEXT, ink_of
from reports.plan import NEARLY_BEST, StudyPlan, WorkloadPlan
from reports.statistics.medians import quartile_bands
from reports.tables import Tables
from results.methods import IDENTITY, method_label, method_parts

ACCURACY = "validation_accuracy"
LEAST_RANKS = 3
NUMBER = re.compile(r"\d+(\.\d+)?(e[+-]?\d+)?")  # in a description
SHARE = re.compile(r"(\S+) d")  # a rank as a share of the dimension


def draw_across(study: StudyPlan, tables: Tables, out: Path) -> list[Drawn]:
    """Draw a study's figures across workloads and bases, where it has such, into an existing folder."""
    return [
        figure
        for backend in study.backends
        for figure in (
            *_family(study, backend, tables, out),
            *_bases(study, backend, tables, out),
            *_ranks(study, backend, tables, out),
        )
    ]


# --- workloads that differ in one number ---------------------------------------------------------


def varied(workloads: Sequence[WorkloadPlan]) -> tuple[str, dict[str, float]] | None:
    """The setting that alone tells workloads apart, and its number by workload, from the least on.

    None where workloads are not of one kind, as their descriptions but for numbers tell, differ in several
    settings, or in what is no number.
    """
    if len({NUMBER.sub("", one.description) for one in workloads}) > 1:
        return None
    names = {name for workload in workloads for name in workload.settings}
    missing = object()
    differing = [
        name for name in names if len({str(one.settings.get(name, missing)) for one in workloads}) > 1
    ]
    if len(workloads) < 2 or len(differing) != 1 or len({tuple(one.metrics) for one in workloads}) > 1:
        return None
    values = {one.name: one.settings.get(differing[0]) for one in workloads}
    numbers = {
        name: float(value)
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    if len(set(numbers.values())) < len(workloads):
        return None
    return differing[0], dict(sorted(numbers.items(), key=lambda item: item[1]))


@dataclass(frozen=True)
class _Family:
    """Workloads of a study that differ in one setting, as methods met them on a backend."""

    study: StudyPlan
    backend: str
    setting: str
    values: Mapping[str, float]  # of the setting, by workload
    methods: Sequence[str]

    def save(self, figure: Figure, out: Path, name: str, **words: str) -> Drawn:
        """The figure in both themes, its name after the setting."""
        study, backend = self.study, self.backend
        return save(
            figure,
            out,
            kind="across",
            name=f"{study.name}.{backend}.{self.setting}{name}",
            workload=study.workloads[0].name,
            backend=backend,
            metric=study.metric,
            **words,
        )


def _family(study: StudyPlan, backend: str, tables: Tables, out: Path) -> Iterator[Drawn]:
    found = varied(study.workloads)
    if found is None:
        return
    setting, values = found
    final = tables.runs.filter((pl.col("backend") == backend) & (pl.col("stage") == "final"))
    final = final.filter(pl.col("workload").is_in(list(values)))
    methods = [method for method in study.methods if method in set(final["method"])]
    if not methods:
        return
    family = _Family(study, backend, setting, values, methods)
    recorded = final_curves(tables.folder, final, tables.checkpoints, study.metric)
    curves = complete_curves(final, recorded, study.metric, study.direction)
    if len(curves):
        yield _family_curves(family, curve_bands(curves), out)
    places = pl.DataFrame({"workload": list(values), "place": list(values.values())})
    ends = study_values(study, final).join(places, on="workload")
    yield _family_ends(family, quartile_bands(ends, ["method", "place"], "value"), out)


def _family_curves(family: _Family, bands: pl.DataFrame, out: Path) -> Drawn:
    study, setting, values, methods = family.study, family.setting, family.values, family.methods
    name = metric_name(study.metric)
    log_y = study.direction == "minimize" and fits_log(bands["lower_quartile"])
    shown, count = thinned(bands, 120), int(bands["count"].max())  # type: ignore[arg-type]
    dashes = dict(zip(values, [(), *(tuple(map(float, dash.split())) for dash in DASHES)], strict=False))
    with panels_of(methods, False, log_y) as (figure, panels):
        for method, panel in panels.items():
            for workload, dash in dashes.items():
                _line(panel, method, shown.filter(method=method, workload=workload), dash)
        limit_heights(panels, bands, "step", study.direction, log_y)
        named = {f"{setting} = {plain(values[workload])}": dash for workload, dash in dashes.items()}
        draw_key(figure, _looks(named))
        label_panels(figure, panels, "steps", name)
        last = bands.filter(pl.col("step") == pl.col("step").max().over("workload", "method"))
        return family.save(
            figure,
            out,
            ".curves",
            title=f"{name.capitalize()} by step, for every {setting}",
            caption=(
                f"Median over {count} final seeds, with the band {band(count)}; one panel a method, each at "
                f"its own rates. A diverged run counts as worst."
            ),
            alt=(
                f"{name.capitalize()} by step on {family.backend}, a panel a method and a line for every "
                f"{setting} of {', '.join(values)}. Median at the end: "
                + "; ".join(
                    f"{method} "
                    + ", ".join(
                        f"{number(_only(last, method, workload))} at {setting} = {plain(values[workload])}"
                        for workload in dashes
                    )
                    for method in methods
                )
                + "."
            ),
        )


def _only(last: pl.DataFrame, method: str, workload: str) -> float | None:
    found = last.filter(method=method, workload=workload)["median"]
    return found[0] if len(found) else None


def _line(panel: Axes, method: str, line: pl.DataFrame, dash: tuple[float, ...]) -> None:
    colour, x = ink_of(method_parts(method)[0]).light, floats(line, "step")
    panel.fill_between(x, floats(line, "lower_quartile"), capped(line), color=colour, alpha=0.14, linewidth=0)
    style = (0, dash) if dash else "-"
    panel.plot(x, floats(line, "median"), color=colour, linewidth=1.6, linestyle=style)


def _looks(dashes: Mapping[str, tuple[float, ...]]) -> list[Any]:
    """Lines of a key by their labels, without a colour of their own; () is solid."""
    from matplotlib.lines import Line2D

    return [
        Line2D([], [], color=MUTED.light, linewidth=1.7, linestyle=(0, dash) if dash else "-", label=label)
        for label, dash in dashes.items()
    ]


def _family_ends(family: _Family, bands: pl.DataFrame, out: Path) -> Drawn:
    study, setting, values, methods = family.study, family.setting, family.values, family.methods
    name = f"{study.which} {metric_name(study.metric)}"
    log_y = study.direction == "minimize" and fits_log(bands["lower_quartile"])
    lines = {method: bands.filter(method=method) for method in methods}
    count = int(bands["count"].max())  # type: ignore[arg-type]
    with one_panel_each(methods, False, log_y) as (figure, panels):
        for optimizer, panel in panels.items():
            draw_lines(panel, optimizer, lines, "place", methods, marker="o")
        label_axes(figure, panels, setting, name, methods)
        return family.save(
            figure,
            out,
            "",
            title=f"{name.capitalize()} against {setting}",
            caption=f"Median over {count} final seeds, with the band {band(count)}; one panel an optimizer.",
            alt=(
                f"{name.capitalize()} against {setting} on {family.backend}, of {', '.join(values)}. Median: "
                + "; ".join(_told(method, line, "place", setting) for method, line in lines.items())
                + "."
            ),
        )


def _told(method: str, line: pl.DataFrame, column: str, axis: str) -> str:
    about = (f"{number(row['median'])} at {axis} = {plain(row[column])}" for row in line.to_dicts())
    return f"{method} {', '.join(about)}"


# --- several bases -------------------------------------------------------------------------------


def _bases(study: StudyPlan, backend: str, tables: Tables, out: Path) -> Iterator[Drawn]:
    """Metrics against the learning rate, one panel a basis, where there are several beside the identity."""
    bases = [
        name for name in dict.fromkeys(method_parts(one)[1] for one in study.methods) if name != IDENTITY
    ]
    if len(bases) < 2:
        return
    for workload in study.workloads:
        here = (pl.col("workload") == workload.name) & (pl.col("backend") == backend)
        runs = tables.runs.filter(here)
        for metric, which in judged_metrics(study, workload):
            rates = sensitivity(study_values(study, runs, metric, which))
            tuned = [name for name in bases if name in {method_parts(one)[1] for one in rates["method"]}]
            if len(tuned) > 1:
                yield _rates_by_basis(study, workload, backend, (metric, which), tuned, rates, out)


def _rates_by_basis(
    study: StudyPlan,
    workload: WorkloadPlan,
    backend: str,
    judged: tuple[str, str],
    bases: Sequence[str],
    rates: pl.DataFrame,
    out: Path,
) -> Drawn:
    """Each optimizer in the panel's basis, dashed, and in original coordinates, solid."""
    metric, which = judged
    name, direction = f"{which} {metric_name(metric)}", study.direction_of(metric)
    log_y = direction == "minimize" and fits_log(rates["lower_quartile"])
    lines = {method: rates.filter(method=method) for method in study.methods}
    optimizers = list(dict.fromkeys(method_parts(method)[0] for method in study.methods))
    count = int(rates["count"].max())  # type: ignore[arg-type]
    with panels_of(bases, True, log_y) as (figure, panels):
        for basis, panel in panels.items():
            panel.set_title(f"{basis} basis", color=TEXT.light)
            for optimizer in optimizers:
                own = [method_label(optimizer, each) for each in (IDENTITY, basis)]
                shown = {method: lines[method] for method in own if method in lines}
                draw_lines(panel, optimizer, shown, "learning_rate", own, marker="o")
        limit_heights(panels, rates, "learning_rate", direction, log_y)
        _key_of_optimizers(figure, optimizers)
        label_panels(figure, panels, "learning rate", name)
        best = best_rates(rates, direction)
        return save(
            figure,
            out,
            kind="across",
            name=f"{workload.name}.{backend}.bases.{which}.{metric}",
            workload=workload.name,
            backend=backend,
            metric=metric,
            title=f"{name.capitalize()} against the learning rate, basis by basis",
            caption=(
                f"Median over up to {count} tuning seeds, with the band {band(count)}. One panel a basis "
                "(dashed), with the original coordinates (solid) in each."
            ),
            alt=(
                f"{name.capitalize()} of {workload.name} on {backend} against the learning rate, one panel a "
                "basis. Best median: "
                + "; ".join(f"{method} {number(value)} at {plain(rate)}" for method, rate, value in best)
                + "."
            ),
        )


def best_rates(rates: pl.DataFrame, direction: str) -> list[tuple[str, float, float]]:
    """Method, learning rate and median where the median is best, in order of the methods' names.

    Args:
        rates: what `sensitivity` returns.
    """
    ordered = rates.sort("median", descending=direction == "maximize", maintain_order=True)
    best = ordered.unique("method", keep="first", maintain_order=True)
    return best.sort("method").select("method", "learning_rate", "median").rows()


def _key_of_optimizers(figure: Figure, optimizers: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=ink_of(optimizer).light, linewidth=1.7, label=optimizer)
        for optimizer in optimizers
    ]
    handles += _looks({"original coordinates": (), "the panel's basis": (5.0, 2.0)})
    draw_key(figure, handles)


# --- bases that differ in their rank -------------------------------------------------------------


def ranks(study: StudyPlan) -> tuple[str, dict[str, float]] | None:
    """What ranks of bases are counted in, and each by the basis' label; None where fewer than 3 differ."""
    given = {
        label: basis["rank"]
        for label, basis in study.settings.get("bases", {}).items()
        if basis.get("rank") is not None
    }
    shares = {
        label: float(match[1]) for label, rank in given.items() if (match := SHARE.fullmatch(str(rank)))
    }
    found = shares or {label: float(rank) for label, rank in given.items()}
    if len(found) < len(given) or len(set(found.values())) < LEAST_RANKS:
        return None
    unit = "rank r over the dimension d" if shares else "rank r"
    return unit, dict(sorted(found.items(), key=lambda item: item[1]))


def _ranks(study: StudyPlan, backend: str, tables: Tables, out: Path) -> Iterator[Drawn]:
    found = ranks(study)
    if found is None:
        return
    unit, by_basis = found
    for workload in study.workloads:
        here = (pl.col("workload") == workload.name) & (pl.col("backend") == backend)
        final = tables.runs.filter(here & (pl.col("stage") == "final"))
        if not len(final):
            continue
        name = f"{study.which} {metric_name(study.metric)}"
        log_y = study.direction == "minimize"
        ends = study_values(study, final)
        yield from _against_rank(
            study, workload, backend, unit, by_basis, (study.metric, name, log_y), ends, out
        )
        if ACCURACY in workload.metrics:
            took = seconds_to_nearly_best(study, tables, final, ACCURACY).drop_nulls("value")
            name = f"seconds to {percent(NEARLY_BEST, 1)} of the best {metric_name(ACCURACY)}"
            yield from _against_rank(
                study, workload, backend, unit, by_basis, ("seconds", name, False), took, out
            )


def _against_rank(
    study: StudyPlan,
    workload: WorkloadPlan,
    backend: str,
    unit: str,
    by_basis: Mapping[str, float],
    shown: tuple[str, str, bool],
    values: pl.DataFrame,
    out: Path,
) -> Iterator[Drawn]:
    """One panel an optimizer: a line over ranks, and the original coordinates as a level."""
    metric, name, wants_log = shown
    bands = quartile_bands(values, ["optimizer", "basis"], "value")
    optimizers = [name for name in dict.fromkeys(method_parts(one)[0] for one in study.methods)
                  if name in set(bands["optimizer"])]  # fmt: skip
    if not optimizers:
        return
    places = pl.DataFrame({"basis": list(by_basis), "rank": list(by_basis.values())})
    lines = {
        optimizer: bands.filter(optimizer=optimizer).join(places, on="basis").sort("rank")
        for optimizer in optimizers
    }
    levels = {optimizer: bands.filter(optimizer=optimizer, basis=IDENTITY) for optimizer in optimizers}
    count = int(bands["count"].max())  # type: ignore[arg-type]
    with one_panel_each(optimizers, True, wants_log and fits_log(bands["lower_quartile"])) as (
        figure,
        panels,
    ):
        for optimizer, panel in panels.items():
            draw_lines(panel, optimizer, lines, "rank", optimizers, marker="o")
            for row in levels[optimizer].iter_rows(named=True):
                panel.axhspan(row["lower_quartile"], row["upper_quartile"], color=MUTED.light, alpha=0.14,
                              linewidth=0)  # fmt: skip
                panel.axhline(row["median"], color=MUTED.light, linewidth=1.4, linestyle=(0, (5, 2)))
        draw_key(figure, _looks({"basis of leading eigenvectors": (), "original coordinates": (5.0, 2.0)}))
        label_panels(figure, panels, unit, "seconds" if metric == "seconds" else name)  # a title has the rest
        yield save(
            figure,
            out,
            kind="across",
            name=f"{workload.name}.{backend}.rank.{metric}",
            workload=workload.name,
            backend=backend,
            metric=metric,
            title=f"{name[0].upper()}{name[1:]} against {unit}",
            caption=(
                f"Median over {count} final seeds, with the band {band(count)}; one panel an optimizer."
                + (" The basis' sampling and decomposition are in it." if metric == "seconds" else "")
            ),
            alt=(
                f"{name[0].upper()}{name[1:]} of {workload.name} on {backend} against {unit}. Median: "
                + "; ".join(
                    _told(optimizer, lines[optimizer], "rank", "rank")
                    + "".join(
                        f", {number(each)} in original coordinates" for each in levels[optimizer]["median"]
                    )
                    for optimizer in optimizers
                )
                + "."
            ),
        )
