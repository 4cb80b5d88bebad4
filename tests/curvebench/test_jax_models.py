"""Models of JAX, Flax, Equinox and Haiku in a user's file: runs equal loops by hand, roles, and errors."""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from curvebench.backends.engine import engine
from curvebench.engine.bundle import Bundle
from curvebench.engine.execution import execute
from curvebench.interop import models
from curvebench.planning.model_comparison import locator_of
from curvebench.registry import find_rule, find_workload
from curvebench.spec.errors import InputError
from curvebench.workloads.workload import Workload
from tests.curvebench.engine.test_execution import make_bundle
from tests.curvebench.user_files import HERE

STEPS = 20
RATES = (0.02, 0.05)
Model = tuple[Any, Any]


class Hand(NamedTuple):
    """A model by hand: its settings, its functions in the style of its library, and its output layer.

    Args:
        locator: file and name of the model.
        settings: settings of the workload.
        start: `start(key) -> (params, state)`.
        loss: `loss(params, state, batch, key) -> (loss, new state)`; the key is None in evaluation.
        head: path of the weight of the output layer.
        outputs: axis of a weight that counts outputs.
    """

    locator: str
    settings: dict[str, Any]
    start: Callable[[Any], Model]
    loss: Callable[[Any, Any, Any, Any], Model]
    head: str
    outputs: int = 1


def user_module(name: str, *libraries: str) -> Any:
    for library in libraries:
        pytest.importorskip(library)
    return importlib.import_module(f"tests.curvebench.user_files.{name}")


def recurrent() -> Hand:
    module = user_module("jax_rnn")

    def loss(params: Any, state: Any, batch: Any, key: Any) -> Model:
        return module.loss(params, batch), state

    return Hand("jax_rnn.py", {"train": "sums(60)"}, lambda key: (module.init(key), {}), loss, "outputs")


def recurrent_with_state() -> Hand:
    module = user_module("jax_rnn")

    def loss(params: Any, state: Any, batch: Any, key: Any) -> Model:
        given = jax.random.key(0) if key is None else key
        return module.noisy_loss(params, batch, state, given, key is not None)

    settings = {"train": "sums(60)", "loss": "noisy_loss"}
    return Hand("jax_rnn.py:init_with_state", settings, module.init_with_state, loss, "outputs")


def linen() -> Hand:
    module = user_module("flax_networks", "flax")
    network = module.Linen()

    def start(key: Any) -> Model:
        variables = network.init(key, jnp.zeros((4, 5)), training=False)
        return variables["params"], variables["batch_stats"]

    def loss(params: Any, state: Any, batch: Any, key: Any) -> Model:
        x, y = batch
        variables = {"params": params, "batch_stats": state}
        if key is None:
            outputs, new = network.apply(variables, x, training=False), {"batch_stats": state}
        else:
            rngs = {"dropout": key}
            outputs, new = network.apply(variables, x, training=True, mutable=["batch_stats"], rngs=rngs)
        return optax.softmax_cross_entropy_with_integer_labels(outputs, y).mean(), new["batch_stats"]

    return Hand("flax_networks.py:Linen", {"train": "points(60)"}, start, loss, "Dense_1")


def nnx() -> Hand:
    module = user_module("flax_networks", "flax")
    from flax import nnx

    def start(key: Any) -> Model:
        network = module.Nnx(rngs=nnx.Rngs(key))
        return nnx.state(network, nnx.Param), nnx.state(network, nnx.BatchStat)

    def loss(params: Any, state: Any, batch: Any, key: Any) -> Model:
        network = module.Nnx(rngs=nnx.Rngs(0))
        nnx.update(network, params, state)
        network.eval()
        if key is not None:
            network.train()
            # The first leaf of the state of random numbers is a counter, the second the key.
            network.dropout.rngs.key.set_value(jax.random.split(jax.random.fold_in(key, 1), ()))
        return module.loss_of_nnx(network, batch), nnx.state(network, nnx.BatchStat)

    settings = {"train": "points(60)", "loss": "loss_of_nnx"}
    return Hand("flax_networks.py:Nnx", settings, start, loss, "classes")


def equinox() -> Hand:
    module = user_module("equinox_networks", "equinox")
    import equinox as eqx

    _, static = eqx.partition(module.perceptron(key=jax.random.key(0)), eqx.is_array)

    def start(key: Any) -> Model:
        return eqx.filter(module.perceptron(key=key), eqx.is_array), None

    def loss(params: Any, state: Any, batch: Any, key: Any) -> Model:
        return module.loss(eqx.combine(params, static), batch), state

    return Hand("equinox_networks.py:perceptron", {"train": "points(60)"}, start, loss, "layers[2]", 0)


