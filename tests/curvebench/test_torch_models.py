"""Models of PyTorch as workloads: equal to plain loops of PyTorch, and what is refused before a run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from curvebench import as_torch
from curvebench.backends.engine import engine
from curvebench.basis_estimation.gradients import GradientSampling, sampler
from curvebench.engine.bundle import Bundle
from curvebench.engine.execution import execute
from curvebench.interop.files import load_file
from curvebench.interop.models import SEEDS
from curvebench.registry import find_rule, find_workload
from curvebench.seeding import WorkloadRandom, batch_order
from curvebench.spec.job import HOST
from curvebench.stages.basis_jobs import _engine_of
from tests.curvebench.user_files import user_file

STEPS, BATCH = 20, 6


class Case(NamedTuple):
    """A model of the file, the settings of its workload, whether lanes are mapped, and some of its roles."""

    model: str
    settings: dict[str, Any]
    mapped: bool
    roles: dict[str, str]


CASES = (
    Case("GRU", {"loss": "sum_loss", "train": "Adding(20)"}, False, {"recurrent.weight_hh_l0": "weight"}),
    Case("UNet", {"loss": "mask_loss", "train": "images(20)"}, True, {"up.0.weight": "convolution"}),
    Case("GPT", {"loss": "next_word_loss", "train": "text(20)"}, True, {"token.weight": "embedding"}),
    Case(
        "GraphNetwork",
        {"loss": "graph_loss", "train": "graphs(20)", "metrics": "graph_metrics", "maximize": ["accuracy"]},
        True,
        {"layers.1.weight": "weight", "out.weight": "head", "out.bias": "bias"},
    ),
    Case(
        "Autoencoder",
        {"loss": "two_term_loss", "train": "points(20)", "metrics": "reconstruction", "minimize": ["error"]},
        False,
        {"encoder.0.weight": "weight"},
    ),
    Case("Line", {"loss": "squared_loss", "train": "sums(20)"}, True, {"linear.weight": "weight"}),
    Case("Normalized", {"loss": "label_loss", "train": "labelled(20)"}, False, {"layers.1.weight": "norm"}),
    Case("Shared", {"loss": "label_loss", "train": "labelled(20)"}, False, {"first.weight": "weight"}),
    Case("Scaled", {"loss": "label_loss", "train": "labelled(20)"}, False, {}),
    Case(
        "Read",
        {"loss": "label_loss", "train": "labelled(20)", "metrics": "plain_metrics", "maximize": ["accuracy"]},
        False,
        {},
    ),
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "torch_models.py"
    path.write_text(user_file("torch_models.py"))
    return path


# The fallback of Muon steps by 0.001, so that rounding grows little.
HYPER = {"adamw": {"learning_rate": 0.003}, "muon": {"learning_rate": 0.003, "others_ratio": 1 / 3}}


def bundle_of(locator: str, settings: dict[str, Any], rule: str, seeds: int = 1, **hyper: Any) -> Bundle:
    workload = find_workload(locator)
    complete = workload.complete({"batch_size": BATCH, **settings})
    bound = workload.at(complete)
    randoms = [WorkloadRandom(bound.name, seed) for seed in range(seeds)]
    found = find_rule(rule)
    values = {**found.complete({}, tuple(hyper)), **hyper}
    count = len(np.atleast_1d(hyper["learning_rate"]))
    return Bundle(
        workload=bound,
        rule=found,
        problems=[bound.problem(complete, random) for random in randoms],
        orders=np.stack([batch_order(random, 20, BATCH, STEPS) for random in randoms], axis=1),
        hyperparameters={name: np.resize(value, count) for name, value in values.items()},
        schedule=np.ones(STEPS),
        evaluations=STEPS,
        settings=complete,
        randoms=randoms,
    )


def by_hand(bundle: Bundle, file: Path, case: Case, rule: str) -> dict[str, list[float]]:
    """Train the model of a bundle with one lane by a loop as in PyTorch's tutorials."""
    users = vars(load_file(file))
    module, problem = users[case.model]().double(), bundle.problems[0]
    arrays = {name: torch.tensor(value) for name, value in {**problem.parameters, **problem.state}.items()}
    module.load_state_dict(arrays, strict=False)
    loss, rate = users[case.settings["loss"]], float(bundle.hyperparameters["learning_rate"][0])
    if rule == "adamw":
        optimizer: Any = torch.optim.AdamW(module.parameters(), lr=rate)
    else:
        kinds = {name: role.kind for name, role in bundle.workload.roles(bundle.settings).items()}
        optimizer = as_torch(rule, module.named_parameters(), kinds=kinds, **HYPER[rule])
    data = users[case.settings["train"].partition("(")[0]](20)
    examples = data if isinstance(data, torch.utils.data.Dataset) else None

    def batch(numbers: Any) -> Any:
        if examples is not None:
            nested = torch.utils.data.default_collate([examples[int(number)] for number in numbers])
        else:
            nested = torch.utils._pytree.tree_map(lambda leaf: leaf[numbers], data)
        return torch.utils._pytree.tree_map(
            lambda leaf: leaf.double() if leaf.is_floating_point() else leaf, nested
        )

    def measured() -> dict[str, float]:
        module.eval()
        everything = batch(torch.arange(20))
        with torch.no_grad():
            values = {"loss": loss(module, everything)}
            if "metrics" in case.settings:
                values |= users[case.settings["metrics"]](module, everything)
        module.train()
        return {f"train_{name}": float(value) for name, value in values.items()}

    rows = [measured()]
    assert bundle.orders is not None
    for step, numbers in enumerate(bundle.orders[:, 0], start=1):
        optimizer.zero_grad()
        if bundle.workload.noise is not None:
            seed = int(bundle.draws(0, step)[SEEDS][0, 0])
            torch.manual_seed(seed)
            np.random.seed(seed)  # noqa: NPY002 (a model draws from it)
        loss(module, batch(torch.tensor(numbers).long())).backward()
        optimizer.step()
        rows.append(measured())
    return {name: [row[name] for row in rows] for name in rows[0]}


