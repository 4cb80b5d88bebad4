"""Scoring tables of runs: each rule by itself, all of them against loops, and what is said of bad tables."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np
import polars as pl
import pytest

from curvebench.__main__ import main
from curvebench.reports.boards.scoring import RULES, fastest_trials, score_file, variants_of
from curvebench.spec.errors import InputError
from tests.reports.statistics.test_profiles import scores_by_loops

INFINITE = float("inf")
COLUMNS = RULES["algoperf-v05"].columns
HEAD = "submission,workload,study,seconds\n"
Run = tuple[str, str, int, str, str, float | None, int | None]


def runs(
    submission: str, workload: str, seconds: Sequence[float | None], held_out: int = 0, trial: str = "trial_1"
) -> list[Run]:
    """Return a run for each study, with one evaluation a second."""
    return [
        (submission, workload, held_out, f"study_{n}", trial, each, None if each is None else int(each))
        for n, each in enumerate(seconds)
    ]


def write(folder: Path, rows: Sequence[Run], name: str = "runs.csv") -> Path:
    pl.DataFrame(rows, schema=list(COLUMNS), orient="row", infer_schema_length=None).write_csv(folder / name)
    return folder / name


def scored(folder: Path, rows: Sequence[Run]) -> dict[str, float]:
    table = score_file(write(folder, rows), "algoperf-v05").table
    return dict(table.select("submission", "score").iter_rows())


def brute_force(rows: Sequence[Run]) -> dict[str, float]:
    """AlgoPerf's rules by loops: trials and studies here, ratios and areas there."""
    submissions = sorted({row[0] for row in rows})
    bases = sorted({row[1] for row in rows if not row[2]})
    held_out = sorted({row[1] for row in rows if row[2]})
    times = {}
    for name in submissions:
        for workload in bases + held_out:
            mine = [row for row in rows if row[:2] == (name, workload)]
            per_study = []
            for study in sorted({row[3] for row in mine}):
                reached = [(row[6], row[4], row[5]) for row in mine if row[3] == study and row[5] is not None]
                per_study.append(min(reached)[2] if reached else INFINITE)
            times[name, workload] = median(per_study) if per_study else INFINITE
    variants = {name: max((b for b in bases if name.startswith(b)), key=len) for name in held_out}
    return scores_by_loops(times, variants)


def test_the_trial_of_fewest_evaluations_counts_not_the_quickest():
    trials = pl.DataFrame(
        [
            ("a", "u", "s", "trial_1", 9.0, 5),
            ("a", "u", "s", "trial_2", 2.0, 6),
            ("a", "u", "s", "trial_3", 8.0, 5),
            ("a", "u", "s", "trial_4", None, None),
            ("a", "u", "t", "trial_1", None, None),
        ],
        schema=["submission", "workload", "study", "trial", "seconds_to_target", "evals_to_target"],
        orient="row",
    )
    assert fastest_trials(trials.reverse()).sort("study").rows() == [
        ("a", "u", "s", 9.0),  # two trials have 5 evaluations; the first one counts
        ("a", "u", "t", None),
    ]


def test_variants_go_to_the_base_with_the_longest_name_and_count_only_where_drawn():
    held_out = {
        "net": False,
        "net_deep": True,
        "other": False,
        "other_big": False,  # a variant that was not drawn
        "vit": False,
        "vit_long": True,
    }
    assert variants_of(held_out) == ({"net_deep": "net", "vit_long": "vit"}, ["other_big"])
    with pytest.raises(ValueError, match="held-out workload netless: expected BASE_netless"):
        variants_of({"net": False, "netless": True})


def test_a_variant_that_was_not_drawn_changes_nothing(tmp_path: Path):
    rows = [*runs("a", "u", [10]), *runs("b", "u", [10])]
    extra = runs("a", "u_x", [None])
    assert scored(tmp_path, [*rows, *extra]) == scored(tmp_path, rows)
    assert score_file(write(tmp_path, [*rows, *extra]), "algoperf-v05").prepared.left_out == ("u_x",)


def test_all_rules_together_equal_loops(tmp_path: Path):
    random = np.random.default_rng(8)
    rows: list[Run] = []
    for submission in ("a", "b", "c", "d"):
        for workload, held_out in (("u", 0), ("u_x", 1), ("v", 0), ("v_w", 1), ("w", 0), ("z", 0)):
            if (submission, workload) == ("d", "z"):
                continue  # never run
            for trial in ("trial_1", "trial_2", "trial_3"):
                missed = random.random(5) < 0.3
                drawn = np.ceil(random.lognormal(5, 0.8, 5))
                seconds = [None if miss else float(each) for miss, each in zip(missed, drawn, strict=True)]
                for row in runs(submission, workload, seconds, held_out, trial):
                    evaluations = None if row[5] is None else int(random.integers(1, 6))
                    rows.append((*row[:6], evaluations))
    found, expected = scored(tmp_path, rows), brute_force(rows)
    assert found == pytest.approx(expected, abs=1e-12)
    assert len(set(expected.values())) == 4


