"""`curvebench convert`: keys get their present names, and hashes are those of the first names."""

from __future__ import annotations

import hashlib
from pathlib import Path

from curvebench.__main__ import main
from curvebench.paths import STUDY_FOLDER
from curvebench.spec.document import NEW_NAMES, converted, under_first_names

SENTENCE = "claims:  # smaller than: nothing\n  - sentence: It is better\n"


def test_studies_are_converted_and_nothing_else_changes(tmp_path: Path):
    file = tmp_path / "study.yaml"
    file.write_text(SENTENCE + "    holds_if: {than: [adam], same: [sgd]}\ntuning:\n  ties: median\n")
    assert main(["convert", str(file)]) == 0
    now = SENTENCE + "    supported_if: {compared_to: [adam], same: [sgd]}\ntuning:\n  tie_break: median\n"
    assert file.read_text() == now
    for study in STUDY_FOLDER.glob("*.yaml"):
        assert converted(study.read_text()) == study.read_text()


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
