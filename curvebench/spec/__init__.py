"""Typed documents that harness, results and reports share: the study, its plan and its jobs."""
