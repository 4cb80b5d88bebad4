"""K-FAC on modules of PyTorch: steps as in the engine, statistics by single examples, limits of hooks."""

from __future__ import annotations

import copy
import gc
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from curvebench import Online, as_torch
from curvebench.interop import torch_layer_optimizer
from curvebench.interop.torch_layers import layer_sums
from curvebench.spec.errors import InputError
from curvebench.workloads.workload import Role
from tests.curvebench.test_as_torch import WAYS, assert_equal, check_copies
from tests.optimizers.test_kfac import NUMBERS, STEPS, bundle_of, parameters_of

Optimizer = Any
Tensor = Any


def step(optimizer: Optimizer, outputs: Tensor, targets: Tensor, drawn: Tensor) -> None:
    """Make a step on the cross entropy of outputs (examples, classes); if required, first observe the layers
    on sampled targets.
    """
    if optimizer.rule.chosen["fisher"] == "sampled" and optimizer.observes:
        with optimizer.observing():
            functional.cross_entropy(outputs, drawn).backward(retain_graph=True)
    optimizer.zero_grad()
    functional.cross_entropy(outputs, targets).backward()
    optimizer.step()


def assert_close(found: np.ndarray, expected: np.ndarray, name: str) -> None:
    error = np.abs(found - expected).max() / np.abs(expected).max()
    assert error < 1e-10, (name, error)


# --- the engine ----------------------------------------------------------------------------------------

CASES = [
    ("kfac", {"fisher": "sampled"}),
    ("kfac", {"fisher": "sampled", "factors_every": 2, "inverses_every": 3}),
    ("kfac", {"fisher": "empirical"}),
    ("kfac_as_004", {}),
]


@pytest.mark.parametrize(("name", "options"), CASES)
def test_a_perceptron_takes_the_steps_of_the_engine(name: str, options: dict[str, Any]):
    bundle = bundle_of(name, options, NUMBERS)
    assert bundle.orders is not None
    problem = bundle.problems[0]
    start = {key: torch.tensor(value) for key, value in problem.parameters.items()}
    features, labels = (torch.tensor(problem.splits["train"][key]) for key in ("features", "labels"))
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(inplace=True), nn.Linear(32, 10)).double()
    names = {"0.weight": "W1", "0.bias": "b1", "2.weight": "W2", "2.bias": "b2"}
    model.load_state_dict({key: start[value] for key, value in names.items()})
    optimizer = as_torch(name, model.named_parameters(), options, model=model, **NUMBERS)
    for number in range(STEPS):
        optimizer.param_groups[0]["lr"] = NUMBERS["learning_rate"] * bundle.schedule[number]
        order = torch.tensor(bundle.orders[number, 0])
        outputs = model(features[order])
        draws = torch.tensor(bundle.draws(0, number + 1).get("drawn targets", np.zeros((len(order), 10))))
        step(optimizer, outputs, labels[order], (outputs.detach() + draws).argmax(-1))
    expected = parameters_of(bundle, "torch")
    for key, param in model.named_parameters():
        assert_close(param.detach().numpy(), expected[names[key]][0, 0], key)


# --- examples one by one -------------------------------------------------------------------------------


class Net(nn.Module):  # type: ignore[misc]  # torch has no types here
    """Convolutions, a linear layer on tokens that is called twice, a norm, and a table that is no layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 3, 3, padding="same")
        self.second = nn.Conv2d(3, 4, (3, 2), stride=(2, 1), padding=(1, 0), bias=False)
        self.tokens = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)
        self.position = nn.Parameter(torch.ones(3 * 4, 4) / 7)
        self.head = nn.Linear(4, 5)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.second(self.relu(self.first(images))).flatten(2).mT + self.position
        tokens = self.tokens(self.relu(self.tokens(tokens)))
        return self.head(self.norm(tokens).mean(1))

    def by_hand(self, image: Tensor) -> tuple[Tensor, list[tuple[str, Tensor, Tensor]]]:
        """Outputs (1, 5) of an image (1, 2, 5, 5), and each layer's rows and output."""
        padded = functional.pad(image, (1, 1, 1, 1))
        first = functional.conv2d(padded, self.first.weight, self.first.bias)
        uses = [("first", functional.unfold(padded, 3)[0].T, first)]
        seen = first.relu()
        second = functional.conv2d(seen, self.second.weight, stride=(2, 1), padding=(1, 0))
        patches = functional.unfold(seen, (3, 2), stride=(2, 1), padding=(1, 0))[0].T
        uses.append(("second", patches, second))
        tokens = second.flatten(2).mT + self.position
        once = tokens @ self.tokens.weight.T + self.tokens.bias
        twice = once.relu() @ self.tokens.weight.T + self.tokens.bias
        uses += [("tokens", tokens[0], once), ("tokens", once.relu()[0], twice)]
        pooled = functional.layer_norm(twice, (4,), self.norm.weight, self.norm.bias).mean(1)
        outputs = pooled @ self.head.weight.T + self.head.bias
        return outputs, [*uses, ("head", pooled, outputs)]


