"""The way from study files to jobs: which runs are needed, how they are divided, and in which order they run.

`studies` resolves the names in study files, `config.py` reads the configuration, and `plan.py` makes the
plan. Planning imports neither PyTorch nor JAX, because Snakemake plans at every start.
"""
