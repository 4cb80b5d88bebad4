"""Learning-rate schedules: multipliers of the learning rate at each step, or a decay rate to be tuned.

Sources (docs/sources.md): 002 is Stratos, "Adaptive Learning Methods"; 004 is Bernacchia's paper on SymO.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from curvebench.optimizers.arrays import Hyper
from curvebench.optimizers.rule import Hyperparameter, Rule, changed_parts

EXPONENTIAL = "exponential"
RATE_DECAY = "rate_decay"

# Function by which the multiplier decays from 1 towards 0, for each schedule.
# The arguments of the function are two arrays with an entry per step.
# `since` is the number of steps since the decay began.
# `progress` is the share of the decay's steps that are over, from 0 to 1.
SHAPES: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "constant": lambda since, progress: 1.0 - progress,
    "cosine": lambda since, progress: 0.5 * (1.0 + np.cos(math.pi * progress)),
    "linear": lambda since, progress: 1.0 - progress,
    "inverse_sqrt": lambda since, progress: 1.0 / np.sqrt(1.0 + since),  # 002 eq. 24
    # The multiplier stays 1, because the rule itself multiplies the rate by a decay (`scheduled`).
    EXPONENTIAL: lambda since, progress: np.ones_like(since),
}


def multipliers(schedule: Mapping[str, Any], steps: int, epoch: int | None = None) -> np.ndarray:
    """Return the multiplier of the learning rate at each step, (steps,) in float64.

    During warm-up, the multiplier rises linearly to 1. After that,

    - a cosine or linear schedule decays from 1 to `final`, which it would reach one step after the last
      step (as `torch.optim.lr_scheduler.CosineAnnealingLR` with T_max = steps);
    - inverse_sqrt is 1 / sqrt(t), with t = 1 at the first step after warm-up;
    - a constant schedule stays at 1 until its cool-down, which decays linearly to `final` in the same way
      (002 Sec. 4.4).

    Args:
        schedule: mapping that a study has as its key `schedule`. `name` is the name of the schedule, and
            `final` the value towards which the multiplier decays. `warmup` and `cooldown` are shares of the
            steps. `warmup_epochs`, in epochs, may be given instead of `warmup`.
        steps: number of steps of the run.
        epoch: number of steps of an epoch; required with `warmup_epochs`.

    Raises:
        ValueError: if warm-up and cool-down take more steps than the run has.
    """
    name, epochs = schedule.get("name", "constant"), schedule.get("warmup_epochs")
    warm = round(float(schedule.get("warmup", 0.0)) * steps)
    cool = round(float(schedule.get("cooldown", 0.0)) * steps)
    if epochs is None:
        # If the shares of warm-up and cool-down add up to 1, both may have been rounded up.
        cool = min(cool, steps - warm)
    else:
        assert epoch is not None, "given where epochs are"
        warm = round(epochs * epoch)
        if warm + cool > steps:
            also = f", and a cool-down of {cool}" if cool else ""
            raise ValueError(
                f"warmup_epochs: {epochs:g} are {warm} steps{also}, and a run has {steps}; give fewer epochs"
            )
    final = float(schedule.get("final", 0.0))
    step = np.arange(steps, dtype=np.float64)
    start = steps - cool if name == "constant" else warm
    since = np.maximum(step - start, 0.0)
    progress = since / max(steps - start, 1)
    level = final + (1.0 - final) * SHAPES[name](since, progress)
    return np.where(step < warm, (step + 1.0) / max(warm, 1), level)


DECAY = Hyperparameter(
    "what the learning rate is multiplied with after every step", 1.0, 0.0, 1.0, low_open=True
)


def scheduled(rule: Rule, schedule: str) -> Rule:
    """Return the rule that runs in a study with the given schedule.

    With an exponential schedule, the learning rate at step t is alpha beta^(t - 1) for the initial learning
    rate alpha (004 App. M). This schedule adds beta to the hyperparameters of the rule, as `rate_decay`. A
    study tunes or fixes beta like any other hyperparameter, so that methods may have different values. All
    other schedules leave the rule unchanged.

    Args:
        rule: a rule of this project.
        schedule: name of the schedule.
    """
    if schedule != EXPONENTIAL:
        return rule
    for_model = rule.for_model
    return replace(
        rule,
        hyperparameters={**rule.hyperparameters, RATE_DECAY: DECAY},
        update=_decaying(rule.update),
        refresh=rule.refresh and _decaying(rule.refresh),
        start=rule.start and _decaying(rule.start),
        gradient_at=rule.gradient_at and _decaying(rule.gradient_at),
        for_model=for_model and (lambda shapes, roles: scheduled(for_model(shapes, roles), schedule)),
        part=rule.part and changed_parts(rule.part, lambda own, _: scheduled(own, schedule)),
    )


def _decaying(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function of a rule, whose last argument is `hyper`, so that it gets a decayed learning rate."""

    def decayed(*arguments: Any) -> Any:
        *first, hyper = arguments
        return function(*first, _decayed(hyper))

    return decayed


def _decayed(hyper: Hyper) -> Hyper:
    factor = hyper[RATE_DECAY] ** (hyper["step"] - 1.0)
    return {**hyper, **{name: hyper[name] * factor for name in ("learning_rate", "schedule")}}
