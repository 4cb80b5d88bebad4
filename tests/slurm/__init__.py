"""Slurm cluster of one node for tests."""
