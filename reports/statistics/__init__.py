"""Statistics of runs, as pure functions; infinity stands for a run that diverged or was censored."""

from reports.statistics.profiles import profile_score

__all__ = ["profile_score"]