@pytest.mark.parametrize("rule", HYPER)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.model)
def test_a_run_equals_a_loop_of_pytorch(case: Case, rule: str, file: Path):
    bundle = bundle_of(f"torch:{file}:{case.model}", case.settings, rule, **HYPER[rule])
    metrics = execute(bundle, engine("torch", "float64")).metrics
    expected = by_hand(bundle, file, case, rule)
    assert metrics.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(metrics[name][:, 0, 0], values, rtol=1e-12, atol=1e-14)
    assert expected["train_loss"][-1] < expected["train_loss"][0]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.model)
def test_check_finds_out_what_can_be_mapped_and_the_roles(case: Case, file: Path):
    workload = find_workload(f"torch:{file}:{case.model}")
    settings = workload.complete({"batch_size": BATCH, **case.settings})
    bound = workload.at(settings)
    assert bound.mapped == case.mapped
    roles = bound.roles(settings)
    assert {name: roles[name].kind for name in case.roles} == case.roles
    assert roles.keys() == bound.shapes_at(settings).keys()


@pytest.mark.parametrize("case", [case for case in CASES if case.mapped], ids=lambda case: case.model)
def test_lanes_of_a_mapped_model_equal_single_runs(case: Case, file: Path):
    rates = [0.003, 0.01, 0.03]
    bundle = bundle_of(f"torch:{file}:{case.model}", case.settings, "adamw", seeds=2, learning_rate=rates)
    together = execute(bundle, engine("torch", "float64")).metrics["train_loss"]
    for seed in range(2):
        for setting in range(3):
            part = bundle.subset(slice(seed, seed + 1), slice(setting, setting + 1))
            single = execute(part, engine("torch", "float64")).metrics["train_loss"]
            np.testing.assert_allclose(together[:, seed, setting], single[:, 0, 0], rtol=1e-12, atol=1e-14)


def test_draws_differ_by_step_and_agree_between_settings(file: Path):
    settings = {"loss": "label_loss", "train": "labelled(20)"}
    bundle = bundle_of(f"torch:{file}:Normalized", settings, "sgd", learning_rate=[0.01, 0.01])
    seeds = {int(bundle.draws(0, step)[SEEDS][0, 0]) for step in range(1, 21)}
    assert len(seeds) == 20
    losses = [
        execute(bundle.subset(slice(0, 1), slice(n, n + 1)), engine("torch", "float64")).metrics["train_loss"]
        for n in range(2)
    ]
    np.testing.assert_array_equal(*losses)


