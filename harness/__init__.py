"""How a run happens: studies, the plan of jobs, execution on backends, tuning and timing."""

from __future__ import annotations

from typing import Any

__all__ = ["replay"]


def __getattr__(name: str) -> Any:
    """Import the public entry late, so that `import harness` stays cheap for the Snakefile."""
    if name == "replay":
        from harness.replaying import replay

        return replay
    raise AttributeError(f"module 'harness' has no attribute {name!r}")
