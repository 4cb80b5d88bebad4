"""A Slurm of one node, for tests."""
