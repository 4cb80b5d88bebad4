"""Planning: from a configuration and studies to the jobs and files that Snakemake schedules."""
