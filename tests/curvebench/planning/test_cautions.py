"""Warnings of `check` and `plan` about valid studies: claims that too few seeds cannot support, and running
means that stop changing in half precision.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from curvebench.__main__ import main
from curvebench.planning.studies.cautions import cautions
from curvebench.planning.studies.reading import read_studies
from tests.curvebench.tiny import write_study

SEEDS = "seeds: {tuning: 2, final: 3}"
ON_TORCH = "torch: {tuned_on: jax, seeds: {final: 2}}"
ENOUGH = ((SEEDS, "seeds: {tuning: 2, final: 5}"), (ON_TORCH, "torch: {tuned_on: jax}"))
METHODS = "better: [adam @ egop], compared_to: [adam]"


def said(folder: Path, *changes: tuple[str, str]) -> list[str]:
    write_study(folder, *changes)
    return list(cautions(read_studies(folder), "quick"))


def test_a_claim_is_out_of_reach_where_no_p_value_of_its_pairs_is_small_enough(tmp_path: Path):
    jax, torch = said(tmp_path)
    assert jax == (
        f"{tmp_path / 'tiny.yaml'}: tiny.claim cannot be reproduced on jax: with 3 pairs of runs no p-value "
        "is below 0.12; 5 seeds can reach 0.05"
    )
    assert "on torch: with 2 pairs of runs no p-value is below 0.25" in torch
    assert said(tmp_path, *ENOUGH) == []


def test_claims_about_tuning_count_tuning_seeds_where_there_are_any(tmp_path: Path):
    rates = (METHODS + ", smallest_effect: 5 %", f"{METHODS}, quantity: best_learning_rate")
    (jax,) = said(tmp_path, rates)  # torch takes the rates of jax, and has no tuning runs
    assert "on jax: with 2 pairs of runs" in jax


@pytest.mark.parametrize(
    ("method", "kept"),
    [
        ("adam: {precision: bfloat16}", "beta2 = 0.999"),
        ("adam: {precision: bfloat16, state_precision: computed}", None),
        ("adam: {state_precision: bfloat16}", "beta2 = 0.999"),
        ("adam: {state_precision: bfloat16, beta1: 0.995}", "beta1 = 0.995 and beta2 = 0.999"),
        ("muon: {state_precision: bfloat16}", "others_beta2 = 0.999"),
        ("adam: {state_precision: bfloat16, beta2: 0.99}", None),
        ("adam: {state_precision: parameters}", None),
        ("spectral_diagonal: {state_precision: bfloat16}", None),
    ],
)
def test_a_running_mean_that_half_precision_stops_is_told(method: str, kept: str | None, tmp_path: Path):
    basis = "[identity, {egop: {blocks: all, samples: 2.0 d, sampling: {normal: 1.0}}}]"
    precision = "bfloat16" if "{precision" in method else "float32"
    method = method.replace("{precision: bfloat16", "{beta1: 0.9").replace("{", "{label: half, ")
    told = said(
        tmp_path,
        *ENOUGH,
        (f"bases: {basis}", f"precision: {precision}\nbases: [identity]"),
        ("[sgd, adam]", f"[sgd, {{adam: {{state_precision: computed}}}}, {{{method}}}]"),
        (METHODS, "better: [adam], compared_to: [sgd]"),
    )
    if kept is None:
        assert told == []
    else:
        (line,) = told
        assert f"tiny.yaml: half holds running means in bfloat16, where those with {kept} stop short" in line


@pytest.mark.parametrize(
    "command",
    [("plan", "study_folder=studies", "studies=tiny", "parity=false"), ("check", "--studies", "studies")],
)
def test_plan_and_check_print_them(
    command: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    write_study(tmp_path / "studies")
    assert main([*command]) == 0
    notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  note: ")]
    assert len(notes) == 2
