"""Figures of kernel speed over commits: one a family of cases, one panel a case, one line a backend."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import polars as pl

from reports import formatting
from reports.figures import Drawn, save, styled
from reports.palette import BLUE, GOLD, GREEN, TEXT, VERMILLION, Ink

COLUMNS = 4  # panels side by side: the sets of shapes
PANEL = (2.3, 1.75)  # width and height, inches
MARGINS = (0.85, 0.15, 0.62, 0.75)  # left, right, top and bottom of all panels, inches
TICKS = 5  # commits that are named below a panel, at most
SHORT = 8  # letters of a hash
INKS: dict[str, Ink] = {"jax": BLUE, "torch": VERMILLION, "numpy": GREEN}


def draw_machine(frame: pl.DataFrame, machine: str, out: Path) -> list[Drawn]:
    """Draw the seconds of every family of cases of one machine.

    Args:
        frame: rows of one machine and environment in the order of commits.
        machine: its title.
        out: the folder of the drawings.
    """
    seconds = frame.filter((pl.col("measure") == "seconds") & (pl.col("value") > 0))
    families = sorted({family(case) for case in seconds["case"]})
    here = pl.col("case").map_elements(family, return_dtype=pl.String)
    return [_draw(seconds.filter(here == name), name, machine, out) for name in families]


def family(case: str) -> str:
    """What a case's name begins with: `step.adam` of `step.adam.one_large`."""
    return case.rpartition(".")[0] or case


def tick(value: float, _: Any = None) -> str:
    """Seconds on an axis: 20 µs, 5 ms, 1 s."""
    unit, factor = next((each for each in (("s", 1.0), ("ms", 1e3)) if value * each[1] >= 0.999), ("µs", 1e6))
    return f"{value * factor:.3g} {unit}"


def _draw(seconds: pl.DataFrame, name: str, machine: str, out: Path) -> Drawn:
    import seaborn
    from matplotlib.lines import Line2D
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    cases = sorted(seconds["case"].unique())
    backends = sorted(seconds["backend"].unique())
    place = {commit: number for number, commit in enumerate(seconds["commit"].unique(maintain_order=True))}
    columns = min(COLUMNS, len(cases))
    rows = math.ceil(len(cases) / columns)
    left, right, top, bottom = MARGINS
    width, height = left + PANEL[0] * columns + right, top + PANEL[1] * rows + bottom
    size = (max(width, 5.0), height)
    with styled(size, None, rows, columns, sharex=True, squeeze=False) as (figure, grid):
        figure.subplots_adjust(
            left=left / size[0],
            right=(width - right) / size[0],
            bottom=bottom / height,
            top=1 - top / height,
            wspace=0.42,
            hspace=0.36,
        )
        for empty in list(grid.flat)[len(cases) :]:
            empty.set_visible(False)
        for panel, case in zip(grid.flat, cases, strict=False):
            panel.set_yscale("log")
            panel.set_title(case.removeprefix(f"{name}."), color=TEXT.light)
            for backend in backends:
                line = seconds.filter((pl.col("case") == case) & (pl.col("backend") == backend))
                x = [place[commit] for commit in line["commit"]]
                colour = INKS.get(backend, GOLD).light
                seaborn.lineplot(
                    x=x, y=line["value"].to_numpy(), ax=panel, color=colour, marker="o", markersize=4.5,
                    markeredgewidth=0, linewidth=1.5, estimator=None, errorbar=None, legend=False,
                )  # fmt: skip
                spread = line.filter(pl.col("low").is_not_null() & pl.col("high").is_not_null())
                panel.vlines(
                    [place[commit] for commit in spread["commit"]], spread["low"], spread["high"],
                    color=colour, linewidth=1.2, alpha=0.6,
                )  # fmt: skip
            low, high = panel.get_ylim()
            panel.set_ylim(low / 1.3, high * 1.3)
            panel.set(xlabel="", ylabel="")
            few = math.log10(high / low) < 2
            panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,), numticks=6))
            panel.yaxis.set_major_formatter(FuncFormatter(tick))
            panel.yaxis.set_minor_locator(NullLocator())
            stride = math.ceil(len(place) / TICKS)
            named = [(number, commit[:SHORT]) for commit, number in place.items()][::-1][::stride]
            panel.set_xticks(
                [number for number, _ in named], [short for _, short in named], rotation=30, ha="right"
            )
            panel.set_xlim(-0.4, len(place) - 0.6)
        for panel in list(grid.flat)[max(0, len(cases) - columns) : len(cases)]:
            panel.tick_params(labelbottom=True)
        handles = [
            Line2D(
                [],
                [],
                color=INKS.get(backend, GOLD).light,
                marker="o",
                markersize=4.5,
                linewidth=1.5,
                label=backend,
            )
            for backend in backends
        ]
        figure.legend(
            handles=handles, loc="upper left", borderaxespad=0.1, ncols=len(handles), handlelength=2.2
        )
        figure.supylabel("seconds of a call", x=0.06 / size[0], fontsize=9.5, color=TEXT.light)
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
                "intervals that asv stored. Each panel has an axis of its own."
            ),
            alt=f"Seconds of a call of {name} on {machine} at {len(place)} commits. "
            + _ends(seconds, cases, backends),
        )


def _ends(seconds: pl.DataFrame, cases: list[str], backends: list[str]) -> str:
    """First and last value of every line, in words."""
    told: list[str] = []
    for case in cases:
        for backend in backends:
            values: list[Any] = seconds.filter((pl.col("case") == case) & (pl.col("backend") == backend))[
                "value"
            ].to_list()
            if values:
                first, last = formatting.seconds(values[0]), formatting.seconds(values[-1])
                told.append(f"{case} {backend} from {first} to {last}")
    return "; ".join(told) + "."
