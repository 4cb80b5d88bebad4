"""Kernel speed over commits: reading asv's files, judging changes, asv's own pages without a network."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.__main__ import main
from reports.kernel_figures import family, tick
from reports.kernels import (
    VENDORED,
    cells,
    change_text,
    draw_kernels,
    machine_parts,
    open_from_disk,
    publish,
    read_stored,
    verdict,
)
from reports.plan import ReportError
from tests.reports.conftest import KernelReport
from tests.reports.stored_kernels import make_repository, write_stored
from tests.reports.synthetic import write_plan

OURS = {"offline.js"}


@pytest.fixture
def hashes() -> list[str]:
    return [letter * 40 for letter in "abc"]


def between(low: float | None, high: float | None) -> dict[str, float | None]:
    return {"low": low, "high": high}


# --- changes -------------------------------------------------------------------------------------


def test_a_change_is_marked_where_the_intervals_do_not_meet():
    assert verdict(between(1.0, 1.1), between(1.2, 1.3)) == "slower"
    assert verdict(between(1.2, 1.3), between(1.0, 1.1)) == "faster"
    assert verdict(between(1.0, 1.2), between(1.2, 1.3)) == "same"
    assert verdict(between(None, None), between(1.2, 1.3)) == "unknown"


@given(st.lists(st.floats(1e-9, 1e3), min_size=4, max_size=4).map(sorted))
def test_marks_turn_round_with_time(ends: list[float]):
    first, second = between(*ends[:2]), between(*ends[2:])
    opposite = {"slower": "faster", "same": "same"}
    assert verdict(second, first) == opposite[verdict(first, second)]


def test_changes_read_well():
    told = [change_text(ratio) for ratio in (1.0, 1.124, 0.9, 1.001, 2.34, 0.1)]
    assert told == ["±0 %", "+12 %", "−10 %", "±0 %", "×2.3", "−90 %"]
    assert [tick(value) for value in (2e-5, 5e-3, 1.0)] == ["20 µs", "5 ms", "1 s"]
    assert [family(case) for case in ("step.adam.one_large", "rotation")] == ["step.adam", "rotation"]


def test_a_change_is_that_from_the_measured_commit_before():
    points: list[dict[str, Any]] = [
        {"commit": "a", "value": 1.0, "low": 0.9, "high": 1.1},
        {"commit": "b", "value": None, "low": None, "high": None},
        {"commit": "c", "value": 3.0, "low": 2.9, "high": 3.1},
    ]
    shown = cells(points, "seconds")
    assert [shown[commit]["text"] for commit in "abc"] == ["1.00 s", "failed", "3.00 s"]
    assert [shown[commit]["change"] for commit in "abc"] == ["", "", "×3.0"]
    assert shown["c"]["verdict"] == "slower"
    assert cells(points, "memory")["c"]["verdict"] == "", "no spread of memory is stored"


# --- reading -------------------------------------------------------------------------------------


def test_what_is_stored_is_read_as_it_is(tmp_path: Path, hashes: list[str]):
    stored = read_stored(write_stored(tmp_path, hashes))
    assert stored.notes == ()
    seconds = stored.frame.filter(measure="seconds", case="basis.rotation").sort("date")
    assert seconds.select("commit", "value").rows() == [(hashes[0], 5e-5), (hashes[2], None)]
    ((part, _),) = machine_parts(stored)
    assert [change["verdict"] for change in part["changes"]] == ["slower"]
    assert part["changes"][0] | {"case": "step.adam.one_large", "backend": "jax"} == part["changes"][0]
    assert part["changes"][0]["commit"] == hashes[2]
    assert part["commits"][0]["date"] == "2024-10-04"


def test_machines_are_kept_apart(tmp_path: Path, hashes: list[str]):
    write_stored(tmp_path, hashes, "one")
    write_stored(tmp_path, hashes, "two", spread=False)
    one, two = (part for part, _ in machine_parts(read_stored(tmp_path)))
    assert (one["name"], two["name"]) == ("one", "two")
    assert one["judged"]
    assert one["changes"]
    assert not two["judged"]
    assert not two["changes"]


def test_environments_of_a_machine_are_kept_apart(tmp_path: Path, hashes: list[str]):
    write_stored(tmp_path, hashes)
    path = tmp_path / "one" / f"{hashes[2][:8]}-existing-py.json"
    content = json.loads(path.read_text())
    (tmp_path / "one" / f"{hashes[2][:8]}-other.json").write_text(json.dumps(content | {"env_name": "other"}))
    names = [part["name"] for part, _ in machine_parts(read_stored(tmp_path))]
    assert names == ["one, existing-py", "one, other"]


def test_another_version_of_a_benchmark_is_not_compared(tmp_path: Path, hashes: list[str]):
    write_stored(tmp_path, hashes)
    path = tmp_path / "one" / f"{hashes[0][:8]}-existing-py.json"
    path.write_text(path.read_text().replace('"1", 1000', '"0", 1000'))
    stored = read_stored(tmp_path)
    assert set(stored.frame["commit"]) == set(hashes[1:])
    assert "9 values of an older version" in stored.notes[0]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"results": {"x.time_call": [[1]]}, "result_columns": ["result"]}', "\x00"]
)
def test_a_damaged_file_is_named_and_the_rest_is_shown(tmp_path: Path, hashes: list[str], text: str):
    write_stored(tmp_path, hashes)
    damaged = tmp_path / "one" / f"{hashes[1][:8]}-existing-py.json"
    damaged.write_text(text)
    (tmp_path / "one" / "machine.json").write_text(text or "3")
    stored = read_stored(tmp_path)
    assert f"{damaged}: not a result of asv" in stored.notes[0]
    assert set(stored.frame["commit"]) == {hashes[0], hashes[2]}


def test_a_value_of_a_wrong_type_is_damage_too(tmp_path: Path, hashes: list[str]):
    write_stored(tmp_path, hashes)
    path = tmp_path / "one" / f"{hashes[1][:8]}-existing-py.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"commit_hash": ["no", "hash"]}))
    stored = read_stored(tmp_path)
    assert len(stored.notes) == 1
    assert set(stored.frame["commit"]) == {hashes[0], hashes[2]}


# --- the page ------------------------------------------------------------------------------------


def test_the_page_shows_tables_figures_and_commits(kernel_report: KernelReport):
    text = (kernel_report.site / "kernels.html").read_text()
    assert "<strong>slower</strong>: step.adam.one_large jax" in text
    assert "No spread is stored" in text  # of the second machine
    assert "&lt;b&gt;EPYC&lt;/b&gt;" in text
    assert "<b>EPYC" not in text
    for commit in kernel_report.hashes:
        assert text.count(f'id="{commit}"') == 1
    sources = re.findall(r'src="(figures/kernels/[^"]+\.svg)"', text)
    assert len(sources) == 2 * 2 * 2  # machines, families, themes
    assert all((kernel_report.site / source).is_file() for source in sources)
    assert 'href="asv/index.html"' in text


def test_nothing_stored_is_said_with_the_command(tmp_path: Path):
    plan = write_plan(tmp_path, [])
    assert main(["site", "--plan", str(plan), "--out", str(tmp_path / "site")]) == 0
    text = (tmp_path / "site" / "kernels.html").read_text()
    assert "Nothing is stored on this machine yet" in text
    assert "<code>make bench</code>" in text
    assert not (tmp_path / "site" / "asv").exists()


def test_a_folder_without_anything_readable_is_drawn_too(tmp_path: Path):
    (tmp_path / "stored" / "one").mkdir(parents=True)
    (tmp_path / "stored" / "one" / "aaaaaaaa-existing.json").write_text("{")
    made = draw_kernels(tmp_path / "stored", tmp_path / "out", tmp_path)
    assert made["machines"] == []
    assert "aaaaaaaa-existing.json" in made["notes"][0]


def test_figures_that_are_missing_are_named(tmp_path: Path, capsys: pytest.CaptureFixture):
    plan = write_plan(tmp_path, [])
    plan.write_text(json.dumps(json.loads(plan.read_text()) | {"kernels": str(tmp_path / "gone")}))
    assert main(["site", "--plan", str(plan), "--out", str(tmp_path / "site")]) == 1
    assert "python -m reports kernels, which writes it" in capsys.readouterr().err


# --- asv's own pages -----------------------------------------------------------------------------


def test_asvs_pages_name_no_address_and_hold_their_data(kernel_report: KernelReport):
    folder = kernel_report.site / "asv"
    index = (folder / "index.html").read_text()
    loaded = re.findall(r"<(?:script|link)[^>]*?(?:src|href)=\"([^\"]+)\"", index)
    assert "integrity" not in index
    assert len(loaded) > 15
    assert all((folder / name).is_file() for name in loaded)
    assert not list(folder.rglob("*.json"))
    data = json.loads((folder / "data.js").read_text().removeprefix("window.asvFiles = ").rstrip(";\n"))
    assert {"index.json", "info.json", "regressions.json"} <= set(data)
    assert set(data["index.json"]["machines"]) == {"one", "two"}
    assert (folder / "LICENCES.txt").is_file()


def test_commits_that_head_does_not_contain_are_left_out_of_asvs_pages(tmp_path: Path, hashes: list[str]):
    known = make_repository(tmp_path / "repository")
    folder = write_stored(tmp_path / "stored", [hashes[0], *known[1:]])
    stored = read_stored(folder)
    made, notes = publish(stored, folder, tmp_path / "out", tmp_path / "repository")
    assert made
    assert notes == ["asv's own pages leave out commits that HEAD does not contain: 1"]
    nowhere = tmp_path / "nowhere"
    nowhere.mkdir()
    made, notes = publish(stored, folder, tmp_path / "out2", nowhere)
    assert not made
    assert "HEAD contains none" in notes[0]


def test_what_asv_says_when_it_fails_is_passed_on(tmp_path: Path):
    known = make_repository(tmp_path / "repository")
    folder = write_stored(tmp_path / "stored", known)
    (folder / "benchmarks.json").write_text("{")
    made, notes = publish(read_stored(folder), folder, tmp_path / "out", tmp_path / "repository")
    assert not made
    assert "asv publish failed (" in notes[0]
    assert not (tmp_path / "out").exists()


def test_a_missing_asv_is_said(tmp_path: Path, hashes: list[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    folder = write_stored(tmp_path / "stored", hashes)
    made, notes = publish(read_stored(folder), folder, tmp_path / "out", tmp_path)
    assert not made
    assert "asv is not installed" in notes[0]


def test_a_library_that_is_not_here_is_named(tmp_path: Path):
    page = (
        '<script src="https://example.org/new.min.js" integrity="x"></script><script src="asv.js"></script>'
    )
    (tmp_path / "index.html").write_text(page)
    with pytest.raises(ReportError, match=r"ask for new\.min\.js"):
        open_from_disk(tmp_path)


def test_libraries_are_those_that_the_readme_names():
    rows = re.findall(
        r"^\| `([^`]+)` \|.*\| `([0-9a-f]{64})` \|$", (VENDORED / "README.md").read_text(), re.MULTILINE
    )
    found = {path.name for path in VENDORED.iterdir() if path.suffix in (".js", ".css")}
    assert {name for name, _ in rows} | OURS == found
    for name, checksum in rows:
        assert hashlib.sha256((VENDORED / name).read_bytes()).hexdigest() == checksum, name