LAYERS = ("first", "second", "tokens", "head")
EXAMPLES = 6


def net() -> Net:
    torch.manual_seed(3)
    return Net().double()


def batch(number: int) -> tuple[Tensor, Tensor, Tensor]:
    """Images, targets and the noise by which targets are drawn."""
    random = torch.Generator().manual_seed(number)
    images = torch.randn(EXAMPLES, 2, 5, 5, generator=random, dtype=torch.float64)
    labels = torch.randint(5, (EXAMPLES,), generator=random)
    return images, labels, torch.rand(EXAMPLES, 5, generator=random).log().neg().log().neg()


def statistics(model: Net, images: Tensor, targets: Tensor) -> dict[str, dict[str, np.ndarray]]:
    """Return the factors A and G of K-FAC for each layer, by loops over examples and rows."""
    sums: dict[str, list[Any]] = {name: [0.0, 0.0, 0] for name in LAYERS}
    for image, target in zip(images, targets, strict=True):
        outputs, uses = model.by_hand(image[None])
        loss = functional.cross_entropy(outputs, target[None])
        gradients = torch.autograd.grad(loss, [output for _, _, output in uses])
        for (name, rows, _), gradient in zip(uses, gradients, strict=True):
            columns = (
                gradient.flatten(2)[0].T if gradient.ndim == 4 else gradient.reshape(-1, gradient.shape[-1])
            )
            for a, g in zip(rows.detach().numpy(), columns.numpy(), strict=True):
                entering = a if name == "second" else np.append(a, 1.0)
                sums[name][0] = sums[name][0] + np.outer(entering, entering)
                sums[name][1] = sums[name][1] + np.outer(g, g) / EXAMPLES
                sums[name][2] += 1
    return {f"{name}.weight": {"inputs": a / rows, "gradients": g} for name, (a, g, rows) in sums.items()}


def online(model: Net, options: dict[str, Any]) -> Online:
    """Return the rule K-FAC as `Online`, at the parameters of a model."""
    kinds: dict[str, Role] = {name: Role("vector", 9) for name, _ in model.named_parameters()}
    for number, name in enumerate(LAYERS):
        kinds[f"{name}.weight"] = Role("convolution" if number < 2 else "weight", number)
        kinds[f"{name}.bias"] = Role("bias", number)
    del kinds["second.bias"]
    start = {name: param.detach().numpy().copy() for name, param in model.named_parameters()}
    return Online("kfac", start, NUMBERS, "numpy", options=options, kinds=kinds)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("fisher", ["sampled", "empirical"])
