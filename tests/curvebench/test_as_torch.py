"""Rules as optimizers of PyTorch: the engine's own path, and everything that torch.optim promises."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.optim import lr_scheduler

import curvebench
from curvebench import as_torch
from curvebench.engine.schedules import multipliers
from curvebench.interop.torch_optimizer import MAX_STACKED_ENTRIES
from curvebench.optimizers import rules
from curvebench.optimizers.rule import LEARNING_RATE, Rule
from curvebench.spec.errors import InputError
from tests.optimizers.paths import assert_paths_close, instance, path_of_one
from tests.optimizers.references import BATTERY

Optimizer = Any


# --- every rule --------------------------------------------------------------------------------------

SHAPES: dict[str, tuple[int, ...]] = {
    "matrix": (3, 2),
    "twin": (3, 2),
    "convolution": (2, 3, 2, 2),
    "vector": (4,),
    "scalar": (),
}


drawn = partial(instance, SHAPES, steps=7)


def tensors(arrays: Mapping[str, np.ndarray]) -> Any:
    return torch.nn.ParameterDict({name: torch.tensor(array) for name, array in arrays.items()})


def give(params: Mapping[str, torch.Tensor], grads: Mapping[str, np.ndarray]) -> None:
    for name, param in params.items():
        param.grad = torch.tensor(grads[name], dtype=param.dtype)


def values(params: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray]:
    return {name: param.detach().numpy().copy() for name, param in params.items()}


def assert_at(params: Mapping[str, torch.Tensor], expected: Mapping[str, Any], rtol: float = 1e-12) -> None:
    """Check that parameters have the expected values; parameters without an expectation are not checked."""
    for name, value in expected.items():
        found = params[name].detach().numpy()
        np.testing.assert_allclose(found, value, rtol=rtol, atol=rtol / 100, err_msg=name)


@contextmanager
def refusal(params: Mapping[str, torch.Tensor], message: str) -> Iterator[None]:
    """Bad input is refused inside, and no parameter moves."""
    before = values(params)
    with pytest.raises(InputError, match=message):
        yield
    assert_at(params, before, 0.0)


@pytest.mark.parametrize(
    "label",
    [
        # options, which the battery has on PyTorch, meet nothing new here but a cadence
        pytest.param(
            label, marks=[] if label in rules() or "refresh_every" in entry.options else [pytest.mark.long]
        )
        for label, entry in BATTERY.items()
        if not entry.rule.needs
    ],
)
def test_every_rule_takes_the_steps_of_a_replay(label: str) -> None:
    """A rule that looks ahead is given the same gradients by a closure, which sees where it looks."""
    entry = BATTERY[label]
    start, grads = instance(entry.shapes_or(SHAPES), steps=7)
    start = entry.begun(start)
    given: dict[str, Any] = {"options": entry.options, "kinds": entry.kinds}
    online = curvebench.Online(entry.optimizer, start, entry.hyper, "torch", **given)
    params = tensors(start)
    optimizer = as_torch(entry.optimizer, params.items(), **given, **entry.hyper)
    for grad in grads:
        seen: list[dict[str, np.ndarray]] = []

        def closure(grad: Any = grad, seen: Any = seen) -> float:
            seen.append(values(params))
            give(params, grad)
            return 3.0

        point = online.gradient_at()
        expected = online.step(grad)
        assert optimizer.step(closure) == 3.0
        assert_paths_close([seen[0], values(params)], [point, expected], 1e-12)


# --- checkpoints -------------------------------------------------------------------------------------


class Case(NamedTuple):
    optimizer: str
    options: dict[str, Any]


CASES = [
    Case("adam", {}),
    Case("shampoo", {"refresh_every": 3}),
    Case("muon", {}),
    Case("adagrad_full", {}),
    Case("spectral", {"refresh_every": 2, "orthogonalize_every": 3}),
]


def begun(case: Case, steps: int) -> tuple[Any, Optimizer]:
    """Parameters and their optimizer after some steps."""
    params = tensors(drawn()[0])
    optimizer = made(case, params)
    go_on(params, optimizer, range(steps))
    return params, optimizer


def made(case: Case, params: Any, rate: float = 0.1) -> Optimizer:
    return as_torch(case.optimizer, params.items(), case.options, learning_rate=rate)


def go_on(params: Mapping[str, torch.Tensor], optimizer: Optimizer, steps: Iterable[int] = range(7)) -> None:
    for step in steps:
        give(params, drawn()[1][step])
        optimizer.step()


def assert_equal(model: Any, other: Any) -> None:
    """Check that all parameters of two modules are equal."""
    for (name, param), value in zip(model.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(param, value), name


Pair = tuple[Any, Optimizer]  # a module and what updates it
Make = Callable[[Any, float], Optimizer]  # gives an optimizer of a module at a learning rate


def by_a_file(pair: Pair, make: Make) -> Pair:
    """Copy a model and its optimizer through a file, into an optimizer with another learning rate."""
    file = io.BytesIO()
    torch.save([one.state_dict() for one in pair], file)
    file.seek(0)
    values, state = torch.load(file, weights_only=True)
    other = copy.deepcopy(pair[0])
    for param in other.parameters():
        torch.nn.init.zeros_(param)
    other.load_state_dict(values)
    optimizer = make(other, 0.5)
    optimizer.load_state_dict(state)
    assert optimizer.param_groups[0]["lr"] == pair[1].param_groups[0]["lr"]
    return other, optimizer


def by_loading(pair: Pair, make: Make) -> Pair:
    """`state_dict` holds the tensors themselves, and torch loads them without a copy."""
    other = copy.deepcopy(pair[0])
    optimizer = make(other, 0.5)
    optimizer.load_state_dict(pair[1].state_dict())
    return other, optimizer


WAYS = {
    "file": by_a_file,
    "load": by_loading,
    "copy": lambda pair, _: copy.deepcopy(pair),
    "pickle": lambda pair, _: pickle.loads(pickle.dumps(pair)),
}


def check_copies(
    begin: Callable[[int], Pair], go_on: Callable[..., None], make: Make, way: str, steps: int, last: int
) -> None:
    """Check that a copy made after some steps continues like the original, and that neither changes the
    other.
    """
    pair = begin(steps)
    others = WAYS[way](pair, make)
    go_on(*others, range(steps, last))
    assert_equal(pair[0], begin(steps)[0])
    go_on(*pair, range(steps, last))
    assert_equal(pair[0], others[0])


@pytest.mark.parametrize("steps", [0, 2, 3])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_copies_go_on_alone_and_bit_for_bit(case: Case, way: str, steps: int) -> None:
    """Also between two refreshes: the roots are kept, and the count of steps."""
    check_copies(partial(begun, case), go_on, partial(made, case), way, steps, last=7)


def test_a_checkpoint_holds_no_more_than_its_state() -> None:
    """Parameters are stacked for an update; no tensor of the state is a view of a stack."""
    params, optimizer = begun(CASES[1], 2)
    for state in optimizer.state.values():
        for value in state.values():
            assert value.untyped_storage().nbytes() == value.nbytes
    assert optimizer.state[params["matrix"]]["roots.0"].shape == (3, 3)
    _, optimizer = begun(CASES[0], 2)
    for param, state in optimizer.state.items():
        assert state["first"].shape == param.shape


def test_the_state_of_another_optimizer_is_refused() -> None:
    params, optimizer = begun(CASES[1], 1)
    for name, options in (("adam", {}), ("shampoo", {"refresh_every": 2})):
        other = as_torch(name, params.items(), options, learning_rate=0.1)
        with pytest.raises(InputError, match=r"to shampoo \(refresh_every 3\), and this optimizer is "):
            other.load_state_dict(optimizer.state_dict())
    foreign = torch.optim.Adam(params.values())
    with pytest.raises(InputError, match="belongs to another optimizer, and this optimizer is shampoo"):
        optimizer.load_state_dict(foreign.state_dict())
    params, optimizer = begun(CASES[2], 1)
    other = as_torch("muon", params.items(), kinds={"matrix": "embedding"}, learning_rate=0.1)
    other.load_state_dict(optimizer.state_dict())
    with pytest.raises(InputError, match=r"\(3, 2\) has .*velocity.*needs .*first.*of another kind"):
        other.step()


# --- groups and schedulers ---------------------------------------------------------------------------


def alone(
    name: str,
    optimizer: str,
    steps: Sequence[int] = range(3),
    options: Mapping[str, Any] | None = None,
    dtype: str = "float64",
    **hyper: Any,
) -> np.ndarray:
    """Return the last value of a parameter that an optimizer updates without the other parameters."""
    start, grads = drawn()
    given = [grads[step][name] for step in steps]
    return path_of_one(optimizer, start[name], given, hyper, options, "torch", dtype)[-1]


@pytest.mark.parametrize("key", ["lr", "learning_rate"])
def test_groups_have_hyperparameters_and_steps_of_their_own(key: str) -> None:
    params = tensors(drawn()[0])
    groups = [
        {"params": [params["matrix"]], "name": "head"},
        {"params": [params["vector"], params["scalar"]], key: 0.5, "beta1": 0.5},
    ]
    optimizer = as_torch("adam", groups, learning_rate=0.1, beta2=0.9)
    go_on(params, optimizer, range(2))
    optimizer.add_param_group({"params": params["twin"], key: 0.2})
    go_on(params, optimizer, range(2, 5))
    of_each: list[tuple[str, Sequence[int], dict[str, Any]]] = [
        ("matrix", range(5), {"learning_rate": 0.1}),
        ("vector", range(5), {"learning_rate": 0.5, "beta1": 0.5}),
        ("scalar", range(5), {"learning_rate": 0.5, "beta1": 0.5}),
        ("twin", range(2, 5), {"learning_rate": 0.2}),
    ]
    assert_at(
        params, {name: alone(name, "adam", steps, **hyper, beta2=0.9) for name, steps, hyper in of_each}
    )
    only = as_torch("sgd", [{"params": [torch.ones(2)], key: 0.5}])
    assert only.param_groups[0]["lr"] == 0.5


def test_a_scheduler_is_the_schedule_of_all_learning_rates() -> None:
    """The fallback rule of Muon has a rate of its own, which a study's schedule multiplies too."""
    start, grads = drawn()
    hyper = {"learning_rate": 0.02, "others_ratio": 0.5}
    schedule = multipliers({"name": "cosine"}, len(grads))
    params, online = tensors(start), curvebench.Online("muon", start, hyper, "torch")
    optimizer = as_torch("muon", params.items(), **hyper)
    scheduler = lr_scheduler.LambdaLR(optimizer, lambda step: schedule[min(step, len(grads) - 1)])
    for grad, multiplier in zip(grads, schedule, strict=True):
        give(params, grad)
        optimizer.step()
        scheduler.step()
        assert_at(params, online.step(grad, schedule=multiplier))