def test_a_basis_is_estimated_from_gradients_of_the_module(file: Path):
    settings = {"loss": "label_loss", "train": "labelled(20)", "rate": 0.0}
    bundle = bundle_of(f"torch:{file}:Normalized", settings, "sgd", learning_rate=[0.01])
    workload, random, problem = bundle.workload, WorkloadRandom("any", 0), bundle.problems[0]
    job: Any = SimpleNamespace(
        spec=SimpleNamespace(backend=HOST),
        engine=lambda precision, backend, device: engine(backend, precision),
    )
    used, _ = _engine_of(job, workload)
    sampling = GradientSampling(workload, bundle.settings, 3)
    gradients = list(sampler(sampling, used, problem, random)(problem, random))
    rng, order = random("egop sampling"), batch_order(random, 20, BATCH, 3, purpose="egop batches")
    users = vars(load_file(file))
    inputs, labels = users["labelled"](20)
    for number, sampled in enumerate(gradients):
        module = users["Normalized"](rate=0.0).double()
        drawn = workload.sample_parameters(bundle.settings, rng)
        module.load_state_dict({name: torch.tensor(value) for name, value in drawn.items()}, strict=False)
        users["label_loss"](module, (inputs[order[number]].double(), labels[order[number]])).backward()
        for name, parameter in module.named_parameters():
            np.testing.assert_allclose(sampled[name][0], parameter.grad, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        ("Missing", {}, "has no model 'Missing'"),
        ("Normalized", {"loss": "label_loss"}, "train: is missing"),
        ("Normalized", {"loss": "labelled_loss", "train": "labelled(20)"}, "no loss 'labelled_loss'"),
        ("Normalized", {"loss": "vector_loss", "train": "labelled(20)"}, "return one number, such as a mean"),
        ("Normalized", {"loss": "penalized_loss", "train": "labelled(20)"}, "than in a loop of PyTorch"),
        ("Normalized", {"loss": "float_loss", "train": "labelled(20)"}, "returns float, which is no array"),
        ("Normalized", {"loss": "label_loss", "train": "undetermined(20)"}, "gives other data at each call"),
        ("GRU", {"loss": "sum_loss", "train": "Adding(20)", "hidden": -1}, r"GRU: fails .ValueError.*, line"),
        ("Normalized", {"loss": "label_loss", "train": "labelled(2 * 10)"}, "neither a name"),
        ("Normalized", {"loss": "label_loss", "train": "labelled(20)", "depth": 3}, "depth"),
        ("Normalized", {"loss": "label_loss", "train": "noisy(20)"}, "gives other data at each call"),
        ("Normalized", {"loss": "label_loss", "train": "labelled(0)"}, "has no examples"),
        ("Normalized", {"loss": "label_loss", "train": "swapped(20)"}, "number 3, that is nested in another"),
        (
            "Normalized",
            {"loss": "label_loss", "train": "labelled(20)", "validation": "graphs(20)"},
            "validation: graphs.20. is nested in another way than labelled",
        ),
        (
            "Normalized",
            {"loss": "label_loss", "train": "labelled(20)", "metrics": "plain_metrics", "maximize": ["loss"]},
            "loss is the name of the loss",
        ),
        (
            "GraphNetwork",
            {"loss": "graph_loss", "train": "graphs(20)", "metrics": "graph_metrics", "maximize": ["f1"]},
            "accuracy, f1 is returned or declared",
        ),
        *(
            (name, {"loss": "label_loss", "train": "labelled(20)"}, message)
            for name, message in (
                ("Counting", "self.calls changes in a call"),
                ("Remembering", "a repeated call gives another result"),
                ("Overwriting", "change the minibatch in place"),
                ("Lazy", "has lazy layers"),
                ("Sparse", "words.weight has sparse gradients"),
            )
        ),
        (
            "GPT",
            {"loss": "next_word_loss", "train": "text(20)", "roles": {"tokens.*": "embedding"}},
            "matches no parameter",
        ),
    ],
)
def test_a_wrong_setting_is_refused(model: str, settings: dict[str, Any], message: str, file: Path):
    def roles() -> Any:
        workload = find_workload(f"torch:{file}:{model}")
        complete = workload.complete({"batch_size": BATCH, **settings})
        return workload.at(complete).roles(complete)

    with pytest.raises(ValueError, match=message):
        roles()


def test_arguments_of_the_model_are_settings(file: Path):
    workload = find_workload(f"torch:{file}:GRU")
    assert workload.settings["hidden"].default == 5
    settings = workload.complete({"loss": "sum_loss", "train": "Adding(20)", "batch_size": 4, "hidden": 7})
    assert workload.shapes_at(settings)["recurrent.weight_hh_l0"] == (21, 7)


@pytest.mark.parametrize("train", ["pairs(20)", "doubled(20)"])
def test_items_of_lists_and_data_sets_are_examples(train: str, file: Path):
    workload = find_workload(f"torch:{file}:Normalized")
    settings = workload.complete({"loss": "label_loss", "train": train, "batch_size": 5})
    inputs, labels = workload.problem(settings, WorkloadRandom("any", 0)).splits["train"].values()
    expected, expected_labels = (tensor.numpy() for tensor in vars(load_file(file))["labelled"](20))
    np.testing.assert_array_equal(inputs, expected * (2 if train == "doubled(20)" else 1))
    np.testing.assert_array_equal(labels, expected_labels)


def test_arrays_in_a_file_are_data(file: Path):
    inputs, labels = (tensor.numpy() for tensor in vars(load_file(file))["labelled"](20))
    np.savez(file.parent / "data.npz", inputs, labels)
    workload = find_workload(f"torch:{file}:Normalized")
    given = {"loss": "label_loss", "batch_size": 5}
    both = [workload.complete({**given, "train": train}) for train in ("data.npz", "labelled(20)")]
    problems = [workload.problem(settings, WorkloadRandom("any", 0)) for settings in both]
    stored, made = (problem.splits["train"] for problem in problems)
    for name, array in made.items():
        np.testing.assert_array_equal(stored[name], array)
    assert workload.data_hashes(both[0]) == workload.data_hashes(both[1])
    others = workload.complete({**given, "train": "labelled(20, seed=1)"})
    assert workload.data_hashes(both[0]) != workload.data_hashes(others)
