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

from snakemake.exceptions import WorkflowError

from curvebench.spec.errors import InputError
from curvebench.planning.workflow import wiring

try:
    PLAN = wiring(config, workflow.is_main_process)
except InputError as error:
    raise WorkflowError(str(error))

if workflow.is_main_process:
    print(PLAN.summary, file=sys.stderr)

RUN = PLAN.job_command


# Its limit of submissions leaves a timer behind for every finished job; each has all that waits looked at once a
# second, which took a third of a processor after an hour.
onstart:
    workflow.scheduler.job_rate_limiter = None


wildcard_constraints:
    study=r"[^/.]+",
    scale=r"[^/.]+",
    optimizer=r"[^/.]+",
    backend=r"[^/.]+",
    hash=r"[0-9a-f]{16}",


# After the site, since what failed is on it: sums up, lists that, and fails where there is some.
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


# Its output is no page, since Snakemake would delete it beforehand: the old site stays until the new one is complete.
rule site:
    input:
        plan=PLAN.report_path,
        shown=PLAN.shown,
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


# Has no output, so that it runs whenever it is asked for; the name is checked before anything is computed.
# Not after `reports`, which ends with a failure where something failed: `waive=failures` lets that pass.
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


# All rounds of a method, those that tune it and the final one, as far as runs are not jobs of their own.
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


# One for the many runs that are jobs of their own and that many others read: each would be an edge to each.
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