@pytest.mark.parametrize("by_name", [False, True])
def test_kinds_are_given_by_group_or_by_name(by_name: bool) -> None:
    """A table of embeddings is a matrix to the eye, and no matrix to muon."""
    params = tensors(drawn()[0])
    groups = [{"params": [params["matrix"]]}, {"params": [params["twin"]], "kind": "embedding"}]
    given: Any = (params.items(), None, {"twin": "embedding"}) if by_name else (groups,)
    optimizer = as_torch("muon", *given, learning_rate=0.1, others_ratio=0.1)
    go_on(params, optimizer, range(3))
    assert_at(params, {"matrix": alone("matrix", "muon", learning_rate=0.1)})
    assert_at(params, {"twin": alone("twin", "adamw", learning_rate=0.01)})


@pytest.mark.parametrize("kinds", [None, {"0.bias": "bias", "2.bias": "bias"}])
def test_biases_are_known_by_the_names_of_a_module(kinds: Any) -> None:
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)).double()
    optimizer = as_torch("symo", network.named_parameters(), None, kinds, learning_rate=0.01)
    network(torch.ones(1, 3, dtype=torch.float64)).square().sum().backward()
    before = network[0].bias.detach().clone()
    optimizer.step()
    assert not torch.equal(before, network[0].bias)
    unnamed = as_torch("symo", network.parameters(), learning_rate=0.01)
    with pytest.raises(InputError, match=r"'1' is a vector .*give it that kind"):
        unnamed.step()


