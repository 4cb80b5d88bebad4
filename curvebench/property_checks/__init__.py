"""Property checks: claims that are tested on random instances instead of runs."""
