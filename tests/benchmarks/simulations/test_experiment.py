"""Simulations: their results, their table, the command, and what a few hundred trials already show."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks.simulations.__main__ import HEADING, main, replaced
from benchmarks.simulations.experiment import Experiment, Result, experiments, table

ROOT = Path(__file__).resolve().parents[3]
LEAST_TRIALS = 200
EVERYTHING = {experiment.name: experiment for experiment in experiments()}


def test_a_result_misses_only_by_more_than_chance_explains():
    assert not Result("coverage", "x", 0.92, 100, 0.93, 0.97).misses
    below = Result("coverage", "x", 0.82, 10_000, 0.93, 0.97)
    assert (below.misses, below.conservative) == (True, False)
    above = Result("coverage", "x", 0.99, 10_000, 0.93, 0.97)
    assert (above.misses, above.conservative) == (True, True)
    assert Result("false positives", "x", 0.07, 10_000, None, 0.05).misses
    assert not Result("power", "x", 0.1, 10_000).misses


def test_what_is_outside_is_marked_whether_or_not_chance_explains_it():
    near = Result("coverage", "x; 5 seeds", 0.925, 200, 0.93, 0.97)
    assert (near.outside, near.misses, near.conservative) == (True, False, False)
    assert "| **0.925** |" in table(Experiment("Name", "a.b", "About.", lambda *_: []), [near])
    assert Result("false positives", "x", 0.051, 200, None, 0.05).outside
    assert not Result("coverage", "x", 0.93, 200, 0.93, 0.97).outside


def test_the_table_has_a_column_a_size_and_marks_what_misses():
    results = [
        Result("coverage", "normal; 5 seeds", 0.8, 10_000, 0.93, 0.97),
        Result("coverage", "normal; 10 seeds", 0.99, 10_000, 0.93, 0.97),
        Result("power", "normal; 10 seeds", 0.5, 1000),
    ]
    lines = table(Experiment("Name", "a.b", "About.", lambda *_: results), results).splitlines()
    assert lines[0] == "### Name"
    assert lines[4] == "| | | asked | 5 seeds | 10 seeds | trials | error |"
    assert lines[6].startswith("| coverage | normal | 0.93 to 0.97 | **0.800** | **_0.990_** | 10,000 |")
    assert lines[7].startswith("| power | normal |  |  | 0.500 | 1,000 |")


def test_writing_replaces_the_tables_of_what_ran_and_keeps_the_rest():
    page = f"# Page\n\n{HEADING}\nText.\n\n### a\n\nold a\n\n### b\n\nold b\n\n### gone\n\nx\n\n## After\n"
    assert replaced(page, {"b": "### b\n\nnew b\n"}, ["a", "b"]) == (
        f"# Page\n\n{HEADING}\nText.\n\n### a\n\nold a\n\n### b\n\nnew b\n\n## After\n"
    )
    with pytest.raises(ValueError, match="What simulations say"):
        replaced("# Page\n", {}, [])


def test_the_command_prints_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture):
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n{HEADING}")
    assert main(["--only", "^Share$", "--trials", "50", "--write", str(page)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("### Share\n")
    assert printed.strip() in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "nothing"], "there are: "),
        (["--trials", "0"], "at least 1"),
        (["--write", "none.md"], "none.md"),
    ],
)
def test_bad_arguments_stop_before_anything_runs(arguments, message, capsys: pytest.CaptureFixture):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_names_are_unique_and_every_experiment_is_on_the_page():
    assert len(EVERYTHING) == len(experiments())
    page = (ROOT / "docs" / "statistics.md").read_text()
    assert [name for name in EVERYTHING if f"\n### {name}\n" not in page] == []


def test_no_table_of_the_page_rests_on_few_trials():
    """Where the page was written with fewer than its 10,000, its figures say little."""
    page = (ROOT / "docs" / "statistics.md").read_text()
    tables = re.split(r"^### ", page, flags=re.MULTILINE)[1:]
    rows = {
        text.splitlines()[0]: re.findall(r"\| ([\d,]+) \| \d\.\d+ \|$", text, re.MULTILINE) for text in tables
    }
    fewest = {name: min(int(trials.replace(",", "")) for trials in found) for name, found in rows.items()}
    assert {name: trials for name, trials in fewest.items() if trials < LEAST_TRIALS} == {}


def missing(name: str, trials: int) -> list[Result]:
    return [one for one in EVERYTHING[name].results(trials) if one.misses and not one.conservative]


@pytest.mark.parametrize(
    "name",
    [
        "Best methods: the best one lost",
        "Holm's correction",
        "Log-rank test",
        "Mean rank",
        "Median",
        "Median, not interpolated",
        "Paired comparison",
        "Probability of improvement",
        "Restricted mean time to target",
        "Share",
        "Verdicts, false claims",
        "Verdicts, false claims where runs stop",
        "Verdicts, true claims at the margin",
    ],
)
def test_some_hundred_trials_show_nothing_wrong(name: str):
    assert missing(name, 400) == []


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("Signed-rank and sign test, false positives", "wilcoxon, differences skewed, median 0; 50 seeds"),
        (
            "Verdicts, false claims by the signed-rank test",
            "better, any of 10 claims, control often diverges; 50 seeds",
        ),
    ],
)
def test_a_statistic_outside_its_assumptions_is_seen_and_no_other(name: str, seen: str):
    found = [one.setting for one in missing(name, 600)]
    assert seen in found
    assert not [setting for setting in found if re.search(r"\bnormal\b", setting)]


def test_an_experiment_gives_the_same_each_time():
    share = EVERYTHING["Share"]
    assert share.results(30) == share.results(30)
    assert np.mean([result.value for result in share.results(200)]) > 0.95


@pytest.mark.long
@pytest.mark.parametrize("name", EVERYTHING)
def test_the_page_holds_what_the_simulation_says(name: str):
    """The page is written with 10,000 trials, from a fixed source of chance."""
    page = (ROOT / "docs" / "statistics.md").read_text()
    experiment = EVERYTHING[name]
    assert table(experiment, experiment.results(10_000)) in page
