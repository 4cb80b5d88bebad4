"""Planted claims: sentences whose truth is known by construction, decided as all other claims are.

The rates at which false claims are reproduced, and true claims are not reproduced, measure how often the
project's verdicts are wrong. The folder has study files in the format of all studies. The source of each
claim is the word `true` or `false`, a colon, and the reason, so that a new planted claim is an entry in a
study file. `python -m benchmarks.planted --size small --block 0` plans, tunes and runs all studies, decides
all claims, and stores the verdicts in `results/published/planted.json`, which the page of methods shows
(`curvebench.reports.pages.planted`).
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from pathlib import Path

from curvebench.planning.config import Config
from curvebench.planning.plan import make_plan, write_specs
from curvebench.planning.studies.seeds import BLOCKS
from curvebench.reports.claims.verdict_list import read_verdicts
from curvebench.reports.pages.planted import FILE, PlantedClaim, PlantedRun, PlantedRuns, read_planted
from curvebench.results.merging import merge
from curvebench.results.temporary import write_texts
from curvebench.spec.sets import PLAN
from curvebench.spec.study import FIRST_FINAL_SEED
from curvebench.stages.jobs import run_job

STUDIES = Path(__file__).parent  # folder of the study files
SIZES = ("small", "medium", "large")
# Difference between the seeds of two blocks. All seeds of a study without a block are smaller.
BLOCK = FIRST_FINAL_SEED * (BLOCKS + 1)


def planted_config(size: str, block: int, results: Path) -> Config:
    """Return the configuration of all planted studies with the seeds of a block.

    Block 0 has the usual seeds of each study. Every other block has tuning seeds and final seeds of its own.

    Args:
        size: scale of the studies.
        block: number of the block.
        results: folder for specs, runs and tables.
    """
    names = tuple(sorted(path.stem for path in STUDIES.glob("*.yaml")))
    config = Config(scale=size, studies=names, study_folder=STUDIES, results=results, parity=False)
    report, first = make_plan(config).report, block * BLOCK
    studies = tuple(
        study.model_copy(
            update={
                "first_tuning_seed": first + study.first_tuning_seed,
                "first_final_seed": first + study.first_final_seed,
            }
        )
        for study in report.studies
    )
    results.mkdir(parents=True, exist_ok=True)
    write_texts({results / PLAN: report.model_copy(update={"studies": studies}).to_json()})
    return config.model_copy(update={"seeds_of": results})


def decide(size: str, block: int, results: Path) -> tuple[tuple[PlantedClaim, ...], PlantedRun]:
    """Run all planted studies at a size, and decide their claims.

    Args:
        size: scale of the studies.
        block: number of the block of seeds.
        results: folder for specs, runs and tables.

    Returns:
        The planted claims, and their verdicts.
    """
    start = time.process_time()
    plan = make_plan(planted_config(size, block, results))
    write_specs(plan)
    for planned in plan.studies:
        for job in planned.jobs:
            run_job(job.spec_path, results)
        merge([job.folder for job in planned.jobs], planned.plan.tables)
    table = read_verdicts(plan.report).claims
    verdicts = dict(table.select("claim", "verdict").sort("claim").iter_rows())
    claims = (claim for study in plan.report.studies for claim in study.claims)
    planted = tuple(PlantedClaim(claim.id, claim.sentence, claim.source) for claim in claims)
    return planted, PlantedRun(size, block, round(time.process_time() - start), verdicts)


def with_run(stored: PlantedRuns, claims: tuple[PlantedClaim, ...], run: PlantedRun) -> PlantedRuns:
    """Return the stored runs with a new run, which replaces the stored run of the same size and block.

    Stored runs are dropped if they decided other claims than the new run.
    """
    if stored.claims != claims:
        stored = PlantedRuns(claims, ())
    others = [one for one in stored.runs if (one.size, one.block) != (run.size, run.block)]
    return replace(
        stored, runs=tuple(sorted([*others, run], key=lambda one: (SIZES.index(one.size), one.block)))
    )


def store(claims: tuple[PlantedClaim, ...], run: PlantedRun) -> None:
    """Write a run to the file of planted claims, and keep the runs of other sizes and blocks."""
    text = json.dumps(asdict(with_run(read_planted(), claims, run)), indent=1, ensure_ascii=False)
    write_texts({FILE: text + "\n"})
