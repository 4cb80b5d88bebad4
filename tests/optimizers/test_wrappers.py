"""Wrappers: exact cases, loops from the papers' equations, other libraries, and rules of all kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from curvebench import as_optax, as_torch
from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.backends.engine import engine
from curvebench.interop.replaying import Online
from curvebench.optimizers import rules
from curvebench.optimizers.arrays import map_arrays
from curvebench.optimizers.options import OptionError
from curvebench.optimizers.wrappers import WRAPPERS
from curvebench.registry import RULES, find_rule, origin
from curvebench.spec.errors import InputError
from curvebench.steps.layout import layout, roles_of
from curvebench.steps.update import Update
from tests.optimizers.oracles import Arrays, jax_float64
from tests.optimizers.paths import assert_paths_close, instance, leaves
from tests.optimizers.references import BATTERY

BACKENDS = ("numpy", "jax", "torch")
SHAPES: dict[str, tuple[int, ...]] = {"matrix": (3, 2), "vector": (4,), "one": (1,), "scalar": ()}
RATE = {"learning_rate": 0.1}
# Values of the wrappers' own hyperparameters that differ from the defaults.
OWN = {
    "cautious": {"cautious_offset": 1.0},
    "cautious_decay": {},
    "hyperball": {},
    "ema": {"ema_decay": 0.7},
    "tail": {"tail_share": 0.4},
    "schedule_free": {"schedule_free_beta": 0.8, "schedule_free_power": 1.0},
}
NUMBERS = [(name, number) for name, numbers in OWN.items() for number in numbers]


def run(
    locator: str,
    params: Arrays,
    grads: list[Arrays],
    hyper: Mapping[str, float] = RATE,
    backend: str = "numpy",
    schedule: Callable[[int], float] = lambda step: 1.0,
    **arguments: Any,
) -> tuple[list[Arrays], list[Arrays], list[Arrays]]:
    """Return three paths: iterates, the points at which the rule is judged, and those of gradients."""
    online = Online(find_rule(locator), params, hyper, backend, **arguments)
    iterates, judged, points = [], [], []
    for step, grad in enumerate(grads):
        points.append(online.gradient_at(schedule(step)))
        iterates.append(online.step(grad, schedule(step)))
        judged.append(online.evaluation_point)
    return iterates, judged, points


# --- cautious --------------------------------------------------------------------------------------


def test_steps_that_follow_the_gradient_are_not_changed():
    params, grads = instance(SHAPES)
    assert_paths_close(run("sgd+cautious", params, grads)[0], run("sgd", params, grads)[0], 1e-15)


def cautious_adamw(start: np.ndarray, grads: list[np.ndarray], hyper: Mapping[str, float]) -> np.ndarray:
    """Return the last iterate of cautious AdamW, whose weights decay before a step (2411.16085 Alg. 2)."""
    beta1, beta2, xi, rate = hyper["beta1"], hyper["beta2"], hyper["cautious_offset"], hyper["learning_rate"]
    w, m, v = start.copy(), np.zeros_like(start), np.zeros_like(start)
    for t, g in enumerate(grads, start=1):
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**2
        u = m / (1 - beta1**t) / (np.sqrt(v / (1 - beta2**t)) + hyper["epsilon"])
        phi = (u * g >= 0).astype(float)
        w = w * (1 - rate * hyper["weight_decay"]) - rate * w.size / (phi.sum() + xi) * phi * u
    return w


@pytest.mark.parametrize("backend", BACKENDS)
def test_cautious_adamw_is_that_of_the_paper(backend: str):
    params, grads = instance(SHAPES, seed=1)
    hyper = {"learning_rate": 0.1, "beta1": 0.8, "beta2": 0.9, "epsilon": 1e-3, "weight_decay": 0.3}
    hyper["cautious_offset"] = 1.0
    path = run("adamw+cautious", params, grads, hyper, backend)[0]
    for name, start in params.items():
        due = cautious_adamw(start, [grad[name] for grad in grads], hyper)
        np.testing.assert_allclose(path[-1][name], due, rtol=1e-12)


def test_a_step_against_the_gradient_everywhere_moves_nothing():
    params, grads = {"w": np.zeros(3)}, [{"w": np.ones(3)}, {"w": np.full(3, -0.1)}]
    path = run("momentum+cautious", params, grads, {**RATE, "cautious_offset": 0.0})[0]
    np.testing.assert_array_equal(path[0]["w"], path[1]["w"])


def test_a_run_that_diverged_stays_so():
    path = run("momentum+cautious", {"w": np.zeros(2)}, [{"w": np.array([np.nan, 1.0])}])[0]
    assert np.isnan(path[0]["w"]).any()


@pytest.mark.parametrize("backend", BACKENDS)
def test_wrappers_of_step_and_decay_act_together(backend: str):
    params, grads = instance(SHAPES, seed=9)
    hyper = {**RATE, "weight_decay": 0.5}
    paths = [
        run(f"adamw+{wrappers}", params, grads, hyper, backend)[0][-1]["matrix"]
        for wrappers in ("cautious+cautious_decay", "cautious_decay+cautious", "cautious", "cautious_decay")
    ]
    assert np.abs(paths[0] - paths[2]).max() > 1e-3
    assert np.abs(paths[0] - paths[3]).max() > 1e-3
    assert np.abs(paths[1] - paths[2]).max() > 1e-3


@pytest.mark.parametrize("backend", BACKENDS)
def test_cautious_decay_shrinks_only_what_the_step_moves_towards_zero(backend: str):
    params = {"w": np.array([1.0, 1.0, -1.0, -1.0])}
    grads = [{"w": np.array([1.0, -1.0, 1.0, -1.0])}]
    hyper = {"learning_rate": 0.1, "weight_decay": 0.5}
    ((plain,), _, _) = run("adamw", params, grads, {**hyper, "weight_decay": 0.0}, backend)
    ((found,), _, _) = run("adamw+cautious_decay", params, grads, hyper, backend)
    np.testing.assert_allclose(found["w"] - plain["w"], [-0.05, 0.0, 0.0, 0.05], atol=1e-15)


# --- hyperball -------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("rule", ["sgd", "adamw", "muon", "soap", "shampoo"])
def test_matrices_keep_their_norm_and_other_parameters_follow_the_rule(rule: str, backend: str):
    shapes = {"matrix": (4, 3), "other": (4, 3), "convolution": (2, 3, 2, 2), "vector": (4,), "zero": (3, 5)}
    params, grads = instance(shapes, seed=2, steps=5)
    params["zero"] *= 0
    iterates = run(f"{rule}+hyperball", params, grads, RATE, backend)[0]
    plain = run(rule, params, grads, RATE, backend)[0]
    for name in shapes:
        if name in ("vector", "zero"):
            np.testing.assert_allclose(iterates[-1][name], plain[-1][name], rtol=1e-12, atol=1e-14)
            continue
        radius = np.linalg.norm(params[name])
        assert abs(np.linalg.norm(iterates[-1][name]) - radius) < 1e-12
        assert np.abs(iterates[-1][name] - plain[-1][name]).max() > 1e-3


def test_hyperball_is_that_of_its_authors():
    """W <- R N(W - eta R N(u)) with momentum as u, and weight decay in u."""
    params, grads = instance({"w": (3, 2)}, seed=3)
    path = run("adamw+hyperball", params, grads, {**RATE, "beta1": 0.0, "beta2": 0.0, "weight_decay": 0.5})[0]
    w = params["w"]
    radius = np.linalg.norm(w)
    for grad, found in zip(grads, path, strict=True):
        u = grad["w"] / (np.abs(grad["w"]) + 1e-8) + 0.5 * w
        w = w - 0.1 * radius * u / np.linalg.norm(u)
        w = radius * w / np.linalg.norm(w)
        np.testing.assert_allclose(found["w"], w, rtol=1e-12)


# --- averages --------------------------------------------------------------------------------------


@pytest.mark.parametrize("locator", ["sgd", "adamw", "muon"])
@pytest.mark.parametrize(("wrapper", "number"), [("ema", {"ema_decay": 0.0}), ("tail", {"tail_share": 1e-9})])
def test_an_average_of_one_iterate_is_the_rule(locator: str, wrapper: str, number: Mapping[str, float]):
    params, grads = instance(SHAPES)
    plain = run(locator, params, grads)[0]
    iterates, judged, _ = run(f"{locator}+{wrapper}", params, grads, {**RATE, **number})
    assert_paths_close(iterates, plain, 0.0)
    assert_paths_close(judged, plain, 0.0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_averages_are_those_of_pytorch(backend: str):
    import torch
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    params, grads = instance(SHAPES)
    averages = {
        "ema": (0.7, lambda model: AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.7))),
        "tail": (1.0, AveragedModel),
    }
    for wrapper, (number, make) in averages.items():
        model = torch.nn.ParameterDict({name: torch.tensor(value) for name, value in params.items()})
        average = make(model)
        if wrapper == "ema":
            average.update_parameters(model)  # the first average is the start
        name = "ema_decay" if wrapper == "ema" else "tail_share"
        iterates, judged, _ = run(f"momentum+{wrapper}", params, grads, {**RATE, name: number}, backend)
        for iterate, found in zip(iterates, judged, strict=True):
            model.load_state_dict({key: torch.tensor(value) for key, value in iterate.items()})
            average.update_parameters(model)
            for key, due in average.module.items():
                np.testing.assert_allclose(found[key], due.detach().numpy(), rtol=1e-13, atol=1e-15)


def test_weights_of_a_tail_fall_with_the_age_of_an_iterate():
    """The iterate k of t has the weight 1 / (s k) times the product of 1 - 1 / (s j) over later j."""
    params, grads = instance({"w": (3,)}, steps=40)
    iterates, judged, _ = run("sgd+tail", params, grads, {**RATE, "tail_share": 0.25})
    newest = [min(1.0, 1 / (0.25 * t)) for t in range(1, 41)]
    weights = [c * np.prod([1 - later for later in newest[k + 1 :]]) for k, c in enumerate(newest)]
    assert sum(weights) == pytest.approx(1.0)
    due = sum(weight * iterate["w"] for weight, iterate in zip(weights, iterates, strict=True))
    np.testing.assert_allclose(judged[-1]["w"], due, rtol=1e-12)


# --- Schedule-Free ---------------------------------------------------------------------------------


def warm(step: int) -> float:
    return min(1.0, (step + 1) / 4)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("rule", ["sgd", "adam", "adamw"])
def test_schedule_free_is_that_of_optax(rule: str, backend: str):
    import jax.numpy as jnp
    import optax

    params, grads = instance(SHAPES, seed=4)
    own = {"schedule_free_beta": 0.8, "schedule_free_power": 1.5}
    _, judged, points = run(f"{rule}+schedule_free", params, grads, {**RATE, **own}, backend, warm)
    with jax_float64():

        def rate(count: Any) -> Any:
            return 0.1 * jnp.minimum(1.0, (count + 0.0) / 4)

        # Schedule-Free counts steps from 1, and its rules count them from 0.
        base = {
            "sgd": lambda: optax.sgd(lambda count: rate(count + 1)),
            "adam": lambda: optax.adam(lambda count: rate(count + 1), b1=0.0),
            "adamw": lambda: optax.adamw(lambda count: rate(count + 1), b1=0.0, weight_decay=0.01),
        }[rule]()
        transformation = optax.contrib.schedule_free(base, rate, b1=0.8, weight_lr_power=1.5)
        values: Any = {name: jnp.asarray(value) for name, value in params.items()}
        state = transformation.init(values)
        for grad, found, point in zip(grads, judged, points, strict=True):
            for name in SHAPES:
                np.testing.assert_allclose(point[name], values[name], rtol=1e-12, atol=1e-13)
            arrays = {name: jnp.asarray(value) for name, value in grad.items()}
            updates, state = transformation.update(arrays, state, values)
            values = optax.apply_updates(values, updates)
            due = optax.contrib.schedule_free_eval_params(state, values)
            for name in SHAPES:
                np.testing.assert_allclose(found[name], due[name], rtol=1e-12, atol=1e-13)


def test_schedule_free_replaces_momentum():
    for locator in ("adam+schedule_free", "muon+schedule_free"):
        defaults = {name: number.default for name, number in find_rule(locator).hyperparameters.items()}
        momenta = [name for name in defaults if name.removeprefix("others_") in ("beta1", "momentum")]
        assert momenta
        assert all(defaults[name] == 0.0 for name in momenta)


# --- any rule --------------------------------------------------------------------------------------


def wrapped(label: str, wrapper: str) -> bool:
    """Return whether a rule of the battery can be wrapped."""
    try:
        WRAPPERS[wrapper](BATTERY[label].rule)
    except OptionError:
        return False
    return True


# Rules of all scopes, and with parts, amortized work and needs
SOME = ("sgd", "adamw", "muon", "soap", "shampoo", "newton", "adagrad_full")
WRAPPED = [(label, wrapper) for label in BATTERY for wrapper in WRAPPERS if wrapped(label, wrapper)]


def test_what_cannot_be_wrapped():
    refused = {(label, name) for label in rules() for name in WRAPPERS} - {*WRAPPED}
    for label, name in refused:
        rule = rules()[label]
        assert (
            rule.scope == "named"
            or (name == "hyperball" and rule.scope == "model")
            or (name == "cautious_decay" and "weight_decay" not in rule.hyperparameters)
            or any(getattr(rule, point) is not None for point in WRAPPERS[name].sets)
        )
    assert ("nesterov_lookahead", "schedule_free") in refused
    with pytest.raises(OptionError, match="cautious cannot wrap kfac, which gets its parameters by name"):
        find_rule("kfac+cautious")
    with pytest.raises(OptionError, match=r"ema cannot wrap sgd-tail, which has a point of its own"):
        find_rule("sgd+tail+ema")


def test_a_locator_names_rule_and_wrappers():
    rule = find_rule("muon+cautious+ema").choose({"nesterov": False, "others": "sgd"})
    assert rule.name == "muon-cautious-ema"
    assert rule.chosen["nesterov"] is False
    assert {"cautious_offset", "ema_decay", "momentum"} <= rule.hyperparameters.keys()
    assert "others_beta1" not in rule.hyperparameters
    modules = origin(RULES, "muon+ema").modules
    assert modules == ("curvebench.optimizers.muon", "curvebench.optimizers.wrappers")
    with pytest.raises(InputError, match="curvebench has no wrapper 'emma'; did you mean 'ema'"):
        find_rule("sgd+emma")


@pytest.mark.parametrize(
    ("locator", "on_vectors", "on_networks"),
    [
        ("adamw+hyperball", "adamw", None),
        ("muon+hyperball", "adamw", None),
        ("shampoo+hyperball", "adagrad_full", None),
        ("muon+cautious", "adamw-cautious", None),
        ("soap+ema", "adam-ema", None),
        ("adamw+ema", None, None),
    ],
)
def test_a_wrapped_rule_says_which_method_it_is_on_a_model(
    locator: str, on_vectors: str | None, on_networks: str | None
):
    for shapes, known in (({"w": (4,)}, on_vectors), ({"w": (3, 2), "b": (3,)}, on_networks)):
        assert find_rule(locator).acts_as(shapes, roles_of(shapes)) == known


def test_an_average_is_not_given_to_libraries_that_do_not_know_it():
    import torch

    for make in (
        lambda: as_torch(find_rule("sgd+ema"), [torch.zeros(2)], learning_rate=0.1),
        lambda: as_optax(find_rule("sgd+tail"), learning_rate=0.1),
    ):
        with pytest.raises(InputError, match="is judged at an average of the parameters"):
            make()
    leaf = torch.nn.Parameter(torch.ones(3))
    leaf.grad = torch.ones(3)
    as_torch(find_rule("sgd+cautious"), [leaf], learning_rate=0.25).step()
    assert leaf.tolist() == [0.75] * 3


def test_only_wrappers_without_state_follow_a_basis_that_changes():
    lay = layout({"w": (3, 2)}, roles_of({"w": (3, 2)}))
    assert Update(find_rule("adam+cautious"), lay).check_change_of_basis() == ("first",)
    for wrapper in ("ema", "tail", "schedule_free", "hyperball"):
        with pytest.raises(OptionError, match="its state cannot go on in other coordinates"):
            Update(find_rule(f"adam+{wrapper}"), lay).check_change_of_basis()


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_wrapper_keeps_the_precision(wrapper: str, precision: str):
    params, grads = instance(SHAPES, steps=2)
    path = run(f"adamw+{wrapper}", params, grads, dtype=precision)[1]
    assert {array.dtype for arrays in path for array in arrays.values()} == {np.dtype(precision)}
    assert ("bfloat16" in find_rule(f"adamw+{wrapper}").dtypes) == wrapper.startswith("cautious")


@pytest.mark.parametrize(("wrapper", "number"), NUMBERS)
def test_every_hyperparameter_of_a_wrapper_matters(wrapper: str, number: str):
    params, grads = instance(SHAPES, seed=5)
    locator = f"momentum+{wrapper}"
    default = find_rule(locator).hyperparameters[number].default
    assert default is not None
    found = []
    for value in (default, OWN[wrapper][number]):
        online = Online(find_rule(locator), params, {**RATE, number: value})
        for step, noise in enumerate(grads):  # the gradient of |w|^2 / 2, with noise
            point = online.gradient_at(warm(step))
            online.step({name: point[name] + noise[name] for name in SHAPES}, warm(step))
        found.append(online.evaluation_point["matrix"])
    assert np.abs(found[0] - found[1]).max() > 1e-4


@pytest.mark.parametrize(
    ("label", "wrapper", "backend"),
    [(*pair, backend) for pair in WRAPPED for backend in BACKENDS if backend == "numpy" or pair[0] in SOME],
)
def test_lanes_of_a_wrapped_rule_are_runs_alone(label: str, wrapper: str, backend: str):
    entry = BATTERY[label]
    rule = WRAPPERS[wrapper](entry.rule)
    hyper = {**entry.hyper, **OWN[wrapper]}
    shapes = entry.shapes_or({"matrix": (3, 2), "other": (3, 2), "vector": (4,)})
    lay = layout(shapes, roles_of(shapes, entry.kinds))
    update, ops64 = Update(rule, lay), numpy_ops("float64")
    rng = np.random.default_rng(6)
    start, grads = rng.standard_normal((2, 3, lay.total)), rng.standard_normal((4, 2, 3, lay.total))
    made = None if backend == "numpy" else engine(backend, "float64")
    ops = ops64 if made is None else made.ops
    needs = entry.needs(lay.unflatten(ops64, start[0, 0]), 4)

    def on_lanes(value: np.ndarray) -> Any:
        return ops.broadcast_to(ops.asarray(value), (2, 3, *value.shape))

    with nullcontext() if made is None else made.context():
        values = {name: ops.asarray(np.full((1, 3, 1), value)) for name, value in hyper.items()}
        flat = ops.asarray(start)
        state = update.init(ops, flat)
        assert all(tuple(leaf.shape[:2]) == (2, 3) for leaf in leaves(state))
        shapes_before = [tuple(leaf.shape) for leaf in leaves(state)]
        for step in range(1, 5):
            numbers = {"step": ops.zeros((1, 1, 1)) + step, "schedule": ops.zeros((1, 1, 1)) + 1}
            if needs:
                numbers |= map_arrays(on_lanes, needs[step - 1])
            grad = ops.asarray(grads[step - 1])
            flat, state = update.apply(ops, grad, state, flat, {**values, **numbers}, update.work_of(step))
        assert [tuple(leaf.shape) for leaf in leaves(state)] == shapes_before
        judged = np.array(ops.to_numpy(update.evaluation_point(ops, state, flat)))
    for lane in ((0, 0), (1, 2)):
        online = Online(rule, lay.unflatten(ops64, start[lane]), hyper, kinds=entry.kinds)
        for step in range(4):
            arrays = lay.unflatten(ops64, grads[step][lane])
            online.step(arrays, 1.0, **(needs[step] if needs else {}))
        due = lay.flatten(ops64, online.evaluation_point, 0)
        np.testing.assert_allclose(judged[lane], due, rtol=1e-9, atol=1e-11)


# --- libraries that the environment need not have ----------------------------------------------------


@pytest.mark.parametrize(
    ("locator", "caution", "cautious_decay"),
    [
        ("adamw+cautious", True, False),
        ("adamw+cautious_decay", False, True),
        ("adamw+hyperball", False, False),
    ],
)
def test_steps_are_those_of_heavyball(
    locator: str,
    caution: bool,
    cautious_decay: bool,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
):
    utils = pytest.importorskip("heavyball.utils")
    import torch

    # It computes in float32 otherwise.
    monkeypatch.setattr(utils, "promote", lambda tensor: tensor)
    torch.set_default_dtype(torch.float64)
    request.addfinalizer(lambda: torch.set_default_dtype(torch.float32))
    params, grads = instance({"w": (4, 3)}, seed=7)
    hyper = {"learning_rate": 0.125, "beta1": 0.75, "beta2": 0.5, "epsilon": 0.0, "weight_decay": 0.25}
    path = run(locator, params, grads, hyper)[0]
    w, norm = torch.tensor(params["w"]), torch.tensor(params["w"]).norm()
    first = second = torch.zeros_like(w)
    for step, (grad, found) in enumerate(zip(grads, path, strict=True), start=1):
        g = torch.tensor(grad["w"])
        first, second = first + 0.25 * (g - first), second + 0.5 * (g**2 - second)
        u = first / (1 - 0.75**step) / (second / (1 - 0.5**step)).sqrt()
        if locator == "adamw+hyperball":
            utils.hyperball_step_([w], [u], [norm], 0.125, 0.25, False, [g])
        else:
            utils.update_param_([w], [u], 0.125, 0.25, caution, cautious_decay, [g])
        np.testing.assert_allclose(found["w"], w.numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("rule", ["sgd", "adamw"])
def test_schedule_free_is_that_of_its_authors(rule: str):
    library = pytest.importorskip("schedulefree")
    import torch

    params, grads = instance({"w": (4, 3)}, seed=8)
    leaf = torch.nn.Parameter(torch.tensor(params["w"]))
    if rule == "sgd":
        optimizer = library.SGDScheduleFree([leaf], lr=0.1, momentum=0.8, warmup_steps=4, foreach=False)
    else:
        numbers: dict[str, Any] = {"betas": (0.8, 0.9), "eps": 1e-3, "weight_decay": 0.2}
        optimizer = library.AdamWScheduleFree([leaf], lr=0.1, warmup_steps=4, foreach=False, **numbers)
    hyper = {**RATE, "schedule_free_beta": 0.8}
    hyper |= {} if rule == "sgd" else {"beta2": 0.9, "epsilon": 1e-3, "weight_decay": 0.2}
    judged = run(f"{rule}+schedule_free", params, grads, hyper, schedule=warm)[1]
    for grad, found in zip(grads, judged, strict=True):
        optimizer.train()
        leaf.grad = torch.tensor(grad["w"])
        optimizer.step()
        optimizer.eval()
        np.testing.assert_allclose(found["w"], leaf.detach().numpy(), rtol=1e-11, atol=1e-12)