def test_schedulers_change_the_learning_rate() -> None:
    """They change the learning rate and the momentum as for PyTorch's own optimizer."""
    ours, theirs = (tensors(drawn()[0]) for _ in range(2))
    pairs = [
        (ours, as_torch("momentum", ours.values(), learning_rate=0.2)),
        (theirs, torch.optim.SGD(theirs.values(), lr=0.2, momentum=0.9)),
    ]
    for params, optimizer in pairs:
        scheduler = lr_scheduler.OneCycleLR(optimizer, max_lr=0.4, total_steps=6)
        for step in range(5):
            go_on(params, optimizer, [step])
            scheduler.step()
    assert_at(ours, values(theirs))


# --- parameters and gradients ------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES[:3], ids=str)
def test_a_parameter_without_gradient_waits(case: Case) -> None:
    """Its twin goes on, and its own count does not: later it refreshes at its own steps."""
    start, grads = drawn()
    params = tensors(start)
    optimizer = as_torch(case.optimizer, params.items(), case.options, learning_rate=0.1)
    params["vector"].requires_grad_(False)
    for step, grad in enumerate(grads):
        give(params, grad)
        params["vector"].grad = None
        if step in (0, 3, 4):
            params["twin"].grad = None
        optimizer.step()
    np.testing.assert_array_equal(params["vector"].numpy(), start["vector"])
    assert params["vector"] not in optimizer.state
    assert [int(optimizer.state[params[name]]["step"]) for name in ("matrix", "twin")] == [7, 4]
    assert_at(params, {"twin": alone("twin", case.optimizer, (1, 2, 5, 6), case.options, learning_rate=0.1)})


