"""The main job: studies, run on every backend, become tables, figures and a report.

bases -> runs -> tables -> figures -> site -> reports, and timing, parity and checks for the site.

snakemake --cores all reports                          the tour, minutes; what failed is tried again
snakemake --cores all reports --config studies=all     everything, at quick scale
snakemake -n reports                                   the plan
snakemake --cores all reports --config studies=convex  one study, by its file's stem or a claim's id
snakemake --cores all reports --config scale=paper     the papers' own settings
snakemake --cores all publish --config name=NAME       its tables as a published set, its site done first
"""

import os
import sys

from curvebench.spec.errors import InputError
from curvebench.planning.workflow import snakemake_inputs

try:
    PLAN = snakemake_inputs(config, workflow.is_main_process)
except InputError as error:
    sys.exit("\n".join(f"error: {line}" for line in str(error).splitlines()))

if workflow.is_main_process:
    print(PLAN.summary, file=sys.stderr)

RUN = PLAN.job_command


# Snakemake's limit of submissions starts a timer for every finished job, and every timer examines all waiting jobs
# once a second. After an hour this took a third of a processor.
onstart:
    workflow.scheduler.job_rate_limiter = None


wildcard_constraints:
    study=r"[^/.]+",
    scale=r"[^/.]+",
    optimizer=r"[^/.]+",
    backend=r"[^/.]+",
    hash=r"[0-9a-f]{16}",


# Runs after the site, which shows failures: prints the summary, lists failures, and fails if there are any.
rule reports:
    input:
        summary=PLAN.site_summary,
        plan=PLAN.report_path,
    output:
        touch(f"{PLAN.results}/logs/nothing-failed"),
    log:
        f"{PLAN.results}/logs/reports.log",
    localrule: True
    conda:
        "environment.yml"
    resources:
        mem_mb=1000,
        runtime=lambda wildcards, attempt: 10 * attempt,
    message:
        "what failed"
    shell:
        "(cat {input.summary:q}; python -m curvebench failures --plan {input.plan:q}) 2>&1 | tee {log:q}"


# The output is not a page, because Snakemake deletes outputs beforehand: the old site stays until the new is complete.
rule site:
    input:
        plan=PLAN.report_path,
        shown=PLAN.site_inputs,
    output:
        PLAN.site_summary,
    log:
        f"{PLAN.results}/logs/site.log",
    conda:
        "environment.yml"
    resources:
        mem_mb=2000,
        runtime=lambda wildcards, attempt: 10 * attempt,
    params:
        site=lambda wildcards: str(PLAN.config.site),
    message:
        "report: {params.site}"
    shell:
        "python -m curvebench site --plan {input.plan:q} --out {params.site:q} --summary {output:q} 2>&1 | tee {log:q}"


# Has no output, so that it runs whenever it is requested; the name is checked before anything is computed. It does
# not depend on `reports`, which fails if a job has failed, because `waive=failures` may allow that.
rule publish:
    input:
        rules.site.output,
        plan=PLAN.to_publish,
    log:
        f"{PLAN.results}/logs/publish.log",
    conda:
        "environment.yml"
    resources:
        mem_mb=2000,
        runtime=lambda wildcards, attempt: 10 * attempt,
    params:
        name=PLAN.config.name,
        waive=list(PLAN.config.waive),
        readme=PLAN.readme_option,
    message:
        "publish: {params.name}"
    shell:
        "python -m curvebench sets publish --plan {input.plan:q} --name {params.name:q}"
        " {params.readme:q} --waive {params.waive:q} 2>&1 | tee {log:q}"


rule bases:
    input:
        spec=PLAN.spec("bases"),
    output:
        PLAN.job_tables("bases"),
    log:
        PLAN.log("bases"),
    conda:
        "environment.yml"
    threads: 1
    resources:
        mem_mb=PLAN.mem_mb,
        gpu=PLAN.gpu,
        runtime=lambda wildcards, attempt: 60 * attempt,
    message:
        "{wildcards.study}: bases on {wildcards.backend}"
    shell:
        RUN + " --threads {threads} 2>&1 | tee {log:q}"