def test_a_convolutional_net_takes_the_steps_of_examples_one_by_one(fisher: str, parts: int):
    """Also where the examples of a step come in several backward passes, each a part of the mean."""
    model = net()
    options = {"fisher": fisher, "factors_every": 2}
    optimizer = as_torch("kfac", model.named_parameters(), options, model=model, **NUMBERS)
    expected = online(model, options)
    for number in range(5):
        images, targets, noise = batch(number)
        outputs = torch.cat([model.by_hand(image[None])[0] for image in images])
        drawn = (outputs.detach() + noise).argmax(-1)
        seen = statistics(model, images, drawn if fisher == "sampled" else targets)
        loss = functional.cross_entropy(outputs, targets)
        grads = torch.autograd.grad(loss, list(model.parameters()))
        names = [name for name, _ in model.named_parameters()]
        by_name = {name: grad.numpy() for name, grad in zip(names, grads, strict=True)}
        after = expected.step(by_name, layers=seen)
        optimizer.zero_grad()
        for part in torch.arange(EXAMPLES).chunk(parts):
            outputs = model(images[part])
            if fisher == "sampled" and optimizer.observes:
                with optimizer.observing():
                    (functional.cross_entropy(outputs, drawn[part]) / parts).backward(retain_graph=True)
            (functional.cross_entropy(outputs, targets[part]) / parts).backward()
        optimizer.step()
        for name, param in model.named_parameters():
            assert_close(param.detach().numpy(), after[name], name)


# --- checkpoints ---------------------------------------------------------------------------------------

OPTIONS = {"factors_every": 2, "inverses_every": 3}


def kfac(model: Net, rate: float = NUMBERS["learning_rate"]) -> Optimizer:
    hyper = {**NUMBERS, "learning_rate": rate}
    return as_torch("kfac", model.named_parameters(), OPTIONS, model=model, **hyper)


def begun(steps: int) -> tuple[Net, Optimizer]:
    """Return a net and its optimizer after some steps."""
    model = net()
    optimizer = kfac(model)
    go_on(model, optimizer, range(steps))
    return model, optimizer


def go_on(model: Net, optimizer: Optimizer, steps: range) -> None:
    for number in steps:
        images, targets, noise = batch(number)
        outputs = model(images)
        step(optimizer, outputs, targets, (outputs.detach() + noise).argmax(-1))


@pytest.mark.parametrize("steps", [0, 1, 2])
@pytest.mark.parametrize("way", WAYS)
def test_copies_go_on_alone_and_bit_for_bit(way: str, steps: int):
    check_copies(begun, go_on, kfac, way, steps, last=5)


# --- a perceptron --------------------------------------------------------------------------------------


def perceptron() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()


def trained(model: nn.Module, *optimizers: Optimizer) -> nn.Module:
    """Return the model after three steps."""
    for number in range(3):
        random = torch.Generator().manual_seed(number)
        x = torch.randn(8, 4, generator=random, dtype=torch.float64)
        model.zero_grad()
        functional.cross_entropy(model(x), torch.arange(8) % 3).backward()
        for optimizer in optimizers:
            optimizer.step()
    return model


def empirical(model: nn.Module, params: Any, **given: Any) -> Optimizer:
    return as_torch("kfac", params, {"fisher": "empirical"}, model=model, **{**NUMBERS, **given})


# --- when layers are observed --------------------------------------------------------------------------


@pytest.fixture
def observed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the layers whose statistics are computed, one after the other."""
    seen: list[str] = []

    def counted(ops: Any, layer: Any, *arrays: Any) -> Any:
        seen.append(layer.name)
        return layer_sums(ops, layer, *arrays)

    monkeypatch.setattr(torch_layer_optimizer, "layer_sums", counted)
    return seen


@pytest.mark.parametrize("fisher", ["sampled", "empirical"])
def test_statistics_are_computed_only_at_steps_that_observe(fisher: str, observed: list[str]):
    model = net()
    options = {"fisher": fisher, "factors_every": 3}
    optimizer = as_torch("kfac", model.named_parameters(), options, model=model, **NUMBERS)
    for number in range(5):
        assert optimizer.observes == (number in (0, 3))
        go_on(model, optimizer, range(number, number + 1))
        calls = ["head", "tokens", "tokens", "second", "first"] if number in (0, 3) else []
        assert observed == calls, number
        observed.clear()


def test_copies_and_models_of_optimizers_that_are_gone_are_not_observed(observed: list[str]):
    model, optimizer = begun(0)
    images, targets, _ = batch(0)

    def backward(of: Net) -> None:
        functional.cross_entropy(of(images), targets).backward()

    with optimizer.observing():
        backward(copy.deepcopy(model))
        with torch.no_grad():
            model(images)
        model.tokens(torch.ones(1, 4).double()).sum().backward()  # not by the model itself
    backward(model)
    assert not observed
    del optimizer
    gc.collect()
    backward(model)
    assert not observed


def test_gradients_that_are_cleared_leave_no_statistics():
    runs = []
    for passes in (1, 2):
        model = net()
        options = {"fisher": "empirical"}
        optimizer = as_torch("kfac", model.named_parameters(), options, model=model, **NUMBERS)
        for number in range(passes):
            images, targets, _ = batch(passes - number)
            optimizer.zero_grad()
            functional.cross_entropy(model(images), targets).backward()
        optimizer.step()
        runs.append(model)
    assert_equal(*runs)


def test_sums_are_in_full_precision_under_autocast():
    """Of bfloat16 activations, in the parameters' float32."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    options = {"fisher": "empirical"}
    optimizer = as_torch("kfac", model.named_parameters(), options, model=model, learning_rate=0.1)
    x = torch.randn(16, 4)
    with torch.autocast("cpu", torch.bfloat16):
        model(x).square().mean().backward()
        optimizer.step()
    rows = torch.column_stack([x, torch.ones(16)])
    found = optimizer.state[model[0].weight]["factors.0.inputs"] / (1 - 0.95)
    torch.testing.assert_close(found, rows.T @ rows / 16, rtol=1e-5, atol=1e-5)


