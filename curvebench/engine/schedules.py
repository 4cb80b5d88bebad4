"""Learning-rate schedules: a multiplier for every step, the same for all methods or tuned for each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from curvebench.optimizers.rule import Hyper, Hyperparameter, ParameterRole, Part, Rule

EXPONENTIAL = "exponential"
RATE_DECAY = "rate_decay"

# What multiplies the rate, from 1 on, by steps since the fall began and the share of the fall that is done.
SHAPES: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "constant": lambda since, progress: 1.0 - progress,
    "cosine": lambda since, progress: 0.5 * (1.0 + np.cos(math.pi * progress)),
    "linear": lambda since, progress: 1.0 - progress,
    "inverse_sqrt": lambda since, progress: 1.0 / np.sqrt(1.0 + since),  # 002 eq. 24
    EXPONENTIAL: lambda since, progress: np.ones_like(since),  # each run has its own factor (`scheduled`)
}


def multipliers(schedule: Mapping[str, Any], steps: int, epoch: int | None = None) -> np.ndarray:
    """The multiplier of each step, shape (steps,), float64.

    `warmup` is the share of the steps in which the multiplier rises linearly to 1; or `warmup_epochs` are the
    epochs, of so many steps each. After it cosine and linear
    go from 1 towards `final`, which they would reach one step after the last (as in
    torch.optim.lr_scheduler.CosineAnnealingLR with T_max = steps), and inverse_sqrt is 1 / sqrt(t) with t = 1
    at the first step after warm-up. A constant schedule stays at 1 and falls linearly in the last share
    `cooldown` of the steps, in the same way: warm-up, stable phase, cool-down (002 Sec. 4.4).

    Raises:
        ValueError: when warm-up and cool-down take more than the steps.
    """
    name, epochs = schedule.get("name", "constant"), schedule.get("warmup_epochs")
    warm = round(float(schedule.get("warmup", 0.0)) * steps)
    cool = round(float(schedule.get("cooldown", 0.0)) * steps)
    if epochs is None:
        cool = min(cool, steps - warm)  # of shares that fill the steps, both rounded up
    else:
        assert epoch is not None, "given where epochs are"
        warm = round(epochs * epoch)
        if warm + cool > steps:
            after = f", and a cool-down of {cool}" if cool else ""
            raise ValueError(
                f"warmup_epochs: {epochs:g} are {warm} steps{after}, and a run has {steps}; give fewer epochs"
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
    """The rule as a study with such a schedule runs it.

    An exponential one, alpha_0 beta^(t - 1) at step t (004 App. M), gives every rule the hyperparameter
    `rate_decay`, beta, which a study tunes or fixes as any other: methods need not share it.

    Args:
        rule: of this project.
        schedule: the name of the schedule.
    """
    if schedule != EXPONENTIAL:
        return rule
    for_model, part = rule.for_model, rule.part
    parts: dict[int, tuple[Part, Part]] = {}  # by the identity of the rule's own, which is kept with it

    def decaying_part(role: ParameterRole, shape: tuple[int, ...]) -> Part:
        assert part is not None
        own = part(role, shape)
        made = Part(scheduled(own.rule, schedule), own.names)
        return parts.setdefault(id(own), (own, made))[1]

    return replace(
        rule,
        hyperparameters={**rule.hyperparameters, RATE_DECAY: DECAY},
        update=_decaying(rule.update),
        refresh=rule.refresh and _decaying(rule.refresh),
        start=rule.start and _decaying(rule.start),
        gradient_at=rule.gradient_at and _decaying(rule.gradient_at),
        for_model=for_model and (lambda shapes, roles: scheduled(for_model(shapes, roles), schedule)),
        part=part and decaying_part,
    )


def _decaying(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a rule, whose last argument are the hyperparameters, with the decayed learning rate."""

    def decayed(*arguments: Any) -> Any:
        *others, hyper = arguments
        return function(*others, _decayed(hyper))

    return decayed


def _decayed(hyper: Hyper) -> Hyper:
    factor = hyper[RATE_DECAY] ** (hyper["step"] - 1.0)
    return {**hyper, **{name: hyper[name] * factor for name in ("learning_rate", "schedule")}}
