"""Figures of kernel speed over commits: one a family of cases, one panel a case, one line a backend."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from reports import formatting
from reports.figures.palette import BLUE, GOLD, GREEN, PAPER, TEXT, VERMILLION, Ink
from reports.figures.study_figures import Drawn, save, styled

COLUMNS = 4  # panels side by side: the sets of shapes
PANEL = (2.3, 1.75)  # width and height, inches
MARGINS = (0.85, 0.15, 0.62, 0.75)  # left, right, top and bottom of all panels, inches
TICKS = 5  # commits that are named below a panel, at most
SHORT = 8  # letters of a hash
INKS: Mapping[str, Ink] = {"jax": BLUE, "torch": VERMILLION, "numpy": GREEN}
LINE: Mapping[str, Any] = {"marker": "o", "markersize": 4.0, "linewidth": 1.5}
STEP_MARKS: Mapping[str, str] = {"slower": "^", "faster": "v"}


def draw_machine(
    frame: pl.DataFrame, steps: Sequence[Mapping[str, Any]], machine: str, out: Path
) -> list[Drawn]:
    """Draw the seconds of every family of cases of one machine.

    Args:
        frame: rows of one machine and environment in the order of commits.
        steps: what `steps_of` found in them.
        machine: its title.
        out: the folder of the drawings.
    """
    seconds = frame.filter((pl.col("measure") == "seconds") & (pl.col("value") > 0))
    families = sorted({family(case) for case in seconds["case"]})
    here = pl.col("case").map_elements(family, return_dtype=pl.String)
    return [
        _draw(
            seconds.filter(here == name),
            [step for step in steps if family(step["case"]) == name],
            name,
            machine,
            out,
        )
        for name in families
    ]


def family(case: str) -> str:
    """What a case's name begins with: `step.adam` of `step.adam.one_large`."""
    return case.rpartition(".")[0] or case


def tick(value: float, _: Any = None) -> str:
    """Seconds on an axis: 20 µs, 5 ms, 1 s."""
    unit, factor = next((each for each in (("s", 1.0), ("ms", 1e3)) if value * each[1] >= 0.999), ("µs", 1e6))
    return f"{value * factor:.3g} {unit}"


def _draw(
    seconds: pl.DataFrame, steps: Sequence[Mapping[str, Any]], name: str, machine: str, out: Path
) -> Drawn:
    from matplotlib.lines import Line2D

    cases = sorted(seconds["case"].unique())
    backends = sorted(seconds["backend"].unique())
    place = {commit: number for number, commit in enumerate(seconds["commit"].unique(maintain_order=True))}
    columns = min(COLUMNS, len(cases))
    rows = math.ceil(len(cases) / columns)
    left, right, top, bottom = MARGINS
    width, height = max(left + PANEL[0] * columns + right, 5.0), top + PANEL[1] * rows + bottom
    with styled((width, height), None, rows, columns, sharex=True, squeeze=False) as (figure, grid):
        figure.subplots_adjust(
            left=left / width, right=(left + PANEL[0] * columns) / width, bottom=bottom / height,
            top=1 - top / height, wspace=0.42, hspace=0.36,
        )  # fmt: skip
        for number, panel in enumerate(grid.flat):
            if number >= len(cases):
                panel.set_visible(False)
                continue
            own = [step for step in steps if step["case"] == cases[number]]
            _draw_panel(panel, seconds.filter(case=cases[number]), own, place)
            panel.set_title(cases[number].removeprefix(f"{name}."), color=TEXT.light)
            panel.tick_params(labelbottom=number >= len(cases) - columns)
        handles = [Line2D([], [], color=_colour(backend), label=backend, **LINE) for backend in backends]
        handles += [
            Line2D([], [], color=TEXT.light, linestyle="", marker=mark, markersize=7, label=f"step: {words}")
            for words, mark in STEP_MARKS.items()
            if any(step["verdict"] == words for step in steps)
        ]
        figure.legend(
            handles=handles, loc="upper left", borderaxespad=0.1, ncols=len(handles), handlelength=2.2
        )
        figure.supylabel("seconds of a call", x=0.06 / width, fontsize=9.5, color=TEXT.light)
        return save(
            figure,
            out,
            kind="kernels",
            name=f"{machine}.{name}",
            workload=name,
            backend=machine,
            metric="seconds",
            title=name,
            caption=(
                "Commits in the order of their dates, the last on the right; vertical lines are the 99 % "
                "intervals that asv stored. Horizontal lines are the levels between steps, and a triangle is "
                "a step: up slower, down faster. Each panel has an axis of its own."
            ),
            alt=f"Seconds of a call of {name} on {machine} at {len(place)} commits. "
            + _in_words(seconds, steps, cases, backends),
        )


def _draw_panel(
    panel: Any, seconds: pl.DataFrame, steps: Sequence[Mapping[str, Any]], place: Mapping[str, int]
) -> None:
    """A case: a line a backend, the intervals of its points, and its steps."""
    import seaborn
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    panel.set_yscale("log")
    for (backend,), line in seconds.group_by("backend", maintain_order=True):
        x, colour = [place[commit] for commit in line["commit"]], _colour(str(backend))
        seaborn.lineplot(
            x=x, y=line["value"].to_numpy(), ax=panel, color=colour, markeredgewidth=0, estimator=None,
            errorbar=None, legend=False, **LINE,
        )  # fmt: skip
        low, high = (line[name].cast(pl.Float64).fill_null(float("nan")) for name in ("low", "high"))
        panel.vlines(x, low, high, color=colour, linewidth=1.2, alpha=0.6)
        for step in (each for each in steps if each["backend"] == backend):
            for level, first, last in step["levels"]:
                panel.hlines(level, place[first], place[last], color=colour, linewidth=3.5, alpha=0.35)
            panel.plot(
                place[step["commit"]], step["value"], marker=STEP_MARKS[step["verdict"]], markersize=9,
                color=colour, markeredgecolor=PAPER.light, markeredgewidth=1.0,
            )  # fmt: skip
    low, high = panel.get_ylim()
    panel.set_ylim(low / 1.3, high * 1.3)
    panel.set(xlabel="", ylabel="", xlim=(-0.4, len(place) - 0.6))
    few = math.log10(high / low) < 2
    panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,), numticks=6))
    panel.yaxis.set_major_formatter(FuncFormatter(tick))
    panel.yaxis.set_minor_locator(NullLocator())
    named = list(place)[::-1][:: math.ceil(len(place) / TICKS)]
    panel.set_xticks(
        [place[commit] for commit in named], [commit[:SHORT] for commit in named], rotation=30, ha="right"
    )


def _colour(backend: str) -> str:
    return INKS.get(backend, GOLD).light


def _in_words(
    seconds: pl.DataFrame, steps: Sequence[Mapping[str, Any]], cases: list[str], backends: list[str]
) -> str:
    """First and last value of every line, and its steps."""
    parts: list[str] = []
    for case in cases:
        for backend in backends:
            values = seconds.filter(case=case, backend=backend)["value"].to_list()
            if values:
                first, last = formatting.seconds(values[0]), formatting.seconds(values[-1])
                parts.append(f"{case} {backend} from {first} to {last}")
    parts += [
        "{case} {backend} {verdict} from {start} on, {change}".format(**step, start=step["commit"][:SHORT])
        for step in steps
    ]
    return "; ".join(parts) + "."
