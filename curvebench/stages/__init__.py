"""The stages, which compute the jobs of a plan: bases, runs, timing, parity and property checks."""
