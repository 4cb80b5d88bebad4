"""The battery's table: every rule with its hyperparameters, its plain loop, its oracles and its traits.

How a rule joins:

1. A loop in `loops.py`, `loop(leaf, hyper, **options)`, which yields the leaf's parameters after each step in
   float64. It is written from the source, by another way than the rule where there is one.
2. An entry here for the defaults of its options, named like the rule, with every hyperparameter away from its
   default, so that none can be ignored. Further entries, `rule: what differs`, until each option is away from
   its default in one of them; the loop is given all options.
3. Oracles, `oracles.py`, where PyTorch or Optax has the same algorithm, with the settings that make it so.
4. Its traits: what a change of coordinates does, the values at which a zero gradient moves nothing, and those
   at which the scale of gradients does not matter.

`test_rules.py` and `test_equivariance.py` run over the table, and a registered rule without an entry fails.
What is said of one rule alone, such as a closed form, has a file of its own (`test_shampoo.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from harness.layout import kinds_of
from optimizers import rules
from optimizers.rule import Rule
from tests.optimizers import loops, oracles
from tests.optimizers.loops import Hyper, Leaf
from tests.optimizers.oracles import Arrays, Oracle

Symmetry = Literal["orthogonal", "signed_permutation", "sides"]


@dataclass(frozen=True)
class Entry:
    """A rule with options in the battery.

    Args:
        optimizer: the rule's name.
        loop: the rule as a plain loop on one leaf.
        hyper: every hyperparameter, none at its default.
        symmetry: the changes of coordinates that its path goes along with: `orthogonal` of all parameters
            together, `signed_permutation` of them, or `sides`, orthogonal along each axis of a tensor.
        options: what was chosen, where it differs from the defaults.
        still: the values at which a zero gradient moves nothing; epsilon is 0 among them.
        scale_free: the values at which the scale of gradients does not matter; None where it always does.
        pytorch, optax: the same algorithm elsewhere; None where there is none.
        tolerance: how near paths in float64 come to the loop, relative and absolute.
        tolerance_float32: the same in float32.
    """

    optimizer: str
    loop: Callable[..., Iterator[np.ndarray]]
    hyper: Hyper
    symmetry: Symmetry
    options: Mapping[str, Any] = field(default_factory=dict)
    still: Hyper = field(default_factory=dict)
    scale_free: Hyper | None = None
    pytorch: Oracle | None = None
    optax: Oracle | None = None
    tolerance: float = 1e-13
    tolerance_float32: float = 1e-5

    @property
    def rule(self) -> Rule:
        """The rule with the options."""
        return rules()[self.optimizer].choose(self.options)

    def path(self, params: Arrays, grads: list[Arrays], hyper: Hyper) -> list[Arrays]:
        """The plain loop on every parameter, in the form of `harness.replay`."""
        kinds = kinds_of({name: value.shape for name, value in params.items()})
        paths = {
            name: list(
                self.loop(Leaf(kinds[name], value, [g[name] for g in grads]), hyper, **self.rule.chosen)
            )
            for name, value in params.items()
        }
        return [{name: path[step] for name, path in paths.items()} for step in range(len(grads))]


ADAM = {"learning_rate": 0.1, "beta1": 0.8, "beta2": 0.95, "epsilon": 0.02}
ADAMW = {**ADAM, "weight_decay": 0.3}
MUON = {"learning_rate": 0.05, "momentum": 0.8, "weight_decay": 0.2}
MUON_BESIDE_ADAMW = {**MUON, **{f"others_{name}": value for name, value in ADAMW.items()}}

BATTERY: dict[str, Entry] = {
    "sgd": Entry(
        optimizer="sgd",
        loop=loops.sgd,
        hyper={"learning_rate": 0.3},
        symmetry="orthogonal",
        pytorch=Oracle(oracles.torch_sgd),
        optax=Oracle(oracles.optax_sgd),
    ),
    "momentum": Entry(
        optimizer="momentum",
        loop=loops.momentum,
        hyper={"learning_rate": 0.2, "momentum": 0.7},
        symmetry="orthogonal",
        pytorch=Oracle(oracles.torch_sgd),
        optax=Oracle(oracles.optax_sgd),
    ),
    "adagrad": Entry(
        optimizer="adagrad",
        loop=loops.adagrad,
        hyper={"learning_rate": 0.4, "epsilon": 0.05, "initial_accumulator": 0.3},
        symmetry="signed_permutation",
        still={"epsilon": 0.0, "initial_accumulator": 0.0},
        scale_free={"epsilon": 0.0, "initial_accumulator": 0.0},
        pytorch=Oracle(oracles.torch_adagrad),
        optax=Oracle(oracles.optax_adagrad, hyper={"epsilon": 0.0}),
    ),
    "adam": Entry(
        optimizer="adam",
        loop=loops.adamw,
        hyper=ADAM,
        symmetry="signed_permutation",
        still={"epsilon": 0.0},
        scale_free={"epsilon": 0.0},
        pytorch=Oracle(oracles.torch_adam),
        optax=Oracle(oracles.optax_adam),
    ),
    "adamw": Entry(
        optimizer="adamw",
        loop=loops.adamw,
        hyper=ADAMW,
        symmetry="signed_permutation",
        still={"epsilon": 0.0, "weight_decay": 0.0},
        scale_free={"epsilon": 0.0},
        pytorch=Oracle(oracles.torch_adam),
        optax=Oracle(oracles.optax_adam),
    ),
    "shampoo": Entry(
        optimizer="shampoo",
        loop=loops.shampoo,
        hyper={"learning_rate": 0.3, "epsilon": 0.05},
        symmetry="sides",
        still={"epsilon": 0.0},
        scale_free={"epsilon": 0.0},
    ),
    "shampoo: running mean": Entry(
        optimizer="shampoo",
        loop=loops.shampoo,
        hyper={"learning_rate": 0.3, "epsilon": 0.05, "beta2": 0.9},
        symmetry="sides",
        options={"statistics": "ema"},
        still={"epsilon": 0.0},
        scale_free={"epsilon": 0.0},
    ),
    "shampoo: another power, roots every 3 steps": Entry(
        optimizer="shampoo",
        loop=loops.shampoo,
        hyper={"learning_rate": 0.3, "epsilon": 0.05},
        symmetry="sides",
        options={"power": 0.3, "refresh_every": 3},
        still={"epsilon": 0.0},
    ),
    "muon": Entry(
        optimizer="muon",
        loop=loops.muon,
        hyper=MUON_BESIDE_ADAMW,
        symmetry="sides",
        still={"weight_decay": 0.0, "others_weight_decay": 0.0, "others_epsilon": 0.0},
        scale_free={"others_epsilon": 0.0},
        pytorch=Oracle(
            oracles.torch_muon("original"), orders=(0, 1, 2), context=oracles.torch_without_bfloat16
        ),
    ),
    "muon: scaled like Adam": Entry(
        optimizer="muon",
        loop=loops.muon,
        hyper=MUON_BESIDE_ADAMW,
        symmetry="sides",
        options={"scale": "adam"},
        still={"weight_decay": 0.0, "others_weight_decay": 0.0, "others_epsilon": 0.0},
        scale_free={"others_epsilon": 0.0},
        pytorch=Oracle(
            oracles.torch_muon("match_rms_adamw"), orders=(0, 1, 2), context=oracles.torch_without_bfloat16
        ),
    ),
    "muon: without Nesterov": Entry(
        optimizer="muon",
        loop=loops.muon,
        hyper=MUON_BESIDE_ADAMW,
        symmetry="sides",
        options={"nesterov": False},
        still={"weight_decay": 0.0, "others_weight_decay": 0.0, "others_epsilon": 0.0},
        scale_free={"others_epsilon": 0.0},
        optax=Oracle(oracles.optax_muon(None), hyper={"others_epsilon": 0.0}),
    ),
    "muon: exact, unscaled, others by SGD": Entry(
        optimizer="muon",
        loop=loops.muon,
        hyper={**MUON, "others_learning_rate": 0.3},
        symmetry="sides",
        options={"orthogonalization": "svd", "scale": "none", "others": "sgd"},
        still={"weight_decay": 0.0},
    ),
    "muon: 8 steps of Polar Express, others by momentum": Entry(
        optimizer="muon",
        loop=loops.muon,
        hyper={**MUON, "others_learning_rate": 0.2, "others_momentum": 0.7},
        symmetry="sides",
        options={"coefficients": "polar_express", "steps": 8, "others": "momentum"},
        still={"weight_decay": 0.0},
    ),
    "muon: 3 cubic steps, others by Adam": Entry(
        optimizer="muon",
        loop=loops.muon,
        hyper={**MUON, **{f"others_{name}": value for name, value in ADAM.items()}},
        symmetry="sides",
        options={"coefficients": "cubic", "steps": 3, "others": "adam"},
        still={"weight_decay": 0.0, "others_epsilon": 0.0},
        scale_free={"others_epsilon": 0.0},
    ),
}
