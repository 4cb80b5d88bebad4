"""Planning: the runs that study files request, the division of the runs into jobs, and the order of the jobs.

`studies` resolves the names in study files, `config.py` reads the configuration, and `plan.py` makes the
plan. Planning imports neither PyTorch nor JAX, because Snakemake plans at every start.
"""