def equinox_with_state() -> Hand:
    module = user_module("equinox_networks", "equinox")
    import equinox as eqx

    make = eqx.nn.make_with_state(module.Normalized)
    _, static = eqx.partition(make(key=jax.random.key(0))[0], eqx.is_array)

    def start(key: Any) -> Model:
        network, state = make(key=key)
        return eqx.filter(network, eqx.is_array), state

    def loss(params: Any, state: Any, batch: Any, key: Any) -> Model:
        network = eqx.combine(params, static)
        if key is None:
            network, key = eqx.nn.inference_mode(network), jax.random.key(0)
        return module.loss_with_state(network, batch, state, key)

    settings = {"train": "points(60)", "loss": "loss_with_state"}
    return Hand("equinox_networks.py:Normalized", settings, start, loss, "outer", 0)


def haiku() -> Hand:
    module = user_module("haiku_network", "haiku")
    import haiku as hk

    network = hk.transform_with_state(lambda batch, training: module.loss(module.Network(), batch, training))

    def start(key: Any) -> Model:
        examples = [jnp.asarray(array[:4]) for array in module.points(60)]
        return network.init(key, examples, True)

    def loss(params: Any, state: Any, batch: Any, key: Any) -> Model:
        return network.apply(params, state, jax.random.key(0) if key is None else key, batch, key is not None)

    return Hand("haiku_network.py:Network", {"train": "points(60)"}, start, loss, "linear_1")


HANDS = [recurrent, recurrent_with_state, linen, nnx, equinox, equinox_with_state, haiku]


def bound(locator: str, **settings: Any) -> tuple[Workload, dict[str, Any]]:
    """Return the workload of a model at its settings, and all settings."""
    workload = find_workload(f"jax:{HERE / locator}")
    complete = workload.complete(settings)
    return workload.at(complete), complete


def runs(hand: Hand, rule: str, seeds: tuple[int, ...] = (0,), rates: tuple[float, ...] = RATES) -> Bundle:
    """Return runs of a model on minibatches, evaluated after every step."""
    workload, settings = bound(hand.locator, **hand.settings, batch_size=10)
    return make_bundle(
        workload,
        find_rule(rule),
        seeds,
        rates,
        basis=False,
        steps=STEPS,
        given=settings,
        evaluations=STEPS,
        settings=settings,
    )


def losses_of(bundle: Bundle) -> np.ndarray:
    """Return the training loss after each step, (steps + 1, seeds, settings)."""
    return execute(bundle, engine("jax", "float64")).metrics["train_loss"]


def muon(rate: Any, momentum: float, outputs: int) -> optax.GradientTransformation:
    """Return Muon by hand: Nesterov momentum, five steps of Newton-Schulz, and the scale of its author."""

    def direction(velocity: Any, grad: Any) -> Any:
        matrix = grad + momentum * velocity
        matrix = matrix.T if outputs else matrix
        x = matrix / jnp.linalg.norm(matrix)
        for _ in range(5):
            square = x @ x.T
            x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
        x = math.sqrt(max(1, x.shape[0] / x.shape[1])) * x
        return x.T if outputs else x

    def update(grads: Any, state: Any, params: Any = None) -> Any:
        velocity = jax.tree.map(lambda grad, mean: grad + momentum * mean, grads, state[0])
        directions = jax.tree.map(direction, velocity, grads)
        return jax.tree.map(lambda x: -rate(state[1]) * x, directions), (velocity, state[1] + 1)

    return optax.GradientTransformation(lambda params: (jax.tree.map(jnp.zeros_like, params), 0), update)


def optimizer_of(bundle: Bundle, hand: Hand) -> optax.GradientTransformation:
    """Return the rule of a bundle's first lane as a transformation of Optax."""
    values = {name: float(value[0]) for name, value in bundle.hyperparameters.items()}

    def adamw(prefix: str = "", ratio: float = 1.0) -> optax.GradientTransformation:
        numbers = [values[f"{prefix}{name}"] for name in ("beta1", "beta2", "epsilon")]
        rate = scheduled(values["learning_rate"] * ratio)
        return optax.adamw(rate, *numbers, weight_decay=values[f"{prefix}weight_decay"])

    def scheduled(rate: float) -> Callable[[Any], Any]:
        return lambda count: rate * jnp.asarray(bundle.schedule)[count]

    def label(path: Any, leaf: Any) -> str:
        is_hidden = leaf.ndim == 2 and leaf.shape[0] > 1 and hand.head not in jax.tree_util.keystr(path)
        return "matrices" if is_hidden else "others"

    if bundle.rule.name == "adamw":
        return adamw()
    matrices = muon(scheduled(values["learning_rate"]), values["momentum"], hand.outputs)
    return optax.multi_transform(
        {"matrices": matrices, "others": adamw("others_", values["others_ratio"])},
        lambda params: jax.tree_util.tree_map_with_path(label, params),
    )


