"""Statistics of runs, as pure functions; an infinite value stands for a run that diverged or was censored."""