class Recomputed(nn.Module):  # type: ignore[misc]  # torch has no types here
    """A perceptron whose hidden layers are computed again in the backward pass."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.layers, x, use_reentrant=False)


# A warning that torch itself causes when it compiles.
@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.parametrize("way", [Recomputed, partial(torch.compile, backend="aot_eager")])
def test_compiled_and_recomputed_models_take_the_same_steps(way: Any):
    plain, other = perceptron(), perceptron()
    trained(plain, empirical(plain, plain.parameters()))
    model = way(other)
    watched = model if isinstance(model, Recomputed) else other
    trained(model, empirical(watched, other.parameters()))
    assert_equal(plain, other)


# --- groups and kinds ----------------------------------------------------------------------------------


OTHER = {"learning_rate": 0.5, "factor_decay": 0.1}


def test_a_layer_counts_the_examples_that_came_through_it():
    """Two heads, each called on a batch of its own: each has the statistics of its batch."""

    class Heads(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = nn.Linear(3, 2).double(), nn.Linear(3, 2).double()

        def forward(self, x: Tensor, name: str) -> Tensor:
            return getattr(self, name)(x)

    generator = torch.Generator().manual_seed(0)
    batches = {
        name: torch.randn(size, 3, generator=generator).double() for name, size in (("one", 4), ("other", 9))
    }
    start = Heads()
    moved = []
    for names in (("one",), ("one", "other")):
        model = copy.deepcopy(start)
        given = [pair for pair in model.named_parameters() if pair[0].split(".")[0] in names]
        optimizer = as_torch("kfac", given, {"fisher": "empirical"}, model=model, learning_rate=0.1)
        for name in names:
            batch = batches[name]
            targets = torch.zeros(len(batch), dtype=torch.long)
            functional.cross_entropy(model(batch, name), targets).backward()
        optimizer.step()
        moved.append(model.one.weight.detach().numpy())
    assert_close(moved[1], moved[0], "one.weight")


def test_groups_have_hyperparameters_of_their_own():
    """As two optimizers have, each on its own layer of the model."""
    one, two = perceptron(), perceptron()
    group = {"params": two[2].named_parameters("2"), **OTHER}
    optimizers = empirical(one, one[0].parameters()), empirical(one, one[2].parameters(), **OTHER)
    trained(one, *optimizers)
    trained(two, empirical(two, [{"params": two[0].named_parameters("0")}, group]))
    assert_equal(one, two)
    alike = perceptron()
    trained(alike, empirical(alike, alike.parameters()))
    assert not torch.equal(one[2].weight, alike[2].weight)


def test_a_bias_that_is_frozen_is_no_column_of_its_layer():
    frozen, without = perceptron(), perceptron()
    nn.init.zeros_(frozen[0].bias).requires_grad_(False)
    without[0].bias = None
    for model in (frozen, without):
        trained(model, empirical(model, model.parameters()))
    for number in (0, 2):
        torch.testing.assert_close(frozen[number].weight, without[number].weight, rtol=1e-12, atol=1e-12)


def test_what_updates_each_parameter_is_told():
    model = perceptron()
    model[0].bias.requires_grad_(False)
    frozen = empirical(model, model.parameters())
    assert frozen.updated_by == dict.fromkeys(("0.weight", "2.weight", "2.bias"), "kfac")
    groups = [{"params": [model[0].weight, model[2].bias]}, {"params": [model[2].weight]}]
    assert empirical(model, groups).updated_by == {"0.weight": "kfac", "2.bias": "adamw", "2.weight": "kfac"}


def test_a_layer_of_another_kind_is_left_to_the_others(observed: list[str]):
    model = net()
    kinds = {"head.weight": "embedding"}
    hyper = {**NUMBERS, "others_ratio": 0.25 / NUMBERS["learning_rate"]}
    optimizer = as_torch("kfac", model.named_parameters(), {"others": "sgd"}, kinds, model=model, **hyper)
    left = {name for name, rule in optimizer.updated_by.items() if rule == "sgd"}
    assert left == {"head.weight", "head.bias", "norm.weight", "norm.bias", "position"}
    before = model.head.weight.detach().clone()
    go_on(model, optimizer, range(1))
    assert torch.equal(model.head.weight, before - 0.25 * model.head.weight.grad)
    assert set(observed) == {"first", "second", "tokens"}


def test_a_group_without_layers_is_refused():
    model = perceptron()
    weights, biases = [model[0].weight, model[2].weight], [model[0].bias, model[2].bias]
    optimizer = empirical(model, [{"params": weights}, {"params": biases}])
    with pytest.raises(InputError, match=r"\(6,\), \(3,\) has no weight"):
        trained(model, optimizer)
    assert_equal(model, perceptron())


# --- what is refused -----------------------------------------------------------------------------------


class Tied(nn.Module):  # type: ignore[misc]  # torch has no types here
    def __init__(self) -> None:
        super().__init__()
        self.table, self.body, self.head = nn.Embedding(5, 4), nn.Linear(4, 4), nn.Linear(4, 5)
        self.head.weight = self.table.weight


def made(model: nn.Module, name: str = "kfac", options: Any = None, **given: Any) -> Optimizer:
    return as_torch(name, model.named_parameters(), options, model=model, learning_rate=0.1, **given)


@pytest.mark.parametrize(("layer", "shape"), [(nn.Linear(3, 2), (3,)), (nn.Conv2d(2, 3, 3), (2, 5, 5))])
def test_an_example_without_an_axis_of_examples_is_refused(layer: nn.Module, shape: tuple[int, ...]):
    model = nn.Sequential(layer)
    optimizer = empirical(model, model.named_parameters())
    assert optimizer.observes
    with pytest.raises(InputError, match=r"the layer '0' .* give the model a batch"):
        model(torch.zeros(shape))
    with torch.no_grad():
        model(torch.zeros(shape))


def test_a_tied_weight_may_be_left_to_the_others():
    assert made(Tied(), kinds={"table.weight": "embedding"}).observes


@pytest.mark.parametrize(
    ("fisher", "message"),
    [
        ("sampled", r"the layer 'first' has no statistics: .* sampled from the model inside `with optimizer"),
        ("empirical", "the layer 'first' has no statistics: .* on the data before the step, .* the model as"),
    ],
)
def test_a_step_without_statistics_is_refused_and_moves_nothing(fisher: str, message: str):
    model = net()
    optimizer = made(model, options={"fisher": fisher})
    images, targets, _ = batch(0)
    functional.cross_entropy(model.forward(images), targets).backward()  # past the hooks of the model
    with pytest.raises(InputError, match=message):
        optimizer.step()
    assert_equal(model, net())


def test_a_rule_without_layers_does_not_look_at_the_model():
    model = nn.Linear(2, 2)
    optimizer = as_torch("adam", model.parameters(), model=model, learning_rate=0.1)
    assert not model._forward_hooks
    assert not hasattr(optimizer, "observing")