def test_parameters_of_two_precisions_go_side_by_side() -> None:
    params = tensors(drawn()[0])
    params["twin"] = torch.nn.Parameter(params["twin"].detach().float())
    optimizer = made(CASES[1], params)
    go_on(params, optimizer)
    assert {value.dtype for name, value in optimizer.state[params["twin"]].items()} == {torch.float32}
    for name, dtype, tolerance in (("twin", "float32", 1e-5), ("matrix", "float64", 1e-12)):
        expected = alone(name, "shampoo", range(7), CASES[1].options, dtype, learning_rate=0.1)
        assert_at(params, {name: expected}, tolerance)


@pytest.mark.parametrize("case", CASES[:3], ids=str)
def test_parameters_and_gradients_may_be_views(case: Case) -> None:
    params = tensors(drawn()[0])
    for name, form in (("matrix", torch.empty(2, 3).T), ("twin", torch.empty(2, 3).T)):
        params[name] = torch.nn.Parameter(torch.empty_like(form, dtype=torch.float64).copy_(params[name]))
    held = params["convolution"].detach().contiguous(memory_format=torch.channels_last)
    params["convolution"] = torch.nn.Parameter(held)
    assert not any(params[name].is_contiguous() for name in ("matrix", "twin", "convolution"))
    optimizer = made(case, params)
    for grad in drawn()[1]:
        for name, param in params.items():
            param.grad = torch.empty_like(param).copy_(torch.tensor(grad[name]))
        optimizer.step()
    assert_at(params, values(begun(case, 7)[0]))


def test_large_parameters_are_updated_as_small_ones() -> None:
    """Above a size they are not stacked."""
    start, grads = instance(dict.fromkeys(("one", "two"), (MAX_STACKED_ENTRIES + 1, 1)), steps=2)
    params = tensors(start)
    optimizer = as_torch("adam", params.items(), learning_rate=0.1)
    for grad in grads:
        give(params, grad)
        optimizer.step()
    assert_at(params, curvebench.replay("adam", start, grads, {"learning_rate": 0.1}, "torch")[-1])


