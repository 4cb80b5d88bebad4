"""Options: one plain form, defaults, errors that say what would be right, and what they cost in state."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from curvebench.backends.numpy_ops import numpy_ops
from curvebench.engine.layout import layout
from curvebench.engine.program import Update
from curvebench.optimizers import rules
from curvebench.optimizers.adafactor import OPTIONS as ADAFACTOR
from curvebench.optimizers.options import Option, OptionError, complete
from curvebench.spec.values import choice, flag, whole
from curvebench.workloads.workload import Role
from tests.optimizers.paths import leaves

OPTIONS = {
    "way": Option("short", "which way", choice("short", "long")),
    "again": Option(False, "whether again", flag),
    "every": Option(None, "how often", whole(2, none="never")),
}
CHOOSABLE = [name for name, rule in rules().items() if rule.options]


def test_what_is_left_out_has_its_default() -> None:
    assert complete("walk", OPTIONS, {}) == {"way": "short", "again": False, "every": None}
    given = {"every": 3, "way": "long", "again": True}
    assert complete("walk", OPTIONS, given) == given
    assert complete("walk", OPTIONS, {"every": None})["every"] is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"wai": "short"}, r"walk has no option 'wai'; did you mean 'way'\? \(valid: way, again, every\)"),
        ({"way": "round"}, "walk: way = 'round' is not one of short, long"),
        ({"way": ["short"]}, r"walk: way = \['short'\] is not one of short, long"),
        ({"again": "yes"}, "walk: again = 'yes' is neither true nor false"),
        ({"again": 0}, "walk: again = 0 is neither true nor false"),
        ({"every": 1}, r"walk: every = 1 is not a whole number from 2 on, or null \(never\)"),
        ({"every": 2.0}, "walk: every = 2.0 is not a whole number"),
        ({"every": True}, "walk: every = True is not a whole number"),
    ],
)
def test_wrong_options_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        complete("walk", OPTIONS, given)


@pytest.mark.parametrize("optimizer", CHOOSABLE)
def test_a_rule_knows_what_was_chosen(optimizer: str) -> None:
    rule = rules()[optimizer]
    assert rule.chosen == {name: option.default for name, option in rule.options.items()}
    again = rule.choose(json.loads(json.dumps(rule.chosen)))
    assert (again.name, again.chosen, again.source) == (rule.name, rule.chosen, rule.source)
    for name, option in rule.options.items():
        assert option.description, name
        assert option.default is None or option.read(option.default) == option.default


@pytest.mark.parametrize("optimizer", [name for name, rule in rules().items() if not rule.options])
def test_a_rule_without_options_takes_none(optimizer: str) -> None:
    assert rules()[optimizer].choose({}) is rules()[optimizer]
    with pytest.raises(OptionError, match=f"{optimizer} has no option 'steps'.*valid: none"):
        rules()[optimizer].choose({"steps": 5})


OTHERS = "others = 'muon' is not one of adamw, adam, momentum, sgd"
NO_SIMPLEX = "mirror = 'entropy' needs domain = 'simplex' and not '{}'"
WRONG: dict[str, list[tuple[dict[str, Any], str]]] = {
    "adafactor": [({name: 1}, f"{name} = 1 is neither true nor false") for name in ADAFACTOR],
    "adam": [
        ({"amsgrad": value}, "amsgrad = .* is none of false, true and before_correction")
        for value in ("after", 1, None)
    ],
    "adam_nmf": [
        ({"rank": 0}, "rank = 0 is not a whole number from 1 on"),
        ({"rank": 1.5}, "rank = 1.5 is not a whole number from 1 on"),
        ({"steps": "both"}, "steps = 'both' is not one of alternating, simultaneous"),
        ({"step": "alternating"}, "did you mean 'steps'"),
    ],
    "mirror_descent": [
        ({"mirror": "burg"}, "mirror = 'burg' is not one of euclidean, entropy"),
        ({"domain": "cube"}, "domain = 'cube' is not one of space, ball, box, simplex"),
        ({"mirror": "entropy"}, NO_SIMPLEX.format("space")),
        *(
            ({"mirror": "entropy", "domain": domain}, NO_SIMPLEX.format(domain))
            for domain in ("space", "ball", "box")
        ),
    ],
    "regularized_update_descent": [
        ({"gradient": "here"}, "gradient = 'here' is not one of exact, polyak, nesterov")
    ],
    "muon": [
        ({"orthogonalization": "qr"}, "orthogonalization = 'qr' is not one of newton_schulz, svd"),
        ({"coefficients": "best"}, "coefficients = 'best' is not one of cubic, quintic, jordan"),
        ({"steps": 0}, "steps = 0 is not a whole number from 1 on"),
        ({"nesterov": 1}, "nesterov = 1 is neither true nor false"),
        ({"scale": "big"}, "scale = 'big' is not one of none, spectral, adam"),
        ({"others": "muon"}, OTHERS),
        ({"nesterow": True}, "did you mean 'nesterov'"),
    ],
    "shampoo": [
        ({"statistics": "mean"}, "statistics = 'mean' is not one of sum, ema"),
        ({"power": 0}, r"power = 0 is not a number in \(0, 1\], or null"),
        ({"power": True}, "power = True is not a number"),
        ({"power": "1/4"}, "power = '1/4' is not a number"),
        ({"power": 1.5}, "power = 1.5 is not a number"),
        ({"refresh_every": 0}, "refresh_every = 0 is not a whole number from 1 on"),
        ({"refresh_every": None}, "refresh_every = None is not a whole number from 1 on"),
        ({"refreshevery": 2}, "did you mean 'refresh_every'"),
        ({"block_size": 0}, r"block_size = 0 is not a whole number from 1 on, or null \(none is cut\)"),
        ({"grafting": "adamw"}, "grafting = 'adamw' is not one of none, sgd, adagrad, adam"),
    ],
    "soap": [
        ({"refresh_every": 0}, r"refresh_every = 0 is not a whole number from 1 on, or null \(never after"),
        ({"basis": "qr"}, "basis = 'qr' is not one of orthogonal_iteration, eigendecomposition"),
        ({"skip_first_step": 1}, "skip_first_step = 1 is neither true nor false"),
    ],
    "spectral": [
        *(({"power": value}, rf"power = {value} is outside \(0, inf\)") for value in (0, -2)),
        ({"power": "2"}, "power = '2' is not a number"),
        ({"exponential": "second_order"}, "exponential = 'second_order' is not one of exact, first_order"),
        ({"cayley": "neumann"}, "cayley = 'neumann' is not one of exact, truncated"),
        ({"normalized": 1}, "normalized = 1 is neither true nor false"),
        *(({"tie_tolerance": value}, rf"tie_tolerance = {value} is outside \[0, 1\)") for value in (-0.1, 1)),
        ({"refresh_every": 0}, "refresh_every = 0 is not a whole number from 1 on"),
        ({"start": "zero"}, "start = 'zero' is not one of identity, gradient"),
        *(
            ({"clipping": value}, f"clipping = {value!r} is not a number above 0, or null")
            for value in (0, -1.0, "none", float("inf"), True)
        ),
        ({"moves_with": "both"}, "moves_with = 'both' is not one of new, old"),
        (
            {"orthogonalize_every": 0},
            r"orthogonalize_every = 0 is not a whole number from 1 on, or null \(none\)",
        ),
        ({"others": "muon"}, OTHERS),
        ({"rotation_rate": 0.1}, "has no option 'rotation_rate'"),
    ],
    "spectral_full": [({"others": "sgd"}, "has no option 'others'")],
    "spectral_diagonal": [({"cayley": "exact"}, "has no option 'cayley'")],
    "trust_region_sphere": [({"norm": "l3"}, "norm = 'l3' is not one of l1, l2, linfinity")],
    "weight_normalization": [({"scale": "fixed"}, "scale = 'fixed' is not one of free, frozen")],
    "pin_to_sphere": [({"others": "muon"}, OTHERS)],
    "riemannian_sgd": [({"norm": "l2"}, "has no option 'norm'")],
    "steepest_descent": [
        ({"norm": "nuclear"}, "norm = 'nuclear' is not one of frobenius, max, spectral"),
        ({"principle": "mm"}, "principle = 'mm' is not one of trust_region, majoriz"),
    ],
    "kfac": [
        ({"fisher": "true"}, "fisher = 'true' is not one of sampled, expected, empirical, empirical_of_mean"),
        ({"factors_every": 0}, "factors_every = 0 is not a whole number from 1 on"),
        ({"inverses_every": 1.5}, "inverses_every = 1.5 is not a whole number from 1 on"),
        ({"others": "muon"}, OTHERS),
    ],
    "kfac_as_004": [({"fisher": "true"}, "fisher = 'true' is not one of sampled, expected, empirical")],
    "symo": [
        ({"group": "orthogonal"}, "group = 'orthogonal' is not one of signed, permutations"),
        ({"cross_layers": "no"}, "cross_layers = 'no' is neither true nor false"),
        ({"precision": "float32"}, "precision = 'float32' is not one of float64, any"),
    ],
    "sign_descent": [({"norm": "max"}, "has no option 'norm'")],
    "manifold_muon": [
        ({"orthogonalization": "qr"}, "orthogonalization = 'qr' is not one of newton_schulz, svd"),
        ({"dual_steps": 0}, "dual_steps = 0 is not a whole number from 1 on"),
        ({"others": "muon"}, OTHERS),
        ({"nesterov": True}, "has no option 'nesterov'"),
    ],
}


@pytest.mark.parametrize(
    ("optimizer", "options", "message"),
    [(optimizer, *wrong) for optimizer, several in WRONG.items() for wrong in several],
)
def test_wrong_options_of_rules_are_refused(optimizer: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=f"{optimizer}.*{message}"):
        rules()[optimizer].choose(options)


@pytest.mark.parametrize(
    ("optimizer", "shape", "options", "numbers"),
    [
        ("shampoo", (6, 4), {}, 2 * 36 + 2 * 16),
        ("shampoo", (6, 4), {"block_size": 2}, 6 * (2 * 4 + 2 * 4)),  # 6 of 2 x 2: 2 m n (b / n + b / m)
        ("shampoo", (6, 4), {"grafting": "adam"}, 2 * 36 + 2 * 16 + 2 * 24),
        ("soap", (6, 4), {}, 2 * 24 + 2 * 36 + 2 * 16),
        ("soap", (10_001, 2), {}, 2 * 20_002 + 2 * 4),
        ("soap", (6,), {}, 2 * 6),
        ("soap", (1, 6), {}, 2 * 6),
        ("soap", (), {}, 2),
        ("soap", (4, 3, 2, 2), {}, 2 * 48 + 2 * (16 + 9 + 4 + 4)),
        ("spectral", (6, 4), {"velocity": False}, 36 + 16 + 6 + 4 + 1),
        ("spectral", (6, 4), {}, 36 + 16 + 6 + 4 + 1 + 24),
        ("spectral", (4, 3, 2, 2), {"velocity": False}, 16 + 9 + 4 + 4 + 4 + 3 + 2 + 2 + 1),
        ("spectral", (6,), {}, 2 * 6),  # AdamW's
        ("spectral_full", (6, 4), {"velocity": False}, 24**2 + 24),
        ("spectral_full", (6, 4), {}, 24**2 + 2 * 24),
        ("spectral_diagonal", (6, 4), {"velocity": False}, 24),
        ("spectral_diagonal", (6, 4), {}, 2 * 24),
    ],
)
def test_state_sizes(optimizer: str, shape: tuple[int, ...], options: dict[str, Any], numbers: int) -> None:
    update = Update(rules()[optimizer].choose(options), layout({"w": shape}, {"w": Role("weight")}))
    state = update.init(numpy_ops("float64"), np.zeros((1, 1, int(np.prod(shape)))))
    assert sum(leaf.size for leaf in leaves(state)) == numbers
