"""The settings of a report in the words of pages."""

from __future__ import annotations

from curvebench.reports.formatting import metric_name, plain, slug
from curvebench.spec.claim import Condition
from curvebench.spec.plan import StudyPlan

NEARLY_BEST = 0.995  # of a run's best value, at which it counts as converged (000 App. B, Fig. 16)
QUANTITIES = {
    "best_learning_rate": "learning rate of the best {}",
    "trend": "trend over learning rates of the {}",
    "rates_won": "learning rates won less lost by the {}",
    "log_linearity": "log-linearity down to {down_to} of the",
    "share_of_gain": "share of the logarithmic gain kept of the {}",
    "steps_to_stop": "steps until the run was stopped by the",
    "gradients_to_stop": "gradients, with the basis, until stopped by the",
    "steps_to_target": "steps to the target of the {}",
    "seconds_to_nearly_best": f"seconds to {100 * NEARLY_BEST:g} % of the {{}}",
    "run_seconds": "seconds of training of runs that end with the",
    "training_seconds_to_nearly_best": f"seconds of training to {100 * NEARLY_BEST:g} % of the {{}}",
}
BOARD_FIGURES = "board_figures"  # of the site, for what the leaderboard shows
CLAIM_FIGURES = "claim_figures"  # of the site, for what property checks draw
EQUAL = {"steps": "{}", "gradients": "at equal gradient evaluations, {}", "seconds": "at equal seconds, {}"}


def reading(condition: Condition) -> str:
    """What a condition reads, in the words before its metric: "final", "at equal seconds, final"."""
    if condition.target is not None:
        return f"steps until {plain(condition.target)} is reached by the {condition.which}"
    if condition.gain_in == "steps_to_target":
        return f"share of the logarithmic gain kept of the steps to the target of the {condition.which}"
    if condition.quantity != "value":
        return QUANTITIES[condition.quantity].format(condition.which, down_to=plain(condition.down_to or 0))
    return EQUAL[condition.at_equal].format(condition.which)


def criterion(study: StudyPlan) -> str:
    """By what learning rates were chosen, as words."""
    chosen = study.tuning.choose
    words = f"{chosen.statistic} of the {chosen.which} {metric_name(chosen.metric)}"
    return f"{words} in the identity basis" if study.shares_rates else words


def figure_folder(study: str) -> str:
    """The folder of the site with a study's figures."""
    return f"figures/{slug(study)}"


def claim_figure(claim: str, study: str, backend: str) -> str:
    """The light variant of the figure of a claim's comparisons on a backend."""
    return f"{figure_folder(study)}/{slug(f'{claim}.{backend}')}.svg"
