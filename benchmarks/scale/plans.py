"""Study files that plan as many jobs as are asked for, and as many jobs in plain rules beside them."""

from __future__ import annotations

from pathlib import Path

from harness.plan import make_plan, read_config

WORKLOADS = ("least_squares", "log_sum_exp", "logistic_regression")  # taken in turn
OPTIMIZERS = ("sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adam", "adamw", "nesterov_lookahead")
STUDIES, RESULTS, FLOOR = "studies", "results", "floor"  # below the folder that is asked for
MERGED = 2  # further jobs of a study: its tables and its figures
RULES = ("sweep", "refine", "final", "figures")  # of the plain rules, a chain

STUDY = """\
question: What does a plan of this size take?
source: none
workload: {workload}
optimizers: [{optimizers}]
bases: [identity, {{egop: {{blocks: all, samples: 2.0 d, sampling: {{normal: 1.0}}}}}}]
tuning:
  protocol: two_stage_sweep
  of: learning_rate
  coarse: [1e-3, 1e+2]
  choose: median final train_loss
  shared_across: none
schedule: {{name: constant}}
stop: {{gradient_norm: 1e-8}}
targets: {{gradient_norm: 1e-4}}
compare: {{metric: final train_loss}}
scales:
  quick:
    steps: 1000
    evaluations: 100
    seeds: {{tuning: 3, final: 10}}
    backends:
      jax: {{}}
      torch: {{tuned_on: jax, seeds: {{final: 3}}}}
"""

SNAKEFILE = """\
NUMBERS = range({count})


rule all:
    input:
        expand("{last}/{{number}}.txt", number=NUMBERS),


"""
RULE = """\
rule {name}:
{source}    output:
        "{name}/{{number}}.txt",
    shell:
        "touch {{output}}"


"""


def write_studies(out: Path, jobs: int) -> str:
    """Write studies of a plan with at least so many jobs, and a Snakefile with about as many plain ones.

    Args:
        out: must not be there.

    Returns:
        What was written, as a sentence.

    Raises:
        FileExistsError: when `out` is there.
    """
    out.mkdir(parents=True)
    studies = out / STUDIES
    studies.mkdir()
    _write(studies, 0)
    config = read_config({"study_folder": str(studies), "results": str(out / RESULTS)})
    one = make_plan(config)
    each = len(one.studies[0].jobs) + MERGED
    shared = len(one.parity) + len(one.checks)
    count = max(1, -(-(jobs - shared) // each))
    for number in range(1, count):
        _write(studies, number)
    runs = sum(job.lanes for job in one.studies[0].jobs if job.spec.stage in ("sweep", "refine", "final"))
    chains = -(-jobs // len(RULES))
    floor = out / FLOOR
    floor.mkdir()
    sources = ["", *(f'    input:\n        "{name}/{{number}}.txt",\n' for name in RULES)]
    rules = (RULE.format(name=name, source=source) for name, source in zip(RULES, sources, strict=False))
    (floor / "Snakefile").write_text(
        SNAKEFILE.format(count=chains, last=RULES[-1]) + "".join(rules).rstrip() + "\n"
    )
    return (
        f"{out}: {count} studies, {count * each + shared} jobs, {count * runs} runs; {FLOOR}: "
        f"{chains * len(RULES) + 1} jobs in plain rules"
    )


def _write(folder: Path, number: int) -> None:
    workload = WORKLOADS[number % len(WORKLOADS)]
    text = STUDY.format(workload=workload, optimizers=", ".join(OPTIMIZERS))
    (folder / f"{workload}_{number:04d}.yaml").write_text(text)