def losses_by_hand(bundle: Bundle, hand: Hand) -> list[float]:
    """Return the losses of the first lane of a bundle by a plain loop."""

    def as_double(tree: Any) -> Any:
        arrays = jax.tree.map(np.asarray, tree)
        return jax.tree.map(lambda x: jnp.asarray(x, float if x.dtype.kind == "f" else x.dtype), arrays)

    def nested(rows: Any = slice(None)) -> Any:
        arrays = [jnp.asarray(array[rows]) for array in bundle.problems[0].splits["train"].values()]
        return dict(zip("xy", arrays, strict=True)) if hand.locator.startswith("jax_rnn") else tuple(arrays)

    optimizer = optimizer_of(bundle, hand)
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        key = jax.random.key(int(bundle.randoms[0]("parameters").integers(2**63)))
        with jax.enable_x64(False):
            start = hand.start(key)
        params, state = as_double(start)
        optimizer_state = optimizer.init(params)
        losses = [hand.loss(params, state, nested(), None)[0]]
        gradient = jax.jit(jax.value_and_grad(hand.loss, has_aux=True))
        for step in range(STEPS):
            assert bundle.orders is not None
            words = bundle.draws(0, step + 1)["seeds"][0] if bundle.is_random else (0, 0)
            key = jax.random.wrap_key_data(jnp.asarray(words, jnp.uint32))
            (_, state), grads = gradient(params, state, nested(bundle.orders[step, 0]), key)
            updates, optimizer_state = optimizer.update(grads, optimizer_state, params)
            params = optax.apply_updates(params, updates)
            losses.append(hand.loss(params, state, nested(), None)[0])
    return [float(loss) for loss in losses]


@pytest.mark.parametrize("rule", ["adamw", "muon"])
@pytest.mark.parametrize("make", HANDS, ids=lambda make: make.__name__)
def test_a_run_equals_a_loop_by_hand(make: Callable[[], Hand], rule: str):
    hand = make()
    bundle = runs(hand, rule)
    expected = losses_by_hand(bundle, hand)
    assert len({*expected}) == STEPS + 1
    np.testing.assert_allclose(losses_of(bundle)[:, 0, 0], expected, rtol=1e-12)


@pytest.mark.parametrize("make", [recurrent, recurrent_with_state, nnx], ids=lambda make: make.__name__)
def test_lanes_equal_single_runs(make: Callable[[], Hand]):
    bundle = runs(make(), "muon", (0, 1))
    together = losses_of(bundle)
    for seed in range(2):
        for rate in range(2):
            single = bundle.subset(slice(seed, seed + 1), slice(rate, rate + 1))
            np.testing.assert_allclose(losses_of(single)[:, 0, 0], together[:, seed, rate], rtol=1e-12)


def test_random_numbers_differ_between_steps_and_seeds_but_not_between_settings():
    bundle = runs(recurrent_with_state(), "sgd", (0, 1), (1e-300, 2e-300))
    words = [bundle.draws(seed, step)["seeds"].tolist() for seed in (0, 1) for step in (1, 2)]
    assert len({str(word) for word in words}) == 4
    # Steps are too short to change a parameter; the loss changes with the running scale of random inputs.
    losses = losses_of(bundle)
    np.testing.assert_allclose(losses[..., 0], losses[..., 1], rtol=1e-15)
    assert len({*losses[:, 0, 0]}) == STEPS + 1
    np.testing.assert_array_equal(losses_of(bundle), losses)


ROLES = {
    "Transformer": {
        "tokens.embedding": ("embedding", (7, 8)),
        "position": ("embedding", (5, 8)),
        "norm.scale": ("norm", (8,)),
        "norm.bias": ("norm", (8,)),
        "attention.query.kernel": ("weight", (8, 8)),
        "attention.query.bias": ("bias", (2, 4)),
        "attention.out.kernel": ("weight", (8, 8)),
        "hidden.kernel": ("weight", (8, 8)),
    },
    "Recurrent": {
        "cell.hf.kernel": ("weight", (4, 4)),
        "cell.hf.bias": ("bias", (4,)),
        "cell.if.kernel": ("weight", (4, 2)),
        "classes.kernel": ("head", (3, 4)),
        "classes.bias": ("bias", (3,)),
    },
    "Convolutional": {
        "image.kernel": ("convolution", (4, 2, 3, 2)),
        "image.bias": ("bias", (4,)),
        "hidden.kernel": ("weight", (6, 100)),
        "classes.kernel": ("head", (3, 6)),
        "classes.bias": ("bias", (3,)),
    },
}


