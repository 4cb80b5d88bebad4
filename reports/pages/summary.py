"""A report in five lines: what was run, what it says, what agrees, where it is, what comes next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from curvebench.reports.claims.rerun import SNAKEMAKE
from curvebench.reports.pages.versions import ClaimAgreement, Version
from curvebench.reports.rendering import text_of


def summary(own: Version, checked: Sequence[ClaimAgreement], site: Path) -> list[str]:
    """What a terminal shows at the end.

    Args:
        own: what was run here.
        checked: its claims next to those of published sets, of which a site of one set says nothing.
        site: the first page.
    """
    verdicts = Counter(claim.verdict for claim in own.claims).most_common()
    about = {"own": own, "checked": checked, "verdicts": verdicts}
    return text_of("summary", site=site.resolve(), snakemake=SNAKEMAKE, **about).splitlines()