class Before(NamedTuple):
    param: Any  # the parameter before the last update
    grad: Any  # the gradient of the last update


def _init(ops: Any, param: Any) -> Before:
    return Before(param, param)


def _update(ops: Any, grad: Any, state: Before, param: Any, hyper: Any) -> tuple[Any, Before]:
    return param - hyper["learning_rate"] * (grad + state.grad + state.param), Before(param, grad)


# The state of this rule is a view of an array that other code overwrites.
REMEMBERS = Rule("remembers", "the tests", {"learning_rate": LEARNING_RATE}, _init, _update)


@pytest.mark.parametrize("names", [["matrix"], ["matrix", "twin"]], ids=["one", "stacked"])
def test_a_rule_of_ones_own_may_remember_parameters_and_gradients(names: list[str]) -> None:
    start, grads = drawn()
    params = tensors({name: start[name] for name in names})
    optimizer = as_torch(REMEMBERS, params.values(), learning_rate=0.5)
    copies, other = pickle.loads(pickle.dumps((params, optimizer)))
    for grad in grads:
        for some, one in ((params, optimizer), (copies, other)):
            one.zero_grad(set_to_none=False)
            for name, param in some.items():
                param.grad = torch.zeros_like(param) if param.grad is None else param.grad
                param.grad += torch.tensor(grad[name])
            one.step()
    assert_equal(params, copies)
    for name in names:
        point, before = start[name], Before(start[name], start[name])
        for grad in grads:
            point, before = _update(None, grad[name], before, point, {"learning_rate": 0.5})
        assert_at(params, {name: point})


def test_products_are_in_full_precision_and_settings_stay() -> None:
    """TF32, bfloat16 and autocast are for the model; a root of a matrix needs all digits."""
    start = {name: value for name, value in drawn()[0].items() if name in ("matrix", "twin")}

    def path() -> list[np.ndarray]:
        params = {name: torch.nn.Parameter(torch.tensor(value).float()) for name, value in start.items()}
        optimizer = as_torch("muon", params.values(), learning_rate=0.1)
        go_on(params, optimizer, range(3))
        return list(values(params).values())

    expected = path()
    before = torch.get_float32_matmul_precision()
    try:
        for precision in ("medium", "high", "highest"):
            torch.set_float32_matmul_precision(precision)
            with torch.autocast("cpu", torch.bfloat16):
                found = path()
                assert torch.is_autocast_enabled("cpu")
            assert torch.get_float32_matmul_precision() == precision
            assert torch.backends.cuda.matmul.allow_tf32 == (precision != "highest")
            np.testing.assert_array_equal(found, expected)
    finally:
        torch.set_float32_matmul_precision(before)


# --- closures and hooks ------------------------------------------------------------------------------


def test_a_closure_computes_the_loss_with_gradients() -> None:
    param = torch.nn.Parameter(torch.tensor([2.0]))
    optimizer = as_torch("sgd", [param], learning_rate=0.25)
    calls: list[str] = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))

    def closure() -> torch.Tensor:
        calls.append("closure")
        optimizer.zero_grad()
        loss = (param**2).sum()
        loss.backward()
        return loss

    with torch.no_grad():
        assert optimizer.step(closure).item() == 4.0
    assert param.item() == 1.0
    assert calls == ["before", "closure", "after"]
    optimizer.zero_grad()
    assert param.grad is None
    assert optimizer.step() is None
    assert param.item() == 1.0