def test_plain_runs_are_scored_as_they_are(tmp_path: Path):
    table = pl.DataFrame(
        {
            "submission": ["a", "a", "a", "b", "b", "b"],
            "workload": ["u"] * 6,
            "study": [1, 2, 3] * 2,
            "seconds": [1.0, 2.0, 3.0, 2.0, 4.0, 6.0],
        }
    )
    table.write_parquet(tmp_path / "runs.parquet")
    table.write_csv(tmp_path / "runs.csv")
    for name in ("runs.parquet", "runs.csv"):
        found = score_file(tmp_path / name, "plain").table
        assert found["score"].to_list() == pytest.approx([1.0, 66.5 / 99])
        assert found["rank_high"].to_list() == [1.0, 2.0]  # paired: a is ahead in every study


def test_the_command_prints_a_table_or_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    rows = [*runs("a", "u", [10, 11, 12]), *runs("b", "u", [20, 22, 24]), *runs("c", "u", [None] * 3)]
    path = str(write(tmp_path, [*rows, *runs("a", "u_x", [5, 5, 5])]))
    assert main(["score", path, "--rules", "algoperf-v05"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert "100 points, 1 workloads, 0 held-out variants" in printed[1]
    assert printed[2] == "Variants that were not drawn do not count: u_x."
    assert printed[4].split("  ")[0] == "rank [95 %]"
    assert printed[5].split() == ["1", "[1,", "1]", "a", "1.0000", "[1.0000,", "1.0000]", "1", "of", "1", "3"]
    assert main(["score", path, "--rules", "algoperf-v05", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["submission"] for row in told["submissions"]] == ["a", "b", "c"]
    assert told["submissions"][1]["workloads"] == {"u": {"seconds": 22.0, "ratio": 2.0}}
    assert told["submissions"][2]["workloads"] == {"u": {"seconds": None, "ratio": None}}
    assert (told["limit"], told["workloads"], told["left_out"]) == (4.0, ["u"], ["u_x"])


def changed(column: str, value: str | float | None) -> list[Run]:
    rows: list[list[str | float | None]] = [
        list(row) for row in [*runs("a", "u", [10, 11]), *runs("b", "u", [20, 22])]
    ]
    rows[0][COLUMNS.index(column)] = value
    return [tuple(row) for row in rows]  # type: ignore[misc]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (changed("held_out", 2), "workload u: held_out is 2, expected 0 or 1"),
        (changed("held_out", 1), "held_out differs"),
        (changed("seconds_to_target", None), "a / u / study_0 / trial_1: seconds_to_target and evals"),
        (changed("seconds_to_target", -1), "above 0"),
        (changed("submission", None), "column submission is empty in row 1 "),
        (changed("study", "study_1"), "a / u / study_1 / trial_1: there must be one row"),
        (runs("a", "u_x", [1.0], held_out=1), "held-out workload u_x"),
        ([], "no rows"),
    ],
    ids=lambda value: value.replace(" ", "-").replace("/", "")[:30] if isinstance(value, str) else "rows",
)
def test_bad_tables_are_refused_by_name(tmp_path: Path, rows: Sequence[Run], message: str):
    path = write(tmp_path, rows)
    with pytest.raises(InputError, match=message) as caught:
        score_file(path, "algoperf-v05")
    assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("runs.csv", "submission,workload\na,u\n", "no column study, seconds; the rules ask for submission"),
        ("runs.csv", f"{HEAD}a,u,1,2\nb,u,1,fast\n", "column seconds is 'fast' in row 2"),
        ("runs.csv", f"{HEAD}a,u,1,2\nb,u,1\n", "line 3: 3 fields, and the head has 4"),
        ("runs.csv", f"{HEAD}a,u,1,2,3\n", "line 2: 5 fields, and the head has 4"),
        ("runs.csv", HEAD.replace(",", ";"), "with commas between"),
        ("runs.csv", "a,a\n1,2\n", "the first line names a twice"),
        ("runs.csv", "", "empty"),
        ("runs.csv", None, "no such file"),
        ("runs.txt", "", r"ends in \.csv or \.parquet"),
        ("runs.parquet", "no table", "parquet"),
    ],
)
def test_bad_files_end_the_command_with_a_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str | None, message: str
):
    if text is not None:
        (tmp_path / name).write_text(text)
    assert main(["score", str(tmp_path / name), "--rules", "plain"]) == 2
    assert re.match(f"error: {tmp_path / name}(: |, line )", capsys.readouterr().err)
    with pytest.raises(InputError, match=message):
        score_file(tmp_path / name, "plain")
