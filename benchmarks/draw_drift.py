"""`python -m benchmarks.draw_drift FILE`: how bases of spectral.half-precision drift, figure and table."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.claims.spectral_precision import DRAWS, DRIFT_STEPS, FORMS, drifting
from reports.figures.palette import BLUE, GREEN, VERMILLION

PRECISIONS = {"float64": BLUE.light, "float32": GREEN.light, "bfloat16": VERMILLION.light}
DASHES = {"product": "-", "sum B + B E": "--"}
WIDTHS = {False: 2.2, True: 1.0}  # by whether bases are corrected
GREY = "#5b626c"


class Drift(NamedTuple):
    """What drifted, by its precision, map, form and whether bases are corrected."""

    precision: str
    cayley: str
    form: str
    corrects: bool


def main(arguments: Sequence[str] | None = None, draws: int = DRAWS, steps: int = DRIFT_STEPS) -> int:
    """Measure along the same gradients, draw into the file, and print the greatest drifts."""
    (out,) = sys.argv[1:] if arguments is None else arguments
    found = {
        Drift(precision, cayley, form, corrects): drifting(
            np.random.default_rng(0), function, precision, corrects, draws, steps
        )[:2]
        for precision in PRECISIONS
        for cayley, forms in FORMS.items()
        for form, function in forms.items()
        for corrects in (False, True)
    }
    _draw(found, out)
    for line in _table(found):
        print(line)
    return 0


def _draw(found: Mapping[Drift, tuple[np.ndarray, np.ndarray]], out: str) -> None:
    """A panel a map: colours are precisions, dashes the sum form, thin lines are corrected."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(9, 4.2), layout="constrained")
    panels = dict(zip(FORMS, figure.subplots(1, len(FORMS), sharey=True), strict=True))
    for cayley, panel in panels.items():
        panel.set_title(f"{cayley} Cayley map", loc="left", fontsize=10)
        panel.set_xlabel("steps")
        panel.grid(color="#e3e6ea", linewidth=0.6)
        panel.spines[["top", "right"]].set_visible(False)
    panels[next(iter(FORMS))].set_ylabel("greatest |BᵀB − I|₂")
    for one, (steps, defects) in found.items():
        style = {"linestyle": DASHES[one.form], "linewidth": WIDTHS[one.corrects]}
        panels[one.cayley].semilogy(steps, defects, color=PRECISIONS[one.precision], **style)
    handles = [
        *(Line2D([], [], label=name, color=colour) for name, colour in PRECISIONS.items()),
        *(Line2D([], [], label=name, color=GREY, linestyle=dash) for name, dash in DASHES.items()),
        Line2D([], [], label="as it drifts", color=GREY, linewidth=WIDTHS[False]),
        Line2D([], [], label="corrected every 10 steps", color=GREY, linewidth=WIDTHS[True]),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=8)
    figure.savefig(out, dpi=160)


def _table(found: Mapping[Drift, tuple[np.ndarray, np.ndarray]]) -> list[str]:
    """Markdown, a row a precision and map, of the greatest |B^T B - I|."""
    columns = [(form, corrects) for form in DASHES for corrects in WIDTHS]
    titles = (f"{form}, {'corrected' if corrects else 'as it drifts'}" for form, corrects in columns)
    lines = [f"| | {' | '.join(titles)} |", f"|{' --- |' * (len(columns) + 1)}"]
    for precision in PRECISIONS:
        for cayley in FORMS:
            greatest = [found[Drift(precision, cayley, *column)][1].max() for column in columns]
            lines.append(f"| {precision}, {cayley} | {' | '.join(f'{one:.1e}' for one in greatest)} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
