"""Statistics of runs: pure functions, no input or output; infinity stands for a run that diverged or was censored."""