def test_a_rule_that_looks_ahead_needs_a_closure() -> None:
    param = torch.nn.Parameter(torch.tensor([8.0]))
    optimizer = as_torch("nesterov_lookahead", [param], learning_rate=0.5, momentum=0.5)
    param.grad = torch.tensor([4.0])
    with pytest.raises(InputError, match=r"nesterov_lookahead takes its gradient at another point.*closure"):
        optimizer.step()
    seen = []

    def closure() -> float:
        seen.append(param.item())
        param.grad = torch.tensor([4.0])
        return 0.0

    optimizer.step(closure)
    optimizer.step(closure)
    assert seen == [8.0, 5.0]  # x = w - eta mu v (002 eq. 28)

    def failing() -> float:
        seen.append(param.item())
        raise RuntimeError("no loss here")

    with pytest.raises(RuntimeError, match="no loss here"):
        optimizer.step(failing)
    assert seen[2] != param.item() == 3.0


# --- rules that see the whole model ------------------------------------------------------------------


def test_a_rule_of_the_whole_model_sees_a_group_as_one_vector() -> None:
    start, grads = drawn()
    params = tensors(start)
    groups = [["matrix", "vector"], ["twin", "scalar", "convolution"]]
    optimizer = as_torch(
        "adagrad_full", [{"params": [params[name] for name in group]} for group in groups], learning_rate=0.1
    )
    params["convolution"].requires_grad_(False)
    for grad in grads:
        give(params, grad)
        params["convolution"].grad = None
        optimizer.step()
    np.testing.assert_array_equal(params["convolution"].detach(), start["convolution"])
    for names in (groups[0], groups[1][:2]):
        path = curvebench.replay(
            "adagrad_full",
            {name: start[name] for name in names},
            [{name: grad[name] for name in names} for grad in grads],
            {"learning_rate": 0.1},
            "torch",
        )
        assert_at(params, path[-1])


def test_the_vector_of_a_group_stays_the_same() -> None:
    params = tensors(drawn()[0])
    optimizer = as_torch("adagrad_norm", params.items(), learning_rate=0.1)
    give(params, drawn()[1][0])
    params["twin"].grad = None
    optimizer.step()
    params["twin"].grad = torch.ones_like(params["twin"])
    with refusal(params, "'twin' has a gradient, and had none"):
        optimizer.step()
    params["twin"].grad = params["vector"].grad = None
    with refusal(params, "'vector' has no gradient, and had one"):
        optimizer.step()
    optimizer.zero_grad()
    optimizer.step()  # no parameter has a gradient, so that there is nothing to do


def test_the_vector_of_a_group_has_one_precision() -> None:
    params = [torch.nn.Parameter(torch.ones(2, dtype=dtype)) for dtype in (torch.float32, torch.float64)]
    optimizer = as_torch("adagrad_norm", params, learning_rate=0.1)
    for param in params:
        param.grad = torch.ones_like(param)
    with pytest.raises(InputError, match="these are float32 on cpu, float64 on cpu; give each kind a group"):
        optimizer.step()


# --- what it says ------------------------------------------------------------------------------------


def test_a_group_that_is_refused_is_not_added() -> None:
    optimizer = as_torch("adam", [torch.nn.Parameter(torch.ones(2))], learning_rate=0.1)
    with pytest.raises(InputError, match="no entries"):
        optimizer.add_param_group({"params": [torch.ones(0)]})
    assert len(optimizer.param_groups) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lr": -0.1}, r"learning_rate = -0.1 is outside \(0, inf\)"),
        ({"learning_rate": 0.5}, "learning rate is its key 'lr', and not 'learning_rate'"),
    ],
)
def test_wrong_values_between_steps_are_refused_and_move_nothing(change: Any, message: str) -> None:
    params = tensors(drawn()[0])
    optimizer = as_torch(
        "adam", [{"params": [params["matrix"]]}, {"params": [params["vector"]]}], learning_rate=0.1
    )
    give(params, drawn()[1][0])
    optimizer.param_groups[1].update(change)
    with refusal(params, message):
        optimizer.step()


def test_a_sparse_gradient_is_refused() -> None:
    table = torch.nn.Embedding(5, 2, sparse=True)
    optimizer = as_torch("adam", table.named_parameters(), learning_rate=0.1)
    table(torch.tensor([1, 3])).sum().backward()
    with pytest.raises(InputError, match="'weight' has a sparse gradient; make it dense"):
        optimizer.step()
