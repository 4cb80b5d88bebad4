"""`python -m benchmarks.draw_drift FILE`: drifting bases of spectral.half-precision, as figure and table."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.claims.spectral_precision import FORMS, HALF_PRECISION
from harness.check_rules import check_rule
from harness.checks import Check, Row, Series, Trace, part_results
from reports.figures.palette import BLUE, GREEN, VERMILLION

PRECISIONS = {"float64": BLUE.light, "float32": GREEN.light, "bfloat16": VERMILLION.light}
SCALE = "paper"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the claim's drift parts, draw them into the file, and print the greatest drifts."""
    (out,) = sys.argv[1:] if arguments is None else arguments
    rule = check_rule(HALF_PRECISION)
    drifts = [check for check in HALF_PRECISION.checks if check.part.startswith("drift")]
    found = {check.part: list(part_results(HALF_PRECISION.id, check, SCALE, rule)) for check in drifts}
    _draw([one.series for rows in found.values() for one in rows if isinstance(one, Trace)], out)
    for line in _table(drifts, found):
        print(line)
    return 0


def _draw(series: Sequence[Series], out: str) -> None:
    """A panel a map: colours are precisions, dashes the sum form, thin lines are corrected."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(9, 4.2), layout="constrained")
    panels: Any = figure.subplots(1, len(FORMS), sharey=True)
    for cayley, panel in zip(FORMS, panels, strict=True):
        panel.set_title(f"{cayley} Cayley map", loc="left", fontsize=10)
        panel.set_xlabel(series[0].axes[0])
        panel.grid(color="#e3e6ea", linewidth=0.6)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("greatest |BᵀB − I|₂")
    for one in series:
        precision, cayley = one.panel.split(", ")
        panels[list(FORMS).index(cayley.split()[0])].semilogy(
            one.x,
            one.y,
            color=PRECISIONS[precision],
            linestyle="--" if one.label.startswith("sum") else "-",
            linewidth=1.0 if one.label.endswith("corrected") else 2.2,
        )
    styles: dict[str, dict[str, Any]] = {
        **{name: {"color": colour} for name, colour in PRECISIONS.items()},
        "product": {"color": "#5b626c"},
        "sum B + BE": {"color": "#5b626c", "linestyle": "--"},
        "as it drifts": {"color": "#5b626c", "linewidth": 2.2},
        "corrected every 10 steps": {"color": "#5b626c", "linewidth": 1.0},
    }
    handles = [Line2D([], [], label=name, **style) for name, style in styles.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=8)
    figure.savefig(out, dpi=160)


def _table(drifts: Sequence[Check], found: dict[str, list[Row | Trace]]) -> list[str]:
    """Markdown, a row a precision and map, of the measures of |B^T B - I|."""
    lines: list[str] = []
    for check in drifts:
        measures = [one.measure for one in found[check.part] if isinstance(one, Row)]
        values = {
            one.quantity.split(", ", 1)[1]: one.value
            for one in measures
            if one.quantity.startswith("greatest")
        }
        if not lines:
            lines = [f"| | {' | '.join(values)} |", f"|{' --- |' * (len(values) + 1)}"]
        name = check.part.removeprefix("drift in ").removesuffix(" Cayley map")
        lines.append(f"| {name} | {' | '.join(f'{value:.1e}' for value in values.values())} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