DATA = {"Transformer": "tokens(9)", "Recurrent": "sequences(9)", "Convolutional": "images(9)"}


@pytest.mark.parametrize("name", ROLES)
def test_operations_decide_the_roles_and_shapes_of_parameters(name: str):
    user_module("flax_networks", "flax")
    workload, settings = bound(f"flax_networks.py:{name}", train=DATA[name], batch_size=3)
    roles, shapes = workload.roles(settings), workload.shapes_at(settings)
    assert ROLES[name].items() <= {key: (role.kind, shapes[key]) for key, role in roles.items()}.items()
    order = [key for key in roles if key in ROLES[name]]
    assert order == list(ROLES[name])
    assert workload.mapped == (name != "Convolutional")
    sample = workload.sample_parameters(settings, np.random.default_rng(0))
    assert {key: array.shape for key, array in sample.items()} == shapes
    assert all(array.dtype == np.float64 for array in sample.values())


def test_versions_of_the_libraries_that_a_file_imports_belong_to_its_hash():
    user_module("flax_networks", "flax")
    assert models.packages(f"jax:{HERE / 'flax_networks.py'}:Linen") == ("flax", "jax", "numpy", "optax")


@pytest.mark.parametrize(
    ("imports", "expected"),
    [("import flax", "jax:"), ("import jax, torch", "both torch and jax"), ("import numpy", "neither")],
)
def test_the_imports_of_a_file_decide_its_library(imports: str, expected: str, tmp_path: Path):
    path = tmp_path / "own.py"
    path.write_text(imports)
    if expected.endswith(":"):
        assert locator_of(str(path), "Network") == f"{expected}{path}:Network"
    else:
        with pytest.raises(InputError, match=f"imports {expected}.*; write torch:.* or jax:"):
            locator_of(str(path), "")


def test_metrics_of_a_model_are_evaluated():
    given = {"train": "sums(60)", "test": "sums(20, seed=1)", "metrics": "errors", "minimize": ["error"]}
    hand = recurrent()._replace(settings=given)
    metrics = execute(runs(hand, "sgd"), engine("jax", "float64")).metrics
    assert {*metrics} == {"train_loss", "train_error", "test_loss", "test_error"}
    assert (metrics["test_error"] ** 2 < metrics["test_loss"]).all()


def test_a_data_set_is_read_example_by_example(monkeypatch: pytest.MonkeyPatch):
    resident = runs(recurrent(), "adamw")
    given = {"train": "Rows(60)", "evaluated_at_once": 25}
    monkeypatch.setattr(models, "MAX_RESIDENT_BYTES", 0)
    streamed = runs(recurrent()._replace(settings=given), "adamw")
    assert streamed.workload.streamed
    np.testing.assert_allclose(losses_of(streamed), losses_of(resident), rtol=1e-12)


REFUSED = {
    "no init": ("init", "start", "has no function 'init' (valid: sums, Rows"),
    "another key": ("def init(key, ", "def init(rng, ", "init: takes rng, hidden; name its random key `key`"),
    "no arrays": ('"bias": jnp.zeros(hidden)', '"bias": "none"', "init: returns bias of type str"),
    "whole numbers": ("jnp.zeros(hidden)", "jnp.zeros(hidden, int)", "init: returns bias of type int32"),
    "no number": (
        "return jnp.mean((predicted",
        "return ((predicted",
        "loss: returns an array of shape (4,)",
    ),
    "a mistake": ("jax.random.split(key, 3)", "jax.random.splits(key)", "init: fails (AttributeError"),
    "a pair": ("** 2)\n", "** 2), params\n", "loss: returns tuple, which is no array; return one number"),
    "NumPy": ("return jnp.tanh(", "return np.tanh(", "loss: fails (TracerArrayConversionError"),
    "three arguments": (
        "def loss(params, batch):",
        "def loss(params, x, y):",
        "loss: takes params, x, y; it",
    ),
}


@pytest.mark.parametrize(("old", "new", "message"), REFUSED.values(), ids=REFUSED)
def test_a_model_is_refused_with_its_file_and_a_remedy(old: str, new: str, message: str, tmp_path: Path):
    path = tmp_path / "own.py"
    text = (HERE / "jax_rnn.py").read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(InputError, match=f"own.py.*{re.escape(message)}") as raised:
        bound(str(path), train="sums(60)")
    assert "jax_model.py" not in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1
