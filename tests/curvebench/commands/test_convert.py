"""`curvebench convert`: keys get their present names, and hashes are those of the first names."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from curvebench.__main__ import main
from curvebench.paths import STUDY_FOLDER
from curvebench.spec.document import NEW_NAMES, under_first_names
from curvebench.spec.study import converted

SENTENCE = "claims:  # smaller than: nothing\n  - sentence: It is better\n"


def test_studies_are_converted_and_nothing_else_changes(tmp_path: Path):
    file = tmp_path / "study.yaml"
    file.write_text(SENTENCE + "    holds_if: {than: [adam], same: [sgd]}\ntuning:\n  ties: median\n")
    assert main(["convert", str(file)]) == 0
    now = SENTENCE + "    supported_if: {compared_to: [adam], same: [sgd]}\ntuning:\n  tie_break: median\n"
    assert file.read_text() == now
    for study in STUDY_FOLDER.glob("*.yaml"):
        assert converted(study) == study.read_text()


@pytest.mark.parametrize(
    ("text", "now"),
    [
        ("claims:\r\n-   'than' : [than]\r\n", "claims:\r\n-   'compared_to' : [than]\r\n"),
        ("x:\n- - &k than: &a {ties: 1}\n- *a\n", "x:\n- - &k compared_to: &a {tie_break: 1}\n- *a\n"),
        (
            "x: [than: y]  # {than: z}\nties: é\n",
            "x: [compared_to: y]  # {than: z}\ntie_break: é\n",
        ),
        ("sentence: |\n  than: y\nx: '{a, than: y}'\n", "sentence: |\n  than: y\nx: '{a, than: y}'\n"),
        (
            "optimizers: [own: {ties: 2}]\ntargets: {ties: 1}",
            "optimizers: [own: {ties: 2}]\ntargets: {ties: 1}",
        ),
    ],
)
def test_only_keys_of_this_project_are_renamed(tmp_path: Path, text: str, now: str):
    (tmp_path / "study.yaml").write_bytes(text.encode())
    assert main(["convert", str(tmp_path / "study.yaml")]) == 0
    assert (tmp_path / "study.yaml").read_bytes() == now.encode()


def test_files_that_cannot_be_converted_are_reported_and_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    texts = {
        "both": b"x:\n  tie_break: a\n  ties: b\n",
        "broken": b"x: [",
        "latin": b"x: \xe9",
        "good": b"than: 1",
    }
    for name, text in texts.items():
        (tmp_path / name).write_bytes(text)
    assert main(["convert", *(str(tmp_path / name) for name in texts), str(tmp_path / "missing")]) == 2
    said = capsys.readouterr().err.replace(f"{tmp_path}/", "").splitlines()
    assert said[0] == "error: both: ties: line 3: tie_break is the name of the same key; keep one of the two"
    assert [line.split(" (")[0] for line in said[1:]] == [
        "error: broken: line 1: not valid YAML",
        "error: latin: not a text file in UTF-8",
        "error: missing: cannot be read",
    ]
    assert {name: (tmp_path / name).read_bytes() for name in texts} == {**texts, "good": b"compared_to: 1"}


def test_the_checksum_of_a_plan_is_renewed(tmp_path: Path):
    plan, sums = tmp_path / "plan.json", tmp_path / "SHA256SUMS"
    plan.write_text('{\n "than": 1,\n "than_on": null\n}\n')
    sums.write_text(f"other  LICENSE\n{hashlib.sha256(plan.read_bytes()).hexdigest()}  plan.json\n")
    assert main(["convert", str(plan)]) == 0
    assert plan.read_text() == '{\n "compared_to": 1,\n "control_workload": null\n}\n'
    digest = hashlib.sha256(plan.read_bytes()).hexdigest()
    assert sums.read_text() == f"other  LICENSE\n{digest}  plan.json\n"


def test_hashed_values_have_the_first_names_of_keys():
    conditions = [{new: {"until": 1}} for new in NEW_NAMES.values()]
    assert under_first_names(conditions) == [{old: {"down_to": 1}} for old in NEW_NAMES]
