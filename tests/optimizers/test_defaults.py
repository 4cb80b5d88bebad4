"""The defaults of all rules against one table, which says where each comes from."""

from __future__ import annotations

from inspect import signature

import pytest
import pytorch_optimizer
import torch

from tests.optimizers.references import BATTERY

OURS = "a choice of this project"
KINGMA = {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}
ADAGRAD = {"epsilon": 1e-10, "initial_accumulator": 0.0}
MOMENTUM = {"momentum": 0.9}
KFAC = {"damping": 1e-3, "weight_decay": 0.0}
CURVATURE = {"curvature_rate": 0.05, "gamma": 1.0, "damping": 1e-8, "weight_decay": 0.0, "momentum": 0.9}
SOPHIA = {"beta2": 0.99, "epsilon": 1e-12, "weight_decay": 0.0}
# By rule, or by entry of the battery where options give others: the defaults, and their source. A
# `learning_rate` has none; hyperparameters that begin with `others_` or `grafting_` have those of their rule.
DEFAULTS: dict[str, tuple[dict[str, float], str]] = {
    "adafactor": (
        KINGMA
        | {"epsilon": 1e-30, "beta2_exponent": 0.8, "clipping_threshold": 1.0, "parameter_scale_floor": 1e-3},
        "Shazeer and Stern 2018, Alg. 6: epsilon_1, 1 - t^-0.8, d, epsilon_2; the moments as Adam's",
    ),
    "adagrad": (ADAGRAD, "torch.optim.Adagrad"),
    "adagrad_norm": (ADAGRAD, "as Adagrad"),
    "adagrad_full": ({"epsilon": 0.0}, "002 eq. 43: the pseudo-inverse"),
    "adam": (KINGMA, "Kingma and Ba 2015, Alg. 1; torch.optim.Adam"),
    "adamw": (KINGMA | {"weight_decay": 0.01}, "torch.optim.AdamW"),
    "adamw: decoupled": (KINGMA | {"weight_decay": 1e-4}, OURS),
    "adamw: Fig. 1 with all flags": (KINGMA | {"weight_decay": 1e-4}, OURS),
    "rmsprop": (KINGMA, "as Adam"),
    "adam_atan2": (
        {"beta1": 0.9, "beta2": 0.999, "a": 1.0, "b": 1.0},
        "002 Sec. 4.1.2; the moments as Adam's",
    ),
    "lion": (
        {"beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0},
        "Chen et al. 2023, Alg. 2; no decay",
    ),
    "ademamix": (
        KINGMA | {"beta3": 0.9999, "alpha": 5.0, "warmup": 0.0, "weight_decay": 0.0},
        "pytorch_optimizer.AdEMAMix; Pagliardini et al. 2024, Sec. 3: beta3",
    ),
    "adopt": (
        {"beta1": 0.9, "beta2": 0.9999, "epsilon": 1e-6, "clipping_exponent": 0.25, "weight_decay": 0.0},
        "Taniguchi et al. 2024, Alg. 2; no decay",
    ),
    "laprop": (KINGMA | {"epsilon": 1e-15, "weight_decay": 0.0}, "Liu et al. 2020, Alg. 1"),
    "mars": (
        {"beta1": 0.95, "beta2": 0.99, "epsilon": 1e-8, "gamma": 0.025, "weight_decay": 0.0},
        "Yuan et al. 2024, Sec. 4; no decay",
    ),
    "prodigy": (
        KINGMA | {"initial_distance": 1e-6, "weight_decay": 0.0},
        "Mishchenko and Defazio 2023, Alg. 4 and Sec. 7",
    ),
    "adam_nmf": ({"epsilon": 1e-16, "initialization_range": 1.0}, "002 eqs. 123-124"),
    "momentum": (MOMENTUM, OURS),
    "nesterov": (MOMENTUM, OURS),
    "nesterov_lookahead": (MOMENTUM, OURS),
    "kfac": (
        KFAC | {"factor_decay": 0.95, "momentum": 0.9},
        "Martens and Grosse 2015, Sec. 5: the share of the factors that is kept; else " + OURS,
    ),
    "kfac_as_004": (KFAC | {"factor_decay": 0.9, "momentum": 0.0}, "004 Table 2: beta; else " + OURS),
    "sophia_h": (
        SOPHIA | {"beta1": 0.96, "gamma": 0.01},
        "Liu et al. 2023, Sec. 3.1; pytorch_optimizer.SophiaH",
    ),
    "sophia_g": (SOPHIA | {"beta1": 0.965, "gamma": 0.05}, "Liu et al. 2023, Sec. 3.1"),
    "lbfgs": ({"sufficient_decrease": 1e-4, "curvature": 0.9}, "Nocedal and Wright 2006, Sec. 3.1"),
    "gauss_newton": ({"damping": 1e-3, "momentum": 0.0}, OURS),
    "spring": ({"damping": 1e-3, "momentum": 0.99}, "Goldshlager et al. 2024, Sec. 4"),
    "levenberg_marquardt": ({"damping": 1e-3}, OURS),
    "adahessian": (
        {"beta1": 0.9, "beta2": 0.999, "hessian_power": 1.0, "epsilon": 1e-4, "weight_decay": 0.0},
        "Yao et al. 2021; epsilon of the authors' implementation",
    ),
    "mirror_descent": ({"radius": 1.0}, OURS),
    "muon": (
        {"momentum": 0.95, "weight_decay": 0.0, "beta2": 0.95, "epsilon": 1e-10},
        "Jordan et al. 2024; pytorch_optimizer.NorMuon",
    ),
    "newton": ({"damping": 0.0}, "002 eq. 57"),
    "regularized_update_descent": ({"regularization": 0.9}, OURS),
    "shampoo": (
        {"epsilon": 1e-6, "beta2": 0.999},
        "pytorch_optimizer.ScalableShampoo, after the implementation of Anil et al. 2020",
    ),
    **dict.fromkeys(
        ("shampoo: KL", "shampoo: KL, roots every 3 steps"),
        ({"epsilon": 1.0, "beta2": 0.999}, "the identity; beta2 as Shampoo's"),
    ),
    "idealized_shampoo": ({"beta2": 0.999, "epsilon": 0.0}, "002 Lemma 6.1: no damping; beta2 as Shampoo's"),
    "soap": (
        {"beta1": 0.95, "beta2": 0.95, "shampoo_beta": 0.95, "epsilon": 1e-8, "weight_decay": 0.01},
        "Vyas et al. 2024; pytorch_optimizer.SOAP",
    ),
    "scion": (
        {"momentum": 0.9, "head_radius": 1.0, "weight_decay": 0.0},
        "pytorch_optimizer.SCION, whose momentum is 1 - mu; all radii equal",
    ),
    "spectral": (CURVATURE | {"rotation_rate": 0.05}, "003 Fig. 1: gamma 1 is a running mean; else " + OURS),
    "spectral_full": (CURVATURE | {"rotation_rate": 0.05}, "as spectral"),
    "spectral_diagonal": (CURVATURE, "as spectral"),
    "manifold_muon": ({"tangency_tolerance": 1e-6}, OURS),
    "symo": ({"factor_decay": 0.95, "cutoff": 1e-10}, OURS),
}
CITED = {
    "adagrad": torch.optim.Adagrad,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "ademamix": pytorch_optimizer.AdEMAMix,
    "adopt": pytorch_optimizer.ADOPT,
    "laprop": pytorch_optimizer.LaProp,
    "lion": pytorch_optimizer.Lion,
    "mars": pytorch_optimizer.MARS,
    "muon": pytorch_optimizer.NorMuon,
    "shampoo": pytorch_optimizer.ScalableShampoo,
    "soap": pytorch_optimizer.SOAP,
}
NAMES = {"eps": "epsilon", "matrix_eps": "epsilon", "initial_accumulator_value": "initial_accumulator"}


def default_of(label: str, name: str) -> float | None:
    """Return the table's default of a hyperparameter of an entry of the battery."""
    entry = BATTERY[label]
    if name == "learning_rate":
        return None
    if name == "others_ratio":
        return 1.0
    role, _, own = name.partition("_")
    if role in ("others", "grafting"):
        return DEFAULTS[str(entry.rule.chosen[role])][0][own]
    return DEFAULTS.get(label, DEFAULTS[entry.optimizer])[0][name]


@pytest.mark.parametrize("label", BATTERY)
def test_defaults_are_those_of_the_table(label: str) -> None:
    specs = BATTERY[label].rule.hyperparameters
    assert {name: spec.default for name, spec in specs.items()} == {
        name: default_of(label, name) for name in specs
    }


@pytest.mark.parametrize("label", DEFAULTS)
def test_the_table_has_nothing_else(label: str) -> None:
    entries = [entry for name, entry in BATTERY.items() if label in (name, entry.optimizer)]
    assert set(DEFAULTS[label][0]) <= {name for entry in entries for name in entry.rule.hyperparameters}


@pytest.mark.parametrize("rule", CITED)
def test_a_library_that_the_table_cites_has_these_defaults(rule: str) -> None:
    given = {name: each.default for name, each in signature(CITED[rule]).parameters.items()}
    theirs = {NAMES.get(name, name): value for name, value in given.items()}
    theirs |= dict(zip(("beta1", "beta2"), given.get("betas", ()), strict=False))
    ours = {name: value for name, value in DEFAULTS[rule][0].items() if theirs.get(name) is not None}
    assert ours
    assert ours == {name: theirs[name] for name in ours}
