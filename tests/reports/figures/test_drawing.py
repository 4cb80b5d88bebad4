"""What all figures share: the marks of their axes."""

from __future__ import annotations

import pytest

from curvebench.reports.figures.drawing import plain_ticks


@pytest.mark.parametrize("ends", [(1.585, 1.625), (3.3e-3, 8.3e-3), (9e-3, 0.04), (0.4, 1.1)])
def test_a_narrow_logarithmic_axis_has_few_marks_of_which_no_two_read_the_same(ends: tuple[float, float]):
    from matplotlib.figure import Figure

    panel = Figure().add_subplot()
    panel.set_xscale("log")
    panel.set_xlim(*ends)
    plain_ticks(panel, 1.2)
    places = [place for place in panel.xaxis.get_majorticklocs() if ends[0] <= place <= ends[1]]
    assert 2 <= len(places) <= 4
    assert len({*panel.xaxis.get_major_formatter().format_ticks(places)}) == len(places)
