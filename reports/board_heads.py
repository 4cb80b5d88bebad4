"""The columns of a leaderboard as readers meet them: their titles, and what each says in a few sentences."""

from __future__ import annotations

from dataclasses import dataclass

from reports.formatting import metric_name, percent, plain
from reports.leaderboard import Board, Column
from reports.measures import NEARLY
from reports.statistics.profiles import LIMIT
from reports.statistics.ranks import LEAST_SEEDS, NEGLIGIBLE


@dataclass(frozen=True)
class Head:
    """A column's title, the line below it (empty for none), and what it says.

    `key` names it within its board; `sorts` is whether readers can sort by it, and `most_first` whether the
    greatest come first then, where more is better.
    """

    key: str
    title: str
    about: str
    unit: str = ""
    number: bool = True
    sorts: bool = True
    most_first: bool = False


METHOD = Head("method", "Method", "An optimizer; behind an @ the basis that it runs in.", number=False)


def board_heads(board: Board) -> list[Head]:
    """The heads of a board's columns, in the order of its cells: what goes over all its workloads."""
    return [
        METHOD,
        Head(
            "score",
            "Score",
            "From 0 to 1, more is better. On each workload the median of the gradient evaluations to target, "
            "basis included, is divided by that of the fastest method; the score is the share of workloads "
            f"reached within a ratio, averaged over ratios from 1 to {plain(LIMIT)} (the area under the "
            "performance profile). Below it an approximate 95 % interval: studies are drawn again from the "
            "seeds of each workload, the same draw for every method, and each gives a score. There is none "
            f"with fewer than {LEAST_SEEDS} seeds on a workload, and no score without a target.",
            most_first=True,
        ),
        Head(
            "rank",
            "Rank",
            "By the score, 1 is best; equal scores share their rank. Below it the ranks that the method "
            "takes in 95 % of the draws.",
            unit="by score",
        ),
        Head(
            "mean-rank",
            "Mean rank",
            "Methods are ranked by the headline metric on every problem instance (a workload and a seed), 1 "
            "is best, a diverged run last; ranks are averaged over the seeds of a workload, then over "
            "workloads. Below it an approximate 95 % t interval over seeds.",
        ),
        Head(
            "wins",
            "Wins",
            "Problem instances on which no method ends better by the headline metric; values that differ by "
            f"less than {percent(NEGLIGIBLE, 1)} are equal, so that several methods can win one.",
            most_first=True,
        ),
        Head(
            "diverged",
            "Diverged",
            "Final runs that diverged, over all workloads; below it a 95 % interval where that is one "
            "workload.",
        ),
        *(_to_target() if board.scored else ()),
        Head(
            "step",
            "A step",
            f"Seconds of a step over those of {board.reference}, timed in turn: the geometric mean over "
            "workloads, its median over repetitions and an interval.",
            unit=f"{board.reference} = 1",
        ),
        Head(
            "memory",
            "Peak memory",
            (
                "The most bytes of arrays while steps run"
                if board.memory == "device"
                else "The most resident memory while steps run, above that of the loaded process"
            )
            + ", on the workload that takes most; one measurement.",
            unit="device" if board.memory == "device" else "host, above the process",
        ),
        Head(
            "decades",
            "Learning rates",
            "How forgiving the method is: decades of learning rates, of those tried around the best one, "
            f"at which what the study compares is at most {plain(NEARLY)} times the best (accuracy: at least "
            f"the best over {plain(NEARLY)}). The median over tuning seeds, averaged over workloads, and an "
            "interval that joins theirs; 0 where only the best one does.",
            unit="decades nearly as good",
            most_first=True,
        ),
        Head(
            "tuning",
            "Tuning",
            "Runs that chose the method's setting, and their gradient evaluations, basis included, over all "
            "workloads. Where bases share a learning rate, they are those of the method that chose it.",
            unit="runs",
        ),
        Head("runs", "Runs", "Every final run of the method, by study.", number=False, sorts=False),
    ]


def _to_target() -> tuple[Head, Head]:
    said = (
        "until the target, basis included: the median over seeds on each workload is divided by the least of "
        "any method, and is ∞ where half of the runs missed the target. The median of these ratios over "
        "workloads, and below it the least and the greatest where there are several."
    )
    return (
        Head("gradients", "Gradients", f"Gradient evaluations {said}", unit="× the fewest"),
        Head(
            "seconds",
            "Seconds",
            f"Seconds {said} A dash where steps were not timed.",
            unit="× the fewest",
        ),
    )


def workload_heads(column: Column) -> list[Head]:
    """The heads of the table of one workload, in the order of its cells."""
    metric = f"{column.which} {metric_name(column.metric)}"
    better, arrow = ("less", "↓") if column.direction == "minimize" else ("more", "↑")
    aim = f"{metric_name(column.target[0])} {plain(column.target[1])}" if column.target else ""
    return [
        METHOD,
        Head(
            "value",
            f"{metric.capitalize()} {arrow}",
            f"{metric.capitalize()}: the median over {column.seeds} seeds and its "
            f"interval; {better} is better.",
            most_first=column.direction == "maximize",
        ),
        *(_to_target_of(aim) if aim else ()),
        Head(
            "wins",
            "Wins",
            "Seeds on which no method ends better, of those that all methods ran.",
            most_first=True,
        ),
        Head("diverged", "Diverged", "Final runs that diverged, and a 95 % interval."),
        Head(
            "decades",
            "Learning rates",
            "Decades of learning rates, of those tried around the best one, at which what the study compares "
            f"is at most {plain(NEARLY)} times the best (accuracy: at least the best over {plain(NEARLY)}): "
            "the median over tuning seeds and its interval.",
            unit="decades nearly as good",
            most_first=True,
        ),
    ]


def _to_target_of(aim: str) -> tuple[Head, Head, Head]:
    return (
        Head(
            "reached",
            "Reached target",
            f"Final runs that reached {aim}, and a 95 % interval.",
            unit=aim,
            most_first=True,
        ),
        Head(
            "gradients",
            "Gradients",
            f"Gradient evaluations, basis included, until {aim}: the median and its interval; ∞ where half "
            "of the runs never got there.",
            unit="to target",
        ),
        Head(
            "seconds",
            "Seconds",
            f"Seconds, basis included, until {aim}: steps to target times the timed step, unless the run was "
            "timed itself. The median over seeds and its interval; ∞ where half of the runs never got there, "
            "a dash where steps were not timed.",
            unit="to target",
        ),
    )
