"""Which methods of a board differ: over what it is tested, what so few can show, and the diagram."""

from __future__ import annotations

import re
from itertools import product
from xml.etree import ElementTree

import polars as pl
import pytest

from reports.boards.differences import Differences, draw_differences, rank_differences
from reports.boards.leaderboard import board_ranks
from reports.formatting import number
from reports.statistics.friedman import critical_difference
from reports.tables import read_tables
from tests.reports.conftest import Report, words_of
from tests.reports.synthetic import HOSTILE

METHODS = ("adam", "adam @ egop", "sgd", HOSTILE)


def ranks(workloads: int, seeds: int, methods: tuple[str, ...] = METHODS) -> pl.DataFrame:
    """The first method is always the best, the last the worst; the others take turns."""
    rows = []
    for workload, seed in product(range(workloads), range(seeds)):
        middle = methods[1:-1] if seed % 2 else methods[-2:0:-1]
        for rank, method in enumerate((methods[0], *middle, methods[-1]), 1):
            rows.append((f"w{workload}", seed, method, float(rank)))
    return pl.DataFrame(rows, schema=["stratum", "seed", "method", "rank"], orient="row")


def found_in(frame: pl.DataFrame) -> Differences:
    found = rank_differences(frame)
    assert found is not None
    return found


def said(found: Differences) -> str:
    return words_of("figures.jinja", "tested", found)


def test_instances_are_the_seeds_of_all_workloads():
    found = found_in(ranks(3, 10))
    assert (found.friedman.instances, found.workloads) == (30, 3)
    assert dict(found.ranks) == {"adam": 1.0, "adam @ egop": 2.5, "sgd": 2.5, HOSTILE: 4.0}
    assert found.critical == critical_difference(4, 30)
    assert found.groups == (("adam @ egop", "sgd"),)
    assert found.friedman.p_value < 1e-3


def test_only_instances_that_all_methods_ran_count_and_there_may_be_none():
    frame = ranks(2, 4)
    one_less = frame.filter(~((pl.col("method") == "sgd") & (pl.col("stratum") == "w1")))
    found = found_in(one_less)
    assert (found.friedman.instances, found.workloads) == (4, 1)
    assert rank_differences(frame.filter(method="sgd")) is None
    assert rank_differences(frame.clear()) is None
    apart = frame.filter((pl.col("method") == "sgd") == (pl.col("stratum") == "w1"))
    assert rank_differences(apart) is None


@pytest.mark.parametrize("methods", [METHODS[:2], METHODS, tuple(f"m{i}" for i in range(11))], ids=len)
def test_the_diagram_names_every_method_and_fits_its_frame(methods: tuple[str, ...]):
    found = found_in(ranks(1, 5, methods))
    figure, svg = draw_differences(found, "digits", "jax")
    assert (figure.kind, figure.backend, figure.workload) == ("ranks", "jax", "digits")
    words = [
        "".join(node.itertext()) for node in ElementTree.fromstring(svg).iter() if node.tag.endswith("}text")
    ]
    for method, mean in found.ranks:
        assert any(method in word for word in words)
        assert f"{method} {number(mean)}" in figure.alt
    assert any("critical difference" in word for word in words)
    assert "<script" not in svg
    places = re.findall(r'<text [^>]*x="(\S+)" y="(\S+)"', svg)
    assert len(places) >= len(methods)
    for x, y in places:
        assert 0 <= float(x) <= figure.width * 0.75
        assert 0 <= float(y) <= figure.height * 0.75


def test_the_ranks_of_a_board_are_those_of_its_workloads(report: Report):
    studies = [(study, read_tables(study.tables)) for study in report.plan.studies]
    found = board_ranks(studies[1:], "jax")
    assert set(found["stratum"]) == {"convex/log_sum_exp", "convex/least_squares"}
    assert found.group_by("stratum", "seed").agg(pl.col("rank").sum())["rank"].unique().to_list() == [21.0]
    assert board_ranks(studies[1:], "torch").is_empty()


def test_every_board_has_its_diagram_in_both_themes(report: Report):
    text = (report.site / "leaderboard.html").read_text()
    sources = re.findall(r'src="(board_figures/[^"]+)"', text)
    assert len(sources) == 2 * text.count('<table class="dense"')
    for source in sources:
        assert ElementTree.fromstring((report.site / source).read_text()).tag.endswith("svg")
    light = [source for source in sources if source.endswith("light.svg")]
    for source in light:
        dark = (report.site / source.replace("light", "dark")).read_text()
        assert (report.site / source).read_text() != dark