# All rounds of a method, tuning and final, unless the scale or the workload divides them into several jobs.
rule runs:
    input:
        PLAN.inputs,
        spec=PLAN.spec("runs"),
    output:
        PLAN.job_tables("runs"),
    log:
        PLAN.log("runs"),
    conda:
        "environment.yml"
    threads: 1
    resources:
        mem_mb=PLAN.mem_mb,
        gpu=PLAN.gpu,
        runtime=PLAN.minutes,
    params:
        description=PLAN.description,
    message:
        "{wildcards.study}: runs of {params.description} on {wildcards.backend}"
    shell:
        RUN + " --threads {threads} 2>&1 | tee {log:q}"


# A timing job has all cores, or a node, to itself, and computes on one thread as the jobs of runs do.
rule timing:
    input:
        PLAN.inputs,
        spec=PLAN.spec("timing"),
    output:
        PLAN.job_tables("timing"),
    log:
        PLAN.log("timing"),
    conda:
        "environment.yml"
    threads: workflow.cores
    resources:
        mem_mb=PLAN.mem_mb,
        gpu=PLAN.gpu,
        runtime=lambda wildcards, attempt: 60 * attempt,
        slurm_extra="--exclusive",
    message:
        "{wildcards.study}: step times on {wildcards.backend}, nothing else running"
    shell:
        RUN + " --threads 1 2>&1 | tee {log:q}"


rule parity:
    input:
        spec=PLAN.spec("parity"),
    output:
        PLAN.job_tables("parity"),
    log:
        PLAN.log("parity"),
    conda:
        "environment.yml"
    threads: 1
    resources:
        mem_mb=2500,
        runtime=lambda wildcards, attempt: 60 * attempt,
    message:
        "parity of {wildcards.optimizer}: PyTorch against JAX, NumPy against PyTorch"
    shell:
        RUN + " --threads {threads} 2>&1 | tee {log:q}"


rule checks:
    input:
        spec=PLAN.spec("checks"),
    output:
        PLAN.job_tables("checks"),
    log:
        PLAN.log("checks"),
    conda:
        "environment.yml"
    threads: 1
    resources:
        mem_mb=2500,
        runtime=lambda wildcards, attempt: 60 * attempt,
    message:
        "claims of {wildcards.optimizer}, on random instances"
    shell:
        RUN + " --threads {threads} 2>&1 | tee {log:q}"


# An empty file that represents the runs of a round. Without it, n jobs that read m runs each would need n m edges.
rule gather:
    input:
        PLAN.inputs,
    output:
        touch(PLAN.pattern("gathered")),
    log:
        PLAN.log("gather"),
    localrule: True
    conda:
        "environment.yml"
    resources:
        mem_mb=100,
    params:
        runs=PLAN.description,
    message:
        "{wildcards.study}: {params.runs}"
    shell:
        "echo {params.runs:q} > {log:q}"


rule tables:
    input:
        PLAN.inputs,
        jobs=PLAN.pattern("tables jobs"),
    output:
        PLAN.merged(),
    log:
        PLAN.log("tables"),
    conda:
        "environment.yml"
    resources:
        mem_mb=1000,
        runtime=lambda wildcards, attempt: 10 * attempt,
    params:
        tables=lambda wildcards, output: os.path.dirname(output[0]),
    message:
        "{wildcards.study}: tables"
    shell:
        "python -m curvebench tables merge --out {params.tables:q} --jobs {input.jobs:q} 2>&1 | tee {log:q}"


rule figures:
    input:
        PLAN.inputs,
        plan=PLAN.pattern("figures plan"),
    output:
        directory(PLAN.pattern("figures")),
    log:
        PLAN.log("figures"),
    conda:
        "environment.yml"
    resources:
        mem_mb=2000,
        runtime=lambda wildcards, attempt: 10 * attempt,
    message:
        "{wildcards.study}: figures"
    shell:
        "python -m curvebench figures --plan {input.plan:q} 2>&1 | tee {log:q}"
