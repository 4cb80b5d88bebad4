"""A study from a notebook: tables and figures of a real run, in a results folder of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.notebook import run_study
from documents.errors import InputError
from tests.harness.tiny import SEARCH, TWO_STAGES, write_study

CHANGES = (
    ("[sgd, adam]", "[adam, torch:torch.optim.NAdam]"),
    (TWO_STAGES, SEARCH),
    (
        "      jax: {}\n      torch: {tuned_on: jax, seeds: {final: 2}}\n",
        "      torch: {seeds: {final: 2}}\n",
    ),
)


@pytest.mark.slow
def test_a_study_gives_its_tables_and_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = write_study(tmp_path / "studies", *CHANGES)
    result = run_study(study, results=tmp_path / "results")
    assert "tiny: figures" in capsys.readouterr().out
    final = result.tables["runs"].filter(result.tables["runs"]["stage"] == "final")
    assert set(final["optimizer"]) == {"adam", "torch-nadam"}
    assert not result.tables["curves"].is_empty()
    assert not result.tables["timings"].is_empty()
    assert any("sensitivity" in name for name in result.figures)
    shown = next(iter(result.figures.values()))._repr_html_()
    assert "<svg" in shown
    assert "<b>" in shown
    again = run_study(study, results=tmp_path / "results")
    assert "Nothing to be done" in capsys.readouterr().out
    assert again.tables["runs"].equals(result.tables["runs"])


@pytest.mark.parametrize(
    ("study", "given", "said"),
    [
        ("digits", {}, "has no study or claim 'digits'; did you mean 'digits_mlp'"),
        ("digits_mlp", {"scale": "huge"}, "has no scale 'huge'"),
        ("notes.regret", {}, "is a claim that property checks decide: curvebench claims check notes.regret"),
        ("convex", {"scale": "paper_on_reduced_data"}, "has no scale 'paper_on_reduced_data'"),
    ],
)
def test_what_cannot_run_is_said_before_anything_is(
    study: str, given: dict[str, str], said: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=said):
        run_study(study, results=tmp_path, **given)
